//! Packs the chart library for the HTML report: `echarts-5.5.1.min.js` out of the `charming` crate's own package, so
//! that a build needs no download of its own and a report no network.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "report")]
    report::pack();
}

#[cfg(feature = "report")]
mod report {
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::{env, fs};

    use sha2::{Digest, Sha256};

    const SCRIPT: &str = "src/asset/echarts-5.5.1.min.js";
    /// Of the script in charming 0.6.0: what goes into every report is known byte by byte.
    const SHA256: &str = "e84270bd0cd5bdf60fefc26d00c2a391cb2e81f4d26a7a9ee16185a54773a3cf";
    /// Asks for the version that this package's own manifest asks for. A workspace, so that none is looked for above it.
    const MANIFEST: &str = r#"
[package]
name = "charming-source"
version = "0.0.0"
edition = "2021"

[lib]
path = "lib.rs"

[dependencies]
charming = { version = "=0.6.0", default-features = false }

[workspace]
"#;

    pub fn pack() {
        let path = charming().join(SCRIPT);
        let script = fs::read(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
        let found: String = Sha256::digest(&script).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, SHA256, "{} is not the script that this build knows", path.display());
        let out = variable("OUT_DIR").join("echarts.js.gz");
        fs::write(&out, gzip(&script)).unwrap_or_else(|e| panic!("cannot write {}: {e}", out.display()));
    }

    fn variable(name: &str) -> PathBuf {
        env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}")).into()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).expect("a Vec takes everything");
        encoder.finish().expect("a Vec takes everything")
    }

    /// The folder of charming's source. It stands in the manifest as a dependency of no target: locked, fetched and
    /// vendored like any other, but never compiled.
    ///
    /// Asked offline first: a build from a registry cache or a vendor folder must do. The second try is for a fresh
    /// checkout, where `cargo metadata` downloads charming.
    fn charming() -> PathBuf {
        let manifest = manifest();
        metadata(&manifest, &["--offline"]).or_else(|_| metadata(&manifest, &[])).unwrap_or_else(|fault| {
            panic!("cannot find the charming crate, which holds the report's chart library: {fault}; run `cargo fetch`")
        })
    }

    /// Of a package that needs charming and nothing else. This package's own would ask for its siblings, which a registry
    /// lacks until they are published.
    fn manifest() -> PathBuf {
        let folder = variable("OUT_DIR").join("charming");
        fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("cannot make {}: {e}", folder.display()));
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, bytes).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
            path
        };
        write("lib.rs", b"");
        // The versions that this build locks, not the newest ones; a package has its lock beside its manifest, a checkout above.
        let locks = variable("CARGO_MANIFEST_DIR");
        if let Some(lock) = locks.ancestors().find_map(|folder| fs::read(folder.join("Cargo.lock")).ok()) {
            write("Cargo.lock", &lock);
        }
        write("Cargo.toml", MANIFEST.as_bytes())
    }

    /// It runs where this package's manifest lies, so that Cargo's configuration (a vendor folder, a mirror) holds.
    fn metadata(manifest: &Path, more: &[&str]) -> Result<PathBuf, String> {
        let output = Command::new(variable("CARGO"))
            .args(["metadata", "--format-version=1", "--manifest-path"])
            .arg(manifest)
            .args(more)
            .current_dir(variable("CARGO_MANIFEST_DIR"))
            .output()
            .map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().into());
        }
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
        let packages = metadata["packages"].as_array().ok_or("it lists no packages")?;
        let charming = packages.iter().find(|p| p["name"] == "charming").ok_or("it is not among the packages")?;
        let manifest = Path::new(charming["manifest_path"].as_str().ok_or("it has no manifest")?);
        manifest.parent().map(Path::to_path_buf).ok_or_else(|| "its manifest has no folder".into())
    }
}
