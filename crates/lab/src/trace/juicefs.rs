//! The access log of a JuiceFS mount: `2022.05.11 11:35:57.267 [uid:501,gid:20,pid:44307] lookup
//! (1,file_9745): OK (15213,[...]) <0.000234>`. Files are named by inode numbers; names are learnt from
//! lookups and creations, so files that were open before it began are known by number only. The mount is one
//! client, for all processes that ask it: its caches are those of all its processes.

use super::event::{Event, Kind, Parsed, Parser};
use super::handles::Handles;
use super::time::{days, microseconds};

/// The inode of the root.
const ROOT: u64 = 1;
/// Longer names there are not.
const NAME_MAX: usize = 255;
/// The one client.
const MOUNT: u64 = 1;

pub(super) struct JuiceFs {
    inodes: Handles,
}

impl Default for JuiceFs {
    fn default() -> JuiceFs {
        JuiceFs { inodes: Handles::below(ROOT) }
    }
}

/// `a (b): c` without the duration: the operation, what it was given and what came of it.
fn parts(text: &str) -> Option<(&str, &str, &str)> {
    let (operation, rest) = text.split_once(" (")?;
    // A name may have any of these in it; what is said of the result follows the last.
    let end = rest.rfind("): ").or_else(|| rest.rfind(") - "))?;
    let (given, result) = rest.split_at(end);
    // "lookup (1,a): OK (5,[..])" has another "): " nowhere, but a name might.
    Some((operation.trim(), given, result[2..].trim_start_matches([':', ' ', '-'])))
}

fn leading_number(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Of "name,-rw-r--r--:0100644" or "name,prw-r--r--:010644,0x0" the name, which may have commas in it.
fn made_name(text: &str) -> &str {
    let cut = |text: &'_ str, is: fn(&str) -> bool| -> usize {
        text.rsplit_once(',').filter(|(_, last)| is(last)).map_or(text.len(), |(before, _)| before.len())
    };
    let text = &text[..cut(text, |last| last.starts_with("0x"))];
    let is_mode = |last: &str| {
        let mode = last.split_once(':').map_or("", |(mode, _)| mode);
        mode.len() >= 10 && mode.starts_with(['-', 'd', 'l', 'p', 'c', 'b', 's', '?'])
    };
    &text[..cut(text, is_mode)]
}

/// Of "name,target" the name. A target that is a path says where it begins; else neither has a comma.
fn link_name(text: &str) -> &str {
    let at = [",/", ",./", ",../"].iter().filter_map(|begins| text.find(begins)).min();
    &text[..at.or_else(|| text.find(',')).unwrap_or(text.len())]
}

impl JuiceFs {
    /// Of "old name,new parent,new name[,flags]" all three. Names may have commas in them and be numbers:
    /// what is known of them decides. `None`: nothing does.
    fn renamed<'a>(&self, from: u64, text: &'a str) -> Option<(&'a str, u64, &'a str)> {
        let mut possible = Vec::new();
        for (comma, _) in text.match_indices(',') {
            let (old, rest) = (&text[..comma], &text[comma + 1..]);
            if old.len() > NAME_MAX {
                break;
            }
            let Some((parent, new)) = rest.split_once(',') else { continue };
            let Ok(parent) = parent.parse::<u64>() else { continue };
            let new = match new.rsplit_once(',') {
                Some((name, flags)) if flags.bytes().all(|digit| digit.is_ascii_digit()) => name,
                _ => new,
            };
            let known = 2 * u8::from(self.inodes.knows_name(from, old)) + u8::from(self.inodes.knows(parent));
            possible.push((known, (old, parent, new)));
        }
        let most = possible.iter().map(|(known, _)| *known).max()?;
        let mut best = possible.into_iter().filter(|(known, _)| *known == most).map(|(_, names)| names);
        best.next().filter(|_| best.next().is_none())
    }

    fn event(&mut self, at: i64, operation: &str, given: &str, result: &str) -> Parsed {
        let event =
            |kind, path: String, to| Parsed::Event(at, Event { at_us: 0, client: MOUNT, kind, path, to });
        let Some(first) = leading_number(given) else { return Parsed::Other(operation.to_owned()) };
        let behind = given.split_once(',').map_or("", |(_, behind)| behind);
        let is_done = result == "OK" || result.starts_with("OK ");
        let made = result.strip_prefix("OK (").and_then(leading_number);
        let named = |this: &mut JuiceFs, name: &str| {
            let path = this.inodes.child(first, name);
            made.into_iter().for_each(|inode| this.inodes.learn(inode, first, name));
            path
        };
        let kind = match operation {
            "lookup" => return event(Kind::Lookup, named(self, behind), None),
            "create" | "mknod" => return event(Kind::Create, named(self, made_name(behind)), None),
            "mkdir" => return event(Kind::MakeDirectory, named(self, made_name(behind)), None),
            "symlink" => return event(Kind::Create, named(self, link_name(behind)), None),
            "unlink" => return event(Kind::Remove, self.inodes.child(first, behind), None),
            "rmdir" => return event(Kind::RemoveDirectory, self.inodes.child(first, behind), None),
            "rename" => {
                let Some((old, parent, new)) = self.renamed(first, behind) else {
                    return Parsed::Malformed("the names of a rename cannot be told from its numbers");
                };
                let (path, to) = (self.inodes.child(first, old), self.inodes.child(parent, new));
                if is_done {
                    self.inodes.rename((first, old), (parent, new));
                }
                return event(Kind::Rename, path, Some(to));
            }
            "link" => {
                // inode,new parent,new name
                let Some((parent, new)) = behind.split_once(',') else {
                    return Parsed::Malformed("a link has no new name");
                };
                let Ok(parent) = parent.parse() else { return Parsed::Malformed("a link has no new parent") };
                return event(Kind::Link, self.inodes.path(first), Some(self.inodes.child(parent, new)));
            }
            "getattr" | "access" | "readlink" | "getxattr" | "listxattr" => Kind::Lookup,
            "opendir" | "readdir" | "readdirplus" => Kind::List,
            "open" => Kind::Open,
            "release" | "releasedir" => Kind::Close,
            "setattr" | "truncate" | "setxattr" | "removexattr" | "fallocate" => Kind::Update,
            "read" => Kind::Read,
            "write" => Kind::Write,
            other => return Parsed::Other(other.to_owned()),
        };
        let path = self.inodes.path(first);
        event(kind, if path.is_empty() { "/".to_owned() } else { path }, None)
    }
}

impl Parser for JuiceFs {
    fn line(&mut self, line: &str) -> Parsed {
        if line.starts_with('#') {
            return Parsed::Nothing;
        }
        let Some(at) = time(line) else {
            return Parsed::Malformed("it does not begin with a date and a time");
        };
        let Some((_, rest)) = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else {
            return Parsed::Malformed("it has no [uid:..,gid:..,pid:..]");
        };
        let rest = rest.trim_start();
        let rest = rest.rsplit_once(" <").map_or(rest, |(rest, _)| rest);
        match parts(rest) {
            Some((operation, given, result)) => self.event(at, operation, given, result),
            None => Parsed::Malformed("it has no operation (..): result"),
        }
    }
}

/// `2022.05.11 11:35:57.267` with three or six digits behind the point, as microseconds since 1970.
fn time(line: &str) -> Option<i64> {
    let (date, rest) = line.split_once(' ')?;
    let clock = rest.split(' ').next()?;
    let mut date = date.split('.').map(|part| part.parse::<i64>().ok());
    let day = days(date.next()??, date.next()??, date.next()??)?;
    let mut clock = clock.splitn(3, ':');
    let (hours, minutes) = (clock.next()?.parse::<i64>().ok()?, clock.next()?.parse::<i64>().ok()?);
    let seconds = microseconds(clock.next()?)?;
    (day.checked_mul(86_400)?.checked_add(hours.checked_mul(3600)?)?.checked_add(minutes.checked_mul(60)?)?)
        .checked_mul(1_000_000)?
        .checked_add(seconds)
}
