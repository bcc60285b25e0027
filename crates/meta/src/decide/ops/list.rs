//! A part of a listing, in (hash, ordinal) order: a range read. The cookie alone says where to go on, so no
//! server keeps listing state.

use crate::decide::rules::{namespace, permission};
use crate::record::{Key, NameEntry, NodeRecord, Record};
use crate::view::{Decide, Stop, View};
use bearing_placement::Seat;
use bearing_proto::client::{Body, Detail, ListedEntry};
use bearing_proto::grant::Grant;
use bearing_types::{
    Attributes, Block, Code, Cookie, Credentials, FileType, NameHash, NodeId, Permission, Position,
};
use std::ops::RangeInclusive;

/// The fewest places of names read at once.
const READ_MIN: usize = 16;

pub(crate) fn decide(
    view: &mut View,
    grant: &Grant,
    who: &Credentials,
    (after, count_max): (Cookie, u32),
    detail: Detail,
) -> Decide<Body> {
    let seat = admit(view, grant, who, Permission::READ, after, count_max)?;
    // What an entry is, beyond its kind, is for those to see who may search.
    let may_search = permission::permit(view, &grant.body, who, Permission::SEARCH).is_ok();
    let detail = if may_search { detail } else { Detail::Names };
    view.look_into(seat.node)?;
    let (named, next) = page(view, seat, after, count_max)?;
    match detail {
        Detail::Names => {}
        Detail::Attributes => prefetch_nodes(view, &named)?,
        Detail::Lookups => prefetch_all(view, &named)?,
    }
    let next = next.map(Cookie::hash);
    let listed = |(cookie, entry)| list_entry(view, seat.node, cookie, entry, detail);
    let entries = named.into_iter().map(listed).collect::<Decide<_>>()?;
    Ok(Body::List { entries, next })
}

/// The seat of a directory of which a page that begins here is asked for, by who may see it.
pub(super) fn admit<'a>(
    view: &mut View,
    grant: &'a Grant,
    who: &Credentials,
    wish: Permission,
    after: Cookie,
    count_max: u32,
) -> Decide<&'a Seat> {
    let seat = &grant.body.seat;
    view.require(seat.position_of(after.hash()))?;
    permission::admit(view, grant, who, wish)?;
    if count_max == 0 {
        return Err(Stop::Refuse(Code::InvalidArgument));
    }
    Ok(seat)
}

/// Names, and after which cookie to go on.
pub(super) type Page = (Vec<(Cookie, NameEntry)>, Option<Cookie>);

/// Names after a cookie.
pub(super) fn page(view: &mut View, seat: &Seat, after: Cookie, count_max: u32) -> Decide<Page> {
    let count_max = count_max.min(view.config.list_entries_max) as usize;
    let keys = Key::Name(seat.node, after.hash(), after.ordinal() + 1)
        ..=Key::Name(seat.node, NameHash::LAST, u16::MAX);
    // Reading where nothing is would be a read of the store all the same.
    let (named, cut) =
        if is_empty(view, seat.node) { (Vec::new(), false) } else { read_names(view, &keys, count_max)? };
    let next = match named.last() {
        Some((last, _)) if cut => Some(*last),
        // Ordinals begin at 1, so this cookie lies before every entry of the hash.
        _ => next_tablet_hash(seat, view.tablet).map(|hash| Cookie::new(hash, 0)),
    };
    Ok((named, next))
}

/// Whether it is at hand that a directory has no names here.
fn is_empty(view: &mut View, directory: NodeId) -> bool {
    view.fragment(directory).is_ok_and(|fragment| fragment.is_none_or(|fragment| fragment.entries == 0))
}

/// All names of a directory that lies in this tablet alone; `None` if there are more than so many.
pub(super) fn names(
    view: &mut View,
    directory: NodeId,
    count_max: usize,
) -> Decide<Option<Vec<(Cookie, NameEntry)>>> {
    let keys = Key::Name(directory, NameHash::FIRST, 1)..=Key::Name(directory, NameHash::LAST, u16::MAX);
    let (named, cut) = read_names(view, &keys, count_max)?;
    Ok((!cut).then_some(named))
}

/// At most so many names, and whether there may be more here. Places that are kept for removed names are no
/// names: however many follow each other, the listing goes on behind them.
fn read_names(
    view: &mut View,
    keys: &RangeInclusive<Key>,
    count_max: usize,
) -> Decide<(Vec<(Cookie, NameEntry)>, bool)> {
    let mut read_max = count_max.max(READ_MIN);
    loop {
        let pairs = view.range(keys.clone(), read_max)?;
        let full = view.range_was_full(keys, read_max);
        let mut names: Vec<(Cookie, NameEntry)> = pairs.into_iter().filter_map(named).collect();
        if !names.is_empty() || !full {
            let cut = full || names.len() > count_max;
            names.truncate(count_max);
            return Ok((names, cut));
        }
        read_max *= 2;
    }
}

fn named((key, record): (Key, Record)) -> Option<(Cookie, NameEntry)> {
    match (key, record) {
        (Key::Name(_, hash, ordinal), Record::Name(name)) => Some((Cookie::new(hash, ordinal), name.entry?)),
        _ => None,
    }
}

/// The first hash of the directory that lies beyond this tablet.
fn next_tablet_hash(seat: &Seat, tablet: Block) -> Option<NameHash> {
    let beyond = tablet.last().0.checked_add(1).map(Position)?;
    seat.first_hash_at(beyond)
}

/// Loads what is at home here of the nodes.
pub(super) fn prefetch_nodes(view: &mut View, named: &[(Cookie, NameEntry)]) -> Decide<()> {
    let here = named.iter().filter(|(_, entry)| has_attributes_here(view, entry));
    let keys: Vec<Key> = here.map(|(_, entry)| Key::Node(entry.node.node)).collect();
    view.prefetch(&keys)
}

/// Loads all nodes that are at home here, and what the sizes of directories need.
pub(super) fn prefetch_all(view: &mut View, entries: &[(Cookie, NameEntry)]) -> Decide<()> {
    let here = entries.iter().map(|(_, entry)| entry).filter(|entry| view.tablet.contains(entry.node.home));
    let keys: Vec<Key> = here
        .flat_map(|entry| {
            let node = entry.node.node;
            let fragment = (entry.file_type == FileType::Directory).then_some(Key::Fragment(node));
            std::iter::once(Key::Node(node)).chain(fragment)
        })
        .collect();
    view.prefetch(&keys)
}

// A directory's attributes need its fragments too: whoever wants them asks its home.
pub(super) fn has_attributes_here(view: &View, entry: &NameEntry) -> bool {
    entry.file_type != FileType::Directory && view.tablet.contains(entry.node.home)
}

fn list_entry(
    view: &mut View,
    directory: NodeId,
    cookie: Cookie,
    entry: NameEntry,
    detail: Detail,
) -> Decide<ListedEntry> {
    let (mut attributes, mut found) = (None, None);
    match detail {
        Detail::Attributes if has_attributes_here(view, &entry) => {
            attributes = attributes_at_hand(view, &entry);
        }
        Detail::Lookups => {
            let (given, handed) = (view.given.len(), view.handed.len());
            found = match namespace::entry_view(view, directory, cookie.hash(), &entry) {
                Ok(shown) => Some(Box::new(shown)),
                Err(Stop::Need) => return Err(Stop::Need),
                // Under prepare, or somebody else's: a lookup waits for that.
                Err(_) => {
                    view.given.truncate(given);
                    view.handed.truncate(handed);
                    None
                }
            };
        }
        Detail::Names | Detail::Attributes => {}
    }
    let NameEntry { name, node, file_type } = entry;
    Ok(ListedEntry { cookie, name, node, file_type, attributes, found })
}

// A node under prepare is simply not at hand.
fn attributes_at_hand(view: &mut View, entry: &NameEntry) -> Option<Attributes> {
    let node: Option<NodeRecord> = view.node(entry.node.node).ok().flatten();
    node.map(|node| node.attributes)
}
