//! Opening and closing files.

use crate::context::{Context, State};
use crate::operation::{Answer, Found, OpenFile};
use crate::state::Answered;
use crate::state::lease::Seen;
use bearing_proto::client::{Body, Call, Handle, LeaseKey};
use bearing_proto::grant::OpenToken;
use bearing_proto::rules::{self, OpenWish};
use bearing_types::{Code, Credentials, FileType, Mono, Uid};

impl Context {
    pub(crate) async fn open_file(
        &self,
        node: Handle,
        who: &Credentials,
        wish: OpenWish,
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

    async fn open_once_released(
        &self,
        node: Handle,
        who: &Credentials,
        wish: OpenWish,
    ) -> Result<Answer, Code> {
        // What we are letting go may be gone at any moment: the server shall decide after that, not in
        // between. Nor may a release that is late meet what was opened after it.
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

    async fn ask_open(&self, node: Handle, who: &Credentials, wish: OpenWish) -> Result<Answer, Code> {
        loop {
            match self.ask_open_once(node, who, wish).await {
                Err(Code::TooLarge) if wish.truncate => self.cut_in_steps(node, who, 0, None).await?,
                done => return done,
            }
        }
    }

    async fn ask_open_once(&self, node: Handle, who: &Credentials, wish: OpenWish) -> Result<Answer, Code> {
        let OpenWish { read, write, truncate, execute } = wish;
        let call = Call::Open { node, who: who.clone(), read, write, truncate, execute };
        if !write && !truncate {
            let answered = self.call(node.home, call).await?;
            return self.with(|state| state.on_opened(answered, who, wish));
        }
        let keys = vec![LeaseKey::File(node.node)];
        self.change(keys, node.home, call, |state, answered| state.on_opened(answered, who, wish)).await?
    }

    /// The server need not keep a node for us any more.
    async fn release(&self, node: Handle) {
        if self.with(|state| state.release_here(node.node)) {
            return;
        }
        self.with(|state| state.files.begin_release(node.node));
        // If this fails the node goes with the session.
        let _ = self.call(node.home, Call::Release { node }).await;
        self.with(|state| state.files.released(node.node));
    }

    /// A tracked lease on a file's attributes is the right to open it for reading without asking. Refusals
    /// are left to the server.
    fn open_locally(&self, node: Handle, who: &Credentials, wish: OpenWish) -> Option<Answer> {
        if wish.write || wish.truncate {
            return None;
        }
        self.with(|state| {
            let seen = state.cache.node(node.node, state.io.now.mono)?;
            // Lists are judged by servers; they say nothing of the owner and of root.
            let listed = seen.extended && who.uid != Uid(0) && who.uid != seen.attributes.uid;
            let regular = seen.attributes.file_type == FileType::Regular;
            let allowed = rules::check_open(&seen.attributes, None, who, wish).is_ok();
            let lasts = seen
                .until
                .is_some_and(|until| until.since(state.io.now.mono) >= state.io.config.local_open_ttl_min);
            // An unlinked file is kept for those who have it open, and for nobody else.
            let unlinked = seen.attributes.links == 0 && !state.files.is_known(node.node);
            if listed || !regular || !allowed || !lasts || unlinked || !seen.may_open {
                return None;
            }
            state.io.counters.local_opens += 1;
            let found = state.found(&seen, None);
            let file = state.add_open(&seen, (who, wish), None, state.io.now.mono);
            state.files.opened_without_asking(node.node, who);
            Some(Answer::Opened(file, found))
        })
    }

    pub(crate) async fn close(&self, file: OpenFile) -> Result<Answer, Code> {
        if let Some(left) = self.with(|state| state.files.close_left(file)) {
            return left.map(|()| Answer::Done);
        }
        let node = self.with(|state| state.files.node_of(file))?;
        self.with(|state| state.stop_ahead(file));
        let last = self.with(|state| state.files.is_open_once(node));
        let stored = if last { self.flush_if_dirty(node).await } else { Ok(()) };
        let (error, release) = self.with(|state| {
            let closed = state.files.close(file);
            state.plan_renewal(node);
            closed
        });
        if let Some(node) = release {
            self.release(node).await;
        }
        stored.and(error.map_or(Ok(Answer::Done), Err))
    }
}

impl State {
    fn on_opened(&mut self, answered: Answered, who: &Credentials, wish: OpenWish) -> Result<Answer, Code> {
        let Body::Opened(view, token) = answered.body else {
            return Err(self.io.unexpected());
        };
        if wish.truncate {
            self.files.truncated(view.node.node, view.attributes.size);
        }
        // What we or others changed while this was on its way it may not know of: then it is asked again
        // before anything is read.
        let node = view.node;
        let is_fresh = self.leases.may_take(LeaseKey::File(node.node), node.home, &answered.stamp);
        let validated = if is_fresh { answered.stamp.sent } else { Mono::ZERO };
        let seen = self.take_node(&view, &answered.stamp);
        let file = self.add_open(&seen, (who, wish), token, validated);
        Ok(Answer::Opened(file, self.found(&seen, None)))
    }

    /// Opens a file that this client just made.
    pub fn open_created(&mut self, found: &Found, who: &Credentials, token: Option<OpenToken>) -> OpenFile {
        let seen = Seen {
            node: found.node,
            attributes: found.attributes,
            until: None,
            may_open: false,
            extended: false,
        };
        let wish = OpenWish { read: true, write: true, truncate: false, execute: false };
        self.files.created(found.node.node, &found.attributes);
        self.add_open(&seen, (who, wish), token, self.io.now.mono)
    }

    /// Opens a file of which this was seen, by an answer that was asked for at that time.
    pub fn add_open(
        &mut self,
        seen: &Seen,
        opener: (&Credentials, OpenWish),
        token: Option<OpenToken>,
        validated: Mono,
    ) -> OpenFile {
        let node = seen.node.node;
        let times = (validated, self.io.now.wall);
        let file = self.files.open((seen.node, seen.attributes), opener, token, times);
        // What is leased may be newer, if the two answers crossed.
        let leased = self.cache.node(node, self.io.now.mono).map(|leased| leased.attributes);
        if let Some(leased) = leased.filter(|leased| leased.version > seen.attributes.version) {
            self.files.observe(node, &leased, Mono::ZERO);
        }
        self.plan_renewal(node);
        file
    }
}
