//! The tree that is measured on: one big directory with a fifth of the entries, and small ones of 800.
//!
//! Grants are renewed as a mount does it: when the lease on a directory's access attributes runs out, its
//! home is asked again.

use super::drive::{Load, Loop, Until, Work};
use super::link::Link;
use anyhow::{Context, Result, bail};
use bearing_env::Clock;
use bearing_placement::position_of_session;
use bearing_proto::client::{Body, Call, DirectoryView, Handle, NewNode};
use bearing_proto::grant::Grant;
use bearing_types::{
    Code, Credentials, FileType, FilesystemId, Gid, Mode, Mono, Name, NameHash, Position, SessionId, Uid,
};
use std::time::Duration;

/// Entries of the big directory and of one small one, together.
const GROUP: u32 = 1_000;
/// Of these, every so many goes into the big one.
const BIG_SHARE: u32 = 5;
/// The session is renewed so often; it would end after 30 s.
const RENEW: Duration = Duration::from_secs(5);
/// A renewal that is under way is not asked for again within this time.
const RENEWING: Duration = Duration::from_millis(200);
/// A lease is taken to end so much earlier, for the way of the answer.
const LEASE_MARGIN: Duration = Duration::from_millis(5);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The entry with this number.
    Entry(u32),
    /// The grant of a directory.
    Directory(u32),
    /// That the session goes on.
    Session,
}

impl Ask {
    /// A renewal may not: the other operations for its tablet may be too few to fill a datagram in time.
    pub fn may_wait(self) -> bool {
        matches!(self, Ask::Entry(_))
    }
}

struct Directory {
    handle: Handle,
    grant: Grant,
    good_until: Mono,
}

/// See the module.
pub struct Tree {
    session: SessionId,
    directories: Vec<Directory>,
    names: Vec<Name>,
    renew_session_at: Mono,
}

impl Tree {
    /// The number of entries.
    pub fn len(&self) -> u32 {
        self.names.len() as u32
    }

    /// The number of directories, the root not counted.
    pub fn directory_count(&self) -> usize {
        self.directories.len()
    }

    /// The directory of an entry: number 0 is the big one.
    pub fn directory_of(entry: u32) -> u32 {
        if entry.is_multiple_of(BIG_SHARE) { 0 } else { 1 + entry / GROUP }
    }

    /// What has to be asked before a directory is used, if anything.
    pub fn due(&mut self, directory: u32, now: Mono) -> Option<Ask> {
        if now >= self.renew_session_at {
            self.renew_session_at = now.after(RENEW);
            return Some(Ask::Session);
        }
        let used = &mut self.directories[directory as usize];
        if now >= used.good_until {
            used.good_until = now.after(RENEWING);
            return Some(Ask::Directory(directory));
        }
        None
    }

    /// Keeps the session while something else is measured.
    pub fn keep_session(&mut self, link: &mut Link, requests: &mut Loop<Ask>) -> Result<()> {
        if Clock.mono() >= self.renew_session_at { self.renew_session(link, requests) } else { Ok(()) }
    }

    /// Renews the session, however young it is.
    pub fn renew_session(&mut self, link: &mut Link, requests: &mut Loop<Ask>) -> Result<()> {
        let now = Clock.mono();
        one(link, requests, position_of_session(self.session), Call::RenewSession)?;
        self.renew_session_at = now.after(RENEW);
        Ok(())
    }

    /// A lookup of an entry, by somebody who is neither owner nor root.
    pub fn lookup(&self, entry: u32) -> (Position, Call) {
        let grant = &self.directories[Tree::directory_of(entry) as usize].grant;
        let name = &self.names[entry as usize];
        let position = grant.body.seat.position_of(NameHash::of(grant.body.name_key, name));
        (position, Call::Lookup { grant: grant.clone(), who: visitor(), name: name.clone() })
    }

    /// The creation of a file.
    pub fn create(&self, directory: u32, name: Name) -> (Position, Call) {
        let grant = self.directories[directory as usize].grant.clone();
        let position = grant.body.seat.position_of(NameHash::of(grant.body.name_key, &name));
        let new =
            NewNode { file_type: FileType::Regular, mode: Mode::new(0o644), device: 0, target: Vec::new() };
        (position, Call::Create { grant, who: Credentials::ROOT, name, new })
    }

    /// What a renewal asks.
    pub fn renewal(&self, ask: Ask) -> (Position, Call) {
        match ask {
            Ask::Entry(entry) => self.lookup(entry),
            Ask::Directory(directory) => {
                let directory = self.directories[directory as usize].handle;
                (directory.home, Call::Directory { directory })
            }
            Ask::Session => (position_of_session(self.session), Call::RenewSession),
        }
    }

    /// Takes the answer to a renewal. Canned answers renew what they are asked for as well.
    pub fn renewed(&mut self, ask: Ask, body: &Body, sent: Mono) {
        let Ask::Directory(directory) = ask else { return };
        let directory = &mut self.directories[directory as usize];
        let lease_ms = match body {
            Body::Directory(view) => {
                directory.grant = view.grant.clone();
                view.access_lease.0
            }
            Body::Entry(view, _) => view.lease.0,
            _ => 0,
        };
        let lease = Duration::from_millis(u64::from(lease_ms)).saturating_sub(LEASE_MARGIN);
        directory.good_until = sent.after(lease);
    }

    /// Makes the tree on a server: opens the session, makes the directories, then all entries.
    pub fn make(link: &mut Link, requests: &mut Loop<Ask>, entries: u32, load: Load) -> Result<Tree> {
        let session = link.session();
        one(link, requests, position_of_session(session), Call::OpenSession)?;
        let now = Clock.mono();
        let mut tree =
            Tree { session, directories: Vec::new(), names: Vec::new(), renew_session_at: now.after(RENEW) };
        let names = (0..=(entries - 1) / GROUP + 1).map(|number| match number {
            0 => name("big"),
            _ => name(&format!("small-{number:05}")),
        });
        tree.make_directories(link, requests, names.collect::<Result<_>>()?, load)?;
        let entry_name = |entry| name(&format!("part-{entry:08}.bin"));
        tree.names = (0..entries).map(entry_name).collect::<Result<_>>()?;
        let tally = requests.run(link, &mut Filling { tree: &mut tree, next: 0 }, load, Until::Done)?;
        anyhow::ensure!(
            tally.operations == u64::from(entries),
            "{} of {entries} entries were made",
            tally.operations
        );
        Ok(tree)
    }

    /// Makes one more directory and returns its number.
    pub fn add_directory(&mut self, link: &mut Link, requests: &mut Loop<Ask>, text: &str) -> Result<u32> {
        self.make_directories(link, requests, vec![name(text)?], Load { in_flight: 1, packed: 1 })?;
        Ok(self.directories.len() as u32 - 1)
    }

    fn make_directories(
        &mut self,
        link: &mut Link,
        requests: &mut Loop<Ask>,
        names: Vec<Name>,
        load: Load,
    ) -> Result<()> {
        let call = Call::Root { filesystem: FilesystemId(1) };
        let Body::Directory(root) = one(link, requests, Position(0), call)? else {
            bail!("the root is no directory")
        };
        let first = self.directories.len() as u32;
        let placeholder = |_: &Name| Directory {
            handle: root.node.node,
            grant: root.grant.clone(),
            good_until: Mono::ZERO,
        };
        self.directories.extend(names.iter().map(placeholder));
        let load = Load { packed: 1, ..load };
        let mut making = Making { tree: self, root, names, first, next: 0 };
        requests.run(link, &mut making, load, Until::Done)?;
        let last = self.directories.len() as u32;
        let mut renewing = Renewing { tree: self, left: first..last };
        requests.run(link, &mut renewing, load, Until::Done)?;
        Ok(())
    }
}

/// Somebody to whom only the permission bits of others apply.
fn visitor() -> Credentials {
    Credentials { uid: Uid(1000), gid: Gid(1000), groups: vec![Gid(100)] }
}

/// A name from a text that can be one.
pub fn name(text: &str) -> Result<Name> {
    Name::new(text.as_bytes()).with_context(|| format!("make the name {text}"))
}

/// Sends one request and waits for its answer.
pub fn one(link: &mut Link, requests: &mut Loop<Ask>, position: Position, call: Call) -> Result<Body> {
    let mut single = Single { call: Some((position, call)), asked: false, body: None };
    requests.run(link, &mut single, Load { in_flight: 1, packed: 1 }, Until::Done)?;
    single.body.context("get an answer")
}

struct Single {
    call: Option<(Position, Call)>,
    asked: bool,
    body: Option<Body>,
}

impl Work for Single {
    type Tag = Ask;

    fn next(&mut self, _now: Mono) -> Option<Ask> {
        (!std::mem::replace(&mut self.asked, true)).then_some(Ask::Session)
    }

    fn call(&self, _tag: Ask) -> (Position, Call) {
        self.call.clone().expect("there is one call")
    }

    fn answered(&mut self, _tag: Ask, result: Result<Body, Code>, _sent: Mono) -> Result<bool> {
        self.body = Some(result?);
        Ok(true)
    }
}

struct Making<'a> {
    tree: &'a mut Tree,
    root: Box<DirectoryView>,
    names: Vec<Name>,
    first: u32,
    next: u32,
}

impl Work for Making<'_> {
    type Tag = Ask;

    fn next(&mut self, _now: Mono) -> Option<Ask> {
        let number = self.next;
        self.next += 1;
        ((number as usize) < self.names.len()).then_some(Ask::Directory(number))
    }

    fn call(&self, tag: Ask) -> (Position, Call) {
        let Ask::Directory(number) = tag else { unreachable!("only directories are made") };
        let name = self.names[number as usize].clone();
        let grant = self.root.grant.clone();
        let position = grant.body.seat.position_of(NameHash::of(grant.body.name_key, &name));
        (position, Call::MakeDirectory { grant, who: Credentials::ROOT, name, mode: Mode::new(0o755) })
    }

    fn answered(&mut self, tag: Ask, result: Result<Body, Code>, _sent: Mono) -> Result<bool> {
        let (Ask::Directory(number), Body::Entry(view, _)) = (tag, result.context("make a directory")?)
        else {
            bail!("a new directory is answered by its entry");
        };
        self.tree.directories[(self.first + number) as usize].handle = view.node;
        Ok(true)
    }
}

struct Renewing<'a> {
    tree: &'a mut Tree,
    left: std::ops::Range<u32>,
}

impl Work for Renewing<'_> {
    type Tag = Ask;

    fn next(&mut self, _now: Mono) -> Option<Ask> {
        self.left.next().map(Ask::Directory)
    }

    fn call(&self, tag: Ask) -> (Position, Call) {
        self.tree.renewal(tag)
    }

    fn answered(&mut self, tag: Ask, result: Result<Body, Code>, sent: Mono) -> Result<bool> {
        self.tree.renewed(tag, &result.context("ask for a grant")?, sent);
        Ok(true)
    }
}

struct Filling<'a> {
    tree: &'a mut Tree,
    next: u32,
}

impl Work for Filling<'_> {
    type Tag = Ask;

    fn next(&mut self, now: Mono) -> Option<Ask> {
        if self.next == self.tree.len() {
            return None;
        }
        if let Some(due) = self.tree.due(Tree::directory_of(self.next), now) {
            return Some(due);
        }
        self.next += 1;
        Some(Ask::Entry(self.next - 1))
    }

    fn may_wait(&self, tag: Ask) -> bool {
        tag.may_wait()
    }

    fn call(&self, tag: Ask) -> (Position, Call) {
        match tag {
            Ask::Entry(entry) => {
                self.tree.create(Tree::directory_of(entry), self.tree.names[entry as usize].clone())
            }
            other => self.tree.renewal(other),
        }
    }

    fn answered(&mut self, tag: Ask, result: Result<Body, Code>, sent: Mono) -> Result<bool> {
        let body = result.with_context(|| format!("fill the tree ({tag:?})"))?;
        self.tree.renewed(tag, &body, sent);
        Ok(matches!(tag, Ask::Entry(_)))
    }
}
