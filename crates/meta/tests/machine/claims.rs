//! What confirms the owner of a tablet to it, and what does not: one server speaks for it.

use crate::cluster::members::COORDINATOR;
use crate::cluster::{self, ALICE, Cluster};
use bearing_meta::Event;
use bearing_placement::Tablet;
use bearing_proto::client::Call;
use bearing_proto::grant::Grant;
use bearing_proto::replication::{Append, Entries, EntryBytes, Held, Progress, ReplicationMessage};
use bearing_seams::{LoggedRecord, TabletLog};
use bearing_types::{Block, LogIndex, Sequence, ServerId};
use std::collections::BTreeMap;
use std::time::Duration;

fn cluster(copies: u8) -> Cluster {
    let mut cluster = Cluster::with_copies(5, copies);
    cluster.open_session(ALICE);
    cluster
}

/// A file is being created. One of its tablet's members, the heir, has that in its log, which hangs; it does
/// not hear the owner any more, which does not hear the coordinator.
struct Hung {
    cluster: Cluster,
    root: Grant,
    owner: ServerId,
    heir: ServerId,
    created: Sequence,
}

fn hung(turn: usize) -> Hung {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let (owner, ..) = cluster.owner(root.body.seat.home);
    let members = cluster.register_of(root.body.seat.home).members;
    let heir = members.into_iter().filter(|member| *member != owner).nth(turn).unwrap();
    cluster.hung_log = Some(heir);
    let (name, at) = (cluster::name("f"), cluster::position(&root, "f"));
    let new = cluster::regular(0o644);
    let call = Call::Create { grant: root.clone(), who: cluster::root_user(), name, new };
    let created = cluster.send_call(ALICE, at, call);
    cluster.cut = [(owner, heir), (owner, COORDINATOR)].into();
    Hung { cluster, root, owner, heir, created }
}

impl Hung {
    /// The owner, which hears its members, does not say that the file is there. Nor is it lost.
    fn only_the_heir_tells(mut self) {
        let Hung { cluster, root, owner, heir, created } = &mut self;
        assert_eq!(cluster.register_of(root.body.seat.home).owner, *heir);
        cluster.cut.remove(&(*owner, *heir));
        cluster.pass(Duration::from_millis(50));
        assert_eq!(cluster.answer(ALICE, *created), None, "the owner speaks for what is the heir's");
        cluster.cut.clear();
        cluster.pass(Duration::from_secs(1));
        let root = cluster.root(ALICE).grant;
        assert_eq!(cluster.list(ALICE, &root, 10), ["f"]);
    }
}

#[test]
fn what_a_full_disk_takes_late_confirms_nobody_of_whom_the_tablet_is_claimed_by_then() {
    for turn in [0, 1] {
        let mut hung = hung(turn);
        let Hung { cluster, root, owner, heir, .. } = &mut hung;
        cluster.pass(Duration::from_millis(450));
        cluster.cut.remove(&(*owner, *heir));
        cluster.pass(Duration::from_millis(50));
        let register = cluster.register_of(root.body.seat.home);
        assert_eq!(register.owner, *owner, "the claim waits for its intent");
        cluster.coordinator_takes = Duration::from_millis(100);
        cluster.release_syncs();
        hung.only_the_heir_tells();
    }
}

#[test]
fn what_is_synced_just_before_a_claim_confirms_nobody_under_the_term_after_it() {
    let mut claimed = 0;
    for wait in (200..400).step_by(5) {
        let mut hung = hung(0);
        let Hung { cluster, root, heir, .. } = &mut hung;
        cluster.pass(Duration::from_millis(wait));
        // No timer runs before what is synced is heard of.
        cluster.stop_for(Duration::from_millis(5));
        cluster.coordinator_takes = Duration::from_millis(100);
        cluster.release_syncs();
        if cluster.register_of(root.body.seat.home).owner == *heir {
            claimed += 1;
            hung.only_the_heir_tells();
        }
    }
    assert!(claimed > 0, "something is synced in the step that claims the tablet");
}

#[test]
fn first_entries_under_an_epoch_that_is_over_make_no_copy_and_confirm_nobody() {
    let mut cluster = cluster(2);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    let before = cluster.register_of(home);
    let log = cluster.kill(before.owner).read(None, usize::MAX).unwrap();
    let is_first = |record: &LoggedRecord| record.serial == before.serial && record.index == LogIndex(1);
    let (_, first) = log.into_iter().find(|(_, record)| is_first(record)).unwrap();
    cluster.pass(Duration::from_secs(4));
    let after = cluster.register_of(home);
    let stranger = *cluster.hosts.keys().find(|server| !after.members.contains(server)).unwrap();
    let entries = Entries {
        serial: before.serial,
        epoch: before.epoch,
        first: LogIndex(1),
        commit: LogIndex::ZERO,
        index: LogIndex(1),
        entries: vec![EntryBytes(first.bytes)],
    };
    let append = Append { life: 1, stamp: 1, entries: vec![entries], ..Append::default() };
    cluster.kept_replication = Some(Vec::new());
    cluster.send(stranger, Event::Replication(before.owner, ReplicationMessage::Append(append)));
    cluster.pass(Duration::from_millis(5));
    let answers =
        cluster.kept_replication.take().unwrap().into_iter().filter_map(|(to, event)| match event {
            Event::Replication(_, ReplicationMessage::Held(held)) if to == before.owner => Some(held),
            _ => None,
        });
    let answers: Vec<Held> = answers.collect();
    let names = |told: &[Progress]| told.iter().any(|progress| progress.serial == before.serial);
    assert!(answers.iter().any(|held| names(&held.refused)), "{answers:?}");
    assert!(!answers.iter().any(|held| names(&held.synced)), "{answers:?}");
}

#[test]
fn a_late_answer_that_entries_are_lacking_throws_no_member_out() {
    // Also when it is to the newest message that was answered.
    for late_by in [0, 100] {
        lacks_late(Duration::from_millis(late_by));
    }
}

fn lacks_late(late_by: Duration) {
    let mut cluster = cluster(3);
    let root = cluster.root(ALICE).grant;
    let home = root.body.seat.home;
    (0..20).for_each(|number| _ = cluster.create(ALICE, &root, &format!("f{number}")).unwrap());
    let (owner, ..) = cluster.owner(home);
    cluster.restart(owner);
    cluster.pass(Duration::from_secs(4));
    let before = cluster.register_of(home);
    cluster.kept_replication = Some(Vec::new());
    cluster.pass(Duration::from_millis(50));
    let kept = cluster.kept_replication.take().unwrap();
    let mut held = kept.into_iter().filter_map(|(to, event)| match event {
        Event::Replication(from, ReplicationMessage::Held(held)) if from == before.members[1] => {
            (to == before.owner).then_some(held)
        }
        _ => None,
    });
    let Held { life, stamp, term, .. } = held.next_back().unwrap();
    cluster.pass(late_by);
    let lacking = vec![Progress { serial: before.serial, epoch: before.epoch, index: LogIndex::ZERO }];
    let late = ReplicationMessage::Held(Held { life, stamp, term, lacking, ..Held::default() });
    cluster.send(before.owner, Event::Replication(before.members[1], late));
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.register_of(home), before);
}

#[test]
fn a_new_owner_that_is_not_heard_at_once_has_its_grace_like_any_other() {
    let mut cluster = cluster(3);
    let gone = ServerId(1);
    let blocks: Vec<Block> = cluster.owners().into_keys().map(|at| cluster.owner(at).1).collect();
    let registers = |cluster: &mut Cluster| -> BTreeMap<Block, Tablet> {
        blocks.iter().map(|block| (*block, cluster.register(*block))).collect()
    };
    let before = registers(&mut cluster);
    let pairs = |tablet: &Tablet| {
        let [one, other] =
            tablet.members.iter().copied().filter(|member| *member != gone).collect::<Vec<_>>()[..]
        else {
            panic!("{tablet:?}")
        };
        [(one, other), (other, one)]
    };
    let mine = |tablet: &&Tablet| tablet.owner == gone;
    // The two that are left of each of its tablets do not hear each other for a moment.
    cluster.cut = before.values().filter(mine).flat_map(pairs).collect();
    cluster.kill(gone);
    let mut taken = BTreeMap::new();
    while taken.len() < before.values().filter(mine).count() {
        cluster.pass(Duration::from_millis(5));
        for (block, tablet) in registers(&mut cluster) {
            if before[&block].owner == gone && tablet.owner != gone {
                taken.entry(block).or_insert(tablet);
            }
        }
    }
    cluster.pass(Duration::from_millis(100));
    cluster.cut.clear();
    cluster.pass(Duration::from_millis(100));
    let after = registers(&mut cluster);
    for (block, tablet) in taken {
        assert!(
            after[&block].owner == tablet.owner && after[&block].members.len() > 1,
            "{:?}",
            after[&block]
        );
    }
}

#[test]
fn who_meets_another_in_the_registers_claims_nothing_before_it_has_read_them() {
    let mut cluster = cluster(3);
    let others = [2, 3, 4, 5].map(ServerId);
    let before = cluster.swaps_asked;
    cluster.listings_take = Duration::from_millis(300);
    // The next in turn hears neither of them.
    cluster.cut = others.iter().flat_map(|one| others.map(|other| (*one, other))).collect();
    cluster.kill(ServerId(1));
    cluster.pass(Duration::from_millis(900));
    let asked = cluster.swaps_asked - before;
    (cluster.listings_take, cluster.cut) = (Duration::ZERO, [].into());
    cluster.pass(Duration::from_secs(2));
    assert!(cluster.owners().into_keys().all(|at| cluster.owner(at).0 != ServerId(1)));
    assert!(asked <= 20, "{asked} swaps");
}
