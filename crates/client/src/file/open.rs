//! Opening and closing files.

use super::extents::ExtentMap;
use super::{File, Open, Opening};
use crate::cache::Seen;
use crate::hub::{Hub, State};
use crate::operation::{Answer, Found, OpenFile};
use crate::request::Answered;
use crate::task::{Awaited, promise};
use bearing_proto::client::{Body, Call, Handle, LeaseKey};
use bearing_proto::grant::OpenToken;
use bearing_types::{Access, Code, Credentials, FileType, Mono, NodeId, Permission, Uid, Version};

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub read: bool,
    pub write: bool,
    pub truncate: bool,
    pub execute: bool,
}

impl Wish {
    /// Whether who asks may do it by these permission bits.
    pub fn is_allowed(self, access: Access, who: &Credentials) -> bool {
        let may = |permission| access.allows(who, permission, FileType::Regular);
        let reads = match self.execute {
            // A program may be executed without being readable.
            true => may(Permission::SEARCH),
            false => !self.read || may(Permission::READ),
        };
        reads && (!(self.write || self.truncate) || may(Permission::WRITE))
    }
}

impl Hub {
    pub(crate) async fn open_file(
        &self,
        node: Handle,
        who: &Credentials,
        wish: Wish,
    ) -> Result<Answer, Code> {
        // From here on no release of it is begun.
        self.with(|state| state.files.begin_opening(node));
        let opened = self.open_once_released(node, who, wish).await;
        if opened.is_ok() && wish.read && !wish.write {
            self.note_access(node.node);
        }
        let release = self.with(|state| state.files.end_opening(node.node));
        if release {
            self.release(node).await;
        }
        opened
    }

    async fn open_once_released(&self, node: Handle, who: &Credentials, wish: Wish) -> Result<Answer, Code> {
        // What we are letting go may be gone at any moment: the server shall decide after that, not in between. Nor may a release that is late
        // meet what was opened after it.
        if let Some(released) = self.with(|state| state.files.await_release(node.node)) {
            released.await;
        }
        if !wish.truncate
            && let Some(opened) = self.with(|state| state.open_here(node.node, who, wish))
        {
            return opened;
        }
        self.publish_node(node.node).await;
        if let Some(answer) = self.open_locally(node, who, wish) {
            return Ok(answer);
        }
        if wish.truncate {
            // Written before, so cut off: but if the file may not be cut, what was written must not be lost.
            self.flush_if_dirty(node.node).await?;
        }
        self.ask_open(node, who, wish).await
    }

    async fn ask_open(&self, node: Handle, who: &Credentials, wish: Wish) -> Result<Answer, Code> {
        let Wish { read, write, truncate, execute } = wish;
        let call = Call::Open { node, who: who.clone(), read, write, truncate, execute };
        if !write && !truncate {
            let answered = self.call(node.home, call).await?;
            return self.with(|state| state.take_opened(answered, wish));
        }
        let keys = vec![LeaseKey::File(node.node)];
        self.change(keys, node.home, call, |state, answered| state.take_opened(answered, wish)).await?
    }

    /// The server need not keep a node for us any more.
    async fn release(&self, node: Handle) {
        if self.with(|state| state.release_here(node.node)) {
            return;
        }
        self.with(|state| state.files.releasing.entry(node.node).or_default().count += 1);
        // If this fails the node goes with the session.
        let _ = self.call(node.home, Call::Release { node }).await;
        self.with(|state| state.files.released(node.node));
    }

    /// A tracked lease on a file's attributes is the right to open it for reading without asking. Refusals are left to the server.
    fn open_locally(&self, node: Handle, who: &Credentials, wish: Wish) -> Option<Answer> {
        if wish.write || wish.truncate {
            return None;
        }
        self.with(|state| {
            let seen = state.cache.node(node.node, state.now.mono)?;
            // Lists are judged by servers; they say nothing of the owner and of root.
            let listed = seen.extended && who.uid != Uid(0) && who.uid != seen.attributes.uid;
            let regular = seen.attributes.file_type == FileType::Regular;
            let allowed = wish.is_allowed(seen.attributes.access(), who);
            let lasts =
                seen.until.is_some_and(|until| until.since(state.now.mono) >= state.config.local_open_min);
            // An unlinked file is kept for those who have it open, and for nobody else.
            let unlinked = seen.attributes.links == 0 && !state.files.files.contains_key(&node.node);
            if listed || !regular || !allowed || !lasts || unlinked || !seen.may_open {
                return None;
            }
            state.counters.local_opens += 1;
            let found = state.found(&seen, None);
            let file = state.add_open(&seen, wish, None, state.now.mono);
            if let Some(opened) = state.files.files.get_mut(&node.node) {
                opened.open_for.opened_unasked(who);
            }
            Some(Answer::Opened(file, found))
        })
    }

    pub(crate) async fn close(&self, file: OpenFile) -> Result<Answer, Code> {
        if let Some(left) = self.with(|state| state.files.close_left(file)) {
            return left.map(|()| Answer::Done);
        }
        let open = self.with(|state| state.files.opens.get(&file).copied()).ok_or(Code::InvalidArgument)?;
        let last = self.with(|state| state.files.files.get(&open.node).is_some_and(|file| file.opens == 1));
        let stored = if last { self.flush_if_dirty(open.node).await } else { Ok(()) };
        let (error, release) = self.with(|state| state.end_open(file));
        if let Some(node) = release {
            self.release(node).await;
        }
        stored.and(error.map_or(Ok(Answer::Done), Err))
    }
}

impl State {
    fn take_opened(&mut self, answered: Answered, wish: Wish) -> Result<Answer, Code> {
        let Body::Opened(view, token) = answered.body else {
            self.counters.unexpected += 1;
            return Err(Code::Io);
        };
        if wish.truncate {
            self.files.truncated(view.node.node, view.attributes.size);
        }
        // What we or others changed while this was on its way it may not know of: then it is asked again before anything is read.
        let node = view.node;
        let is_fresh = self.leases.may_take(LeaseKey::File(node.node), node.home, &answered.stamp);
        let validated = if is_fresh { answered.stamp.sent } else { Mono::ZERO };
        let seen = self.take_node(&view, &answered.stamp);
        let file = self.add_open(&seen, wish, token, validated);
        Ok(Answer::Opened(file, self.found(&seen, None)))
    }

    /// Opens a file that this client just made.
    pub fn open_created(&mut self, found: &Found, token: Option<OpenToken>) -> OpenFile {
        let seen = Seen {
            node: found.node,
            attributes: found.attributes,
            until: None,
            may_open: false,
            extended: false,
        };
        let wish = Wish { read: true, write: true, truncate: false, execute: false };
        if found.attributes.size == 0 {
            self.files.extents.insert(found.node.node, ExtentMap::empty(found.attributes.version));
        }
        let validated = self.now.mono;
        self.files.left_behind.note_new(found.node.node);
        self.add_open(&seen, wish, token, validated)
    }

    /// Opens a file that was made under a delegation.
    pub fn open_ours(&mut self, seen: &Seen, wish: Wish, token: Option<OpenToken>) -> OpenFile {
        self.add_open(seen, wish, token, self.now.mono)
    }

    fn add_open(&mut self, seen: &Seen, wish: Wish, token: Option<OpenToken>, validated: Mono) -> OpenFile {
        let handle = seen.node;
        let number = OpenFile(self.files.next_open);
        self.files.next_open += 1;
        let fresh = || File { validated, modified: self.now.wall, ..File::new(handle, seen.attributes) };
        self.files.files.entry(handle.node).or_insert_with(fresh).unsynced_unknown = true;
        self.files.take_up_unsynced(handle.node);
        self.files.note_lost(handle.node);
        let file = self.files.files.get_mut(&handle.node).expect("it was just put there");
        let (node, told) = (handle.node, file.losses.known());
        let Wish { read, write, execute, .. } = wish;
        let open = Open { node, read, write, execute, told_by_sync: told, told_by_flush: told };
        self.files.opens.insert(number, open);
        file.opens += 1;
        token.into_iter().for_each(|token| file.open_for.take(token));
        // Close-to-open: what was known of the content counts from this moment only if it is of this version.
        self.files.observe(handle.node, &seen.attributes, validated);
        // What is leased may be newer, if the two answers crossed.
        let leased = self.cache.node(handle.node, self.now.mono).map(|leased| leased.attributes);
        if let Some(leased) = leased.filter(|leased| leased.version > seen.attributes.version) {
            self.files.observe(handle.node, &leased, Mono::ZERO);
        }
        self.plan_renewal(handle.node);
        number
    }

    /// Takes an open file away. Gives an error nobody was told of, and the node that the server need not keep any more.
    fn end_open(&mut self, file: OpenFile) -> (Option<Code>, Option<Handle>) {
        let Some(open) = self.files.opens.remove(&file) else { return (None, None) };
        self.files.openers.remove(&file);
        let Some(file) = self.files.files.get_mut(&open.node) else { return (None, None) };
        file.opens -= 1;
        let error = file.losses.tell(file.losses.known()).err();
        let over = file.opens == 0 && file.release_due;
        // It is being opened again: its home would let it go under that. Whoever closes it last tells.
        let opening = self.files.opening.get_mut(&open.node).filter(|_| over);
        let release = match opening {
            Some(opening) => {
                opening.release_due = true;
                None
            }
            None => over.then_some(file.handle),
        };
        if file.opens == 0 {
            file.release_due = false;
        }
        self.files.drop_unused(open.node);
        self.plan_renewal(open.node);
        (error, release)
    }
}

impl super::Files {
    /// A file that was made here is like any other: its home knows who may write it.
    pub fn published(&mut self, node: NodeId, token: Option<OpenToken>, now: Mono) {
        if let Some(file) = self.files.get_mut(&node) {
            token.into_iter().for_each(|token| file.open_for.take(token));
            file.validated = now;
        } else if let Some(token) = token {
            self.left_behind.take_token(node, token);
        }
    }

    /// What was decided about a file here never came to its home: what was written to it is lost, and whatever
    /// its home says of it counts from now on, although that is of an older version.
    pub fn lose(&mut self, node: NodeId, token: Option<OpenToken>) {
        self.extents.remove(&node);
        if let Some(file) = self.files.get_mut(&node) {
            token.into_iter().for_each(|token| file.open_for.take(token));
            file.losses.note(Code::Io);
            file.attributes.version = Version(0);
            file.validated = Mono::ZERO;
        }
    }

    /// A file is gone, and nothing of it is open.
    pub fn forget(&mut self, node: NodeId) {
        self.extents.remove(&node);
        if let Some(file) = self.files.get_mut(&node) {
            let dirty = std::mem::take(&mut file.dirty);
            file.written_end = None;
            self.buffered_bytes -= dirty.bytes();
            self.made_room();
        }
        self.drop_unused(node);
        self.left_behind.forget(node);
    }

    /// A release was answered.
    fn released(&mut self, node: NodeId) {
        let releasing = self.releasing.get_mut(&node).expect("a release ends once");
        releasing.count -= 1;
        if releasing.count == 0 {
            let waiting = self.releasing.remove(&node).map(|releasing| releasing.waiting);
            waiting.into_iter().flatten().for_each(|promise| promise.keep(()));
        }
    }

    /// What to wait for before a file is opened that is being let go of.
    fn await_release(&mut self, node: NodeId) -> Option<Awaited<()>> {
        let releasing = self.releasing.get_mut(&node)?;
        let (promise, awaited) = promise();
        releasing.waiting.push(promise);
        Some(awaited)
    }

    fn begin_opening(&mut self, node: Handle) {
        let opening = Opening { handle: node, count: 0, release_due: false };
        self.opening.entry(node.node).or_insert(opening).count += 1;
    }

    /// An open request is over. Whether the server may keep the node for us although nothing came of the opening.
    fn end_opening(&mut self, node: NodeId) -> bool {
        let opening = self.opening.get_mut(&node).expect("an opening ends once");
        opening.count -= 1;
        let release_due = opening.release_due;
        let last = opening.count == 0;
        if last {
            self.opening.remove(&node);
        }
        match self.files.get_mut(&node).filter(|file| file.opens > 0) {
            Some(file) => {
                file.release_due |= release_due;
                false
            }
            None => last && release_due,
        }
    }
}
