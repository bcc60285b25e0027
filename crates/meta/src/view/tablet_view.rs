//! What an operation sees while it decides: records, its own writes so far, and answers of others. Reading
//! something that is not at hand stops the run with a [`Stop`]; the machine fetches it and runs the operation
//! again from the top.

use crate::chunks::{Health, Planner};
use crate::config::Config;
use crate::lease::{Delegations, Horizon, LeaseTable, LockTable, Offer, OpenTable};
use crate::memory::{Cache, EXTENTS_MAX, Known, Quotas, file_extents};
use crate::mutant::Mutant;
use crate::record::{
    ChunkRecord, ExtentRecord, FragmentRecord, Holder, Key, NameRecord, NodeRecord, Reach, Record,
};
use crate::txn::KeyLocks;
use crate::view::context::{Context, DataResult, DataSlot, PartSlot, PartVote, QuestionSlot};
use crate::view::ids::Ids;
use crate::words::LockedBy;
use bearing_lookup::ClientMap;
use bearing_proto::client::{ChangedDirectory, ChunkRef, FilesystemRecord, Handle, LeaseKey, LeaseMs};
use bearing_proto::data::DataCall;
use bearing_proto::delegation::LentIds;
use bearing_proto::keys::ServerKeys;
use bearing_proto::peer::{Deferred, Part, Promise, Question, Told};
use bearing_types::{
    Block, ChunkId, Code, LogIndex, NameHash, NodeId, Now, Position, Sequence, ServerId, SessionId, Wall,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Why a run of `decide` ended without a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The operation is refused. Nothing changes.
    Refuse(Code),
    /// Something has to be fetched; it is noted in the view or the context.
    Need,
    /// The key is locked by a transaction or a queued item.
    Locked(Key),
    /// Ask again a little later.
    Later,
    /// This server has no id left for a new node or chunk: more are being drawn.
    NoIds,
    /// The position belongs to another tablet.
    Elsewhere(Position),
    /// The directory is delegated to somebody else.
    Delegated(NodeId),
}

impl From<Code> for Stop {
    fn from(code: Code) -> Stop {
        Stop::Refuse(code)
    }
}

pub(crate) type Decide<T> = Result<T, Stop>;

/// An item for the outbox.
#[derive(Debug)]
pub(crate) struct Draft {
    pub to: Position,
    pub work: Deferred,
    /// Whether the reply waits for the delivery.
    pub awaited: bool,
    /// Locked until the delivery.
    pub locks: Vec<Key>,
}

/// See the module.
pub(crate) struct View<'a> {
    pub now: Now,
    pub config: &'a Config,
    pub keys: &'a ServerKeys,
    pub tablet: Block,
    /// Whether a client's request is decided, not a part or an item of another tablet: only then leases go
    /// out, and locks may be held without a record.
    pub by_client: bool,
    /// Who asks, if a client does.
    pub session: Option<SessionId>,
    /// Whether the session is known to live.
    pub known: bool,
    /// The newest incarnation of what was lent to the session here that it has given up.
    pub given_up: Option<u64>,
    /// Nothing more can be logged: the session gets leases within what the log says already.
    pub leases_within: Option<Reach>,
    /// The client has taken all replies below this one, if a client asks.
    pub finished_below: Sequence,
    /// The number of its request, if a client asks.
    pub sequence: Sequence,
    pub health: &'a Health,
    pub map: &'a ClientMap,
    pub filesystem: &'a FilesystemRecord,
    pub(crate) cache: &'a mut Cache,
    pub(crate) locked: &'a mut KeyLocks,
    pub(crate) leases: &'a LeaseTable,
    pub(crate) opens: &'a OpenTable,
    /// What sessions may have leased.
    pub(crate) horizon: &'a Horizon,
    /// Delegated directories, and to whom.
    pub(crate) delegations: &'a Delegations,
    /// Who holds locks of files, and who waits for them.
    pub(crate) waits: &'a mut LockTable,
    /// What is used of quotas here, and what may be.
    pub(crate) quotas: &'a mut Quotas,
    pub(crate) ids: &'a mut Ids,
    pub(crate) context: &'a mut Context,
    /// Keys to load before the next run.
    pub(crate) wanted: Vec<Key>,
    /// What the decision writes.
    pub(crate) batch: BTreeMap<Key, Option<Record>>,
    /// What a prepared part locks.
    pub(crate) locks: BTreeSet<Key>,
    /// What the decision queues.
    pub(crate) drafts: Vec<Draft>,
    /// Leases that the decision's changes touch.
    pub(crate) changed: Vec<LeaseKey>,
    /// The directories whose content they change, for who asks.
    pub(crate) shown: Vec<ChangedDirectory>,
    /// Leases that nobody but the one who asks may have.
    pub(crate) reserved: Vec<LeaseKey>,
    /// What is reserved is lent, and leased to others again only when it is given back.
    pub(crate) lends: bool,
    /// Sessions that may have files open, of which it would be good to know whether they do.
    pub(crate) doubtful: Vec<(SessionId, NodeId)>,
    /// Whether the operation said that it changes nothing.
    pub(crate) nothing: bool,
    /// Leases that go out with the reply.
    pub(crate) given: Vec<(LeaseKey, Offer)>,
    /// Files that the client may have open once it has the reply.
    pub(crate) handed: Vec<NodeId>,
    /// The youngest log record that something read depends on.
    pub(crate) read_index: LogIndex,
    ids_used: usize,
    decided_at: Option<Wall>,
}

/// What of a tablet is seen and changed while something is decided.
pub(crate) struct Memory<'a> {
    pub block: Block,
    pub cache: &'a mut Cache,
    pub locked: &'a mut KeyLocks,
    pub leases: &'a LeaseTable,
    pub opens: &'a OpenTable,
    pub horizon: &'a Horizon,
    pub delegations: &'a Delegations,
    pub waits: &'a mut LockTable,
    pub quotas: &'a mut Quotas,
}

impl<'a> View<'a> {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        now: Now,
        config: &'a Config,
        keys: &'a ServerKeys,
        memory: Memory<'a>,
        session: Option<SessionId>,
        (health, map): (&'a Health, &'a ClientMap),
        filesystem: &'a FilesystemRecord,
        ids: &'a mut Ids,
        context: &'a mut Context,
    ) -> View<'a> {
        for slot in &mut context.parts {
            slot.used = false;
        }
        View {
            now,
            config,
            keys,
            tablet: memory.block,
            by_client: false,
            session,
            known: false,
            leases_within: None,
            finished_below: Sequence(0),
            given_up: None,
            sequence: Sequence(0),
            health,
            map,
            filesystem,
            cache: memory.cache,
            locked: memory.locked,
            leases: memory.leases,
            opens: memory.opens,
            horizon: memory.horizon,
            delegations: memory.delegations,
            waits: memory.waits,
            quotas: memory.quotas,
            ids,
            context,
            wanted: Vec::new(),
            batch: BTreeMap::new(),
            locks: BTreeSet::new(),
            drafts: Vec::new(),
            changed: Vec::new(),
            shown: Vec::new(),
            reserved: Vec::new(),
            lends: false,
            doubtful: Vec::new(),
            nothing: false,
            given: Vec::new(),
            handed: Vec::new(),
            read_index: memory.delegations.ended(),
            ids_used: 0,
            decided_at: None,
        }
    }

    /// The time of the change: the same in every run of one operation.
    pub fn time(&self) -> Wall {
        self.decided_at.unwrap_or(self.context.started.wall)
    }

    /// What follows was decided by a client at this time. A time to come is taken for the present.
    pub fn decided_at(&mut self, at: Wall) {
        self.decided_at = Some(at.min(self.context.started.wall));
    }

    /// The operation must be for this tablet.
    pub fn require(&self, position: Position) -> Decide<()> {
        if self.tablet.contains(position) { Ok(()) } else { Err(Stop::Elsewhere(position)) }
    }

    // --- records ---

    pub fn get(&mut self, key: Key) -> Decide<Option<Record>> {
        if let Some(written) = self.batch.get(&key) {
            return Ok(written.clone());
        }
        if self.locked_by_others(&key) {
            return Err(Stop::Locked(key));
        }
        match self.cache.get(&key) {
            Some(slot) => {
                self.read_index = self.read_index.max(slot.index);
                Ok(slot.record)
            }
            None => {
                self.wanted.push(key);
                Err(Stop::Need)
            }
        }
    }

    /// As [`View::get`], of the kind that the key stands for. Decoding has refused any other, so that one is
    /// a bug of this program: the operation fails, not the server.
    pub fn get_as<T>(&mut self, key: Key, take: fn(Record) -> Option<T>) -> Decide<Option<T>> {
        match self.get(key)? {
            Some(record) => take(record).map(Some).ok_or(Stop::Refuse(Code::Io)),
            None => Ok(None),
        }
    }

    fn own_locks(&self) -> Option<LockedBy> {
        self.context.transaction.map(LockedBy::Transaction)
    }

    fn locked_by_others(&self, key: &Key) -> bool {
        self.locked.is_locked(key, self.own_locks())
    }

    /// Locks a key until the transaction that this operation coordinates is over. Not logged: if this server
    /// fails, so does the transaction.
    pub fn hold(&mut self, key: Key) -> Decide<()> {
        if self.locked_by_others(&key) {
            return Err(Stop::Locked(key));
        }
        let Some(transaction) = self.context.transaction else {
            self.context.wants_transaction = true;
            return Err(Stop::Need);
        };
        self.locked.lock(key, LockedBy::Transaction(transaction));
        if !self.context.holds.contains(&key) {
            self.context.holds.push(key);
        }
        Ok(())
    }

    /// Locks a key from when this part is prepared until it is decided.
    pub fn lock(&mut self, key: Key) -> Decide<()> {
        if self.locked_by_others(&key) {
            return Err(Stop::Locked(key));
        }
        self.locks.insert(key);
        Ok(())
    }

    /// The operation turns out to change nothing: what was prepared is dropped, and the reply says that it is
    /// done.
    pub fn nothing_to_do(&mut self) {
        self.nothing = true;
        self.batch.clear();
        self.drafts.clear();
        self.changed.clear();
        for slot in &mut self.context.parts {
            slot.used = false;
        }
    }

    /// Notes that these will be read, so that all missing ones are loaded at once.
    pub fn prefetch(&mut self, keys: &[Key]) -> Decide<()> {
        let missing = |key: &&Key| !self.batch.contains_key(key) && self.cache.get(key).is_none();
        let missing: Vec<Key> = keys.iter().filter(missing).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.wanted.extend(missing);
        Err(Stop::Need)
    }

    pub fn put(&mut self, key: Key, record: Record) {
        self.batch.insert(key, Some(record));
    }

    pub fn delete(&mut self, key: Key) {
        self.batch.insert(key, None);
    }

    /// The pairs of a range of keys, at most `count_max`, in order.
    pub fn range(&mut self, keys: RangeInclusive<Key>, count_max: usize) -> Decide<Vec<(Key, Record)>> {
        // Clients say where a range begins; maps panic at one that ends before.
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let slot = self.context.ranges.find(&keys, count_max);
        let Some(stored) = slot.and_then(|slot| slot.pairs.as_ref()) else {
            if slot.is_none() {
                self.context.ranges.ask(keys, count_max);
            }
            self.context.range_wanted = true;
            return Err(Stop::Need);
        };
        // Beyond the last pair of a full read the store was not asked, so nothing can be said there.
        let full = stored.len() >= count_max;
        let last = stored.last().map(|(key, _)| *key).filter(|_| full).unwrap_or(*keys.end());
        let stored = stored.clone();
        self.overlaid(stored, *keys.start()..=last)
    }

    /// The first extents of a file that overlap with `start..end`, at least so many if there are, and perhaps
    /// one before; `None`: it has too many to be held, ask for the range.
    pub fn extents_held(
        &mut self,
        node: NodeId,
        (start, end): (u64, u64),
        count: usize,
    ) -> Decide<Option<Vec<(Key, Record)>>> {
        if self.cache.extents(node).is_none() {
            self.range(file_extents::whole(node), EXTENTS_MAX)?;
        }
        // Extents never overlap: of those that begin before, only the last can reach `start`.
        let Some(first) = self.cache.extent_before(node, start, &self.batch) else { return Ok(None) };
        let mut count = count.saturating_add(1);
        loop {
            let Some(Known::All(extents)) = self.cache.extents(node) else { return Ok(None) };
            let pair = |(offset, extent): (&u64, &ExtentRecord)| {
                (Key::Extent(node, *offset), Record::Extent(*extent))
            };
            let stored: Vec<_> = extents.range(first..end).take(count).map(pair).collect();
            let cut = stored.last().map(|(key, _)| *key).filter(|_| stored.len() == count);
            let last = cut.unwrap_or(Key::Extent(node, end - 1));
            let found = self.overlaid(stored, Key::Extent(node, first)..=last)?;
            if cut.is_none() || found.len() >= count {
                return Ok(Some(found));
            }
            // Many of these were deleted since.
            count = count.saturating_mul(2);
        }
    }

    /// What the store holds of a range, as it is with all that was logged since.
    fn overlaid(
        &mut self,
        stored: Vec<(Key, Record)>,
        keys: RangeInclusive<Key>,
    ) -> Decide<Vec<(Key, Record)>> {
        if let Some(key) = self.locked.first_locked(keys.clone(), self.own_locks()) {
            return Err(Stop::Locked(key));
        }
        let mut merged: BTreeMap<Key, Record> = stored.into_iter().collect();
        let mut read_index = self.read_index;
        for (key, slot) in self.cache.overlay(keys.clone()) {
            read_index = read_index.max(slot.index);
            match &slot.record {
                Some(record) => merged.insert(*key, record.clone()),
                None => merged.remove(key),
            };
        }
        self.read_index = read_index;
        for (key, record) in self.batch.range(keys) {
            match record {
                Some(record) => merged.insert(*key, record.clone()),
                None => merged.remove(key),
            };
        }
        Ok(merged.into_iter().collect())
    }

    /// Whether a range read was cut off at `count_max`, and so says nothing about keys after its last pair.
    pub fn range_was_full(&self, keys: &RangeInclusive<Key>, count_max: usize) -> bool {
        let slot = self.context.ranges.find(keys, count_max);
        slot.and_then(|slot| slot.pairs.as_ref()).is_some_and(|pairs| pairs.len() >= count_max)
    }

    pub fn node(&mut self, node: NodeId) -> Decide<Option<NodeRecord>> {
        self.get_as(Key::Node(node), Record::into_node)
    }

    /// A node at home here; `Stale` if it is gone, `Elsewhere` if its home is another tablet.
    pub fn node_at(&mut self, handle: Handle) -> Decide<NodeRecord> {
        self.require(handle.home)?;
        if let Some(directory) = self.delegations.lent_with(handle.node) {
            self.look_into(directory)?;
        }
        self.node(handle.node)?.ok_or(Stop::Refuse(Code::Stale))
    }

    pub fn put_node(&mut self, node: NodeId, record: NodeRecord) {
        self.put(Key::Node(node), Record::Node(Box::new(record)));
    }

    pub fn fragment(&mut self, directory: NodeId) -> Decide<Option<FragmentRecord>> {
        self.look_into(directory)?;
        self.get_as(Key::Fragment(directory), Record::into_fragment)
    }

    pub fn name_slot(&mut self, key: Key) -> Decide<Option<NameRecord>> {
        self.get_as(key, Record::into_name)
    }

    pub fn chunk(&mut self, chunk: ChunkRef) -> Decide<ChunkRecord> {
        self.require(chunk.position)?;
        self.get_as(Key::Chunk(chunk.chunk), Record::into_chunk)?.ok_or(Stop::Refuse(Code::Stale))
    }

    /// An id for a new node or chunk. Runs of the same operation get the same ids.
    pub fn new_id(&mut self) -> Decide<NodeId> {
        if self.ids_used == self.context.ids.len() {
            let id = self.ids.take().ok_or(Stop::NoIds)?;
            self.context.ids.push(id);
        }
        self.ids_used += 1;
        Ok(self.context.ids[self.ids_used - 1])
    }

    /// A directory's own node changes in a way that whoever it is delegated to would not see: it is given
    /// back first.
    pub fn end_delegation(&self, directory: NodeId) -> Decide<()> {
        if self.delegations.holder(directory).is_some() { Err(Stop::Delegated(directory)) } else { Ok(()) }
    }

    // --- delegations ---

    /// Entries of a directory are read or changed. If it is delegated to another session than the one that
    /// asks, that has to give it back first.
    pub fn look_into(&self, directory: NodeId) -> Decide<()> {
        match self.delegations.holder(directory) {
            Some(holder) if Some(holder.session) != self.session => Err(Stop::Delegated(directory)),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a directory is delegated so, or will be with this decision.
    pub fn is_delegated(&self, directory: NodeId, holder: Holder) -> bool {
        match self.batch.get(&Key::Delegation(directory)) {
            Some(now) => matches!(now, Some(Record::Delegation(delegated)) if delegated.holder == holder),
            None => self.delegations.holder(directory) == Some(holder),
        }
    }

    /// Whether any directory of this tablet is delegated so.
    pub fn holds_any(&self, holder: Holder) -> bool {
        self.delegations.of(holder).next().is_some()
    }

    /// Whether a directory that is delegated so was called back, and not given back for too long.
    pub fn is_overdue(&self, holder: Holder) -> bool {
        self.delegations.is_overdue(holder, self.now.mono, self.config)
    }

    /// The directories of this tablet that are delegated to a session.
    pub fn delegated_to(&self, session: SessionId) -> Vec<NodeId> {
        self.delegations.of_session(session).map(|(_, directory)| directory).collect()
    }

    /// Whether a session may use something of this tablet yet without asking.
    pub fn may_use_leases(&self, session: SessionId) -> bool {
        self.delegations.session_uses_any(session, self.now.mono) || self.horizon.names(session)
    }

    /// The next node made has this id; its client chose it out of those that were lent to it.
    pub fn expect_id(&mut self, id: NodeId) {
        if self.ids_used == self.context.ids.len() {
            self.context.ids.push(id);
        }
    }

    /// Ids for a client to give out; `None` while there are too few. Runs of the same operation lend the same
    /// ones.
    pub fn lend_ids(&mut self, session: SessionId) -> Option<LentIds> {
        let lent = self.context.lent.or_else(|| self.ids.take_some(self.config.ids_lent));
        self.context.lent = lent;
        lent.map(|(first, count)| LentIds::sign(first, count, session, self.keys.grants()))
    }

    // --- leases ---

    /// The decision changes what is leased under this key.
    pub fn changes(&mut self, key: LeaseKey) {
        self.changed.push(key);
        self.reserve_names_with(key);
    }

    /// Who asks shall be the only one to have what is leased under this key; its own lease stays.
    pub fn reserves(&mut self, key: LeaseKey) {
        self.reserved.push(key);
        self.reserve_names_with(key);
    }

    /// A name may also be leased with all others of its directory.
    fn reserve_names_with(&mut self, key: LeaseKey) {
        if let LeaseKey::Name(directory, _) = key
            && self.reserved.last() != Some(&LeaseKey::Names(directory))
            && self.leases.has(LeaseKey::Names(directory))
        {
            self.reserved.push(LeaseKey::Names(directory));
        }
    }

    /// Whether the session has given up what it asks about.
    pub fn is_over(&self, incarnation: u64) -> bool {
        self.given_up.is_some_and(|given_up| incarnation <= given_up)
    }

    /// The names of a directory that was delegated to who asks go on to be leased to it.
    pub fn lease_names(&mut self, directory: NodeId, life: LeaseMs) {
        let key = LeaseKey::Names(directory);
        if self.can_be_logged(key, life) {
            self.given.push((key, Offer::Tracked(life)));
        }
    }

    /// A lease to go out with the reply, if a client asks.
    pub fn lease(&mut self, key: LeaseKey) -> LeaseMs {
        self.offer(key).length()
    }

    /// A lease on what the decision changes, if who asks had it leased before: others do not seem to need it.
    pub fn lease_again(&mut self, key: LeaseKey) -> LeaseMs {
        let had = self.leases_to().is_some_and(|session| self.leases.has_leased(key, session, self.now.mono));
        if had { self.lease(key) } else { LeaseMs(0) }
    }

    /// A name leads elsewhere after a rename, and the kernel of who asked keeps under it what it was told of
    /// the other name, for as long as it was told: so long it is leased to it. This may be a part of the
    /// change.
    pub fn lease_moved(&mut self, directory: NodeId, hash: NameHash) {
        let key = LeaseKey::Name(directory, hash);
        let life = LeaseMs(self.config.lease_ttl_max.as_millis() as u32);
        if self.known && self.session.is_some() && self.can_be_logged(key, life) {
            self.given.push((key, Offer::Tracked(life)));
        }
    }

    /// A lease on what nobody has asked for yet: long enough to be used, and only if it can be asked back.
    pub fn prefetch_lease_ttl(&mut self, key: LeaseKey) -> LeaseMs {
        let Some(session) = self.leases_to() else { return LeaseMs(0) };
        if !matches!(self.leases.offer(key, session, self.now.mono, self.config), Offer::Tracked(_)) {
            return LeaseMs(0);
        }
        let lease = LeaseMs(self.config.prefetch_lease_ttl.min(self.config.lease_ttl_max).as_millis() as u32);
        if !self.can_be_logged(key, lease) {
            return LeaseMs(0);
        }
        self.given.push((key, Offer::Tracked(lease)));
        lease
    }

    /// A lease on a regular file. One that is tracked is the right to open it without asking.
    pub fn file_lease(&mut self, node: NodeId) -> (LeaseMs, bool) {
        let offer = self.offer(LeaseKey::File(node));
        let may_open = matches!(offer, Offer::Tracked(_));
        if may_open {
            self.hand(node);
        }
        (offer.length(), may_open)
    }

    /// Whom leases may be given to, if anybody.
    fn leases_to(&self) -> Option<SessionId> {
        self.session.filter(|_| self.by_client)
    }

    fn offer(&mut self, key: LeaseKey) -> Offer {
        let Some(session) = self.leases_to() else { return Offer::Nothing };
        // What this decision changes is free of all leases afterwards, whatever was being recalled for it.
        let offer = if self.changed.contains(&key) {
            self.leases.offer_after_change(key, session, self.now.mono, self.config)
        } else {
            self.leases.offer(key, session, self.now.mono, self.config)
        };
        if !self.can_be_logged(key, offer.length()) {
            return Offer::Nothing;
        }
        if offer != Offer::Nothing {
            self.given.push((key, offer));
        }
        offer
    }

    fn can_be_logged(&self, key: LeaseKey, length: LeaseMs) -> bool {
        self.leases_within.is_none_or(|within| within.covers_lease(&key, length, self.config))
    }

    /// The client may have this file open once it has the reply.
    pub fn hand(&mut self, node: NodeId) {
        self.handed.push(node);
    }

    /// The sessions that may have a node open; of the asking one this is not believed if it said otherwise.
    pub fn openers(&self, node: NodeId) -> BTreeSet<SessionId> {
        let mut openers = self.opens.openers(node);
        if self.config.planted(Mutant::ForgottenOpener) {
            openers.retain(|session| self.opens.said_open(*session, node));
        }
        if let Some(session) = self.session.filter(|_| self.by_client)
            && !self.opens.may_hold(session, node, self.finished_below)
        {
            openers.remove(&session);
        }
        openers
    }

    // --- others ---

    /// Sends an item to another tablet with this decision.
    pub fn queue(&mut self, draft: Draft) -> Decide<()> {
        // Many files of one batch may have bytes in the same chunk.
        if let Deferred::ReleaseSpace { chunk, bytes } = &draft.work {
            for queued in &mut self.drafts {
                if let Deferred::ReleaseSpace { chunk: same, bytes: freed } = &mut queued.work
                    && same == chunk
                {
                    *freed += bytes;
                    return Ok(());
                }
            }
        }
        // The place of an item in its record is one byte.
        if self.drafts.len() <= usize::from(u8::MAX) {
            self.drafts.push(draft);
            return Ok(());
        }
        // Bytes of which a chunk does not hear that they are in no use are found when it is scanned again.
        let is_release = |draft: &Draft| matches!(draft.work, Deferred::ReleaseSpace { .. });
        if is_release(&draft) {
            return Ok(());
        }
        let place = self.drafts.iter_mut().find(|queued| is_release(queued));
        *place.ok_or(Stop::Refuse(Code::TooLarge))? = draft;
        Ok(())
    }

    /// Has a part prepared in another tablet.
    pub fn part_elsewhere(&mut self, position: Position, part: Part) -> Decide<Promise> {
        let slots = &mut self.context.parts;
        let Some(slot) = slots.iter_mut().find(|slot| slot.position == position && slot.part == part) else {
            slots.push(PartSlot { position, part, vote: PartVote::Wanted, asked: None, used: true });
            return Err(Stop::Need);
        };
        slot.used = true;
        match &slot.vote {
            PartVote::Wanted | PartVote::Sent => Err(Stop::Need),
            PartVote::Yes(promise) => Ok(promise.clone()),
            PartVote::No(code) => Err(Stop::Refuse(*code)),
            PartVote::Later => Err(Stop::Later),
        }
    }

    /// Asks the tablet of `position`; here the answer is `here`.
    pub fn ask(
        &mut self,
        position: Position,
        question: Question,
        here: impl FnOnce(&mut View) -> Decide<Told>,
    ) -> Decide<Told> {
        let asked = question.clone();
        self.ask_as(position, question, |other| *other == asked, here)
    }

    /// The same with an answer to a question that is as good.
    pub fn ask_as(
        &mut self,
        position: Position,
        question: Question,
        same: impl Fn(&Question) -> bool,
        here: impl FnOnce(&mut View) -> Decide<Told>,
    ) -> Decide<Told> {
        match self.tablet.contains(position) {
            true => here(self),
            false => self.ask_in_a_job(position, question, same),
        }
    }

    /// Asks a tablet, this one too, in a job of its own. For questions that follow from answers to others:
    /// what was read here is read again whenever something is fetched, and if it changes all the time, so
    /// would the question.
    pub fn ask_apart(&mut self, position: Position, question: Question) -> Decide<Told> {
        let asked = question.clone();
        self.ask_in_a_job(position, question, |other| *other == asked)
    }

    fn ask_in_a_job(
        &mut self,
        position: Position,
        question: Question,
        same: impl Fn(&Question) -> bool,
    ) -> Decide<Told> {
        let questions = &mut self.context.questions;
        let Some(slot) = questions.iter().find(|slot| slot.position == position && same(&slot.question))
        else {
            questions.push(QuestionSlot { position, question, asked: None, told: None });
            return Err(Stop::Need);
        };
        match &slot.told {
            Some(Told::Refused(code)) => Err(Stop::Refuse(*code)),
            Some(Told::Later) => Err(Stop::Later),
            Some(told) => Ok(told.clone()),
            None => Err(Stop::Need),
        }
    }

    /// Asks data servers, all at once; `None` for those that do not answer in time. The answers are in the
    /// order of the servers given.
    pub fn data(&mut self, chunk: ChunkId, servers: &[ServerId], call: &DataCall) -> Decide<Vec<DataResult>> {
        self.data_with(chunk, servers, call, None)
    }

    /// The same with bytes, which the call says a checksum of.
    pub fn data_with(
        &mut self,
        chunk: ChunkId,
        servers: &[ServerId],
        call: &DataCall,
        bytes: Option<&Arc<Vec<u8>>>,
    ) -> Decide<Vec<DataResult>> {
        let slots = &mut self.context.data;
        let mut results = Vec::with_capacity(servers.len());
        for server in servers {
            let mine = |slot: &&DataSlot| slot.server == *server && slot.call == *call && slot.chunk == chunk;
            match slots.iter().find(mine) {
                Some(slot) => results.push(slot.result.clone()),
                None => {
                    let call = call.clone();
                    let bytes = bytes.cloned();
                    slots.push(DataSlot { server: *server, chunk, call, sent: None, bytes, result: None });
                    results.push(None);
                }
            }
        }
        results.into_iter().map(|result| result.ok_or(Stop::Need)).collect()
    }

    /// What decides over the needs of chunks.
    pub fn planner(&self) -> Planner<'a> {
        let copies = usize::from(self.filesystem.data_copies.max(1));
        Planner { now: self.now.wall, config: self.config, health: self.health, copies }
    }
}
