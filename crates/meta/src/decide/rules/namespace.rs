//! Names, fragments and nodes as operations handle them: what several operations share.

use crate::decide::rules::{answers, file_locks, xattrs};
use crate::mutant::Mutant;
use crate::record::Key;
use crate::record::{
    DirectoryContent, FragmentRecord, NameEntry, NameRecord, NodeContent, NodeRecord, Record,
};
use crate::view::{Decide, Draft, Stop, View};
use bearing_placement::Seat;
use bearing_proto::client::{
    ChangedDirectory, DirectoryView, EntryView, Handle, LeaseKey, LeaseMs, NodeView,
};
use bearing_proto::grant::{Grant, GrantBody};
use bearing_proto::peer::{Deferred, FragmentStat, Question, Remover, Told};
use bearing_proto::rules;
use bearing_types::{
    Access, Acls, Attributes, Block, Code, Cookie, FileType, Name, NameHash, NodeId, SessionId, Version, Wall,
};
use std::collections::BTreeSet;

/// A name that exists.
pub(crate) struct Slot {
    pub key: Key,
    pub entry: NameEntry,
    more: bool,
}

/// Where a name could go.
pub(crate) struct Vacancy {
    key: Key,
    more: bool,
    /// The last slot of the chain, which must learn that the chain goes on.
    previous: Option<(Key, NameRecord)>,
}

/// Looks a name up along the chain of names with its hash.
pub(crate) fn find(
    view: &mut View,
    directory: NodeId,
    hash: NameHash,
    name: &Name,
) -> Decide<Result<Slot, Vacancy>> {
    view.look_into(directory)?;
    let mut vacancy: Option<Vacancy> = None;
    let mut previous: Option<(Key, NameRecord)> = None;
    for ordinal in 1..=Cookie::ORDINAL_MAX {
        let key = Key::Name(directory, hash, ordinal);
        let end_of_chain = previous.as_ref().is_some_and(|(_, record)| !record.more);
        let record = if end_of_chain { None } else { view.name_slot(key)? };
        let Some(record) = record else {
            return Ok(Err(vacancy.unwrap_or(Vacancy { key, more: false, previous })));
        };
        match &record.entry {
            Some(entry) if entry.name == *name => {
                return Ok(Ok(Slot { key, entry: entry.clone(), more: record.more }));
            }
            None if vacancy.is_none() => vacancy = Some(Vacancy { key, more: record.more, previous: None }),
            Some(_) | None => {}
        }
        previous = Some((key, record));
    }
    // 32,767 names of one hash: nobody makes these but on purpose.
    vacancy.map(Err).ok_or(Stop::Refuse(Code::NoSpace))
}

/// The name's slot, or `NotFound`.
pub(crate) fn find_existing(view: &mut View, directory: NodeId, hash: NameHash, name: &Name) -> Decide<Slot> {
    find(view, directory, hash, name)?.map_err(|_| Stop::Refuse(Code::NotFound))
}

/// Puts a name into a vacancy and counts it.
pub(crate) fn insert(view: &mut View, vacancy: Vacancy, entry: NameEntry) -> Key {
    if let Some((key, mut previous)) = vacancy.previous {
        previous.more = true;
        view.put(key, Record::Name(previous));
    }
    view.put(vacancy.key, Record::Name(NameRecord { entry: Some(entry), more: vacancy.more }));
    vacancy.key
}

/// Lets an existing name lead elsewhere.
pub(crate) fn replace(view: &mut View, slot: &Slot, entry: NameEntry) {
    view.put(slot.key, Record::Name(NameRecord { entry: Some(entry), more: slot.more }));
}

/// The same within an exchange: the directory gets no more names and no fewer, but perhaps one of another
/// kind.
pub(crate) fn swap(
    view: &mut View,
    directory: NodeId,
    hash: NameHash,
    slot: &Slot,
    entry: NameEntry,
    access_version: Version,
) -> Decide<()> {
    let fragment = fragment_with_entries(view, directory, access_version)?;
    let directories = i32::from(entry.file_type == FileType::Directory)
        - i32::from(slot.entry.file_type == FileType::Directory);
    replace(view, slot, entry);
    count(view, directory, fragment, 0, directories);
    view.changes(LeaseKey::Name(directory, hash));
    Ok(())
}

/// Takes a name away. Its ordinal stays taken while names of the same hash follow.
pub(crate) fn remove(view: &mut View, slot: &Slot) {
    if slot.more {
        view.put(slot.key, Record::Name(NameRecord { entry: None, more: true }));
    } else {
        view.delete(slot.key);
    }
}

/// The directory's content in this tablet, about to get a name. If it does not exist yet, the directory's
/// node has to list this tablet first.
pub(crate) fn fragment_for_insert(view: &mut View, grant: &GrantBody) -> Decide<FragmentRecord> {
    let seat = &grant.seat;
    if let Some(fragment) = view.fragment(seat.node)? {
        return young_enough(view, placed(fragment, grant), grant.access_version);
    }
    if view.get(Key::Dead(seat.node))?.is_some() {
        if view.config.planted(Mutant::GrantAfterRmdir) {
            let fragment = empty_fragment(seat.name_block, view.time(), grant.access_version, grant.quota);
            return Ok(fragment);
        }
        return Err(Stop::Refuse(Code::NotFound));
    }
    let directory = Handle { node: seat.node, home: seat.home };
    let block = view.tablet;
    match view.ask(seat.home, Question::ListFragment { directory, block }, |view| {
        answers::list_fragment(view, directory, block)
    })? {
        Told::Listed { access_version } => {
            let fragment = empty_fragment(seat.name_block, view.time(), access_version, grant.quota);
            young_enough(view, fragment, grant.access_version)
        }
        _ => Err(Stop::Later),
    }
}

/// Who shows a grant from before the last chmod or chown has to ask for a new one, however late the request
/// comes and whether its client still lives.
fn young_enough(view: &View, fragment: FragmentRecord, shown: Version) -> Decide<FragmentRecord> {
    if shown < fragment.access_version && !view.config.planted(Mutant::GrantAfterChmod) {
        return Err(Stop::Refuse(Code::Unauthenticated));
    }
    Ok(fragment)
}

/// A fragment without entries.
pub(crate) fn empty_fragment(
    name_block: Block,
    born: Wall,
    access_version: Version,
    quota: Option<Handle>,
) -> FragmentRecord {
    let (version, name_block) = (Version(1), Some(name_block));
    FragmentRecord { entries: 0, directories: 0, modified: born, version, access_version, quota, name_block }
}

/// A fragment of a directory that a grant is shown of: one of long ago may not say where its names lie.
fn placed(fragment: FragmentRecord, grant: &GrantBody) -> FragmentRecord {
    FragmentRecord { name_block: Some(grant.seat.name_block), ..fragment }
}

/// Writes a fragment back with other counts.
pub(crate) fn count(
    view: &mut View,
    directory: NodeId,
    mut fragment: FragmentRecord,
    entries: i64,
    directories: i32,
) {
    let broken = "a fragment never counts fewer entries than it has";
    fragment.entries = fragment.entries.checked_add_signed(entries).expect(broken);
    fragment.directories = fragment.directories.checked_add_signed(directories).expect(broken);
    fragment.modified = fragment.modified.max(view.time());
    fragment.version = fragment.version.next();
    view.put(Key::Fragment(directory), Record::Fragment(Box::new(fragment)));
    view.changes(LeaseKey::Content(directory));
}

/// The fragment of a directory that has a name here, about to change under a grant.
pub(crate) fn fragment_with_entries(
    view: &mut View,
    directory: NodeId,
    access_version: Version,
) -> Decide<FragmentRecord> {
    let fragment = view.fragment(directory)?.ok_or(Stop::Refuse(Code::Io))?;
    young_enough(view, fragment, access_version)
}

/// The same, of the directory of a grant.
pub(crate) fn fragment_under(view: &mut View, grant: &GrantBody) -> Decide<FragmentRecord> {
    Ok(placed(fragment_with_entries(view, grant.seat.node, grant.access_version)?, grant))
}

/// The client has released its own leases on what it believes a name to lead to; on another node it may still
/// hold some.
pub(crate) fn check_known(entry: &NameEntry, known: NodeId) -> Decide<()> {
    if entry.node.node == known { Ok(()) } else { Err(Stop::Refuse(Code::Stale)) }
}

/// Whether a name may be taken away that leads to this node.
pub(crate) fn check_sticky(view: &mut View, remover: &Remover, node: Handle) -> Decide<()> {
    if remover.removes_all() {
        return Ok(());
    }
    match view.ask(node.home, Question::Owner { node }, |view| answers::owner(view, node))? {
        Told::Owner { uid, .. } => Ok(remover.check(uid)?),
        _ => Err(Stop::Refuse(Code::NotPermitted)),
    }
}

/// A name of a non-directory is gone: its node loses a link, here in the same batch, elsewhere by the queue.
pub(crate) fn drop_link(view: &mut View, node: Handle, keep_open: bool) -> Decide<()> {
    let open: Vec<SessionId> = view.session.into_iter().filter(|_| keep_open).collect();
    let changed = view.time();
    if view.tablet.contains(node.home) {
        return drop_link_here(view, node, &open, changed);
    }
    view.queue(Draft {
        to: node.home,
        work: Deferred::DropLink { node, open, changed },
        awaited: true,
        locks: Vec::new(),
    })
}

/// The same, at the node's home.
pub(crate) fn drop_link_here(
    view: &mut View,
    handle: Handle,
    open: &[SessionId],
    changed: Wall,
) -> Decide<()> {
    let mut node = view.node_at(handle)?;
    node.attributes.links = node.attributes.links.saturating_sub(1);
    rules::touch(&mut node.attributes, changed);
    view.changes(LeaseKey::File(handle.node));
    if node.attributes.links > 0 {
        view.put_node(handle.node, node);
        return Ok(());
    }
    // Whoever may have it open keeps it; who turns out not to is asked, and is no holder any more. Other
    // nodes than files are never open here.
    let mut holders = view.openers(handle.node);
    holders.extend(open);
    holders.retain(|_| node.attributes.file_type == FileType::Regular);
    if holders.is_empty() {
        return reap(view, handle.node, node);
    }
    for session in holders {
        view.put(Key::Orphan(handle.node, session), Record::Mark(changed));
    }
    view.put_node(handle.node, node);
    Ok(())
}

/// A name of a node that is no directory was moved: its time of change says so, here in the same batch,
/// elsewhere by the queue.
pub(crate) fn touch(view: &mut View, node: Handle) -> Decide<()> {
    let changed = view.time();
    if view.tablet.contains(node.home) {
        return touch_here(view, node, changed);
    }
    view.queue(Draft {
        to: node.home,
        work: Deferred::Touch { node, changed },
        awaited: true,
        locks: Vec::new(),
    })
}

/// The same, at the node's home.
pub(crate) fn touch_here(view: &mut View, handle: Handle, changed: Wall) -> Decide<()> {
    let mut node = view.node_at(handle)?;
    rules::touch(&mut node.attributes, changed);
    view.put_node(handle.node, node);
    view.changes(LeaseKey::File(handle.node));
    Ok(())
}

/// The session id of marks of nodes that nobody can reach any more and whose content is being removed.
pub(crate) const REAPER: SessionId = SessionId(0);

/// Nobody can reach the node any more. What has content is marked, and removed page by page in the
/// background, so that unlinking costs the same whatever the size.
pub(crate) fn reap(view: &mut View, node: NodeId, mut record: NodeRecord) -> Decide<()> {
    xattrs::remove_all(view, node, &mut record)?;
    file_locks::forget(view, node);
    if record.attributes.space == 0 {
        view.delete(Key::Node(node));
        return Ok(());
    }
    view.put(Key::Orphan(node, REAPER), Record::Mark(view.time()));
    view.put_node(node, record);
    Ok(())
}

/// A directory that is about to be made.
pub(crate) struct NewDirectory<'a> {
    pub seat: Seat,
    pub parent: Handle,
    pub name: &'a Name,
    pub access: Access,
    pub acls: &'a Acls,
    pub quota: Option<Handle>,
}

/// Makes a directory's node, and its first fragment when all its names lie in this tablet. The caller has
/// seen that its home is here.
pub(crate) fn make_directory_node(view: &mut View, new: NewDirectory, born: Wall) -> NodeRecord {
    let NewDirectory { seat, parent, name, access, acls, quota } = new;
    let mut fragments = Vec::new();
    if view.tablet.covers(seat.name_block) {
        fragments.push(view.tablet);
        let fragment = empty_fragment(seat.name_block, born, Version(0), quota);
        view.put(Key::Fragment(seat.node), Record::Fragment(Box::new(fragment)));
    }
    let attributes = rules::attributes_of_new_directory(access, born);
    let content = DirectoryContent {
        seat,
        parent,
        name: name.as_bytes().to_vec(),
        fragments,
        modified_set: Wall(i64::MIN),
        access_version: Version(0),
    };
    let content = NodeContent::Directory(Box::new(content));
    let acls = acls.clone();
    let record = NodeRecord { home: seat.home, attributes, content, xattrs: false, acls, quota };
    view.put_node(seat.node, record.clone());
    record
}

/// A directory's attributes, merged from its node and its fragments, and whether all of these are here.
pub(crate) fn directory_attributes(
    view: &mut View,
    node: NodeId,
    record: &NodeRecord,
) -> Decide<(Attributes, bool)> {
    // Whoever it is delegated to may have changed it, also if nothing was ever made in it as far as is known
    // here.
    view.look_into(node)?;
    let directory = record.directory()?;
    let mut all_here = true;
    let mut fragments = Vec::with_capacity(directory.fragments.len());
    for block in &directory.fragments {
        let stat = if view.tablet.contains(block.start()) {
            view.fragment(node)?.map(stat_of)
        } else {
            all_here = false;
            match view.ask(block.start(), Question::Fragment { directory: node }, |view| {
                answers::fragment(view, node)
            })? {
                Told::Fragment(stat) => Some(stat),
                _ => return Err(Stop::Later),
            }
        };
        fragments.extend(stat);
    }
    Ok((rules::directory_attributes(&record.attributes, directory.modified_set, &fragments), all_here))
}

/// What other tablets are told of a fragment.
pub(crate) fn stat_of(fragment: FragmentRecord) -> FragmentStat {
    FragmentStat { entries: fragment.entries, directories: fragment.directories, modified: fragment.modified }
}

/// Shows who asks what became of the directories that it changed: its kernel asks for their attributes next.
/// Only of what is at hand; nothing is loaded or asked for that.
pub(crate) fn show_changed(view: &mut View) {
    let content = |key: &LeaseKey| match key {
        LeaseKey::Content(directory) => Some(*directory),
        _ => None,
    };
    let directories: BTreeSet<NodeId> = view.changed.iter().filter_map(content).collect();
    for node in directories {
        let wanted = view.wanted.len();
        if let Ok(Some(changed)) = changed_directory(view, node) {
            view.shown.push(changed);
        }
        view.wanted.truncate(wanted);
    }
}

fn changed_directory(view: &mut View, node: NodeId) -> Decide<Option<ChangedDirectory>> {
    let Some(record) = view.node(node)? else { return Ok(None) };
    let fragments = &record.directory()?.fragments;
    let all_here = fragments.iter().all(|block| view.tablet.contains(block.start()));
    let Some(fragment) = view.fragment(node)?.filter(|_| all_here) else { return Ok(None) };
    let (attributes, _) = directory_attributes(view, node, &record)?;
    let lease = view.lease_again(LeaseKey::Content(node));
    let node = directory_node_view(node, &record, attributes, lease);
    Ok(Some(ChangedDirectory { node, version: fragment.version }))
}

/// A directory as its home shows it to the asking session.
pub(crate) fn directory_view(view: &mut View, node: NodeId, record: &NodeRecord) -> Decide<DirectoryView> {
    let (attributes, all_here) = directory_attributes(view, node, record)?;
    let directory = record.directory()?;
    let access_lease = view.lease(LeaseKey::Access(node));
    let lease = if all_here { view.lease(LeaseKey::Content(node)) } else { LeaseMs(0) };
    let body = grant_body(view, record)?;
    Ok(DirectoryView {
        node: directory_node_view(node, record, attributes, lease),
        parent: directory.parent,
        grant: Grant::sign(body, view.keys.grants()),
        access_lease,
    })
}

/// What a grant of a directory says now.
pub(crate) fn grant_body(view: &View, record: &NodeRecord) -> Decide<GrantBody> {
    let directory = record.directory()?;
    Ok(GrantBody {
        filesystem: view.filesystem.filesystem,
        name_key: view.filesystem.name_key,
        session: view.session.ok_or(Stop::Refuse(Code::SessionEnded))?,
        seat: directory.seat,
        access: record.access(),
        access_version: directory.access_version,
        acl: record.acls.hash(),
        quota: record.quota,
        expires: view.now.wall.after(view.config.grant_ttl),
    })
}

/// A directory's node with its merged attributes.
pub(crate) fn directory_node_view(
    node: NodeId,
    record: &NodeRecord,
    attributes: Attributes,
    lease: LeaseMs,
) -> NodeView {
    NodeView { node: record.handle(node), attributes, lease, may_open: false, extended: record.is_extended() }
}

/// A node that is no directory as its home shows it.
pub(crate) fn node_view(view: &mut View, node: NodeId, record: &NodeRecord) -> NodeView {
    let (lease, may_open) = match record.attributes.file_type {
        FileType::Regular => view.file_lease(node),
        _ => (view.lease(LeaseKey::File(node)), false),
    };
    let attributes = record.attributes;
    NodeView { node: record.handle(node), attributes, lease, may_open, extended: record.is_extended() }
}

/// A name with as much of its node as is at home here.
pub(crate) fn entry_view(
    view: &mut View,
    directory: NodeId,
    hash: NameHash,
    entry: &NameEntry,
) -> Decide<EntryView> {
    let mut shown = EntryView {
        node: entry.node,
        file_type: entry.file_type,
        lease: view.lease(LeaseKey::Name(directory, hash)),
        attributes: None,
        directory: None,
    };
    if !view.tablet.contains(entry.node.home) {
        return Ok(shown);
    }
    let record = view.node_at(entry.node)?;
    if let NodeContent::Directory(content) = &record.content {
        let here = content.fragments.iter().all(|block| view.tablet.contains(block.start()));
        if here {
            shown.directory = Some(Box::new(directory_view(view, entry.node.node, &record)?));
        }
    } else {
        shown.attributes = Some(node_view(view, entry.node.node, &record));
    }
    Ok(shown)
}
