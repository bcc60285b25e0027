//! Building with the cargo that started this.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The cargo that started us.
pub fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The program, built as for a release.
pub fn release_build(root: &Path) -> Result<PathBuf> {
    let mut build = Command::new(cargo());
    build.args(["build", "--release", "-p", "bearing-cli"]).current_dir(root);
    if !build.status().context("start cargo")?.success() {
        bail!("the release build failed");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/bearing"))
}
