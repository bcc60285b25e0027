//! etcd's own server for tests, in `target/etcd`: built from its Go module (`xtask/etcd`), because the one
//! that Debian packages is too old.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::stage::ran;

/// Builds it, if Go is there. Else the tests that need it are skipped, and say so.
pub fn build(root: &Path) -> Result<()> {
    let module = root.join("xtask/etcd");
    // Go by its usual place too: it is in nobody's PATH after its own installation.
    let paths = std::env::var("PATH").unwrap_or_default() + ":/usr/local/go/bin";
    let go = || {
        let mut go = Command::new("go");
        go.current_dir(&module).env("PATH", &paths).env("CGO_ENABLED", "0");
        go
    };
    // The module names the release of Go that it needs; one from 1.21 on fetches that by itself.
    let usable = go().args(["list", "-m"]).output().is_ok_and(|output| output.status.success());
    if !usable {
        println!(
            "SKIPPED: etcd is not built, so its tests are skipped: that takes Go 1.21 or newer (https://go.dev)"
        );
        return Ok(());
    }
    let target = root.join("target/etcd/etcd");
    ran(go().args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]).arg(&target).arg("."))
        .context("build etcd")
}
