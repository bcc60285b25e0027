//! The table by itself, and against a client whose messages are late, lost and doubled.

use super::*;
use proptest::prelude::*;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const FILE: NodeId = NodeId(7);

fn at(ms: u64) -> Mono {
    Mono(ms * 1_000_000)
}

fn config() -> Config {
    Config { opens_per_session_max: 4, ..Config::standard() }
}

fn word(session: SessionId, finished_below: u64, open: &[NodeId]) -> Word<'_> {
    Word { session, finished_below: Sequence(finished_below), open }
}

/// File `FILE` was given to A by request 5, with a lease that ends after 100 ms.
fn given() -> (OpenTable, Config) {
    let (mut table, config) = (OpenTable::default(), config());
    table.give(A, FILE, Sequence(5), at(100), &config);
    (table, config)
}

fn openers(table: &OpenTable, node: NodeId) -> Vec<SessionId> {
    table.openers(node).into_iter().collect()
}

/// The only open-state query that is due.
fn open_state_query(table: &mut OpenTable, now: Mono, config: &Config) -> OpenStateWish {
    let mut wishes = table.due(now, config);
    assert_eq!(wishes.len(), 1, "{wishes:?}");
    wishes.remove(0)
}

#[test]
fn time_alone_closes_no_file() {
    let (mut table, config) = given();
    for second in 0..1000 {
        table.due(at(second * 1000), &config);
    }
    assert_eq!(openers(&table, FILE), [A]);
    table.forget_session(A);
    assert_eq!(openers(&table, FILE), []);
    assert!(table.due(at(2_000_000), &config).is_empty());
}

#[test]
fn the_largest_open_state_query_fits_a_datagram() {
    use bearing_proto::Message;
    use bearing_proto::client::OpenStateQuery;
    use bearing_proto::envelope::{DATAGRAM_PACKED_MAX, Packing};
    use bearing_types::{Block, Epoch};
    let (mut table, config) = (OpenTable::default(), Config::standard());
    (0..10_000).for_each(|file| table.orphaned(A, NodeId(u64::MAX - file), at(0)));
    let OpenStateWish { nodes, .. } = open_state_query(&mut table, at(1), &config);
    assert_eq!(nodes.len(), config.open_query_nodes_max);
    let query = OpenStateQuery { tablet: Block::RING, epoch: Epoch(u64::MAX), number: u64::MAX, nodes };
    assert!(Packing::new().push(&Message::OpenStateQuery(query), DATAGRAM_PACKED_MAX));
}

#[test]
fn orphans_leave_room_for_what_may_be_open_besides() {
    let (mut table, config) = (OpenTable::default(), config());
    (100..110).for_each(|file| table.orphaned(A, NodeId(file), at(0)));
    for file in 0..4 {
        table.give(A, NodeId(file), Sequence(1), at(100), &config);
    }
    assert_eq!(openers(&table, NodeId(50)), [], "each of them is known by itself");
    table.give(A, NodeId(4), Sequence(1), at(100), &config);
    assert_eq!(openers(&table, NodeId(50)), [A], "it may have any file open");
    (100..110).for_each(|file| table.released(A, NodeId(file)));
    assert_eq!(table.orphans_of(A), []);
}

#[test]
fn a_file_is_asked_about_after_its_lease_and_again_until_there_is_an_answer() {
    let (mut table, config) = given();
    assert!(table.due(at(599), &config).is_empty());
    let first = open_state_query(&mut table, at(600), &config);
    assert_eq!((first.session, &first.nodes[..]), (A, &[FILE][..]));
    assert!(table.due(at(1099), &config).is_empty());
    assert_eq!(open_state_query(&mut table, at(1100), &config), first);
    assert_eq!(table.open_state(word(A, 6, &[]), first.number, at(1101), &config), Some(Vec::new()));
    assert_eq!(
        table.open_state(word(A, 6, &[]), first.number, at(1102), &config),
        None,
        "nobody has asked again"
    );
    assert_eq!(openers(&table, FILE), []);
    assert!(table.due(at(100_000), &config).is_empty());
}

#[test]
fn a_release_counts_only_if_it_was_sent_after_all_that_says_open() {
    let (mut table, config) = given();
    assert!(table.is_late_release(A, FILE, Sequence(4)));
    assert!(!table.is_late_release(A, FILE, Sequence(6)));
    assert!(!table.is_late_release(B, FILE, Sequence(4)));
    // It says that it has it open, and that it waits for no request below 9: it has been opened since
    // request 8.
    table.recalled(word(A, 9, &[FILE]), &[FILE], at(50), &config);
    assert!(table.is_late_release(A, FILE, Sequence(8)));
    assert!(!table.is_late_release(A, FILE, Sequence(9)));
    table.closed(A, FILE, Sequence(8), at(60));
    assert!(table.said_open(A, FILE));
    // Of many files it is not known any more which was given when.
    for number in 20..30 {
        table.give(A, NodeId(number), Sequence(number), at(100), &config);
    }
    table.orphaned(A, FILE, at(100));
    assert!(table.is_late_release(A, FILE, Sequence(15)));
    assert!(!table.is_late_release(A, FILE, Sequence(40)));
}

#[test]
fn a_renewed_lease_is_not_disturbed_by_surveys() {
    let (mut table, config) = given();
    table.give(A, FILE, Sequence(6), at(900), &config);
    // UsageScan at when its first lease would have ended.
    assert!(table.due(at(600), &config).is_empty());
    assert!(table.due(at(1399), &config).is_empty());
    assert_eq!(open_state_query(&mut table, at(1400), &config).nodes, [FILE]);
}

#[test]
fn nobody_waits_for_the_word_of_a_session_that_waits_itself() {
    let (mut table, config) = given();
    assert!(table.ask_now(A, FILE, at(110), &config), "it may answer at once");
    let asked = open_state_query(&mut table, at(110), &config);
    // Request 3 of it is on its way yet, perhaps to be lent a directory, for which it waits for us.
    table.open_state(word(A, 3, &[]), asked.number, at(111), &config);
    assert!(!table.ask_now(A, FILE, at(112), &config));
    assert_eq!(openers(&table, FILE), [A], "it may have the file open all the same");
    let again = open_state_query(&mut table, at(700), &config);
    table.open_state(word(A, 6, &[]), again.number, at(701), &config);
    assert_eq!(openers(&table, FILE), []);
}

#[test]
fn what_a_session_says_before_it_has_the_reply_counts_for_nothing() {
    let (mut table, config) = given();
    let asked = open_state_query(&mut table, at(600), &config);
    table.open_state(word(A, 5, &[]), asked.number, at(700), &config);
    assert_eq!(openers(&table, FILE), [A]);
    table.recalled(word(A, 5, &[]), &[FILE], at(710), &config);
    assert_eq!(openers(&table, FILE), [A]);
    table.recalled(word(A, 6, &[]), &[FILE], at(720), &config);
    assert_eq!(openers(&table, FILE), []);
}

#[test]
fn who_answers_no_survey_takes_no_more_memory_however_many_files_come_and_go() {
    let (mut table, config) = given();
    open_state_query(&mut table, at(600), &config);
    for number in 0..20_000u64 {
        let node = NodeId(1000 + number);
        table.give(A, node, Sequence(10 + number), at(700 + number), &config);
        table.released(A, node);
        assert!(table.due(at(601), &config).is_empty());
    }
    let opener = &table.sessions[&A];
    assert_eq!(opener.files, 1);
    assert_eq!(opener.calendar.lines.values().map(Vec::len).sum::<usize>(), opener.calendar.count);
    assert!(opener.calendar.count <= VOID_LINES_MAX + 2, "{} lines", opener.calendar.count);
    assert_eq!(openers(&table, FILE), [A]);
}

#[test]
fn a_file_that_is_given_again_during_a_survey_is_not_closed_by_its_answer() {
    let (mut table, config) = given();
    let asked = open_state_query(&mut table, at(600), &config);
    table.give(A, FILE, Sequence(8), at(1600), &config);
    // The session had the new lease already, and opened the file without asking right after it said that it
    // is closed.
    table.open_state(word(A, 9, &[]), asked.number, at(700), &config);
    assert_eq!(openers(&table, FILE), [A]);
}

#[test]
fn answers_to_other_surveys_and_of_other_sessions_change_nothing() {
    let (mut table, config) = given();
    let asked = open_state_query(&mut table, at(600), &config);
    table.open_state(word(A, 6, &[]), asked.number + 1, at(700), &config);
    table.open_state(word(B, 6, &[]), asked.number, at(700), &config);
    assert_eq!(openers(&table, FILE), [A]);
}

#[test]
fn one_survey_asks_about_many_and_one_is_under_way_to_a_session() {
    let (mut table, mut config) = given();
    config.opens_per_session_max = 1000;
    for number in 0..600 {
        table.give(A, NodeId(100 + number), Sequence(6), at(120 + number), &config);
    }
    let first = open_state_query(&mut table, at(600), &config);
    assert_eq!(first.nodes.len(), 482, "all whose leases are over by now");
    assert!(table.due(at(650), &config).is_empty());
    table.open_state(word(A, 7, &[]), first.number, at(660), &config);
    let second = open_state_query(&mut table, at(1300), &config);
    assert_eq!(second.nodes.len(), 119);
}

#[test]
fn who_said_open_is_asked_again_after_long_and_soon_once_it_says_that_it_closed() {
    let (mut table, config) = given();
    let asked = open_state_query(&mut table, at(600), &config);
    table.open_state(word(A, 6, &[FILE]), asked.number, at(700), &config);
    assert!(table.said_open(A, FILE));
    assert!(table.due(at(30_699), &config).is_empty());
    let asked = open_state_query(&mut table, at(30_700), &config);
    table.open_state(word(A, 6, &[FILE]), asked.number, at(30_700), &config);
    table.closed(A, FILE, Sequence(7), at(40_000));
    assert_eq!(openers(&table, FILE), [A], "it may have been opened again since");
    assert_eq!(open_state_query(&mut table, at(40_000), &config).nodes, [FILE]);
}

#[test]
fn an_orphan_is_let_go_by_who_says_that_it_is_closed_unless_it_is_given_again() {
    let (mut table, config) = given();
    table.give(B, FILE, Sequence(5), at(100), &config);
    table.orphaned(A, FILE, at(200));
    table.orphaned(B, FILE, at(200));
    assert!(table.kept_by_another(A, FILE) && table.kept_by_another(B, FILE));
    assert_eq!(table.recalled(word(A, 6, &[]), &[FILE], at(300), &config), [FILE]);
    assert!(table.said_closed(A, FILE));
    assert_eq!(table.orphans_of(A), [FILE], "until the log says otherwise");
    table.give(A, FILE, Sequence(9), at(400), &config);
    assert!(!table.said_closed(A, FILE));
    table.released(A, FILE);
    assert_eq!(openers(&table, FILE), [B]);
    assert!(!table.kept_by_another(B, FILE));
    table.gone(FILE);
    assert_eq!(openers(&table, FILE), []);
}

#[test]
fn a_session_of_the_former_owner_may_have_anything_open_until_it_has_said_what() {
    let (mut table, config) = (OpenTable::default(), config());
    table.inherit(A, at(3000));
    assert_eq!(openers(&table, NodeId(99)), [A]);
    assert!(table.due(at(2999), &config).is_empty());
    let asked = open_state_query(&mut table, at(3000), &config);
    assert_eq!(asked.nodes, []);
    // It says so however often it is asked, and what it was given meanwhile stays.
    table.give(A, NodeId(5), Sequence(3), at(4000), &config);
    table.open_state(word(A, 9, &[FILE]), asked.number, at(3500), &config);
    assert_eq!(openers(&table, NodeId(99)), []);
    assert_eq!(openers(&table, FILE), [A]);
    assert_eq!(openers(&table, NodeId(5)), [A]);
}

#[test]
fn above_the_limit_a_session_may_have_anything_open_until_its_leases_are_over_and_it_has_said_what() {
    let (mut table, config) = (OpenTable::default(), config());
    for number in 0..5 {
        table.give(A, NodeId(number), Sequence(10 + number), at(1000 - number), &config);
    }
    assert_eq!(table.sessions[&A].files, 0);
    assert_eq!(openers(&table, NodeId(99)), [A]);
    assert!(table.due(at(1499), &config).is_empty(), "a lease may be alive");
    let asked = open_state_query(&mut table, at(1500), &config);
    // It has not taken the last reply: anything may be open still.
    table.open_state(word(A, 14, &[NodeId(2)]), asked.number, at(1510), &config);
    assert_eq!(openers(&table, NodeId(99)), [A]);
    let asked = open_state_query(&mut table, at(2010), &config);
    table.open_state(word(A, 15, &[NodeId(2)]), asked.number, at(2020), &config);
    assert_eq!(openers(&table, NodeId(99)), []);
    assert_eq!(openers(&table, NodeId(2)), [A]);
    assert_eq!(openers(&table, NodeId(3)), []);
}

#[test]
fn who_has_more_files_open_than_the_limit_is_remembered_as_having_anything_open() {
    let (mut table, config) = (OpenTable::default(), config());
    table.inherit(A, at(0));
    let asked = open_state_query(&mut table, at(0), &config);
    let open: Vec<NodeId> = (0..5).map(NodeId).collect();
    table.open_state(word(A, 1, &open), asked.number, at(10), &config);
    assert_eq!(openers(&table, NodeId(99)), [A]);
    assert!(table.due(at(20_000), &config).is_empty(), "it is not asked all the time");
}

#[test]
fn a_requester_that_may_have_opened_the_file_since_is_not_believed() {
    let (table, _) = given();
    assert!(table.may_hold(A, FILE, Sequence(5)));
    assert!(!table.may_hold(A, FILE, Sequence(6)));
    let (mut table, config) = given();
    table.recalled(word(A, 6, &[FILE]), &[FILE], at(10), &config);
    assert!(table.may_hold(A, FILE, Sequence(6)), "it said open after that request was made");
    table.inherit(B, at(0));
    assert!(table.may_hold(B, FILE, Sequence(6)));
}

// --- against a client ---

/// What happens next; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    /// The client asks to open a file, or for its attributes.
    Ask {
        node: u64,
        open: bool,
    },
    /// A message arrives, is lost, or arrives and stays on its way.
    Arrive(usize),
    Lose(usize),
    Double(usize),
    /// The client opens a file under its lease.
    OpenLocally(u64),
    Close(u64),
    /// The server recalls a file.
    Recall(u64),
    /// Another server takes the tablet.
    TakeOver,
    Pass(u64),
}

#[derive(Clone, Debug)]
enum Packet {
    Request { by: u64, node: u64, open: bool },
    Reply { by: u64, node: u64, open: bool, lease: u64 },
    OpenStateQuery(OpenStateWish, u64),
    OpenState { number: u64, epoch: u64, finished_below: u64, open: Vec<NodeId> },
    Recall { node: u64, epoch: u64 },
    Recalled { node: u64, epoch: u64, finished_below: u64, open: Vec<NodeId> },
    RecallAll { epoch: u64 },
    RecalledAll { epoch: u64, finished_below: u64, open: Vec<NodeId> },
}

/// A client with one session, a server, and what is on its way between them.
struct Model {
    now: u64,
    table: OpenTable,
    config: Config,
    epoch: u64,
    /// Files that are being recalled, and until when that is known.
    recalling: BTreeMap<u64, u64>,
    taken_over: u64,
    packets: Vec<Packet>,
    next: u64,
    /// Requests that are not answered: when sent, for what, and whether to open.
    outstanding: BTreeMap<u64, (u64, u64, bool)>,
    /// Until when a file may be opened without asking.
    leases: BTreeMap<u64, u64>,
    /// Requests below these give no lease any more.
    recalled: BTreeMap<u64, u64>,
    open: BTreeSet<u64>,
}

const LEASE_MS: u64 = 300;

impl Model {
    fn new() -> Model {
        Model {
            now: 1000,
            table: OpenTable::default(),
            config: config(),
            epoch: 1,
            recalling: BTreeMap::new(),
            taken_over: 0,
            packets: Vec::new(),
            next: 1,
            outstanding: BTreeMap::new(),
            leases: BTreeMap::new(),
            recalled: BTreeMap::new(),
            open: BTreeSet::new(),
        }
    }

    fn mono(&self) -> Mono {
        at(self.now)
    }

    fn finished_below(&self) -> u64 {
        self.outstanding.keys().next().copied().unwrap_or(self.next)
    }

    /// What the client says is open: also what it is opening.
    fn says_open(&self) -> BTreeSet<u64> {
        let opening = self.outstanding.values().filter(|(.., open)| *open).map(|(_, node, _)| *node);
        self.open.iter().copied().chain(opening).collect()
    }

    fn says_open_of(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let open = self.says_open();
        let all = || open.iter().copied().map(NodeId).collect();
        let some = || nodes.iter().copied().filter(|node| open.contains(&node.0)).collect();
        if nodes.is_empty() { all() } else { some() }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Ask { node, open } => {
                let by = self.next;
                self.next += 1;
                self.outstanding.insert(by, (self.now, node, open));
                self.packets.push(Packet::Request { by, node, open });
            }
            Step::Arrive(which) if !self.packets.is_empty() => {
                let packet = self.packets.remove(which % self.packets.len());
                self.take(packet);
            }
            Step::Double(which) if !self.packets.is_empty() => {
                let packet = self.packets[which % self.packets.len()].clone();
                self.take(packet);
            }
            Step::Lose(which) if !self.packets.is_empty() => self.lose(which % self.packets.len()),
            Step::Arrive(_) | Step::Double(_) | Step::Lose(_) => {}
            Step::OpenLocally(node) => {
                if self.leases.get(&node).is_some_and(|until| self.now < *until) {
                    self.open.insert(node);
                }
            }
            Step::Close(node) => {
                self.open.remove(&node);
            }
            Step::Recall(node) => {
                self.recalling.insert(node, self.now + 3000);
                self.packets.push(Packet::Recall { node, epoch: self.epoch });
            }
            Step::TakeOver => {
                self.epoch += 1;
                self.table = OpenTable::default();
                self.table.inherit(A, at(self.now + 3000));
                self.taken_over = self.now;
                self.recalling.clear();
                self.packets.push(Packet::RecallAll { epoch: self.epoch });
            }
            Step::Pass(ms) => {
                self.now += ms;
                self.recalling.retain(|_, until| *until > self.now);
                let open_state_queries = self.table.due(at(self.now), &self.config);
                let epoch = self.epoch;
                self.packets
                    .extend(open_state_queries.into_iter().map(|wish| Packet::OpenStateQuery(wish, epoch)));
            }
        }
    }

    /// Requests and replies are sent again under their number until they arrive; the rest is lost.
    fn lose(&mut self, which: usize) {
        if let Packet::Reply { by, node, open, .. } = self.packets.remove(which) {
            self.packets.push(Packet::Request { by, node, open });
        }
    }

    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::Request { by, node, open } => {
                let leased = !self.recalling.contains_key(&node);
                let lease = if leased { LEASE_MS } else { 0 };
                if leased || open {
                    let lease_end = at(self.now + lease);
                    self.table.give(A, NodeId(node), Sequence(by), lease_end, &self.config);
                }
                self.packets.push(Packet::Reply { by, node, open, lease });
            }
            Packet::Reply { by, node, open, lease } => {
                let Some((sent, ..)) = self.outstanding.remove(&by) else { return };
                let recalled = self.recalled.get(&node).is_some_and(|below| by < *below);
                if lease > 0 && !recalled {
                    let until = self.leases.entry(node).or_insert(0);
                    *until = (*until).max(sent + lease);
                }
                if open {
                    self.open.insert(node);
                }
            }
            Packet::OpenStateQuery(wish, epoch) => {
                let open = self.says_open_of(&wish.nodes);
                let finished_below = self.finished_below();
                self.packets.push(Packet::OpenState { number: wish.number, epoch, finished_below, open });
            }
            Packet::OpenState { number, epoch, finished_below, open } if epoch == self.epoch => {
                self.table.open_state(word(A, finished_below, &open), number, self.mono(), &self.config);
            }
            Packet::Recall { node, epoch } => {
                self.leases.remove(&node);
                self.recalled.insert(node, self.next);
                let (finished_below, open) = (self.finished_below(), self.says_open_of(&[NodeId(node)]));
                self.packets.push(Packet::Recalled { node, epoch, finished_below, open });
            }
            Packet::Recalled { node, epoch, finished_below, open } if epoch == self.epoch => {
                if self.recalling.remove(&node).is_some() {
                    let said = word(A, finished_below, &open);
                    self.table.recalled(said, &[NodeId(node)], self.mono(), &self.config);
                }
            }
            Packet::RecallAll { epoch } => {
                self.leases.clear();
                self.recalled.extend((0..4).map(|node| (node, self.next)));
                let (finished_below, open) = (self.finished_below(), self.says_open_of(&[]));
                self.packets.push(Packet::RecalledAll { epoch, finished_below, open });
            }
            Packet::RecalledAll { epoch, finished_below, open } if epoch == self.epoch => {
                if self.now < self.taken_over + 3000 {
                    let said = word(A, finished_below, &open);
                    self.table.hear_of_everything(said, self.mono(), &self.config);
                }
            }
            Packet::OpenState { .. } | Packet::Recalled { .. } | Packet::RecalledAll { .. } => {}
        }
    }
}

fn steps() -> impl Strategy<Value = Step> {
    let node = 0..4u64;
    prop_oneof![
        3 => (node.clone(), any::<bool>()).prop_map(|(node, open)| Step::Ask { node, open }),
        12 => any::<usize>().prop_map(Step::Arrive),
        1 => any::<usize>().prop_map(Step::Lose),
        2 => any::<usize>().prop_map(Step::Double),
        3 => node.clone().prop_map(Step::OpenLocally),
        2 => node.clone().prop_map(Step::Close),
        1 => node.prop_map(Step::Recall),
        1 => Just(Step::TakeOver),
        6 => prop_oneof![1..60u64, 200..900u64, 3000..3500u64].prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A file that a client has open is known to be, whatever happens to messages; so nobody frees it.
    #[test]
    fn whatever_is_open_at_a_client_counts_as_open_at_the_server(
        steps in proptest::collection::vec(steps(), 1..120),
        limit in 1..6usize,
    ) {
        let mut model = Model::new();
        model.config.opens_per_session_max = limit;
        for step in &steps {
            model.step(step);
            for node in &model.open {
                prop_assert!(model.table.openers(NodeId(*node)).contains(&A), "{node} after {step:?}");
            }
        }
    }
}
