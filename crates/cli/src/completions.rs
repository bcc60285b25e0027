//! `completions` and `man`: what shells and man(1) want to know of the command line, made from its one description.

use crate::args::Arguments;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Prints the completions of a shell.
pub fn print(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "bearing", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// Writes a manual page for each command.
pub fn write_pages(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    let command = Arguments::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory)
        .with_context(|| format!("write manual pages into {}", directory.display()))?;
    Ok(writeln!(io::stdout(), "manual pages are in {}", directory.display())?)
}
