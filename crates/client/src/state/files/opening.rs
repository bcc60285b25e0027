//! Opening and closing.

use super::extents::ExtentMap;
use super::file::File;
use super::open::{Open, Opening};
use super::table::Files;
use crate::operation::OpenFile;
use crate::run::{Awaited, promise};
use bearing_proto::client::Handle;
use bearing_proto::grant::{Admission, OpenToken};
use bearing_proto::rules::OpenWish;
use bearing_types::{Attributes, Code, Credentials, Mono, NodeId, Position, Version, Wall};

impl Files {
    /// A file that was made here is like any other: its home knows who may write it.
    pub fn published(&mut self, node: NodeId, token: Option<OpenToken>, now: Mono) {
        if let Some(file) = self.files.get_mut(&node) {
            token.into_iter().for_each(|token| file.open_for.on_token(token));
            file.validated = now;
        } else if let Some(token) = token {
            self.left_behind.on_token(node, token);
        }
    }

    /// What was decided about a file here never came to its home: what was written to it is lost, and
    /// whatever its home says of it counts from now on, although that is of an older version.
    pub fn lose(&mut self, node: NodeId, token: Option<OpenToken>) {
        self.extents.remove(&node);
        if let Some(file) = self.files.get_mut(&node) {
            token.into_iter().for_each(|token| file.open_for.on_token(token));
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
    pub fn released(&mut self, node: NodeId) {
        let releasing = self.releasing.get_mut(&node).expect("a release ends once");
        releasing.count -= 1;
        if releasing.count == 0 {
            let waiting = self.releasing.remove(&node).map(|releasing| releasing.waiting);
            waiting.into_iter().flatten().for_each(|promise| promise.keep(()));
        }
    }

    /// What to wait for before a file is opened that is being released.
    pub fn await_release(&mut self, node: NodeId) -> Option<Awaited<()>> {
        let releasing = self.releasing.get_mut(&node)?;
        let (promise, awaited) = promise();
        releasing.waiting.push(promise);
        Some(awaited)
    }

    pub fn begin_opening(&mut self, node: Handle) {
        let opening = Opening { handle: node, count: 0, release_due: false };
        self.opening.entry(node.node).or_insert(opening).count += 1;
    }

    /// An open request is over. Whether the server may keep the node for us although nothing came of the
    /// opening.
    pub fn end_opening(&mut self, node: NodeId) -> bool {
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

    /// A release is sent.
    pub fn begin_release(&mut self, node: NodeId) {
        self.releasing.entry(node).or_default().count += 1;
    }

    /// A file was made just now, by this client: it has lost nothing, and has no bytes unless it is said to.
    pub fn created(&mut self, node: NodeId, attributes: &Attributes) {
        if attributes.size == 0 {
            self.extents.insert(node, ExtentMap::empty(attributes.version));
        }
        self.left_behind.note_new(node);
    }

    /// Opens a file whose attributes were asked for when it says.
    pub fn open(
        &mut self,
        (handle, attributes): (Handle, Attributes),
        (who, wish): (&Credentials, OpenWish),
        token: Option<OpenToken>,
        (validated, now): (Mono, Wall),
    ) -> OpenFile {
        let number = OpenFile(self.next_open);
        self.next_open += 1;
        let node = handle.node;
        let fresh = || File { validated, modified: now, ..File::new(handle, attributes) };
        self.files.entry(node).or_insert_with(fresh).unsynced_unknown = true;
        let left = self.left_behind.take_unsynced(node);
        self.note_lost(node);
        let file = self.files.get_mut(&node).expect("it was just put there");
        file.unsynced.extend(left.into_iter().flat_map(|left| left.chunks));
        let told = file.losses.known();
        let OpenWish { read, write, execute, .. } = wish;
        self.opens.insert(
            number,
            Open { who: who.clone(), node, read, write, execute, told_by_sync: told, told_by_flush: told },
        );
        file.opens += 1;
        token.into_iter().for_each(|token| file.open_for.on_token(token));
        // Close-to-open: what was known of the content counts from this moment only if it is of this version.
        self.observe(node, &attributes, validated);
        number
    }

    /// A file was opened for reading without asking.
    pub fn opened_without_asking(&mut self, node: NodeId, who: &Credentials) {
        if let Some(file) = self.files.get_mut(&node) {
            file.open_for.opened_unasked(who);
        }
    }

    /// Whether a node is open once.
    pub fn is_open_once(&self, node: NodeId) -> bool {
        self.files.get(&node).is_some_and(|file| file.opens == 1)
    }

    /// Takes an open file away. Gives an error nobody was told of, and the node that the server need not keep
    /// any more.
    pub fn close(&mut self, file: OpenFile) -> (Option<Code>, Option<Handle>) {
        let Some(open) = self.opens.remove(&file) else { return (None, None) };
        let Some(file) = self.files.get_mut(&open.node) else { return (None, None) };
        file.opens -= 1;
        let error = file.losses.tell(file.losses.known()).err();
        let over = file.opens == 0 && file.release_due;
        // It is being opened again: its home would let it go under that. Whoever closes it last tells.
        let opening = self.opening.get_mut(&open.node).filter(|_| over);
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
        self.drop_unused(open.node);
        (error, release)
    }

    /// What admits to a file's extents, as far as servers have told; `None`: there is no such file.
    pub fn admission(&self, node: NodeId) -> Option<Option<Admission>> {
        self.files.get(&node).map(|file| file.open_for.admission())
    }

    /// A token of an open file came.
    pub fn on_token(&mut self, token: OpenToken) {
        if let Some(file) = self.files.get_mut(&token.node) {
            file.open_for.on_token(token);
        }
    }

    /// Of these nodes those that are open without a token.
    pub fn unasked(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        nodes.iter().copied().filter(|node| self.opened_unasked(*node).is_some()).collect()
    }

    /// Who has a file open that he was not asked for.
    pub fn opened_unasked(&self, node: NodeId) -> Option<(Handle, Credentials)> {
        let file = self.files.get(&node).filter(|file| file.opens > 0)?;
        Some((file.handle, file.open_for.unasked()?.clone()))
    }

    /// The node of a file that is open for reading.
    pub fn readable(&self, file: OpenFile) -> Result<NodeId, Code> {
        self.opened(file, |open| open.read)
    }

    /// The node of a file that is open for writing.
    pub fn writable(&self, file: OpenFile) -> Result<NodeId, Code> {
        self.opened(file, |open| open.write)
    }

    fn opened(&self, file: OpenFile, may: impl Fn(&Open) -> bool) -> Result<NodeId, Code> {
        self.opens.get(&file).filter(|open| may(open)).map(|open| open.node).ok_or(Code::InvalidArgument)
    }

    /// Where the node of an open file is at home.
    pub fn home_of(&self, file: OpenFile) -> Option<Position> {
        let node = self.node_of(file).ok()?;
        self.files.get(&node).map(|file| file.handle.home)
    }

    /// The node of an open file.
    pub fn node_of(&self, file: OpenFile) -> Result<NodeId, Code> {
        self.opened(file, |_| true)
    }
}
