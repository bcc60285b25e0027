//! Lends a directory to its only writer, with what is in it: files that nobody else has open, and further
//! directories, as far as a reply goes and as who asks may see it. All that others hold of it is recalled
//! before; while it is lent, whoever else looks into it, or for one of the nodes, has it called back first
//! (`engine/delegations.rs`).

use crate::decide::ops::{list, rights};
use crate::decide::rules::namespace;
use crate::record::{Delegated, Holder, Key, NameEntry, NodeRecord, Record};
use crate::view::{Decide, Stop, View};
use bearing_proto::client::{Body, Handle, LeaseKey, LeaseMs};
use bearing_proto::delegation::{DelegationView, LentDirectory, LentEntry, LentNode};
use bearing_types::{Code, Cookie, Credentials, FileType, NodeId, Permission, SessionId};

/// Bytes that an answer has for an entry besides its name, at most, and for a directory.
const ENTRY_BYTES: usize = 140;
const DIRECTORY_BYTES: usize = 512;
/// Entries in directories below it that are lent with it. Lending is one step: with 32,768 entries it took up
/// to 115 ms, and others take a server that is silent for long for dead.
const BELOW_MAX: usize = 4096;

/// Under what a client asks for a directory.
pub(super) struct Asked {
    pub incarnation: u64,
    /// It holds something of the tablet under that.
    pub joins: bool,
}

/// A directory that may be lent, and all that is in it.
struct Whole {
    node: NodeId,
    record: NodeRecord,
    entries: Vec<(Cookie, NameEntry)>,
}

/// How much more an answer may have.
struct Room {
    entries: usize,
    bytes: usize,
}

impl Room {
    /// Whether a directory with these entries fits; takes its place then.
    fn take(&mut self, entries: &[(Cookie, NameEntry)]) -> bool {
        let names = entries.iter().map(|(_, entry)| ENTRY_BYTES + entry.name.as_bytes().len());
        let (entries, bytes) = (1 + entries.len(), DIRECTORY_BYTES + names.sum::<usize>());
        let fits = entries <= self.entries && bytes <= self.bytes;
        if fits {
            (self.entries, self.bytes) = (self.entries - entries, self.bytes - bytes);
        }
        fits
    }
}

pub(super) fn decide(view: &mut View, handle: Handle, who: &Credentials, asked: Asked) -> Decide<Body> {
    let session = rights::asker(view)?;
    let holder = Holder { session, incarnation: asked.incarnation };
    // What is lent renews all that its holder has. Who was out of reach for so long that all was taken away
    // from it must not have that revived by a question that comes late, nor keep what others have waited for
    // too long.
    let lost = asked.joins && (!view.holds_any(holder) || view.is_overdue(holder));
    if view.is_over(asked.incarnation) || lost {
        return Err(Stop::Refuse(Code::Stale));
    }
    let record = view.node_at(handle)?;
    record.directory()?;
    if !rights::may_look(&record, who) || !record.allows(who, Permission::CHANGE_ENTRIES) {
        return Err(Stop::Refuse(Code::Access));
    }
    let held = view.delegations.holder(handle.node).is_some_and(|holder| holder.session != session);
    if held || !may_be_lent(view, handle.node, &record, session) {
        return Err(Stop::Refuse(Code::Unsupported));
    }
    if view.is_delegated(handle.node, holder) && is_large(view, handle.node)? {
        return again(view, session, &record, handle.node);
    }
    let entries = list::names(view, handle.node, view.config.delegated_entries_max - 1)?;
    let entries = entries.ok_or(Stop::Refuse(Code::Unsupported))?;
    let whole = Whole { node: handle.node, record, entries };
    let mut room =
        Room { entries: view.config.delegated_entries_max, bytes: view.config.delegated_bytes_max };
    if !room.take(&whole.entries) {
        return Err(Stop::Refuse(Code::Unsupported));
    }
    list::prefetch_all(view, &whole.entries)?;
    room.entries = room.entries.min(BELOW_MAX);
    let mut lent = vec![whole];
    add_what_is_below(view, (session, who), room, &mut lent)?;
    // Not worth waiting for whoever gives them out: others decide in the directory meanwhile.
    let ids = view.lend_ids(session).ok_or(Stop::Refuse(Code::Unsupported))?;
    view.changes(LeaseKey::Content(handle.node));
    let directories = lent.into_iter().map(|whole| lend(view, holder, whole)).collect::<Decide<Vec<_>>>()?;
    view.lends = true;
    let (lease, now) = (life(view), view.now.wall);
    Ok(Body::Delegation(Box::new(DelegationView { directories, lease, ids, now })))
}

/// Whether a directory has more entries than are shown.
fn is_large(view: &mut View, directory: NodeId) -> Decide<bool> {
    let most = view.config.delegated_entries_max as u64;
    Ok(view.fragment(directory)?.is_some_and(|fragment| fragment.entries >= most))
}

/// Lets who holds a large directory decide in it again: it was left to us for a while, and nobody else was
/// let near it meanwhile.
fn again(view: &mut View, session: SessionId, record: &NodeRecord, directory: NodeId) -> Decide<Body> {
    let ids = view.lend_ids(session).ok_or(Stop::Refuse(Code::Unsupported))?;
    view.reserves(LeaseKey::Access(directory));
    view.reserves(LeaseKey::Content(directory));
    view.lends = true;
    let shown = namespace::directory_view(view, directory, record)?;
    let directories = vec![LentDirectory { view: shown, entries: Vec::new(), whole: false }];
    let (lease, now) = (life(view), view.now.wall);
    Ok(Body::Delegation(Box::new(DelegationView { directories, lease, ids, now })))
}

/// Whether a directory could be lent, if it is not.
fn may_be_lent(view: &View, node: NodeId, record: &NodeRecord, session: SessionId) -> bool {
    let Ok(directory) = record.directory() else { return false };
    let elsewhere = directory.fragments.iter().any(|block| !view.tablet.covers(*block));
    // Two who take turns get nothing: it would come and go with every change.
    let resting = !view.leases.may_delegate(node, session, view.now.mono);
    // Who holds it decides alone, and knows permission bits only, and nothing of quotas.
    let listed = !record.acls.is_empty() || record.quota.is_some();
    !elsewhere && !resting && !listed && view.tablet.covers(directory.seat.name_block)
}

/// Directories in those that are lent, and so on, as long as there are not too many entries. One load for
/// each level.
fn add_what_is_below(
    view: &mut View,
    (session, who): (SessionId, &Credentials),
    mut room: Room,
    lent: &mut Vec<Whole>,
) -> Decide<()> {
    let mut seen = 0;
    while seen < lent.len() {
        let below: Vec<NodeId> = lent[seen..].iter().flat_map(|whole| directories_of(view, whole)).collect();
        seen = lent.len();
        let mut next = Vec::new();
        let mut missing = false;
        for node in below.into_iter().take(room.entries) {
            let Some(record) = at_hand(view, node) else { continue };
            let lends = may_be_lent(view, node, &record, session) && rights::may_look(&record, who);
            if view.delegations.holder(node).is_some() || !lends {
                continue;
            }
            match all_in(view, node) {
                Ok(Some(entries)) => next.push(Whole { node, record, entries }),
                Ok(None) | Err(Stop::Locked(_)) => {}
                Err(Stop::Need) => missing = true,
                Err(other) => return Err(other),
            }
        }
        if missing {
            return Err(Stop::Need);
        }
        next.retain(|whole| room.take(&whole.entries));
        let entries: Vec<(Cookie, NameEntry)> =
            next.iter().flat_map(|whole| whole.entries.iter().cloned()).collect();
        list::prefetch_all(view, &entries)?;
        lent.extend(next);
    }
    Ok(())
}

/// All that is in a directory, if that is not too much.
fn all_in(view: &mut View, directory: NodeId) -> Decide<Option<Vec<(Cookie, NameEntry)>>> {
    match view.fragment(directory)? {
        Some(fragment) if fragment.entries > 0 => {
            list::names(view, directory, view.config.delegated_entries_max)
        }
        // Most directories that many are made of at once are empty.
        Some(_) | None => Ok(Some(Vec::new())),
    }
}

fn directories_of(view: &View, whole: &Whole) -> Vec<NodeId> {
    let directories = whole.entries.iter().map(|(_, entry)| entry);
    let directories = directories.filter(|entry| entry.file_type == FileType::Directory);
    directories.filter(|entry| view.tablet.contains(entry.node.home)).map(|entry| entry.node.node).collect()
}

/// A node that is neither locked nor gone.
fn at_hand(view: &mut View, node: NodeId) -> Option<NodeRecord> {
    view.node(node).ok().flatten()
}

/// Notes that a directory is lent, and shows it.
fn lend(view: &mut View, holder: Holder, whole: Whole) -> Decide<LentDirectory> {
    let Whole { node: directory, record, entries } = whole;
    let mut nodes = Vec::new();
    let mut shown = Vec::with_capacity(entries.len());
    for (cookie, NameEntry { name, node, file_type }) in entries {
        view.reserves(LeaseKey::Name(directory, cookie.hash()));
        let lent =
            if file_type == FileType::Directory { None } else { lent_node(view, holder.session, node) };
        if lent.is_some() {
            nodes.push(node.node);
        }
        shown.push(LentEntry { cookie, name, node, file_type, lent });
    }
    view.reserves(LeaseKey::Access(directory));
    view.reserves(LeaseKey::Content(directory));
    let delegated = Delegated { holder, nodes };
    view.put(Key::Delegation(directory), Record::Delegation(Box::new(delegated)));
    Ok(LentDirectory {
        view: namespace::directory_view(view, directory, &record)?,
        entries: shown,
        whole: true,
    })
}

/// A node that only this name leads to and only this session uses.
fn lent_node(view: &mut View, session: SessionId, node: Handle) -> Option<LentNode> {
    if !view.tablet.contains(node.home) {
        return None;
    }
    let record = at_hand(view, node.node)?;
    if record.attributes.links != 1 || !record.acls.is_empty() {
        return None;
    }
    // Whoever only may have it open says that it has not when it is asked for its lease.
    view.reserves(LeaseKey::File(node.node));
    let others: Vec<SessionId> =
        view.openers(node.node).into_iter().filter(|opener| *opener != session).collect();
    view.doubtful.extend(others.iter().map(|other| (*other, node.node)));
    let lent = LentNode { attributes: record.attributes, extended: record.is_extended() };
    others.is_empty().then_some(lent)
}

/// How long delegations may be used from now.
pub(super) fn life(view: &View) -> LeaseMs {
    LeaseMs(view.config.delegation_ttl.as_millis() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::Name;

    #[test]
    fn an_answer_takes_no_more_than_it_has_room_for() {
        let entry = |number: u64| {
            let name = Name::new(&[b'n'; 60]).unwrap();
            let node = Handle { node: NodeId(number), home: bearing_types::Position(0) };
            (Cookie::START, NameEntry { name, node, file_type: FileType::Regular })
        };
        let entries: Vec<_> = (0..10).map(entry).collect();
        assert!(!Room { entries: 10, bytes: 1 << 20 }.take(&entries), "the directory counts too");
        assert!(!Room { entries: 100, bytes: 10 * 200 + 511 }.take(&entries));
        let mut room = Room { entries: 22, bytes: 2 * (10 * 200 + 512) };
        assert!(room.take(&entries) && room.take(&entries) && !room.take(&entries));
    }
}
