//! `completions` and `man`: what shells and man(1) want to know of the command line, made from its one
//! description.

use crate::args::Arguments;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap::builder::{Resettable, StyledStr};
use clap_complete::Shell;
use clap_mangen::Man;
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
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    write_page(&command, directory)?;
    Ok(writeln!(io::stdout(), "manual pages are in {}", directory.display())?)
}

/// The page of a command, and those of its own commands.
fn write_page(command: &clap::Command, directory: &Path) -> Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_page(inner, directory)?;
    }
    let examples = command.get_after_help().map(|text| text.to_string());
    // Its own way of writing them would fill their lines as if they were prose.
    let man = Man::new(command.clone().after_help(Resettable::<StyledStr>::Reset));
    let mut page = Vec::new();
    man.render(&mut page).context("render a manual page")?;
    page.extend(examples.map(|text| section("EXAMPLES", &text)).unwrap_or_default().bytes());
    let path = directory.join(man.get_filename());
    fs::write(&path, page).with_context(|| format!("write {}", path.display()))
}

/// Lines as they are, in the language of manual pages.
fn section(title: &str, text: &str) -> String {
    let text = text.strip_prefix("Examples:\n").unwrap_or(text);
    // A backslash begins a command anywhere, a dot and an apostrophe at the beginning of a line.
    let lines = text.lines().map(|line| format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-")));
    format!(".SH {title}\n.nf\n{}.fi\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines_in_a_manual_page() {
        let page = section("EXAMPLES", "Examples:\n  a --b\n.c 'd' \\e");
        assert_eq!(page, ".SH EXAMPLES\n.nf\n\\&  a \\-\\-b\n\\&.c 'd' \\ee\n.fi\n");
    }
}
