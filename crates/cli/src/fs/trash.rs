//! `fs trash`: what was removed through mounts with a trash.

use super::paths::absolute;
use crate::failure::Usage;
use crate::names::{lossy, shown};
use anyhow::{Context, Result, bail};
use bearing_mount::session::{LastLink, Session};
use bearing_mount::trash::{Day, Trash, Trashed};
use bearing_types::Uid;
use clap::Subcommand;
use serde_json::json;
use std::ffi::{OsStr, OsString};

const EXAMPLES: &str = "\
Examples:
  bearing mount .bearing mnt -o trash=7        removed files are kept for a week
  bearing fs trash list
  bearing fs trash restore /data/set1          with all that was removed from it
  bearing fs trash empty";

/// `fs trash`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum TrashCommand {
    /// Show what you removed, where it was, and the day after which it goes for good
    List {
        /// What everybody removed (root only)
        #[arg(short, long)]
        all: bool,
    },
    /// Put something back; a directory with all that was removed from it. Of several with one path, the one
    /// removed last
    Restore {
        /// Where it was, as `list` shows it
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<OsString>,
        /// Put it into this directory instead of where it was
        #[arg(long, value_name = "DIRECTORY")]
        to: Option<OsString>,
        /// Look through what everybody removed (root only)
        #[arg(short, long)]
        all: bool,
    },
    /// Remove for good what you removed
    Empty {
        /// What everybody removed (root only)
        #[arg(short, long)]
        all: bool,
    },
    /// Remove for good what was kept long enough (root only); mounts with a trash do it every hour
    Expire,
}

/// Runs `fs trash`.
pub fn run(session: &Session, command: &TrashCommand, as_json: bool) -> Result<()> {
    // What is put into it is not our business, so neither are the days.
    let trash = Trash::new(session.caller().clone(), session.root(), 1);
    match command {
        TrashCommand::List { all } => list(&trash, whose(session, *all)?, as_json),
        TrashCommand::Restore { paths, to, all } => {
            restore(session, &trash, (paths, to.as_deref()), whose(session, *all)?, as_json)
        }
        TrashCommand::Empty { all } => {
            let removed = trash.empty(whose(session, *all)?).context("empty the trash")?;
            tell(as_json, "removed", removed);
            Ok(())
        }
        TrashCommand::Expire => {
            whose(session, true)?;
            let removed = trash.expire(Day::today()).context("remove what was kept long enough")?;
            tell(as_json, "removed", removed);
            Ok(())
        }
    }
}

fn tell(as_json: bool, what: &str, count: u64) {
    if as_json {
        println!("{}", json!({ what: count }));
    } else {
        println!("{what} {count}");
    }
}

/// Nobody but root sees what others removed.
fn whose(session: &Session, all: bool) -> Result<Option<Uid>> {
    let uid = session.who().uid;
    match (all, uid) {
        (true, Uid(0)) => Ok(None),
        (true, _) => bail!(Usage("what others removed is for root alone; leave out --all".to_owned())),
        (false, uid) => Ok(Some(uid)),
    }
}

fn list(trash: &Trash, user: Option<Uid>, as_json: bool) -> Result<()> {
    let things = trash.list(user).context("list the trash")?;
    if as_json {
        let told: Vec<_> = things
            .iter()
            .map(|thing| {
                json!({
                    "path": thing.path.as_deref().map(lossy),
                    "name": lossy(thing.name.as_bytes()),
                    "user": thing.user.0,
                    "until": thing.until.to_string(),
                })
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&told)?);
        return Ok(());
    }
    for thing in &things {
        println!("{}  {:>6}  {}", thing.until, thing.user.0, place(thing));
    }
    Ok(())
}

fn place(thing: &Trashed) -> String {
    match &thing.path {
        Some(path) => shown(path),
        None => format!("(from a directory that is gone) {}", shown(thing.name.as_bytes())),
    }
}

/// Puts back what had these paths, and what was below.
fn restore(
    session: &Session,
    trash: &Trash,
    (paths, to): (&[OsString], Option<&OsStr>),
    user: Option<Uid>,
    as_json: bool,
) -> Result<()> {
    let into = match to {
        Some(to) => Some(session.find(absolute(to)?, LastLink::Follow)?.node),
        None => None,
    };
    let mut things = trash.list(user).context("list the trash")?;
    // Of one path the one that stays longest comes first; a directory comes before what was in it.
    things.sort_by(|a, b| (&a.path, b.until).cmp(&(&b.path, a.until)));
    things.dedup_by(|later, first| later.path.is_some() && later.path == first.path);
    let mut count = 0;
    for path in paths {
        let wanted = absolute(path)?;
        let below = [wanted, b"/"].concat();
        let mut found = false;
        for thing in &things {
            let Some(was) = &thing.path else { continue };
            let is_it = was == wanted;
            if !is_it && !was.starts_with(&below) {
                continue;
            }
            found = true;
            let into = into.filter(|_| is_it);
            trash.restore(thing, into, session.who()).with_context(|| format!("put {} back", shown(was)))?;
            count += 1;
        }
        if !found {
            bail!("{} is not in the trash; `bearing fs trash list` shows what is", shown(wanted));
        }
    }
    tell(as_json, "restored", count);
    Ok(())
}
