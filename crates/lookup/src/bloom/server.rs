//! The machine at a server: its own filter, its part of the others' filters, and the queries that it is
//! looking for an answer to.
//!
//! It is told in four files: here what it keeps and which event goes where; `levels` the way of a query;
//! `replicas` filters that are published and held; `membership` who is in and who holds what.
//!
//! Invariants: filters only say whom to ask first; a query ends with Serve only where the store has it, with
//! Absent only after all that may have it were asked and answered, or could not be reached, or are known to
//! be gone; if one was silent for another reason the query says so. Nothing waits without a time at which it
//! goes on.

use crate::bloom::counting::Counting;
use crate::bloom::filter::Bloom;
use crate::bloom::group::Group;
use crate::bloom::holders::Holders;
use crate::bloom::layout::{Birth, Founding, Layout, Shares};
use crate::bloom::lru::Recent;
use crate::bloom::message::{BloomMessage, Edition, Replica};
use crate::bloom::options::BloomOptions;
use crate::bloom::round::{Checking, Round};
use crate::machine::{Command, Event, Machine};
use crate::message::Message;
use crate::query::{FileKey, QueryId};
use bearing_types::{Mono, ParameterError, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What a server did, for those who measure. Only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Queries served here that the LRU filters led to.
    pub found_recent: u64,
    /// Led to by a segment array.
    pub found_segment: u64,
    /// By a group.
    pub found_group: u64,
    /// By asking those that several filters named.
    pub found_named: u64,
    /// By asking all.
    pub found_all: u64,
    /// Queries that a filter led here and that are not here.
    pub misled: u64,
    /// Editions sent, one for each group.
    pub published: u64,
    /// Editions passed on to whom the IDBFA named.
    pub forwarded: u64,
    /// Editions that came to a member that does not hold that replica.
    pub wasted: u64,
    /// Replicas given up to another member.
    pub migrated: u64,
    /// Replicas sent because a holder asked for them.
    pub refetched: u64,
}

/// Bytes of a server's tables, encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableBytes {
    /// The published filters, its own and the replicas: what G-HBA's table 5 counts first.
    pub filters: usize,
    /// The filters of recently found files: what it counts second.
    pub recent: usize,
    /// The counters behind its own filter, so that files can be removed, and what takes recent files out of
    /// theirs. (The papers do not count them.)
    pub counters: usize,
    /// IDBFA.
    pub holders: usize,
    /// Who is in, and the exact share-out of its group.
    pub layout: usize,
}

impl TableBytes {
    /// All together.
    pub fn all(&self) -> usize {
        self.filters + self.recent + self.counters + self.holders + self.layout
    }
}

/// Where a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not in, and not asking to be.
    Out,
    /// Asking this one to be let in.
    Joining(ServerId),
    /// In.
    In,
    /// In, asking to go.
    Leaving,
}

/// Of a time a part that differs from server to server, above nothing.
fn part_of(time: Duration, server: ServerId) -> Duration {
    let drawn = xxhash_rust::xxh3::xxh3_64(&server.0.to_le_bytes());
    time.mul_f64((drawn >> 40) as f64 / (1u64 << 24) as f64).max(Duration::from_nanos(1))
}

/// A server with Bloom filters.
#[derive(Debug)]
pub struct BloomServer {
    pub(super) id: ServerId,
    pub(super) options: BloomOptions,
    pub(super) counts: Counts,

    pub(super) own: Counting,
    pub(super) published: Arc<Bloom>,
    pub(super) edition: Edition,
    /// So many bits of the filter may still change before it must be compared with the published one.
    pub(super) slack: u32,
    pub(super) recent: Option<Recent>,
    pub(super) replicas: BTreeMap<ServerId, Replica>,
    pub(super) holders: Holders,

    pub(super) standing: Standing,
    pub(super) birth: Birth,
    pub(super) layout: Option<Arc<Layout>>,
    pub(super) shares: Option<Arc<Shares>>,
    /// Shares that overtook their layout.
    pub(super) early: Option<Arc<Shares>>,
    /// Servers that an earlier layout here named and this one does not, and until when they are still asked:
    /// where two layouts met after a network was cut, they may not know yet that theirs lost, and take files.
    /// Forgotten when they say that they know.
    pub(super) strays: BTreeMap<ServerId, Mono>,
    /// Those that have not said yet that they know that this server is in.
    pub(super) unaware: BTreeSet<ServerId>,
    /// When those that are watched were heard last.
    pub(super) heard: BTreeMap<ServerId, Mono>,
    /// The watched ones that are silent.
    pub(super) silent: BTreeSet<ServerId>,
    /// Those that others miss, watched until they are heard.
    pub(super) doubted: BTreeSet<ServerId>,
    /// Those that asked to be let in anew: who they were in this layout is gone, so what they say is no
    /// heart-beat of that one.
    pub(super) renewed: BTreeSet<ServerId>,
    /// Whom it may ask to be let in, beside those of its layout.
    pub(super) listed: BTreeSet<ServerId>,
    /// Those that could not be reached since the last heart-beat: no filter leads to them.
    pub(super) away: BTreeSet<ServerId>,
    /// Whose filter is asked for again next.
    pub(super) refreshed: Option<ServerId>,
    pub(super) next_beat: Option<Mono>,

    /// At most [`super::QUERIES_MAX`].
    pub(super) checks: BTreeMap<QueryId, Checking>,
    /// At most [`super::QUERIES_MAX`].
    pub(super) rounds: BTreeMap<QueryId, Round>,
    /// When rounds go on without the answers that are missing.
    pub(super) deadlines: BTreeSet<(Mono, QueryId)>,
}

impl BloomServer {
    /// A server with nothing in its store, not in the cluster yet: [`Event::Join`] brings it in.
    pub fn new(id: ServerId, options: BloomOptions) -> Result<BloomServer, ParameterError> {
        options.check()?;
        let own = Counting::new(options.filter)?;
        Ok(BloomServer {
            id,
            options,
            counts: Counts::default(),
            published: Arc::new(own.bits().clone()),
            own,
            edition: Edition(0),
            slack: 0,
            recent: options.recent.map(Recent::new).transpose()?,
            replicas: BTreeMap::new(),
            holders: Holders::default(),
            standing: Standing::Out,
            birth: Birth(0),
            layout: None,
            shares: None,
            early: None,
            strays: BTreeMap::new(),
            unaware: BTreeSet::new(),
            heard: BTreeMap::new(),
            silent: BTreeSet::new(),
            doubted: BTreeSet::new(),
            renewed: BTreeSet::new(),
            listed: BTreeSet::new(),
            away: BTreeSet::new(),
            refreshed: None,
            next_beat: None,
            checks: BTreeMap::new(),
            rounds: BTreeMap::new(),
            deadlines: BTreeSet::new(),
        })
    }

    /// A server that begins together with others, in from the start: for those who would not wait for
    /// thousands of joins. It must be one of the founding ones, else it is out.
    pub fn founded(
        id: ServerId,
        options: BloomOptions,
        founding: &Founding,
        now: Mono,
    ) -> Result<BloomServer, ParameterError> {
        let mut server = BloomServer::new(id, options)?;
        let group = founding.layout.division().group_of(id);
        if let Some(shares) = group.and_then(|group| founding.shares.get(&group)) {
            server.standing = Standing::In;
            server.holders.follow(&Group::default(), &shares.shared);
            server.shares = Some(Arc::clone(shares));
            server.edition = Edition::before_first(founding.layout.version().count);
            server.slack = options.publish_at;
            // Not all at the same time: news of a failure would cross thousands of heart-beats that do not
            // know it yet, each of them answered with the whole layout.
            server.next_beat = Some(now.after(part_of(options.beat, id)));
            server.layout = Some(Arc::clone(&founding.layout));
            server.watch(now);
        }
        Ok(server)
    }

    /// The same with a store that has these files already: its first edition holds them, and those who hold
    /// its replica ask for it with their first heart-beat.
    pub fn founded_with(
        id: ServerId,
        options: BloomOptions,
        founding: &Founding,
        now: Mono,
        files: impl IntoIterator<Item = FileKey>,
    ) -> Result<BloomServer, ParameterError> {
        let mut server = BloomServer::founded(id, options, founding, now)?;
        files.into_iter().for_each(|file| server.own.insert(file));
        server.published = Arc::new(server.own.bits().clone());
        server.edition.0 += 1;
        Ok(server)
    }

    /// Whether it is in, and all others that can be reached know it. Files are to be stored at a server only
    /// then: before, those who do not know of it would not ask it.
    pub fn is_in(&self) -> bool {
        matches!(self.standing, Standing::In | Standing::Leaving) && self.unaware.is_empty()
    }

    /// Whom it asks to be let in, while it does.
    pub fn sponsor(&self) -> Option<ServerId> {
        match self.standing {
            Standing::Joining(sponsor) => Some(sponsor),
            Standing::Out | Standing::In | Standing::Leaving => None,
        }
    }

    /// What it did.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Who is in, as far as it knows.
    pub fn layout(&self) -> Option<&Layout> {
        self.layout.as_deref()
    }

    /// How its group shares out the replicas, as far as it knows.
    pub fn shares(&self) -> Option<&Group> {
        self.shares.as_deref().map(|shares| &*shares.shared)
    }

    /// Whether its IDBFA is what one made anew from the share-out is.
    #[cfg(test)]
    pub(super) fn holders_are_of_the_shares(&self) -> bool {
        let mut anew = Holders::default();
        anew.follow(&Group::default(), self.shares().unwrap_or(&Group::default()));
        self.holders == anew
    }

    /// Whose replicas it holds, and in which edition.
    pub fn replicas(&self) -> impl Iterator<Item = (ServerId, Edition)> + '_ {
        self.replicas.values().map(|replica| (replica.of, replica.edition))
    }

    /// The filters that it looks into at the second level: its own as it published it, and the replicas that
    /// came from others.
    pub fn filters(&self) -> impl Iterator<Item = &Bloom> + '_ {
        let replicas = self.replicas.values().map(|replica| &*replica.filter);
        std::iter::once(&*self.published).chain(replicas)
    }

    /// The edition of its own filter that it published last.
    pub fn edition(&self) -> Edition {
        self.edition
    }

    /// What its tables take.
    pub fn bytes(&self) -> TableBytes {
        let layout = self.layout.as_ref().map_or(0, |layout| layout.encoded_bytes());
        let shared = self.shares.as_ref().map_or(0, |shares| shares.shared.encoded_bytes());
        TableBytes {
            filters: (self.replicas.len() + 1) * self.options.filter.encoded_bytes(),
            recent: self.recent.as_ref().map_or(0, Recent::encoded_bytes),
            counters: self.own.encoded_bytes() + self.recent.as_ref().map_or(0, Recent::list_bytes),
            holders: self.holders.encoded_bytes(),
            layout: layout + shared,
        }
    }

    pub(super) fn send(&self, to: ServerId, message: BloomMessage, out: &mut Vec<Command>) {
        out.push(Command::Send(to, Message::Bloom(message)));
    }

    fn on_message(&mut self, now: Mono, from: ServerId, message: BloomMessage, out: &mut Vec<Command>) {
        self.hear(now, from);
        match message {
            BloomMessage::AskGroup(query) => self.on_ask_group(from, query, out),
            BloomMessage::Homes(id, homes) => self.on_homes(now, from, id, homes, out),
            BloomMessage::AskStore(query, version) => self.on_ask_store(from, query, version, out),
            BloomMessage::Has(id, has, layout, strays) => {
                self.learn_of_others(now, from, layout, strays, out);
                self.on_has(now, from, id, has, out);
            }
            BloomMessage::Found(file) => self.learn(file, from),
            BloomMessage::Publish(replica) => self.on_publish(replica, out),
            BloomMessage::Forwarded(replica) => self.on_forwarded(replica),
            BloomMessage::Handed(replica) => self.on_handed(replica),
            BloomMessage::Want(edition) => self.on_want(from, edition, out),
            BloomMessage::Join(server, birth) => self.on_join(now, from, server, birth, out),
            BloomMessage::Leave => self.on_leave(now, from, out),
            BloomMessage::Silent(server, birth) => self.on_silent(now, server, birth, out),
            BloomMessage::Layout(layout) => self.on_layout(now, from, layout, out),
            BloomMessage::Shares(shares) => self.on_shares(now, shares, out),
            BloomMessage::Beat { layout, shares, answer } => {
                self.on_beat(now, from, layout, shares, answer, out)
            }
        }
    }
}

impl Machine for BloomServer {
    fn step(&mut self, now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Query(query) => self.on_query(now, query, out),
            Event::Checked(query, has) => self.on_checked(now, query, has, out),
            Event::Unreachable(server, query) => self.on_unreachable(now, server, query, out),
            Event::Message(from, Message::Bloom(message)) => self.on_message(now, from, message, out),
            Event::Stored(file) => self.on_stored(file, out),
            Event::Removed(file) => self.on_removed(file, out),
            Event::Join(through) => self.join(now, through, out),
            Event::Leave => self.leave(now, out),
            Event::Wake => {
                self.rounds_due(now, out);
                self.beat_due(now, out);
            }
            Event::Message(_, Message::Finger(_)) => {}
            Event::Served(..) | Event::Referred(..) | Event::Map(..) => {}
        }
    }

    fn next_wake(&self) -> Option<Mono> {
        let round = self.deadlines.first().map(|(deadline, _)| *deadline);
        [round, self.next_beat].into_iter().flatten().min()
    }

    fn table_bytes(&self) -> usize {
        self.bytes().all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::options::Sizes;
    use crate::query::{LookupError, Query, Target};
    use bearing_placement::LookupKind;
    use bearing_types::Position;

    const NOW: Mono = Mono(1_000_000_000);
    const A: ServerId = ServerId(1);
    const B: ServerId = ServerId(2);
    const C: ServerId = ServerId(3);
    const FILE: FileKey = FileKey(77);

    /// A of three servers with all filters, B's naming the file.
    fn first_of_three() -> BloomServer {
        let sizes = Sizes { servers: 3, keys_each: 100 };
        let options = BloomOptions::of(LookupKind::BloomLevels, sizes).unwrap();
        let founding = Founding::of([A, B, C], options.group_most).unwrap();
        let mut machine = BloomServer::founded(A, options, &founding, NOW).unwrap();
        for of in [B, C] {
            let mut filter = Bloom::new(options.filter).unwrap();
            if of == B {
                filter.insert(FILE);
            }
            let replica = Replica { of, edition: Edition(1), filter: Arc::new(filter) };
            assert_eq!(step(&mut machine, message(of, BloomMessage::Handed(replica))), []);
        }
        machine
    }

    fn step(machine: &mut BloomServer, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        machine.step(NOW, event, &mut out);
        out
    }

    fn message(from: ServerId, message: BloomMessage) -> Event {
        Event::Message(from, Message::Bloom(message))
    }

    fn query(hops: u8, level: u8) -> Query {
        let mut query = Query::new(QueryId(5), Target { position: Position(0), file: FILE });
        query.hops = hops;
        query.trail.level = level;
        query.trail.entry = (level > 0).then_some(A);
        query
    }

    #[test]
    fn a_unique_hit_is_passed_on_and_what_was_found_is_learnt() {
        let mut machine = first_of_three();
        let passed = step(&mut machine, Event::Query(query(1, 0)));
        assert_eq!(passed, [Command::Pass(B, query(2, 2))], "L2");
        step(&mut machine, message(B, BloomMessage::Found(FILE)));
        let passed = step(&mut machine, Event::Query(query(1, 0)));
        assert_eq!(passed, [Command::Pass(B, query(2, 1))], "L1");
        let beat = NOW.after(part_of(machine.options.beat, A));
        assert_eq!(machine.next_wake(), Some(beat), "nothing of a query is kept");
    }

    #[test]
    fn what_is_asked_for_again_stays_at_the_first_level() {
        let mut machine = first_of_three();
        let filter = crate::bloom::filter::Shape::for_keys(64, 20.0, 3).unwrap();
        machine.recent = Some(Recent::new(crate::bloom::lru::RecentShape { keys_each: 2, filter }).unwrap());
        step(&mut machine, message(B, BloomMessage::Found(FILE)));
        step(&mut machine, message(B, BloomMessage::Found(FileKey(1))));
        let first = [Command::Pass(B, query(2, 1))];
        assert_eq!(step(&mut machine, Event::Query(query(1, 0))), first);
        step(&mut machine, message(B, BloomMessage::Found(FileKey(2))));
        assert_eq!(step(&mut machine, Event::Query(query(1, 0))), first);
    }

    #[test]
    fn tables_are_all_that_is_kept() {
        let mut machine = first_of_three();
        step(&mut machine, message(B, BloomMessage::Found(FILE)));
        let TableBytes { filters, recent, counters, holders, layout } = machine.bytes();
        assert_eq!(machine.table_bytes(), filters + recent + counters + holders + layout);
    }

    #[test]
    fn a_misled_query_goes_on_where_it_is_and_is_absent_when_all_said_no() {
        let mut machine = first_of_three();
        step(&mut machine, Event::Stored(FILE));
        // Passed here by L2; the filter says perhaps, the store says no.
        assert_eq!(step(&mut machine, Event::Query(query(2, 2))), [Command::Check(query(2, 2))]);
        let asked = step(&mut machine, Event::Checked(query(2, 2), false));
        let ask = |to| {
            let version = machine.layout().unwrap().version();
            Command::Send(to, Message::Bloom(BloomMessage::AskStore(query(2, 2), version)))
        };
        assert_eq!(asked, [ask(B), ask(C)]);
        let again = [ask(C)];
        assert_eq!(step(&mut machine, message(B, BloomMessage::Has(QueryId(5), false, None, vec![]))), []);
        // C is silent: it is asked again; then it cannot be reached.
        let mut out = Vec::new();
        machine.step(NOW.after(machine.options.answer_wait), Event::Wake, &mut out);
        assert_eq!(out, again);
        let ended = step(&mut machine, Event::Unreachable(C, None));
        assert_eq!(ended, [Command::Fail(query(2, 2), LookupError::Absent)]);
    }

    #[test]
    fn who_was_misled_is_left_out_of_the_next_level() {
        let mut machine = first_of_three();
        step(&mut machine, Event::Stored(FILE));
        step(&mut machine, Event::Query(query(2, 1)));
        let passed = step(&mut machine, Event::Checked(query(2, 1), false));
        assert_eq!(passed, [Command::Pass(B, query(3, 2))]);
    }

    #[test]
    fn who_comes_in_while_all_are_asked_is_asked_too() {
        let mut machine = first_of_three();
        step(&mut machine, Event::Query(query(2, 2)));
        let newcomer = ServerId(4);
        let layout = machine.layout().unwrap().with(B, newcomer, Birth(9));
        let version = layout.version();
        let out = step(
            &mut machine,
            message(B, BloomMessage::Has(QueryId(5), false, Some(Arc::new(layout)), vec![])),
        );
        let ask = BloomMessage::AskStore(query(2, 2), version);
        assert!(out.contains(&Command::Send(newcomer, Message::Bloom(ask))), "{out:?}");
        assert_eq!(step(&mut machine, message(C, BloomMessage::Has(QueryId(5), false, None, vec![]))), []);
        let ended = step(&mut machine, message(newcomer, BloomMessage::Has(QueryId(5), false, None, vec![])));
        assert_eq!(ended, [Command::Fail(query(2, 2), LookupError::Absent)]);
    }

    #[test]
    fn a_newcomer_is_in_when_all_others_know_it() {
        let options = first_of_three().options;
        let mut machine = BloomServer::new(C, options).unwrap();
        step(&mut machine, Event::Join(Some(A)));
        let layout = Layout::of_all([A, B], Birth(0), 1).unwrap().with(A, C, machine.birth);
        let beat = BloomMessage::Beat { layout: Some(layout.version()), shares: None, answer: false };
        step(&mut machine, message(A, BloomMessage::Layout(Arc::new(layout))));
        assert!(!machine.is_in());
        step(&mut machine, message(A, beat.clone()));
        assert!(!machine.is_in(), "B may not know it");
        step(&mut machine, message(B, beat));
        assert!(machine.is_in());
    }

    #[test]
    fn a_silent_server_does_not_hang_a_query_and_is_not_taken_for_one_that_has_nothing() {
        let mut machine = first_of_three();
        step(&mut machine, Event::Unreachable(B, Some(query(2, 2))));
        let mut out = Vec::new();
        let mut now = NOW;
        for _ in 0..machine.options.asks_max {
            now = now.after(machine.options.answer_wait);
            machine.step(now, Event::Wake, &mut out);
        }
        assert_eq!(out.last(), Some(&Command::Fail(query(2, 2), LookupError::Unanswered(C))));
    }

    #[test]
    fn the_filter_of_a_new_stay_replaces_that_of_an_old_one_however_often_that_was_published() {
        let mut machine = first_of_three();
        let replica = |edition| {
            let filter = Arc::new(Bloom::new(machine.options.filter).unwrap());
            message(B, BloomMessage::Handed(Replica { of: B, edition, filter }))
        };
        let busy = Edition(Edition::before_first(1).0 + 100_000_000);
        let fresh = Edition(Edition::before_first(2).0 + 1);
        let [old, new] = [busy, fresh].map(replica);
        step(&mut machine, old);
        step(&mut machine, new);
        assert!(machine.replicas().any(|(of, held)| (of, held) == (B, fresh)));
    }

    #[test]
    fn who_was_cast_out_comes_back_through_another_if_the_first_is_gone() {
        let mut machine = first_of_three();
        let layout = machine.layout().unwrap().without_failed(B, &[A].into());
        let asked = |commands: &[Command]| -> Vec<ServerId> {
            let join = |command: &Command| match command {
                Command::Send(to, Message::Bloom(BloomMessage::Join(..))) => Some(*to),
                _ => None,
            };
            commands.iter().filter_map(join).collect()
        };
        let mut whom = asked(&step(&mut machine, message(C, BloomMessage::Layout(Arc::new(layout)))));
        assert_eq!(whom, [B]);
        let mut now = NOW;
        for _ in 0..4 {
            now = now.after(machine.options.beat);
            let mut out = Vec::new();
            machine.step(now, Event::Wake, &mut out);
            whom.extend(asked(&out));
        }
        assert!(whom.contains(&C), "{whom:?}");
    }

    #[test]
    fn two_layouts_of_one_version_are_followed_by_a_third_of_the_steward() {
        let mut machine = first_of_three();
        let version = machine.layout().unwrap().version();
        let stranger = ServerId(9);
        let beat = |shares| BloomMessage::Beat { layout: Some(version), shares, answer: false };
        assert_eq!(step(&mut machine, message(stranger, beat(None))), [], "it is not in any");
        let out = step(&mut machine, message(stranger, beat(Some(version))));
        let next = machine.layout().unwrap();
        assert_eq!(next.version().count, version.count + 1);
        assert_eq!(next.division().all(), [A, B, C].into());
        assert!(
            out.iter().any(|said| matches!(said, Command::Send(B, Message::Bloom(BloomMessage::Layout(_)))))
        );
    }

    #[test]
    fn who_is_let_in_by_nobody_asks_those_of_its_list_in_turn_and_stays_the_same() {
        let mut machine = BloomServer::new(C, first_of_three().options).unwrap();
        machine.list([A, B]);
        let mut asked = step(&mut machine, Event::Join(Some(B)));
        let mut now = NOW;
        for _ in 0..2 {
            now = now.after(machine.options.beat);
            machine.step(now, Event::Wake, &mut asked);
        }
        let join = |to| Command::Send(to, Message::Bloom(BloomMessage::Join(C, machine.birth)));
        assert_eq!(asked, [join(B), join(A), join(B)]);
    }

    #[test]
    fn a_server_that_is_not_in_serves_what_it_has_and_refers_the_rest() {
        let options = first_of_three().options;
        let mut machine = BloomServer::new(C, options).unwrap();
        assert_eq!(step(&mut machine, Event::Query(query(1, 0))), [Command::Refer(query(1, 0), None)]);
        step(&mut machine, Event::Stored(FILE));
        assert_eq!(step(&mut machine, Event::Query(query(1, 0))), [Command::Check(query(1, 0))]);
        assert_eq!(step(&mut machine, Event::Checked(query(1, 0), true)), [Command::Serve(query(1, 0))]);
    }
}
