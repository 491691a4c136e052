//! What a program that ends at a panic need not hold: functions that are the same byte by byte, once each, and tables for
//! unwinding not at all. Together a fifth of its size. The linker that comes with Rust can leave both out, a system's may not,
//! so the program is linked by the former; with another compiler, or where someone has chosen a linker, it is only larger.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// Says what a panic does, instead of the profile. (What a profile says, Cargo keeps to itself.)
const PANIC: &str = "CARGO_PROFILE_RELEASE_PANIC";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=release.ld");
    println!("cargo::rerun-if-env-changed={PANIC}");
    println!("cargo::rerun-if-env-changed={}", chosen_linker());
    if is_wanted()
        && let Some(folder) = linker()
    {
        let script = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("release.ld");
        println!("cargo::rustc-link-arg-bins=-B{}", folder.display());
        println!("cargo::rustc-link-arg-bins=-fuse-ld=lld");
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", script.display());
    }
}

/// Whether the program is a released one, and nobody has chosen how it is linked.
fn is_wanted() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|is| is == value);
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    is("PROFILE", "release")
        && env::var_os(PANIC).is_none()
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var("HOST") == env::var("TARGET")
        && env::var_os("RUSTC_LINKER").is_none()
        && !["linker", "link-arg", "fuse-ld"].iter().any(|word| flags.contains(word))
}

/// By what name the environment tells Cargo of a linker for this target.
fn chosen_linker() -> String {
    let target = env::var("TARGET").unwrap_or_default();
    format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"))
}

/// The folder in which the compiler keeps its own linker, by the name that a C compiler looks for.
fn linker() -> Option<PathBuf> {
    let output = Command::new(env::var_os("RUSTC")?).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let folder = sysroot.join("lib/rustlib").join(env::var_os("HOST")?).join("bin/gcc-ld");
    fs::exists(folder.join("ld.lld")).ok()?.then_some(folder)
}
