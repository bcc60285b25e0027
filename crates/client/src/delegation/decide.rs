//! What is decided here: operations in delegated directories, on their entries and on nodes that were made in
//! them. The rules are those of the servers, which decide every step again; whatever is not plain is left to
//! them, while the directory is suspended.

use crate::context::{Context, State};
use crate::event::Invalidation;
use crate::operation::{Answer, Found, ListPart, Listed, OpenFile, Remaining};
use crate::state::lease::{Directory, Seen};
use crate::state::lent::{Lent, LocalDirectory, LocalEntry, Ours, Place};
use bearing_proto::client::{
    AttributeChange, CommitMode, Detail, DirectoryView, Extent, Handle, LeaseKey, LeaseMs, NewNode, NodeView,
    RenameMode,
};
use bearing_proto::delegation::Change;
use bearing_proto::grant::{Capability, Grant};
use bearing_proto::keys::Mac;
use bearing_proto::peer::Remover;
use bearing_proto::rules::{self, Changer, Committed, OpenWish, touch};
use bearing_types::{
    Acls, Attributes, Block, Code, Cookie, Credentials, FileType, Mode, Name, NameHash, NodeId, Permission,
    SetIds, Uid, Version, Wall,
};
use std::time::Duration;

/// What came of deciding something here.
pub(crate) enum Local<T> {
    /// It is decided.
    Done(Result<T, Code>),
    /// Its owner has to decide it.
    Outside,
    /// No ids are left for what would be made.
    NeedIds,
    /// The lease has run out: its owner has to say first whether anything is lent yet.
    Lapsed,
    /// A name has to be asked for first: it may lead to what was dropped here.
    Unknown(Box<Unknown>),
}

/// A name that is not at hand, and who wants it.
pub(crate) struct Unknown {
    pub directory: Handle,
    pub name: Name,
    pub who: Credentials,
}

/// A name that a rename concerns.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    pub directory: Handle,
    pub name: &'a Name,
}

impl Context {
    /// Decides something in a directory if that is ours. `None`: its owner is to be asked; then it is not
    /// ours any more.
    pub(crate) async fn decide_in<T>(
        &self,
        directory: NodeId,
        decide: impl Fn(&mut State, Block) -> Local<T>,
    ) -> Option<Result<T, Code>> {
        loop {
            self.settled(directory).await;
            let (tablet, local) = self.with(|state| {
                let tablet = state.delegations.directory(directory)?.tablet;
                let lasts = state.delegations.still_lent(tablet, state.io.now.mono);
                Some((tablet, if lasts { decide(state, tablet) } else { Local::Lapsed }))
            })?;
            match local {
                Local::Lapsed => {
                    let position = self.with(|state| state.delegations.lent(tablet).map(Lent::position));
                    self.past_lapse(position?).await;
                }
                Local::Done(result) => {
                    self.hold_back(tablet).await;
                    return Some(result);
                }
                Local::NeedIds => {
                    if !self.await_ids(tablet).await {
                        // Its owner may have a few yet, or waits for more as it does for everybody.
                        self.suspend(directory).await;
                        return None;
                    }
                }
                Local::Unknown(unknown) => {
                    if let Err(code) = self.learn(&unknown).await {
                        return Some(Err(code));
                    }
                }
                Local::Outside => {
                    self.suspend(directory).await;
                    return None;
                }
            }
        }
    }

    /// Waits while a directory is asked for or given back, or its home has yet to hear that it was removed
    /// here: whoever has it still would otherwise see, and change, what it was before.
    pub(crate) async fn settled(&self, directory: NodeId) {
        while let Some(waiting) = self.with(|state| state.delegations.await_moved(directory)) {
            waiting.await;
        }
        if let Some(tablet) = self.with(|state| state.delegations.tablet_to_remove(directory)) {
            // If that fails, whoever asks for stability is told.
            let _ = self.flush_steps(tablet).await;
        }
    }

    /// Steps are not decided much faster than they are done.
    async fn hold_back(&self, tablet: Block) {
        if self.with(|state| state.delegations.lent(tablet).is_some_and(Lent::is_full)) {
            // If that fails, whoever asks for stability is told.
            let _ = self.flush_steps(tablet).await;
        }
    }

    /// Asks for ids, and says whether there are some.
    async fn await_ids(&self, tablet: Block) -> bool {
        match self.with(|state| state.delegations.await_ids(tablet)) {
            Some(waiting) => waiting.await,
            None => false,
        }
    }

    /// What was decided here of a node is done at its home, which decides of it from now on: of a directory
    /// of ours for a while.
    pub(crate) async fn leave_to_home(&self, node: NodeId) {
        self.suspend(node).await;
        self.publish_node(node).await;
    }

    /// A node's home hears of all that was decided of it here. It stays ours, and the kernel is told nothing:
    /// so a read may wait for this, whose pages the kernel keeps locked until it is answered.
    pub(crate) async fn catch_up(&self, node: NodeId) {
        // It may be decided of, even removed, while this waits: what is on its way would come to its home
        // behind what the home decides.
        while let Some(tablet) = self.with(|state| state.delegations.tablet_with_steps_of(node)) {
            if self.flush_steps(tablet).await.is_err() {
                break;
            }
        }
    }

    /// A node that was made here is changed by its home from now on: it hears of all that was decided before.
    /// The kernel forgets the node on the way; so nothing may wait for this for which the kernel locks its
    /// pages.
    pub(crate) async fn publish_node(&self, node: NodeId) {
        self.catch_up(node).await;
        // It may be lent to us again while the kernel forgets it.
        while self.with(|state| state.delegations.is_our_node(node)) {
            self.with(|state| state.publish(node));
            self.expose(node).await;
            self.catch_up(node).await;
        }
    }
}

impl State {
    /// How long the kernel may go by a name that is ours, and by what it leads to.
    fn ours_remaining(&self, tablet: Block, draining: bool) -> (Remaining, Remaining) {
        let lent = self.delegations.lent(tablet).filter(|_| !draining);
        let left = lent.map(|lent| lent.until().since(self.io.now.mono)).unwrap_or_default();
        let name = lent.map(|lent| lent.names_life().min(left)).unwrap_or_default();
        (Remaining(name), Remaining(left))
    }

    pub(super) fn image(&mut self, directory: NodeId) -> &mut LocalDirectory {
        let image = self.delegations.use_directory(directory, self.io.now.mono);
        image.expect("the caller has seen that it is ours")
    }

    /// A delegated directory as others of this machine see one.
    pub(crate) fn local_directory(&self, directory: NodeId) -> Option<Directory> {
        let image = self.delegations.directory(directory)?;
        let until = self.delegations.lent(image.tablet).map(Lent::until);
        let until = until.filter(|until| self.io.now.mono < *until)?;
        let until = Some(until).filter(|_| !image.draining);
        let node = NodeView {
            node: image.handle,
            attributes: image.attributes,
            lease: LeaseMs(0),
            may_open: false,
            extended: image.extended,
        };
        let view = DirectoryView {
            node,
            parent: image.parent,
            // Never shown to a server: a directory is suspended before one is asked about what is in it.
            grant: Grant { body: image.body.clone(), mac: Mac([0; 16]) },
            access_lease: LeaseMs(0),
        };
        Some(Directory { view, access_until: until, content_until: until, shown_until: None })
    }

    /// A node that is decided of here. What was lent is its home's again when the lease is over.
    pub(crate) fn our_node(&self, node: NodeId) -> Option<Seen> {
        let ours = self.delegations.ours.get(node)?;
        let until = self.delegations.lent(ours.tablet()).map(Lent::until)?;
        let until = Some(until).filter(|until| self.io.now.mono < *until);
        if until.is_none() && !ours.made_here {
            return None;
        }
        let until = until.filter(|_| self.delegations.drains == 0);
        let Ours { attributes, extended, made_here, .. } = *ours;
        Some(Seen { node: ours.handle(node), attributes, until, may_open: made_here, extended })
    }

    /// What is at hand of an entry; `None`: its home has to be asked.
    pub(super) fn entry_found(&mut self, directory: NodeId, entry: &LocalEntry) -> Option<Found> {
        let (tablet, draining) = {
            let image = self.image(directory);
            (image.tablet, image.draining)
        };
        let (name_remaining, mut attributes_remaining) = self.ours_remaining(tablet, draining);
        let node = entry.node.node;
        let attributes = match entry.file_type {
            FileType::Directory => {
                let image = self.delegations.directory(node)?;
                if image.draining {
                    attributes_remaining = Remaining(Duration::ZERO);
                }
                image.attributes
            }
            _ => self.files.overlaid(node, self.delegations.ours.get(node)?.attributes),
        };
        Some(Found { node: entry.node, attributes, name_remaining, attributes_remaining })
    }

    /// What a name in a directory of ours leads to, and what is at hand of that.
    pub(crate) fn lookup_here(
        &mut self,
        directory: NodeId,
        name: &Name,
        who: &Credentials,
    ) -> Local<(LocalEntry, Remaining, Option<Found>)> {
        let image = self.image(directory);
        if !image.body.access.allows(who, Permission::SEARCH, FileType::Directory) {
            return Local::Done(Err(Code::Access));
        }
        let (tablet, draining) = (image.tablet, image.draining);
        match image.place(name) {
            Place::Taken(_, entry) => {
                let found = self.entry_found(directory, &entry);
                Local::Done(Ok((entry, self.ours_remaining(tablet, draining).0, found)))
            }
            Place::Free(_) => Local::Done(Err(Code::NotFound)),
            Place::Crowded => Local::Outside,
            Place::Unknown => self.unknown(directory, name, who),
        }
    }

    /// A part of a listing; nothing if it is not held whole: its home lists it.
    pub(crate) fn list_here(
        &mut self,
        directory: NodeId,
        who: &Credentials,
        part: ListPart,
    ) -> Local<Option<Vec<Listed>>> {
        let ListPart { after, count_max, detail } = part;
        let image = self.image(directory);
        let may = |wish| image.body.access.allows(who, wish, FileType::Directory);
        if !may(Permission::READ) {
            return Local::Done(Err(Code::Access));
        }
        if image.thinned.is_some() {
            return Local::Done(Ok(None));
        }
        // What an entry is, beyond its kind, is for those to see who may search.
        let with_attributes = detail == Detail::Attributes && may(Permission::SEARCH);
        use std::ops::Bound::{Excluded, Unbounded};
        let entries: Vec<(Cookie, LocalEntry)> = image
            .entries
            .range((Excluded(after), Unbounded))
            .take(count_max as usize)
            .map(|(cookie, entry)| (*cookie, entry.clone()))
            .collect();
        let listed = entries.into_iter().map(|(cookie, entry)| {
            let attributes = match entry.file_type {
                FileType::Directory => None,
                _ if !with_attributes => None,
                _ => self.entry_found(directory, &entry).map(|found| found.attributes),
            };
            let LocalEntry { name, node, file_type, .. } = entry;
            Listed { cookie, name, node, file_type, attributes }
        });
        Local::Done(Ok(Some(listed.collect())))
    }

    /// Where a new name goes, if who asks may make one.
    fn free_place(&mut self, directory: NodeId, name: &Name, who: &Credentials) -> Result<Cookie, Local<()>> {
        let image = self.image(directory);
        if !image.body.access.allows(who, Permission::CHANGE_ENTRIES, FileType::Directory) {
            return Err(Local::Done(Err(Code::Access)));
        }
        match image.place(name) {
            Place::Free(cookie) => Ok(cookie),
            Place::Taken(..) => Err(Local::Done(Err(Code::Exists))),
            Place::Crowded => Err(Local::Outside),
            Place::Unknown => Err(self.unknown(directory, name, who)),
        }
    }

    /// Makes a file, link or special file.
    pub(crate) fn create_here(
        &mut self,
        directory: NodeId,
        name: &Name,
        who: &Credentials,
        new: &NewNode,
        open: bool,
    ) -> Local<(Found, Option<OpenFile>)> {
        let is_device = matches!(new.file_type, FileType::CharDevice | FileType::BlockDevice);
        if is_device || rules::check_new(who, new).is_err() {
            return Local::Outside;
        }
        let cookie = match self.free_place(directory, name, who) {
            Ok(cookie) => cookie,
            Err(refused) => return refused.cast(),
        };
        let tablet = self.image(directory).tablet;
        let Some(node) = self.delegations.take_id(tablet, self.io.now.mono) else { return Local::NeedIds };
        let now = self.delegations.now(tablet, self.io.now.mono);
        let image = self.image(directory);
        let home = image.body.seat.position_of(NameHash::of(image.body.name_key, name));
        let handle = Handle { node, home };
        let (access, _) =
            rules::access_of_new(image.body.access, &Acls::default(), who, new.mode, new.file_type);
        let attributes = rules::attributes_of_new(new, access, now);
        let entry = LocalEntry { name: name.clone(), node: handle, file_type: new.file_type, lent: false };
        image.insert(cookie, entry.clone(), now);
        let parent = image.handle;
        self.delegations.ours.insert(node, Ours::new(home, tablet, attributes, false, true));
        if new.file_type == FileType::Symlink {
            self.delegations.ours.insert_target(node, &new.target);
        }
        self.cache.note_name(node, directory, name);
        let (name, new) = (name.clone(), new.clone());
        self.queue_step(tablet, Change::Create { directory: parent, who: who.clone(), name, new, node });
        let found = self.entry_found(directory, &entry).expect("it was made just now");
        let file = open.then(|| self.open_created(&found, who, None));
        Local::Done(Ok((found, file)))
    }

    pub(crate) fn make_directory_here(
        &mut self,
        directory: NodeId,
        name: &Name,
        who: &Credentials,
        mode: Mode,
    ) -> Local<Found> {
        let cookie = match self.free_place(directory, name, who) {
            Ok(cookie) => cookie,
            Err(refused) => return refused.cast(),
        };
        let image = self.image(directory);
        let (tablet, body) = (image.tablet, image.body.clone());
        let hash = NameHash::of(body.name_key, name);
        // The seat of any child of this name, whatever its id will be, to see where it would lie.
        let Some(node) = self.delegations.take_id(tablet, self.io.now.mono) else { return Local::NeedIds };
        let seat = body.seat.child(node, hash);
        if !tablet.contains(seat.home) || !tablet.covers(seat.name_block) {
            return Local::Outside;
        }
        let now = self.delegations.now(tablet, self.io.now.mono);
        let file_type = FileType::Directory;
        let (access, _) = rules::access_of_new(body.access, &Acls::default(), who, mode, file_type);
        let handle = Handle { node, home: seat.home };
        let image = self.image(directory);
        let entry = LocalEntry { name: name.clone(), node: handle, file_type, lent: false };
        image.insert(cookie, entry.clone(), now);
        let parent = image.handle;
        let made = LocalDirectory {
            handle,
            parent,
            body: bearing_proto::grant::GrantBody { seat, access, access_version: Version(0), ..body },
            attributes: rules::attributes_of_new_directory(access, now),
            extended: false,
            entries: Default::default(),
            tablet,
            since: self.io.now.mono,
            used: self.io.now.mono,
            draining: false,
            thinned: None,
        };
        self.delegations.insert_directory(node, made);
        let (who, name) = (who.clone(), name.clone());
        self.queue_step(tablet, Change::MakeDirectory { directory: parent, who, name, mode, node });
        Local::Done(Ok(self.entry_found(directory, &entry).expect("it was made just now")))
    }

    /// The entry that a name leads to, if who asks may take it away and it is ours alone.
    fn removable(
        &mut self,
        directory: NodeId,
        name: &Name,
        who: &Credentials,
    ) -> Result<(Cookie, LocalEntry), Local<()>> {
        let image = self.image(directory);
        let (access, tablet) = (image.body.access, image.tablet);
        if !access.allows(who, Permission::CHANGE_ENTRIES, FileType::Directory) {
            return Err(Local::Done(Err(Code::Access)));
        }
        let (cookie, entry) = match image.place(name) {
            Place::Taken(cookie, entry) => (cookie, entry),
            Place::Free(_) => return Err(Local::Done(Err(Code::NotFound))),
            Place::Crowded => return Err(Local::Outside),
            Place::Unknown => return Err(self.unknown(directory, name, who)),
        };
        let node = entry.node.node;
        let owner = match entry.file_type {
            // What empties one that lies in another tablet goes there, and may come behind its removal here.
            FileType::Directory => match self.delegations.directory(node) {
                Some(child) if child.tablet == tablet => Some(child.attributes.uid),
                _ => return Err(Local::Outside),
            },
            _ => self.delegations.ours.get(node).map(|ours| ours.attributes.uid),
        };
        let remover = Remover::of(access, who.uid);
        match owner.map(|owner| remover.check(owner)) {
            Some(Ok(())) => Ok((cookie, entry)),
            Some(Err(code)) => Err(Local::Done(Err(code))),
            None if remover.removes_all() && entry.lent && self.is_idle(node) => Ok((cookie, entry)),
            // What was not lent may be leased, open or linked elsewhere.
            None => Err(Local::Outside),
        }
    }

    /// Whether nothing is asked about a file, and it is not open: then its home hears of what is decided here
    /// before anything else.
    fn is_idle(&self, node: NodeId) -> bool {
        !self.files.is_in_use(node) && !self.leases.is_changing(LeaseKey::File(node))
    }

    pub(crate) fn unlink_here(&mut self, directory: NodeId, name: &Name, who: &Credentials) -> Local<()> {
        let (cookie, entry) = match self.removable(directory, name, who) {
            Ok(entry) => entry,
            Err(refused) => return refused,
        };
        if let Err(code) = rules::check_same_kind(entry.file_type, FileType::Regular) {
            return Local::Done(Err(code));
        }
        let node = entry.node.node;
        let tablet = self.image(directory).tablet;
        let now = self.delegations.now(tablet, self.io.now.mono);
        let image = self.image(directory);
        image.remove(cookie, now);
        let parent = image.handle;
        let keep_open = self.drop_node(node, now);
        self.drop_leases(&[LeaseKey::Name(directory, cookie.hash()), LeaseKey::File(node)]);
        let (who, name) = (who.clone(), name.clone());
        self.queue_step(tablet, Change::Unlink { directory: parent, who, name, node, keep_open });
        Local::Done(Ok(()))
    }

    /// The only name of a node of ours is gone. Whether it is open.
    fn drop_node(&mut self, node: NodeId, now: Wall) -> bool {
        let keep_open = self.files.name_goes(node);
        if keep_open {
            self.delegations.ours.lose_name(node, |attributes| touch(attributes, now));
        } else {
            self.delegations.ours.remove(node);
            self.files.forget(node);
        }
        keep_open
    }

    pub(crate) fn remove_directory_here(
        &mut self,
        directory: NodeId,
        name: &Name,
        who: &Credentials,
    ) -> Local<()> {
        let (cookie, entry) = match self.removable(directory, name, who) {
            Ok(entry) => entry,
            Err(refused) => return refused,
        };
        if let Err(code) = rules::check_same_kind(entry.file_type, FileType::Directory) {
            return Local::Done(Err(code));
        }
        let node = entry.node.node;
        if self.delegations.is_moving(node) {
            return Local::Outside;
        }
        if self.delegations.directory(node).is_some_and(|image| !image.is_empty()) {
            return Local::Done(Err(Code::NotEmpty));
        }
        let tablet = self.image(directory).tablet;
        let now = self.delegations.now(tablet, self.io.now.mono);
        self.delegations.remove_directory(node);
        let name_key = LeaseKey::Name(directory, cookie.hash());
        self.drop_leases(&[name_key, LeaseKey::Access(node), LeaseKey::Content(node)]);
        let image = self.image(directory);
        image.remove(cookie, now);
        let parent = image.handle;
        let (who, name) = (who.clone(), name.clone());
        self.queue_step(tablet, Change::RemoveDirectory { directory: parent, who, name, node });
        Local::Done(Ok(()))
    }

    /// Moves a name between directories of ours.
    pub(crate) fn rename_here(
        &mut self,
        from: End,
        to: End,
        who: &Credentials,
        mode: RenameMode,
    ) -> Local<()> {
        let (source, target) = (from.directory.node, to.directory.node);
        let ours = |state: &State, node| {
            let image = state.delegations.directory(node)?;
            (!state.delegations.is_moving(node)).then_some(image.tablet)
        };
        let (Some(tablet), Some(other)) = (ours(self, source), ours(self, target)) else {
            return Local::Outside;
        };
        if tablet != other || mode == RenameMode::Exchange || (source, from.name) == (target, to.name) {
            return Local::Outside;
        }
        let target_access = self.image(target).body.access;
        if !target_access.allows(who, Permission::CHANGE_ENTRIES, FileType::Directory) {
            return Local::Done(Err(Code::Access));
        }
        let (old_cookie, moved) = match self.removable(source, from.name, who) {
            Ok(entry) => entry,
            Err(refused) => return refused,
        };
        // Whoever asks for its times must not be told by its home, which hears of this later.
        let ours = self.delegations.ours.get(moved.node.node);
        if moved.file_type != FileType::Directory && ours.is_none() {
            return Local::Outside;
        }
        // A directory with another parent needs the move token; and what was lent with a directory is so no
        // more when it leaves it.
        if source != target && !ours.is_some_and(|ours| ours.made_here) {
            return Local::Outside;
        }
        // What comes into a directory that is being given back the kernel was not made to forget.
        if source != target && self.image(target).draining {
            return Local::Outside;
        }
        let (new_cookie, replaced) = match self.image(target).place(to.name) {
            Place::Crowded => return Local::Outside,
            Place::Unknown => return self.unknown(target, to.name, who),
            Place::Free(cookie) => (cookie, None),
            Place::Taken(..) if mode == RenameMode::NoReplace => return Local::Done(Err(Code::Exists)),
            Place::Taken(cookie, entry) => (cookie, Some(entry)),
        };
        if let Some(replaced) = &replaced {
            let files = moved.file_type != FileType::Directory && replaced.file_type != FileType::Directory;
            if !files || replaced.node == moved.node {
                return Local::Outside;
            }
            match self.removable(target, to.name, who) {
                Ok(_) => {}
                Err(refused) => return refused,
            }
        }
        let now = self.delegations.now(tablet, self.io.now.mono);
        let mut keep_open = false;
        if let Some(replaced) = &replaced {
            keep_open = self.drop_node(replaced.node.node, now);
            self.image(target).remove(new_cookie, now);
        }
        self.image(source).remove(old_cookie, now);
        let grant = self.image(source).body.clone();
        if self.cache.kernel_may_go_by(&grant, from.name, self.io.now.mono) {
            // It was told under a lease that may outlive the one on all names of the directory.
            let name = to.name.clone();
            self.invalidate([Invalidation::Entry { directory: target, name }]);
        }
        let entry = LocalEntry { name: to.name.clone(), ..moved.clone() };
        self.image(target).insert(new_cookie, entry, now);
        let node = moved.node.node;
        let names = [(source, old_cookie), (target, new_cookie)];
        self.drop_leases(&names.map(|(directory, cookie)| LeaseKey::Name(directory, cookie.hash())));
        self.drop_leases(&[LeaseKey::File(node), LeaseKey::Access(node), LeaseKey::Content(node)]);
        if let Some(replaced) = &replaced {
            self.drop_leases(&[LeaseKey::File(replaced.node.node)]);
        }
        match moved.file_type {
            FileType::Directory => {
                touch(&mut self.image(node).attributes, now);
            }
            _ => {
                let ours = self.delegations.ours.get_mut(node).expect("only what is ours is moved here");
                touch(&mut ours.attributes, now);
                self.cache.note_name(node, target, to.name);
            }
        }
        let change = Change::Rename {
            source: from.directory,
            source_name: from.name.clone(),
            target: to.directory,
            target_name: to.name.clone(),
            who: who.clone(),
            mode,
            moved: node,
            replaced: replaced.map(|entry| entry.node.node),
            keep_open,
        };
        self.queue_step(tablet, change);
        Local::Done(Ok(()))
    }

    /// Changes attributes of a node that was made here, as its owner or root may.
    pub(crate) fn set_attributes_here(
        &mut self,
        node: NodeId,
        who: &Credentials,
        change: &AttributeChange,
    ) -> Local<Found> {
        let Some(ours) = self.delegations.ours.get(node) else { return Local::Outside };
        let tablet = ours.tablet();
        if !self.delegations.still_lent(tablet, self.io.now.mono) {
            return Local::Outside;
        }
        let now = self.delegations.now(tablet, self.io.now.mono);
        let Some(ours) = self.delegations.ours.get_mut(node) else { return Local::Outside };
        let foreign_owner = (change.uid.is_some() || change.gid.is_some()) && who.uid != Uid(0);
        let before = &ours.attributes;
        if !rules::owns(who, before)
            || change.size.is_some()
            || foreign_owner
            || before.links == 0
            || ours.extended
        {
            return Local::Outside;
        }
        let changer = Changer { who, list: None, has_open: false };
        let Ok(attributes) = rules::changed(before, changer, change, now) else { return Local::Outside };
        ours.attributes = attributes;
        let handle = ours.handle(node);
        self.drop_leases(&[LeaseKey::File(node)]);
        self.files.observe(node, &attributes, self.io.now.mono);
        let (who, change) = (who.clone(), *change);
        self.queue_step(tablet, Change::SetAttributes { node: handle, who, change });
        let seen = self.our_node(node).expect("it was changed just now");
        Local::Done(Ok(self.found(&seen, None)))
    }

    /// Makes written extents part of a file that was made here. Gives its attributes then.
    pub(crate) fn commit_here(
        &mut self,
        node: NodeId,
        (extents, opened): (&[Extent], Vec<Capability>),
        size_min: u64,
        mode: CommitMode,
        set_ids: SetIds,
    ) -> Option<Attributes> {
        // Also when the lease has run out: nobody has heard of the file but through the steps before this
        // one.
        let tablet = self.delegations.ours.get(node).filter(|ours| ours.made_here)?.tablet();
        let now = self.delegations.lent(tablet)?.now(self.io.now.mono);
        let ours = self.delegations.ours.get_mut(node)?;
        let base = if mode == CommitMode::Append { ours.attributes.size } else { 0 };
        let ends = extents.iter().map(|extent| extent.file_offset + u64::from(extent.length));
        let end = base + ends.max().unwrap_or(0).max(size_min);
        let added = extents.iter().map(|extent| u64::from(extent.length)).sum();
        // What the extents cover is not known here: until the home says, the file takes more space than
        // it does.
        let committed = Committed { added, freed: 0, size_min: end, modified: now, set_ids };
        let attributes = rules::committed(&ours.attributes, committed, now);
        ours.attributes = attributes;
        let handle = ours.handle(node);
        let token = self.delegations.ours.token(node);
        let extents = extents.to_vec();
        let step = Change::Commit { node: handle, extents, size_min, mode, token, opened, set_ids };
        self.queue_step(tablet, step);
        Some(attributes)
    }

    /// Notes that a file of ours was read. Whether it is ours.
    pub(crate) fn access_here(&mut self, node: NodeId, at: Wall) -> bool {
        let Some(ours) = self.delegations.ours.get(node) else { return false };
        let (tablet, handle) = (ours.tablet(), ours.handle(node));
        if self.delegations.still_lent(tablet, self.io.now.mono) {
            let now = self.delegations.now(tablet, self.io.now.mono);
            if let Some(ours) = self.delegations.ours.get_mut(node) {
                rules::note_access(&mut ours.attributes, at, now);
            }
            self.queue_step(tablet, Change::Accessed { node: handle, at });
        }
        true
    }

    /// Opens a file that was made here.
    pub(crate) fn open_here(
        &mut self,
        node: NodeId,
        who: &Credentials,
        wish: OpenWish,
    ) -> Option<Result<Answer, Code>> {
        let ours = self.delegations.ours.get(node).filter(|ours| ours.made_here)?;
        let (tablet, token) = (ours.tablet(), self.delegations.ours.token(node));
        if !self.delegations.still_lent(tablet, self.io.now.mono) {
            return None;
        }
        let seen = self.our_node(node)?;
        if seen.attributes.file_type != FileType::Regular || seen.attributes.links == 0 {
            return None;
        }
        if let Err(code) = rules::check_open(&seen.attributes, None, who, wish) {
            return Some(Err(code));
        }
        self.io.counters.local_opens += 1;
        let found = self.found(&seen, None);
        let file = self.add_open(&seen, (who, wish), token, self.io.now.mono);
        Some(Ok(Answer::Opened(file, found)))
    }

    /// The target of a symbolic link that was made here.
    pub(crate) fn link_here(&self, node: NodeId) -> Option<Vec<u8>> {
        self.delegations.ours.target(node).map(<[u8]>::to_vec)
    }

    /// A node of ours that its home was told is open is so no more: its home hears of that with the other
    /// steps. Whether it is ours.
    pub(crate) fn release_here(&mut self, node: NodeId) -> bool {
        let ours = self.delegations.ours.get(node).filter(|ours| ours.made_here);
        let Some(ours) = ours else { return false };
        let (handle, tablet, unlinked) = (ours.handle(node), ours.tablet(), ours.attributes.links == 0);
        if unlinked {
            self.delegations.ours.remove(node);
            self.files.forget(node);
        }
        if self.delegations.lent(tablet).is_some() {
            self.queue_step(tablet, Change::Release { node: handle });
        }
        true
    }
}

impl<T> Local<T> {
    /// The same of another result.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Local<U> {
        match self {
            Local::Done(result) => Local::Done(result.map(change)),
            Local::Outside => Local::Outside,
            Local::NeedIds => Local::NeedIds,
            Local::Lapsed => Local::Lapsed,
            Local::Unknown(unknown) => Local::Unknown(unknown),
        }
    }

    /// The same refusal of something else.
    fn cast<U>(self) -> Local<U> {
        match self {
            Local::Done(Err(code)) => Local::Done(Err(code)),
            Local::Done(Ok(_)) => unreachable!("only refusals are passed on"),
            Local::Outside => Local::Outside,
            Local::NeedIds => Local::NeedIds,
            Local::Lapsed => Local::Lapsed,
            Local::Unknown(unknown) => Local::Unknown(unknown),
        }
    }
}
