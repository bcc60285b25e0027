//! `fs quota`: limits of directories.

use super::paths::absolute;
use crate::failure::Usage;
use crate::names::shown;
use anyhow::{Result, bail};
use bearing_mount::session::{LastLink, PathError, Reason, Session};
use bearing_types::{Amount, Code};
use clap::Subcommand;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const EXAMPLES: &str = "\
Examples:
  bearing fs mkdir /team && bearing fs quota set /team --space 10G --entries 1M
  bearing fs quota get /team/set1              the quota of /team, which counts it
  df -h mnt/team                               the same through a mount
  bearing fs quota clear /team";

/// `fs quota`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum QuotaCommand {
    /// Set limits (root only). A directory gets its first ones while it is empty; a limit that is not named
    /// stays as it is
    Set {
        /// The directory
        directory: OsString,
        /// At most so many bytes of files: 500M, 10G, 2T (powers of 1024)
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        space: Option<u64>,
        /// At most so many names: 5000, 20K, 1M (powers of 1000)
        #[arg(long, value_name = "COUNT", value_parser = count)]
        entries: Option<u64>,
    },
    /// Show the quota that counts a file or directory, and what is used of it
    Get {
        /// The file or directory
        #[arg(default_value = "/")]
        path: OsString,
    },
    /// Take the limits away (root only); what is used is counted on
    Clear {
        /// The directory
        directory: OsString,
    },
}

/// Runs `fs quota`.
pub fn run(session: &Session, command: &QuotaCommand, as_json: bool) -> Result<()> {
    match command {
        QuotaCommand::Set { directory, space, entries } => set(session, directory, *space, *entries),
        QuotaCommand::Get { path } => get(session, path, as_json),
        QuotaCommand::Clear { directory } => {
            if own_limit(session, directory)?.is_none() {
                bail!(Usage(format!("{} has no quota of its own", shown(directory.as_bytes()))));
            }
            Ok(session.set_quota(absolute(directory)?, Amount::UNLIMITED)?)
        }
    }
}

fn set(session: &Session, directory: &OsStr, space: Option<u64>, entries: Option<u64>) -> Result<()> {
    if space.is_none() && entries.is_none() {
        bail!(Usage("name a limit: --space BYTES, --entries COUNT, or both".to_owned()));
    }
    let before = own_limit(session, directory)?.unwrap_or(Amount::UNLIMITED);
    let limit = Amount { space: space.unwrap_or(before.space), entries: entries.unwrap_or(before.entries) };
    match session.set_quota(absolute(directory)?, limit) {
        Err(PathError { reason: Reason::Refused(Code::NotEmpty), .. }) => bail!(
            "{directory} is not empty: a directory gets its first quota while it is. Make a new one, set its quota, and move what is in \
             {directory} there by copying",
            directory = shown(directory.as_bytes())
        ),
        other => Ok(other?),
    }
}

/// The limit that a directory itself has.
fn own_limit(session: &Session, directory: &OsStr) -> Result<Option<Amount>> {
    let path = absolute(directory)?;
    let node = session.find(path, LastLink::Follow)?.node;
    Ok(session.quota(path)?.filter(|quota| quota.directory == node).map(|quota| quota.limit))
}

fn get(session: &Session, path: &OsStr, as_json: bool) -> Result<()> {
    let quota = session.quota(absolute(path)?)?;
    let limited = |limit: u64| (limit != u64::MAX).then_some(limit);
    if as_json {
        let told = quota.map(|quota| {
            json!({
                "space": { "limit": limited(quota.limit.space), "used": quota.used.space },
                "entries": { "limit": limited(quota.limit.entries), "used": quota.used.entries },
            })
        });
        println!("{}", json!({ "quota": told }));
        return Ok(());
    }
    let Some(quota) = quota else {
        println!("{} is counted by no quota", shown(path.as_bytes()));
        return Ok(());
    };
    let told = |limit: u64| limited(limit).map_or("no limit".to_owned(), |limit| limit.to_string());
    println!("space    {} of {} bytes", quota.used.space, told(quota.limit.space));
    println!("entries  {} of {}", quota.used.entries, told(quota.limit.entries));
    Ok(())
}

/// A number of bytes: 500M, 10G.
fn bytes(text: &str) -> Result<u64, String> {
    scaled(text, 1024, "bytes, like 500M, 10G or 2T")
}

/// A number of names: 20K, 1M.
fn count(text: &str) -> Result<u64, String> {
    scaled(text, 1000, "names, like 5000, 20K or 1M")
}

fn scaled(text: &str, step: u64, what: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no number of {what}");
    let (digits, power) = match text.char_indices().next_back() {
        Some((at, unit)) if !unit.is_ascii_digit() => {
            let power = "KMGTP".find(unit.to_ascii_uppercase()).ok_or_else(wrong)?;
            (&text[..at], power as u32 + 1)
        }
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    step.checked_pow(power).and_then(|unit| number.checked_mul(unit)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_numbers_with_units() {
        assert_eq!((bytes("10G"), bytes("7"), bytes("1k")), (Ok(10 << 30), Ok(7), Ok(1024)));
        assert_eq!((count("1M"), count("20K")), (Ok(1_000_000), Ok(20_000)));
        for text in ["", "G", "-1", "1X", "1.5G", "99999999999P", "10\u{e9}"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
