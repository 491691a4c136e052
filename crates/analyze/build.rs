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

    pub fn pack() {
        let path = charming().join(SCRIPT);
        let script = fs::read(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
        let found: String = Sha256::digest(&script).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, SHA256, "{} is not the script that this build knows", path.display());
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("echarts.js.gz");
        fs::write(&out, gzip(&script)).unwrap_or_else(|e| panic!("cannot write {}: {e}", out.display()));
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).expect("a Vec takes everything");
        encoder.finish().expect("a Vec takes everything")
    }

    /// The folder of charming's source. It stands in the manifest as a dependency of no target: locked, fetched and
    /// vendored like any other, but never compiled, so `cargo metadata` must not filter by platform.
    ///
    /// Asked offline first: a build from a registry cache or a vendor folder must do. The second try is for a fresh
    /// checkout, where `cargo metadata` downloads charming and whatever else this build did not need.
    fn charming() -> PathBuf {
        metadata(&["--offline"]).or_else(|_| metadata(&[])).unwrap_or_else(|fault| {
            panic!("cannot find the charming crate, which holds the report's chart library: {fault}; run `cargo fetch`")
        })
    }

    fn metadata(more: &[&str]) -> Result<PathBuf, String> {
        let output = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"))
            .args(["metadata", "--format-version=1", "--manifest-path"])
            .arg(Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("Cargo.toml"))
            .args(more)
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
