//! The repository that `git clone` copies: small files in a hundred directories and a few commits, the same
//! objects every time.
//!
//! Git itself makes it, from a stream of `git fast-import`, in the directory for temporary files: what is
//! measured only ever reads it.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Directories that files are divided between.
const DIRECTORIES: u32 = 100;
/// Commits; each after the first changes every tenth file.
const COMMITS: u32 = 3;
/// How commits are told apart from each other; any fixed second will do.
const FIRST_SECOND: u64 = 1_700_000_000;
const PERSON: &str = "Bench <bench@example.org>";

/// Whether git can be started.
pub fn git_is_there() -> bool {
    git(Path::new("/")).arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Git, without what the user or the machine has set up: hooks, templates and settings would be measured too.
pub fn git(home: &Path) -> Command {
    let mut git = Command::new("git");
    git.env_clear().env("HOME", home).env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C");
    git.env("PATH", std::env::var_os("PATH").as_deref().unwrap_or(OsStr::new("/usr/bin:/bin")));
    // The name goes into the clone's log.
    git.env("GIT_COMMITTER_NAME", "Bench").env("GIT_COMMITTER_EMAIL", "bench@example.org");
    git.stdin(Stdio::null()).stderr(Stdio::null());
    git
}

/// `git clone` into a directory, by way of packs as from another machine: no link and no file of the
/// repository is taken as it is.
pub fn clone(repository: &Path, into: &str) -> Command {
    let mut command = git(repository.parent().unwrap_or(Path::new("/")));
    command.args(["-c", "advice.detachedHead=false", "clone", "-q", "--no-local", "--template="]);
    command.arg(format!("file://{}", repository.display())).arg(into);
    command
}

/// Bytes of the files of the last commit, so many.
pub fn bytes_of(count: u32) -> u64 {
    (0..count).map(|number| content(number, last_change(number)).len() as u64).sum()
}

/// Makes the repository, without a work tree.
pub fn make(path: &Path, count: u32) -> Result<()> {
    let home = path.parent().context("a repository lies in a directory")?;
    let mut init = git(home);
    init.args(["-c", "init.defaultBranch=main", "init", "-q", "--bare", "--template="]).arg(path);
    if !init.status().context("start git init")?.success() {
        bail!("git init {} failed", path.display());
    }
    let mut import = git(home);
    import.arg("--git-dir").arg(path).args(["fast-import", "--quiet"]);
    let mut child =
        import.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().context("start git fast-import")?;
    let orders = child.stdin.take().expect("asked for");
    let written = write_stream(BufWriter::new(orders), count);
    let output = child.wait_with_output().context("wait for git fast-import")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("git fast-import ended with {}: {}", output.status, said.trim());
    }
    written.context("write to git fast-import")
}

fn write_stream(mut out: impl Write, count: u32) -> std::io::Result<()> {
    for commit in 0..COMMITS {
        let second = FIRST_SECOND + u64::from(commit);
        writeln!(out, "commit refs/heads/main\ncommitter {PERSON} {second} +0000\ndata 6\nchange")?;
        for number in (0..count).filter(|number| changed_in(*number, commit)) {
            let bytes = content(number, commit);
            writeln!(out, "M 644 inline {}\ndata {}\n{bytes}", name(number), bytes.len())?;
        }
    }
    writeln!(out, "done")?;
    out.flush()
}

fn name(number: u32) -> String {
    format!("dir.{}/file.{number}", number % DIRECTORIES)
}

fn changed_in(number: u32, commit: u32) -> bool {
    commit == 0 || number % 10 == commit
}

fn last_change(number: u32) -> u32 {
    (0..COMMITS).rev().find(|commit| changed_in(number, *commit)).unwrap_or(0)
}

/// Text as of a source: 512 bytes to 8 KiB, about 4 KiB on average, that packs to about a third.
fn content(number: u32, commit: u32) -> String {
    let size = super::archive::size_of(number) as usize;
    let mut text = format!("file {number}, commit {commit}\n");
    // Numerical Recipes' linear congruence: it need not be good, only the same everywhere.
    let mut draw = number;
    while text.len() < size {
        draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        writeln!(text, "let word_{} = {:08x};", draw >> 24, draw).expect("a string takes everything");
    }
    text.truncate(size);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_has_the_files_that_were_meant_and_two_repositories_are_the_same() {
        if !git_is_there() {
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let heads = ["one", "two"].map(|name| {
            let path = place.path().join(name);
            make(&path, 30).expect("made");
            std::fs::read_to_string(path.join("refs/heads/main")).expect("a branch")
        });
        assert_eq!(heads[0], heads[1]);
        let into = place.path().join("clone");
        let status = clone(&place.path().join("one"), into.to_str().expect("text")).status();
        assert!(status.expect("git is there").success());
        let sizes = (0..30).map(|number| into.join(name(number)).metadata().expect("a file").len());
        assert_eq!(sizes.sum::<u64>(), bytes_of(30));
        let file = std::fs::read_to_string(into.join(name(2))).expect("a file");
        assert!(file.starts_with("file 2, commit 2\n"), "{file}");
    }
}
