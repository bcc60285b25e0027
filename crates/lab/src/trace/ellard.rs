//! NFS packets as text (Ellard and others): `time source destination T C3 xid 3 lookup fh .. name "x" ..` for
//! a call, `R3 .. OK fh ..` for the reply to the call with the same xid. Handles are named by calls of lookup
//! and create with their replies; those of which neither was recorded are known by number only.

use super::event::{Event, Kind, Parsed, Parser, client_of};
use super::handles::Handles;
use super::time::microseconds;
use std::collections::{HashMap, VecDeque};

/// What a reply will tell.
enum Awaited {
    /// The handle of this name in this directory.
    Handle(u64, String),
    /// That one became the other.
    Renamed((u64, String), (u64, String)),
}

/// Calls whose reply may still teach a name; of more, the oldest are forgotten.
const CALLS_MAX: usize = 65_536;

#[derive(Default)]
pub(super) struct Ellard {
    handles: Handles,
    /// By client and xid.
    calls: HashMap<(u64, String), Awaited>,
    order: VecDeque<(u64, String)>,
}

/// What stands behind a word, up to the next space.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let at = text.match_indices(word).map(|(at, _)| at).find(|at| {
        let starts = *at == 0 || text.as_bytes()[at - 1] == b' ';
        starts && text.as_bytes().get(at + word.len()) == Some(&b' ')
    })?;
    text[at + word.len() + 1..].split(' ').next()
}

/// A name in quotes behind a word. It may have spaces, not quotes.
fn quoted<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let begin = text.match_indices(word).map(|(at, _)| at + word.len()).find(|at| {
        let before = at - word.len();
        (before == 0 || text.as_bytes()[before - 1] == b' ') && text[*at..].starts_with(" \"")
    })?;
    text[begin + 2..].split('"').next()
}

/// The first or the second (`2`) name of a call: version 3 writes `name`, version 2 `fn`.
fn name_of<'a>(rest: &'a str, which: &str) -> Option<&'a str> {
    quoted(rest, &format!("name{which}")).or_else(|| quoted(rest, &format!("fn{which}")))
}

fn number_of(handle: &str) -> u64 {
    client_of(handle.as_bytes())
}

impl Ellard {
    fn call(&mut self, at: i64, client: u64, xid: &str, operation: &str, rest: &str) -> Parsed {
        let Some(handle) = after(rest, "fh").map(number_of) else {
            return match operation {
                "null" | "commit" | "fsstat" | "statfs" | "fsinfo" | "pathconf" => {
                    Parsed::Other(operation.to_owned())
                }
                _ => Parsed::Malformed("a call has no fh"),
            };
        };
        let event = |kind, path: String, to| Parsed::Event(at, Event { at_us: 0, client, kind, path, to });
        let kind = match operation {
            "lookup" => Kind::Lookup,
            "create" | "mknod" | "symlink" => Kind::Create,
            "mkdir" => Kind::MakeDirectory,
            "remove" => Kind::Remove,
            "rmdir" => Kind::RemoveDirectory,
            "getattr" | "access" | "readlink" => Kind::Lookup,
            "setattr" => Kind::Update,
            "readdir" | "readdirp" | "readdirplus" => Kind::List,
            "read" => Kind::Read,
            "write" => Kind::Write,
            "rename" | "link" => {
                let target = after(rest, "fh2").map(number_of);
                let kind = if operation == "rename" { Kind::Rename } else { Kind::Link };
                let new = if kind == Kind::Rename { name_of(rest, "2") } else { name_of(rest, "") };
                let (Some(target), Some(new)) = (target, new) else {
                    return Parsed::Malformed("a rename or a link has no new name");
                };
                let to = self.handles.child(target, new);
                let old = if kind == Kind::Rename { name_of(rest, "").unwrap_or("") } else { "" };
                if kind == Kind::Rename {
                    let renamed = Awaited::Renamed((handle, old.to_owned()), (target, new.to_owned()));
                    self.await_reply((client, xid.to_owned()), renamed);
                }
                return event(kind, self.handles.child(handle, old), Some(to));
            }
            other => return Parsed::Other(other.to_owned()),
        };
        let name = name_of(rest, "");
        if let Some(name) =
            name.filter(|_| matches!(operation, "lookup" | "create" | "mkdir" | "mknod" | "symlink"))
        {
            let awaited = Awaited::Handle(handle, name.to_owned());
            self.await_reply((client, xid.to_owned()), awaited);
        }
        event(kind, self.handles.child(handle, name.unwrap_or("")), None)
    }

    fn await_reply(&mut self, call: (u64, String), awaited: Awaited) {
        if self.calls.insert(call.clone(), awaited).is_none() {
            self.order.push_back(call);
        }
        if self.order.len() > CALLS_MAX {
            self.order.pop_front().map(|oldest| self.calls.remove(&oldest));
        }
    }

    fn reply(&mut self, client: u64, xid: &str, rest: &str) {
        let Some(awaited) = self.calls.remove(&(client, xid.to_owned())) else { return };
        let is_done = rest == "OK" || rest.starts_with("OK ");
        match awaited {
            Awaited::Handle(directory, name) => {
                if let Some(handle) = is_done.then(|| after(rest, "fh")).flatten() {
                    self.handles.learn(number_of(handle), directory, &name);
                }
            }
            Awaited::Renamed((from, old), (to, new)) if is_done => {
                self.handles.rename((from, &old), (to, &new));
            }
            Awaited::Renamed(..) => {}
        }
    }
}

impl Parser for Ellard {
    fn line(&mut self, line: &str) -> Parsed {
        let mut words = line.splitn(9, ' ');
        let mut next = || words.next().unwrap_or("");
        let (at, source, destination, _, what, xid) = (next(), next(), next(), next(), next(), next());
        let (_, operation, rest) = (next(), next(), next());
        let Some(at) = microseconds(at) else { return Parsed::Malformed("it does not begin with seconds") };
        match what {
            "C2" | "C3" => self.call(at, client_of(source.as_bytes()), xid, operation, rest),
            "R2" | "R3" => {
                self.reply(client_of(destination.as_bytes()), xid, rest);
                Parsed::Nothing
            }
            _ => Parsed::Malformed("it is neither a call (C2, C3) nor a reply (R2, R3)"),
        }
    }
}
