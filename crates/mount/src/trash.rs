//! The trash: what was removed, kept for some days.
//!
//! Removing through a mount with a trash moves the name to `/.bearing-trash/USER/DATE/PARENT/NAME`: USER is
//! the number of the user who removed it, DATE the day after which it goes for good, PARENT the handle of the
//! directory that it was in. So nothing has to be remembered beside it: it is put back by moving it to where
//! PARENT is by now, also if that was renamed, and a removed directory is itself the place to which its files
//! are put back. Servers know nothing of it.
//!
//! Invariants: what is in the trash, and what cannot be moved there, is removed for good; a directory is
//! moved only if it is empty; a directory of a user is readable for him and root alone, so nobody sees or
//! puts back what others removed. Not kept: what a rename or an open with O_TRUNC overwrites.

use crate::caller::Caller;
use bearing_client::{Listed, Operation};
use bearing_proto::client::{AttributeChange, Detail, Handle, RenameMode};
use bearing_types::{Code, Cookie, Credentials, FileType, Mode, Name, NodeId, Outcome, Position, Uid};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// The trash's own name in the root directory.
pub const TRASH_NAME: &str = ".bearing-trash";
/// Directories of the trash that are remembered; above, all are looked up again.
const BATCHES_MAX: usize = 1024;
/// Things of one name removed from one directory on one day; more are removed for good.
const SAME_NAME_MAX: u32 = 1000;
/// The deepest tree that is looked at.
const DEPTH_MAX: usize = 4096;
const LIST_COUNT: u32 = 512;
const SECONDS_OF_DAY: u64 = 86_400;

/// A day, counted from 1970-01-01 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub u64);

/// What became of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It lies in the trash.
    Kept,
    /// Nothing was done: it is to be removed for good.
    ForGood,
}

/// The trash of a mount.
pub struct Trash {
    caller: Arc<dyn Caller>,
    root: Handle,
    keep_days: u64,
    batches: Mutex<BTreeMap<(Uid, Day, Handle, u32), Handle>>,
}

/// Something in the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trashed {
    /// Who removed it.
    pub user: Uid,
    /// After this day it goes.
    pub until: Day,
    /// The directory that it was in.
    pub parent: Handle,
    /// Its name.
    pub name: Name,
    /// Its kind.
    pub file_type: FileType,
    /// The directory in which it lies.
    pub batch: Handle,
    /// Where it was, as that is called now; `None`: the directory is gone for good.
    pub path: Option<Vec<u8>>,
}

impl Day {
    /// This day.
    pub fn today() -> Day {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Day(since.as_secs() / SECONDS_OF_DAY)
    }

    fn parse(text: &str) -> Option<Day> {
        let mut parts = text.splitn(3, '-').map(|part| part.parse::<u64>().ok());
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        let fits = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        // Howard Hinnant, "chrono-compatible low-level date algorithms": days_from_civil.
        let year = if month <= 2 { year - 1 } else { year };
        let (era, of_era) = (year / 400, year % 400);
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let day = (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468);
        day.filter(|_| fits).map(Day)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The same: civil_from_days.
        let days = self.0 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        write!(f, "{:04}-{month:02}-{day:02}", year + era * 400 + next)
    }
}

impl Trash {
    /// The trash of a filesystem with this root. What is removed is kept for so many whole days.
    pub fn new(caller: Arc<dyn Caller>, root: Handle, keep_days: u32) -> Trash {
        Trash { caller, root, keep_days: u64::from(keep_days), batches: Mutex::default() }
    }

    /// Moves a name to the trash instead of removing it.
    pub fn take(
        &self,
        directory: Handle,
        name: &Name,
        kind: FileType,
        who: &Credentials,
        today: Day,
    ) -> Outcome<Removal> {
        let is_directory = kind == FileType::Directory;
        if directory == self.root && name.as_bytes() == TRASH_NAME.as_bytes()
            || self.lies_inside(directory)?
        {
            return Ok(Removal::ForGood);
        }
        let node = if is_directory { Some(self.empty_directory(directory, name, who)?) } else { None };
        // With the day on which it is removed, which is not over yet.
        let until = Day(today.0 + self.keep_days);
        match self.put(directory, name, who, until) {
            Ok(batch) => self.check_empty(node, (batch, directory), name, who),
            // Another quota; no right to write the directory that moves; more than there is room for: whoever
            // wants it removed gets that.
            Err(Code::CrossDevice | Code::Access | Code::NoSpace | Code::QuotaExceeded | Code::Exists) => {
                Ok(Removal::ForGood)
            }
            Err(code) => Err(code),
        }
    }

    fn put(&self, directory: Handle, name: &Name, who: &Credentials, until: Day) -> Outcome<Handle> {
        let mut is_second_try = false;
        let mut same = 0;
        while same < SAME_NAME_MAX {
            let batch = self.batch(directory, who, until, same)?;
            let moved = self.caller.done(Operation::Rename {
                source: directory,
                source_name: name.clone(),
                target: batch,
                target_name: name.clone(),
                who: who.clone(),
                mode: RenameMode::NoReplace,
            });
            match moved {
                Err(Code::Exists) => same += 1,
                Err(Code::NotFound | Code::Stale) if !is_second_try => {
                    // Perhaps the trash was emptied meanwhile.
                    self.batches.lock().expect("no thread panics while it holds it").clear();
                    is_second_try = true;
                }
                other => return other.map(|()| batch),
            }
        }
        Err(Code::Exists)
    }

    /// A directory that may be removed: it is empty.
    fn empty_directory(&self, directory: Handle, name: &Name, who: &Credentials) -> Outcome<Handle> {
        let lookup = Operation::Lookup { directory, name: name.clone(), who: who.clone() };
        let found = self.caller.found(lookup)?;
        if !found.attributes.is_directory() {
            return Err(Code::NotDirectory);
        }
        match self.is_empty(found.node)? {
            true => Ok(found.node),
            false => Err(Code::NotEmpty),
        }
    }

    /// If somebody made an entry in a directory while it moved, it moves back.
    fn check_empty(
        &self,
        node: Option<Handle>,
        (batch, directory): (Handle, Handle),
        name: &Name,
        who: &Credentials,
    ) -> Outcome<Removal> {
        let Some(node) = node else { return Ok(Removal::Kept) };
        if self.is_empty(node)? {
            return Ok(Removal::Kept);
        }
        self.caller.done(Operation::Rename {
            source: batch,
            source_name: name.clone(),
            target: directory,
            target_name: name.clone(),
            who: who.clone(),
            mode: RenameMode::NoReplace,
        })?;
        Err(Code::NotEmpty)
    }

    fn is_empty(&self, directory: Handle) -> Outcome<bool> {
        let (who, after) = (Credentials::ROOT, Cookie::START);
        let list = Operation::List { directory, who, after, count_max: 1, detail: Detail::Names };
        Ok(self.caller.listed(list)?.is_empty())
    }

    fn lies_inside(&self, directory: Handle) -> Outcome<bool> {
        let Some(trash) = self.find(self.root, TRASH_NAME)? else { return Ok(false) };
        let mut above = directory;
        for _ in 0..DEPTH_MAX {
            if above == trash {
                return Ok(true);
            }
            let parent = self.caller.found(Operation::Parent { directory: above })?.node;
            if parent == above {
                return Ok(false);
            }
            above = parent;
        }
        Ok(false)
    }

    /// The directory for what is removed from a directory; made if need be.
    fn batch(&self, directory: Handle, who: &Credentials, until: Day, same: u32) -> Outcome<Handle> {
        let key = (who.uid, until, directory, same);
        if let Some(known) = self.batches.lock().expect("no thread panics while it holds it").get(&key) {
            return Ok(*known);
        }
        let trash = self.directory(self.root, TRASH_NAME, 0o755, &Credentials::ROOT)?;
        let user = self.user_directory(trash, who)?;
        let day = self.directory(user, &until.to_string(), 0o700, who)?;
        let batch = self.directory(day, &batch_name(directory, same), 0o700, who)?;
        let mut batches = self.batches.lock().expect("no thread panics while it holds it");
        if batches.len() >= BATCHES_MAX {
            batches.clear();
        }
        batches.insert(key, batch);
        Ok(batch)
    }

    fn user_directory(&self, trash: Handle, who: &Credentials) -> Outcome<Handle> {
        let name = who.uid.0.to_string();
        if let Some(found) = self.find(trash, &name)? {
            return Ok(found);
        }
        let made = self.directory(trash, &name, 0o700, &Credentials::ROOT)?;
        let change = AttributeChange { uid: Some(who.uid), gid: Some(who.gid), ..AttributeChange::default() };
        let (file_type, who) = (FileType::Directory, Credentials::ROOT);
        self.caller.found(Operation::SetAttributes { node: made, file_type, who, change, file: None })?;
        Ok(made)
    }

    fn directory(&self, parent: Handle, name: &str, mode: u32, who: &Credentials) -> Outcome<Handle> {
        if let Some(found) = self.find(parent, name)? {
            return Ok(found);
        }
        let (name, who) = (Name::new(name.as_bytes())?, who.clone());
        let make =
            Operation::MakeDirectory { directory: parent, name: name.clone(), who, mode: Mode::new(mode) };
        match self.caller.found(make) {
            Err(Code::Exists) => {
                let lookup = Operation::Lookup { directory: parent, name, who: Credentials::ROOT };
                self.caller.found(lookup).map(|found| found.node)
            }
            other => other.map(|found| found.node),
        }
    }

    fn find(&self, directory: Handle, name: &str) -> Outcome<Option<Handle>> {
        let lookup =
            Operation::Lookup { directory, name: Name::new(name.as_bytes())?, who: Credentials::ROOT };
        match self.caller.found(lookup) {
            Ok(found) => Ok(Some(found.node)),
            Err(Code::NotFound) => Ok(None),
            Err(code) => Err(code),
        }
    }

    // --- what lies in it ---

    /// All that lies in it, of one user or of everybody.
    pub fn list(&self, user: Option<Uid>) -> Outcome<Vec<Trashed>> {
        let mut all = Vec::new();
        for (user, until, day) in self.days(user)? {
            for batch in self.entries(day)? {
                let Some(parent) = parse_batch(&batch.name) else { continue };
                for entry in self.entries(batch.node)? {
                    let (name, file_type) = (entry.name, entry.file_type);
                    let path = None;
                    all.push(Trashed { user, until, parent, name, file_type, batch: batch.node, path });
                }
            }
        }
        for thing in &mut all {
            thing.path = self.path_of(thing.parent)?.map(|path| joined(path, &thing.name));
        }
        all.sort_by(|a, b| (&a.path, a.until, &a.name).cmp(&(&b.path, b.until, &b.name)));
        Ok(all)
    }

    /// Puts something back to where it was, or into another directory.
    pub fn restore(&self, thing: &Trashed, into: Option<Handle>, who: &Credentials) -> Outcome<()> {
        self.caller.done(Operation::Rename {
            source: thing.batch,
            source_name: thing.name.clone(),
            target: into.unwrap_or(thing.parent),
            target_name: thing.name.clone(),
            who: who.clone(),
            mode: RenameMode::NoReplace,
        })
    }

    /// Removes for good what is older than it was to be kept; gives how many things.
    pub fn expire(&self, today: Day) -> Outcome<u64> {
        self.clear(None, |until| until < today)
    }

    /// Removes all of a user, or of everybody, for good.
    pub fn empty(&self, user: Option<Uid>) -> Outcome<u64> {
        self.clear(user, |_| true)
    }

    fn clear(&self, user: Option<Uid>, goes: impl Fn(Day) -> bool) -> Outcome<u64> {
        let mut count = 0;
        for (user, until, day) in self.days(user)? {
            if goes(until) {
                count += self.remove_below(day)?;
                let trash = self.find(self.root, TRASH_NAME)?.ok_or(Code::NotFound)?;
                let directory = self.find(trash, &user.0.to_string())?.ok_or(Code::NotFound)?;
                let name = Name::new(until.to_string().as_bytes())?;
                gone(self.caller.done(Operation::RemoveDirectory {
                    directory,
                    name,
                    who: Credentials::ROOT,
                }))?;
            }
        }
        Ok(count)
    }

    /// Removes all below a directory; batches are not counted.
    fn remove_below(&self, day: Handle) -> Outcome<u64> {
        let (who, mut count) = (Credentials::ROOT, 0);
        // A directory comes again when all in it is gone.
        let mut open: Vec<(Handle, Option<(Handle, Name)>)> = vec![(day, None)];
        while let Some((directory, place)) = open.pop() {
            let entries = match self.entries(directory) {
                Err(Code::Stale | Code::NotFound) => continue,
                other => other?,
            };
            let is_batch = place.as_ref().is_some_and(|(parent, _)| *parent == day);
            let inner: Vec<Listed> =
                entries.iter().filter(|entry| entry.file_type == FileType::Directory).cloned().collect();
            for entry in entries.into_iter().filter(|entry| entry.file_type != FileType::Directory) {
                gone(self.caller.done(Operation::Unlink { directory, name: entry.name, who: who.clone() }))?;
                count += 1;
            }
            if !inner.is_empty() {
                open.push((directory, place));
                let places = inner.into_iter().map(|entry| (entry.node, Some((directory, entry.name))));
                open.extend(places);
            } else if let Some((directory, name)) = place {
                gone(self.caller.done(Operation::RemoveDirectory { directory, name, who: who.clone() }))?;
                count += u64::from(!is_batch);
            }
        }
        Ok(count)
    }

    fn days(&self, only: Option<Uid>) -> Outcome<Vec<(Uid, Day, Handle)>> {
        let Some(trash) = self.find(self.root, TRASH_NAME)? else { return Ok(Vec::new()) };
        let mut days = Vec::new();
        for user in self.entries(trash)? {
            let Some(uid) = user.name.to_string().parse().ok().map(Uid) else { continue };
            if only.is_some_and(|only| only != uid) {
                continue;
            }
            for day in self.entries(user.node)? {
                days.extend(Day::parse(&day.name.to_string()).map(|until| (uid, until, day.node)));
            }
        }
        Ok(days)
    }

    fn entries(&self, directory: Handle) -> Outcome<Vec<Listed>> {
        let (mut all, mut after) = (Vec::new(), Cookie::START);
        loop {
            let who = Credentials::ROOT;
            let (count_max, detail) = (LIST_COUNT, Detail::Attributes);
            let list = Operation::List { directory, who, after, count_max, detail };
            let part = self.caller.listed(list)?;
            let Some(last) = part.last() else { return Ok(all) };
            after = last.cookie;
            all.extend(part);
        }
    }

    /// The path of a directory, or the one that it had before it was removed. `None`: it, or one above it, is
    /// gone for good.
    fn path_of(&self, directory: Handle) -> Outcome<Option<Vec<u8>>> {
        let (mut above, mut names) = (directory, Vec::new());
        for _ in 0..DEPTH_MAX {
            if above == self.root {
                names.reverse();
                return Ok(Some(
                    names.into_iter().flat_map(|name: Vec<u8>| [b"/".to_vec(), name].concat()).collect(),
                ));
            }
            let (parent, name) = match self.caller.named(Operation::Place { directory: above }) {
                Err(Code::Stale | Code::NotFound) => return Ok(None),
                other => other?,
            };
            // A batch stands for the directory that it is named after.
            match Name::new(&name).ok().and_then(|name| parse_batch(&name)) {
                Some(stood_for) if self.lies_inside(parent)? => above = stood_for,
                _ => {
                    names.push(name);
                    above = parent;
                }
            }
        }
        Ok(None)
    }
}

/// Somebody else removed it.
fn gone(result: Outcome<()>) -> Outcome<()> {
    match result {
        Err(Code::NotFound | Code::Stale) => Ok(()),
        other => other,
    }
}

fn joined(mut path: Vec<u8>, name: &Name) -> Vec<u8> {
    path.push(b'/');
    path.extend_from_slice(name.as_bytes());
    path
}

fn batch_name(directory: Handle, same: u32) -> String {
    let more = if same == 0 { String::new() } else { format!(".{same}") };
    format!("{:x}-{:016x}{more}", directory.node.0, directory.home.0)
}

fn parse_batch(name: &Name) -> Option<Handle> {
    let text = std::str::from_utf8(name.as_bytes()).ok()?;
    let (node, rest) = text.split_once('-')?;
    let home = rest.split('.').next().filter(|home| home.len() == 16)?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Handle { node: NodeId(number(node)?), home: Position(number(home)?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryTree;
    use crate::session::Session;
    use std::time::Duration;

    const TODAY: Day = Day(20_000);
    const SOMEBODY: Credentials =
        Credentials { uid: Uid(1000), gid: bearing_types::Gid(1000), groups: Vec::new() };

    fn with_tree() -> (Session, Trash) {
        let tree: Arc<dyn Caller> = Arc::new(MemoryTree::new(Duration::ZERO));
        let session = Session::new(tree.clone(), Credentials::ROOT).unwrap();
        let trash = Trash::new(tree, session.root(), 7);
        session.make_directories(b"/a/b", Mode::new(0o777)).unwrap();
        for path in ["/a/b/one", "/a/b/two"] {
            session.write_file(path.as_bytes(), Mode::new(0o644), path.as_bytes()).unwrap();
        }
        (session, trash)
    }

    fn remove(
        session: &Session,
        trash: &Trash,
        path: &str,
        kind: FileType,
        who: &Credentials,
    ) -> Outcome<Removal> {
        let (above, name) = path.rsplit_once('/').unwrap();
        let above = if above.is_empty() { "/" } else { above };
        let directory = session.stat(above.as_bytes()).unwrap().node;
        trash.take(directory, &Name::new(name.as_bytes()).unwrap(), kind, who, TODAY)
    }

    fn paths(trash: &Trash, user: Option<Uid>) -> Vec<String> {
        let path = |thing: Trashed| String::from_utf8(thing.path.unwrap()).unwrap();
        trash.list(user).unwrap().into_iter().map(path).collect()
    }

    const FILE: FileType = FileType::Regular;
    const DIRECTORY: FileType = FileType::Directory;

    #[test]
    fn a_removed_tree_is_listed_under_its_old_paths_and_put_back() {
        let (session, trash) = with_tree();
        assert_eq!(remove(&session, &trash, "/a/b", DIRECTORY, &Credentials::ROOT), Err(Code::NotEmpty));
        for (path, kind) in [("/a/b/one", FILE), ("/a/b/two", FILE), ("/a/b", DIRECTORY), ("/a", DIRECTORY)] {
            assert_eq!(remove(&session, &trash, path, kind, &Credentials::ROOT), Ok(Removal::Kept), "{path}");
        }
        assert!(session.stat(b"/a").is_err());
        assert_eq!(paths(&trash, None), ["/a", "/a/b", "/a/b/one", "/a/b/two"]);
        for thing in trash.list(None).unwrap() {
            assert_eq!(thing.until, Day(20_007));
            trash.restore(&thing, None, &Credentials::ROOT).unwrap();
        }
        assert_eq!(session.read_file(b"/a/b/two").unwrap(), b"/a/b/two");
        assert_eq!(paths(&trash, None), Vec::<String>::new());
    }

    #[test]
    fn things_of_one_name_are_kept_beside_each_other_and_each_user_has_his_own() {
        let (session, trash) = with_tree();
        for _ in 0..3 {
            remove(&session, &trash, "/a/b/one", FILE, &Credentials::ROOT).unwrap();
            session.write_file(b"/a/b/one", Mode::new(0o644), b"again").unwrap();
        }
        session.write_file(b"/a/b/his", Mode::new(0o644), b"his").unwrap();
        remove(&session, &trash, "/a/b/his", FILE, &SOMEBODY).unwrap();
        assert_eq!(paths(&trash, Some(Uid(0))), ["/a/b/one"; 3]);
        assert_eq!(paths(&trash, Some(Uid(1000))), ["/a/b/his"]);
        let his = session.stat(b"/.bearing-trash/1000").unwrap().attributes;
        assert_eq!((his.mode, his.uid), (Mode::new(0o700), Uid(1000)));
    }

    #[test]
    fn what_lies_in_the_trash_and_the_trash_itself_are_removed_for_good() {
        let (session, trash) = with_tree();
        remove(&session, &trash, "/a/b/one", FILE, &Credentials::ROOT).unwrap();
        let batch = trash.list(None).unwrap()[0].batch;
        let name = Name::new(b"one").unwrap();
        assert_eq!(trash.take(batch, &name, FILE, &Credentials::ROOT, TODAY), Ok(Removal::ForGood));
        let itself = remove(&session, &trash, "/.bearing-trash", DIRECTORY, &Credentials::ROOT);
        assert_eq!(itself, Ok(Removal::ForGood));
    }

    #[test]
    fn things_go_after_their_day_and_not_before() {
        let (session, trash) = with_tree();
        remove(&session, &trash, "/a/b/one", FILE, &Credentials::ROOT).unwrap();
        remove(&session, &trash, "/a/b/two", FILE, &Credentials::ROOT).unwrap();
        remove(&session, &trash, "/a/b", DIRECTORY, &Credentials::ROOT).unwrap();
        assert_eq!(trash.expire(Day(20_007)), Ok(0));
        assert_eq!(paths(&trash, None).len(), 3);
        assert_eq!(trash.expire(Day(20_008)), Ok(3));
        assert_eq!(trash.list(None).unwrap(), []);
        // The directories that the mount remembers are gone too.
        assert_eq!(remove(&session, &trash, "/a", DIRECTORY, &Credentials::ROOT), Ok(Removal::Kept));
        assert_eq!(trash.empty(Some(Uid(0))), Ok(1));
    }

    #[test]
    fn days_are_written_and_read_as_calendars_have_them() {
        for (day, text) in
            [(0, "1970-01-01"), (11_016, "2000-02-29"), (20_413, "2025-11-21"), (59, "1970-03-01")]
        {
            assert_eq!(Day(day).to_string(), text);
        }
        for day in (0..200_000).step_by(13) {
            assert_eq!(Day::parse(&Day(day).to_string()), Some(Day(day)));
        }
        for text in ["", "2025-13-01", "2025-00-10", "x-1-1", "2025-11", "99999999999999999999-1-1"] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }
}
