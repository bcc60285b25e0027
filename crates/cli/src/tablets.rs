//! How tablets are: what the coordinator's registers say of them, and what each metadata server has of them,
//! put together.
//!
//! Servers are asked over the network, all at the same time. One that does not answer is silent: what it
//! would say is not known, and the rest is.

use crate::ask;
use anyhow::{Result, bail};
use bearing_env::Clock;
use bearing_placement::Tablet;
use bearing_proto::coordinator::{AskCall, TellBody};
use bearing_proto::tablets::{
    LearnerView, MemberView, OwnerPhase, OwnerView, Restoring, TabletRole, TabletView, TabletsView,
};
use bearing_server::cluster::{Cluster, DaemonName, Layout, Member};
use bearing_types::{Block, Epoch, ServerId, TabletSerial};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Members that lack no more entries than this are as far as their owner: while a tablet is changed, some are
/// always on their way.
const LAG_USUAL: u64 = 256;
/// Answers that are older than this are asked for again.
const OLD_AFTER: Duration = Duration::from_millis(500);

/// A metadata server.
pub struct Server {
    /// Its number.
    pub number: u32,
    /// Where it listens.
    pub address: SocketAddr,
    /// What it has, or why it is silent.
    pub told: Result<TabletsView, String>,
}

/// See the module.
pub struct Tablets {
    /// All metadata servers, by number.
    pub servers: Vec<Server>,
    /// The version of the map; `None` if the coordinator did not say.
    pub map_version: Option<u64>,
    /// In the order of the ring.
    pub tablets: Vec<TabletState>,
    /// How many copies of each there should be.
    pub copies_wanted: usize,
}

/// A tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TabletState {
    #[serde(skip)]
    pub place: Block,
    /// Its start and its number of prefix bits.
    pub block: String,
    pub serial: u64,
    pub epoch: u64,
    /// The metadata server's number.
    pub owner: u32,
    /// The owner too.
    pub members: Vec<u32>,
    pub phase: Phase,
    /// What the owner knows of the other members.
    pub copies: Vec<CopyState>,
    pub learner: Option<LearnerState>,
    /// The last takeover, if its owner has not been started again since.
    pub taken_over: Option<TakenOver>,
}

/// Whether a tablet is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is.
    Serving,
    /// Its owner begins to.
    Adopting,
    /// It moves to another server.
    Leaving,
    /// The server that owns it by the registers is silent.
    OwnerSilent,
    /// That server says that it does not own it: it has heard of nothing yet, or of more.
    NotTaken,
}

/// Another member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyState {
    pub server: u32,
    /// Entries that it has not said to have synced, and about their bytes.
    pub lag_entries: u64,
    pub lag_bytes: u64,
    /// Whether it leaves the tablet to its owner now, so that this may answer.
    pub relies: bool,
}

/// The server that becomes a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LearnerState {
    pub server: u32,
    /// Parts of the snapshot that are there, and the bytes that were sent of it.
    pub parts: u32,
    pub sent_bytes: u64,
    /// Whether it has the whole snapshot, and entries that are kept for it.
    pub has_snapshot: bool,
    pub entries_kept: u64,
}

/// A takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TakenOver {
    pub from: u32,
    /// In nanoseconds since 1970, by the clock of who took it over.
    pub at_ns: i64,
    /// From the claim until it was served.
    pub after_us: u64,
}

/// How far copies are that are being made again, at all servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestoringState {
    /// Tablets that lack copies.
    pub tablets: u64,
    /// Of these, those that somebody learns now.
    pub learnt: u64,
    pub sent_bytes: u64,
    /// About what is left; `None`: nobody knows how large the tablets are.
    pub left_bytes: Option<u64>,
    /// About how long that takes, as fast as it went, or may go.
    pub left_seconds: Option<u64>,
}

impl Tablets {
    /// Asks the coordinator, which may not run, and all metadata servers.
    pub fn ask(layout: &Layout, cluster: &Cluster, patience: Duration) -> (Tablets, Option<anyhow::Error>) {
        let begun = Clock.mono();
        let (mut registers, mut servers) = ask_all(layout, cluster, &cluster.metadata, patience);
        // While a silent one was waited for, others may have taken its tablets over.
        if registers.is_ok() && Clock.mono().since(begun) >= OLD_AFTER {
            let answers = |member: &&Member| {
                servers.iter().any(|server| server.number == member.number && server.told.is_ok())
            };
            let answering: Vec<Member> = cluster.metadata.iter().filter(answers).copied().collect();
            let (anew, answered) = ask_all(layout, cluster, &answering, patience);
            servers.retain(|server| server.told.is_err());
            servers.extend(answered);
            registers = anew;
        }
        servers.sort_by_key(|server| server.number);
        let (registers, complaint) = match registers {
            Ok(registers) => (Some(registers), None),
            Err(error) => (None, Some(error)),
        };
        let (map_version, registers) = registers.unzip();
        let tablets = put_together(registers.unwrap_or_default(), &servers);
        let copies_wanted = usize::from(cluster.metadata_copies);
        (Tablets { servers, map_version, tablets, copies_wanted }, complaint)
    }

    /// Whether a tablet has all the copies that it should, and they are as far as their owner.
    pub fn is_well(&self, tablet: &TabletState) -> bool {
        tablet.phase == Phase::Serving
            && tablet.learner.is_none()
            && tablet.members.len() == self.copies_wanted
            && tablet.copies.len() + 1 == tablet.members.len()
            && tablet.copies.iter().all(|copy| copy.relies && copy.lag_entries <= LAG_USUAL)
    }

    /// Whether a server has answered.
    pub fn answers(&self, number: u32) -> bool {
        self.servers.iter().any(|server| server.number == number && server.told.is_ok())
    }

    /// How far copies are that are being made again; `None` if no tablet lacks any.
    pub fn restoring(&self) -> Option<RestoringState> {
        let lacking = |tablet: &&TabletState| tablet.members.len() < self.copies_wanted;
        let tablets = self.tablets.iter().filter(lacking);
        let (tablets, learnt) = (tablets.clone().count(), tablets.filter(|tablet| tablet.learner.is_some()));
        if tablets == 0 {
            return None;
        }
        let mut sum = RestoringState {
            tablets: tablets as u64,
            learnt: learnt.count() as u64,
            left_bytes: Some(0),
            left_seconds: Some(0),
            ..RestoringState::default()
        };
        let told = self.servers.iter().filter_map(|server| server.told.as_ref().ok());
        for restoring in told.map(|told| &told.restoring).filter(|restoring| restoring.lacking > 0) {
            sum.sent_bytes += restoring.sent_bytes;
            sum.left_bytes = sum.left_bytes.zip(restoring.left_bytes).map(|(sum, left)| sum + left);
            // All servers send at the same time.
            let longest = sum.left_seconds.zip(seconds_left(restoring));
            sum.left_seconds = longest.map(|(sum, left)| sum.max(left));
        }
        Some(sum)
    }
}

/// As fast as it went so far, once it is going on for a while.
fn seconds_left(restoring: &Restoring) -> Option<u64> {
    const LONG_ENOUGH_MS: u64 = 1000;
    let left = restoring.left_bytes?;
    let so_far = restoring.sent_bytes.saturating_mul(1000) / restoring.since_ms.max(1);
    let most = restoring.bytes_per_second_max.max(1);
    let rate = if restoring.since_ms < LONG_ENOUGH_MS || so_far == 0 { most } else { so_far.min(most) };
    Some(left.div_ceil(rate))
}

/// Asks the coordinator and these metadata servers what they have.
fn ask_all(
    layout: &Layout,
    cluster: &Cluster,
    members: &[Member],
    patience: Duration,
) -> (Result<(u64, Vec<Tablet>)>, Vec<Server>) {
    std::thread::scope(|scope| {
        let registers = scope.spawn(|| ask::tablets(layout, cluster, patience));
        let servers = ask_servers(layout, members, patience);
        (registers.join().expect("asking does not panic"), servers)
    })
}

fn ask_servers(layout: &Layout, members: &[Member], patience: Duration) -> Vec<Server> {
    let addresses: Vec<SocketAddr> = members.iter().map(|member| member.address).collect();
    let told = ask::each(layout, &addresses, &AskCall::Tablets, patience);
    let told = told.into_iter().map(|told| told.and_then(view).map_err(|error| format!("{error:#}")));
    let named = members.iter().zip(told);
    named.map(|(member, told)| Server { number: member.number, address: member.address, told }).collect()
}

/// The answer to a question for tablets.
pub fn view(body: TellBody) -> Result<TabletsView> {
    match body {
        TellBody::Tablets(view) => Ok(view),
        other => bail!("answered {other:?} to a question for its tablets"),
    }
}

/// The number of a metadata server.
pub fn number(server: ServerId) -> u32 {
    DaemonName::of(server).number
}

/// A tablet as its owner sees it.
type Owned<'a> = (ServerId, &'a TabletView, &'a OwnerView);

/// What owners say counts if it is as new as the register: under the same epoch or a later one.
fn put_together(registers: Vec<Tablet>, servers: &[Server]) -> Vec<TabletState> {
    let mut owned: BTreeMap<TabletSerial, Owned<'_>> = BTreeMap::new();
    let mut silent = Vec::new();
    for server in servers {
        let id = ServerId(server.number);
        let Ok(told) = &server.told else {
            silent.push(id);
            continue;
        };
        for tablet in &told.tablets {
            let TabletRole::Owner(owner) = &tablet.role else { continue };
            if owned.get(&tablet.serial).is_none_or(|(_, other, _)| other.epoch < tablet.epoch) {
                owned.insert(tablet.serial, (id, tablet, &**owner));
            }
        }
    }
    let mut states: Vec<TabletState> = Vec::new();
    for register in registers {
        let newest = owned.remove(&register.serial).filter(|(_, tablet, _)| tablet.epoch >= register.epoch);
        states.push(match newest {
            Some(owned) => state_of(register.block, register.serial, owned),
            None => {
                let is_silent = silent.contains(&register.owner);
                registered(&register, if is_silent { Phase::OwnerSilent } else { Phase::NotTaken })
            }
        });
    }
    // Without the registers, what owners say is all that is known.
    let unregistered = owned.into_iter().filter(|_| states.is_empty());
    let more: Vec<TabletState> =
        unregistered.filter_map(|(serial, owned)| Some(state_of(owned.1.block?, serial, owned))).collect();
    states.extend(more);
    states.sort_by_key(|state| state.place.start());
    states
}

fn state_of(block: Block, serial: TabletSerial, (owner, tablet, told): Owned<'_>) -> TabletState {
    let learner = told.learner.as_ref().map(|learner| learner.server);
    // A learner that counts already is no member yet.
    let members = told.members.iter().filter(|member| Some(member.server) != learner);
    let copies: Vec<CopyState> = members.map(copy_state).collect();
    let mut members = vec![number(owner)];
    members.extend(copies.iter().map(|copy| copy.server));
    TabletState {
        copies,
        phase: match told.phase {
            OwnerPhase::Serving => Phase::Serving,
            OwnerPhase::Adopting => Phase::Adopting,
            OwnerPhase::Leaving(_) => Phase::Leaving,
        },
        learner: told.learner.as_ref().map(learner_state),
        taken_over: told.taken.map(|taken| TakenOver {
            from: number(taken.from),
            at_ns: taken.at.0,
            after_us: taken.after_us,
        }),
        ..bare(block, serial, tablet.epoch, owner, members)
    }
}

fn registered(register: &Tablet, phase: Phase) -> TabletState {
    let members = register.members.iter().copied().map(number).collect();
    let learner = register.learner.map(|server| LearnerState {
        server: number(server),
        parts: 0,
        sent_bytes: 0,
        has_snapshot: false,
        entries_kept: 0,
    });
    let state = bare(register.block, register.serial, register.epoch, register.owner, members);
    TabletState { phase, learner, ..state }
}

fn bare(
    place: Block,
    serial: TabletSerial,
    epoch: Epoch,
    owner: ServerId,
    mut members: Vec<u32>,
) -> TabletState {
    members.sort_unstable();
    TabletState {
        place,
        block: place.to_string(),
        serial: serial.0,
        epoch: epoch.0,
        owner: number(owner),
        members,
        phase: Phase::NotTaken,
        copies: Vec::new(),
        learner: None,
        taken_over: None,
    }
}

fn copy_state(member: &MemberView) -> CopyState {
    CopyState {
        server: number(member.server),
        lag_entries: member.lag,
        lag_bytes: member.lag_bytes,
        relies: member.relies,
    }
}

fn learner_state(learner: &LearnerView) -> LearnerState {
    LearnerState {
        server: number(learner.server),
        parts: learner.parts,
        sent_bytes: learner.sent_bytes,
        has_snapshot: learner.has_snapshot,
        entries_kept: learner.tail,
    }
}

/// Numbers in few words: `1-3 5`.
pub fn ranges(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut numbers: Vec<u64> = numbers.into_iter().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut words: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match words.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => words.push((number, number)),
        }
    }
    let word = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    words.into_iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::LogIndex;

    fn register(epoch: u64, owner: u32) -> Tablet {
        let members = vec![ServerId(3), ServerId(1)];
        Tablet {
            block: Block::RING,
            serial: TabletSerial(1),
            epoch: Epoch(epoch),
            owner: ServerId(owner),
            members,
            learner: None,
            committed: LogIndex::ZERO,
        }
    }

    fn server(number: u32, told: Result<Vec<TabletView>, &str>) -> Server {
        let told = told.map(|tablets| TabletsView { tablets, ..TabletsView::default() });
        Server { number, address: "127.0.0.1:1".parse().unwrap(), told: told.map_err(str::to_owned) }
    }

    fn owned(epoch: u64) -> TabletView {
        let member =
            |server, lag| MemberView { server: ServerId(server), lag, lag_bytes: lag * 10, relies: true };
        let learner =
            LearnerView { server: ServerId(4), parts: 2, sent_bytes: 9, has_snapshot: true, tail: 5 };
        let role = OwnerView {
            phase: OwnerPhase::Serving,
            members: vec![member(3, 0), member(4, 7)],
            learner: Some(learner),
            taken: None,
            compare_at: None,
            checkpoint: None,
        };
        TabletView {
            serial: TabletSerial(1),
            block: Some(Block::RING),
            epoch: Epoch(epoch),
            committed: LogIndex(9),
            last: LogIndex(9),
            role: TabletRole::Owner(Box::new(role)),
            compared: None,
            comparing: None,
        }
    }

    #[test]
    fn an_owner_knows_more_than_the_register_unless_that_is_newer() {
        let servers = [server(1, Ok(vec![owned(7)])), server(3, Err("does not answer"))];
        let told = put_together(vec![register(7, 1)], &servers).remove(0);
        assert_eq!((told.phase, told.owner, &told.members[..]), (Phase::Serving, 1, &[1, 3][..]));
        assert_eq!(told.copies.len(), 1, "a learner is no member");
        assert_eq!(told.learner.unwrap().entries_kept, 5);
        let told = put_together(vec![register(8, 3)], &servers).remove(0);
        assert_eq!((told.phase, told.owner), (Phase::OwnerSilent, 3));
        let told = put_together(vec![register(8, 1)], &servers).remove(0);
        assert_eq!(told.phase, Phase::NotTaken);
        let told = put_together(Vec::new(), &servers).remove(0);
        assert_eq!((told.phase, told.epoch), (Phase::Serving, 7), "the coordinator is silent");
    }

    #[test]
    fn what_is_left_takes_as_long_as_it_took_so_far_and_never_less_than_it_may() {
        let restoring = |sent_bytes, since_ms| Restoring {
            lacking: 1,
            sent_bytes,
            since_ms,
            left_bytes: Some(100),
            bytes_per_second_max: 50,
        };
        assert_eq!(seconds_left(&restoring(0, 10)), Some(2), "it has just begun");
        assert_eq!(seconds_left(&restoring(10, 1_000)), Some(10));
        assert_eq!(seconds_left(&restoring(1_000, 1_000)), Some(2));
        assert_eq!(seconds_left(&Restoring { left_bytes: None, ..restoring(1, 1) }), None);
    }

    #[test]
    fn numbers_that_follow_each_other_are_a_range() {
        assert_eq!(ranges([7, 1, 2, 3, 2, 9, 8]), "1-3 7-9");
        assert_eq!(ranges([4]), "4");
        assert_eq!(ranges([]), "");
    }
}
