//! `units`: the units by which systemd runs servers.

use crate::voice::say;
use anyhow::{Context, Result};
use clap::Args;
use std::fs;
use std::path::PathBuf;

const EXAMPLES: &str = "\\
Examples:
  bearing units /etc/systemd/system && systemctl daemon-reload
  systemctl enable --now bearing-metadata@1 bearing-data@1

They run /usr/local/bin/bearing on /var/lib/bearing, which `bearing init` and `bearing join` fill.";

const UNITS: [(&str, &str); 4] = [
    ("bearing-coordinator.service", include_str!("../units/bearing-coordinator.service")),
    ("bearing-flow.service", include_str!("../units/bearing-flow.service")),
    ("bearing-metadata@.service", include_str!("../units/bearing-metadata@.service")),
    ("bearing-data@.service", include_str!("../units/bearing-data@.service")),
];

/// `units`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Units {
    /// The directory for them; made if it is not there
    pub directory: PathBuf,
}

/// Runs `units`.
pub fn write(flags: &Units) -> Result<()> {
    fs::create_dir_all(&flags.directory).with_context(|| format!("make {}", flags.directory.display()))?;
    for (name, text) in UNITS {
        let path = flags.directory.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        say!("{}", path.display())?;
    }
    Ok(())
}
