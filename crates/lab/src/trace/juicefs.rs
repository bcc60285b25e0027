//! The access log of a JuiceFS mount: `2022.05.11 11:35:57.267 [uid:501,gid:20,pid:44307] lookup
//! (1,file_9745): OK (15213,[...]) <0.000234>`. Files are named by inode numbers; names are learnt from
//! lookups and creations, so files that were open before it began are known by number only.

use super::event::{Event, Kind, Parsed, Parser, client_of};
use super::handles::Handles;
use super::time::{days, microseconds};

/// The inode of the root.
const ROOT: u64 = 1;

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

impl JuiceFs {
    fn event(&mut self, at: i64, client: u64, operation: &str, given: &str, result: &str) -> Parsed {
        let event = |kind, path: String, to| Parsed::Event(at, Event { at_us: 0, client, kind, path, to });
        let Some(first) = leading_number(given) else { return Parsed::Other(operation.to_owned()) };
        let behind = given.split_once(',').map_or("", |(_, behind)| behind);
        let made = result.strip_prefix("OK (").and_then(leading_number);
        // Of "1,name,-rw-r--r--:0100644" the last part is no name.
        let name = |parts: usize| {
            let mut name = behind;
            (0..parts).for_each(|_| name = name.rsplit_once(',').map_or(name, |(name, _)| name));
            name
        };
        let named = |this: &mut JuiceFs, name: &str| {
            let path = this.inodes.child(first, name);
            made.into_iter().for_each(|inode| this.inodes.learn(inode, first, name));
            path
        };
        let kind = match operation {
            "lookup" => return event(Kind::Lookup, named(self, name(0)), None),
            "create" | "mknod" => {
                return event(Kind::Create, named(self, name(usize::from(behind.contains(',')))), None);
            }
            "mkdir" => {
                return event(
                    Kind::MakeDirectory,
                    named(self, name(usize::from(behind.contains(',')))),
                    None,
                );
            }
            "symlink" => return event(Kind::Create, named(self, name(1)), None),
            "unlink" => return event(Kind::Remove, self.inodes.child(first, behind), None),
            "rmdir" => return event(Kind::RemoveDirectory, self.inodes.child(first, behind), None),
            "rename" => {
                // old parent,old name,new parent,new name[,flags]
                let parts: Vec<&str> = behind.split(',').collect();
                let parent =
                    (1..parts.len().saturating_sub(1)).find_map(|at| Some((at, parts[at].parse().ok()?)));
                let Some((at_part, parent)) = parent else {
                    return Parsed::Malformed("a rename has no new parent");
                };
                let (old, new) = (parts[..at_part].join(","), parts[at_part + 1]);
                let (path, to) = (self.inodes.child(first, &old), self.inodes.child(parent, new));
                made.into_iter().for_each(|inode| self.inodes.learn(inode, parent, new));
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
        let Some((who, rest)) = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else {
            return Parsed::Malformed("it has no [uid:..,gid:..,pid:..]");
        };
        let rest = rest.trim_start();
        let rest = rest.rsplit_once(" <").map_or(rest, |(rest, _)| rest);
        match parts(rest) {
            Some((operation, given, result)) => {
                self.event(at, client_of(who.as_bytes()), operation, given, result)
            }
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
