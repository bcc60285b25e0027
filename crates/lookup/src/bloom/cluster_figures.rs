//! What small clusters of the machines do, counted: levels, migrations, editions, bytes.

use crate::bloom::cluster::{Cluster, End};
use crate::bloom::cluster_laws::BLOOM;
use crate::bloom::division::GroupId;
use crate::bloom::layout::Founding;
use crate::bloom::message::BloomMessage;
use crate::bloom::options::{BloomOptions, Sizes};
use crate::bloom::server::BloomServer;
use crate::machine::Event;
use crate::message::Message;
use crate::query::{FileKey, LookupError};
use crate::world::World;
use bearing_placement::LookupKind;
use bearing_types::{Mono, ServerId};
use std::sync::Arc;
use std::time::Duration;

/// Filters for 200 files, in a cluster of which nobody fails.
fn founded(lookup: LookupKind, group_most: u32, servers: u32) -> Cluster {
    founded_asking(lookup, group_most, servers, 0)
}

fn founded_asking(lookup: LookupKind, group_most: u32, servers: u32, named_max: u32) -> Cluster {
    let published = BloomOptions::of(lookup, Sizes { servers, keys_each: 200 }).unwrap();
    let group_most = if lookup == LookupKind::BloomGroups { group_most } else { 1 };
    let mut cluster = Cluster::founded(BloomOptions { group_most, named_max, ..published }, 1, servers);
    cluster.settle();
    cluster.check().unwrap();
    cluster
}

fn key(number: u32) -> FileKey {
    FileKey((u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn home(number: u32, servers: u32) -> ServerId {
    ServerId(number % servers + 1)
}

fn fill(cluster: &mut Cluster, servers: u32) {
    for number in 0..200 * servers {
        cluster.store(home(number, servers), key(number));
        if number % 97 == 0 {
            cluster.run(Duration::from_millis(10));
        }
    }
    cluster.settle();
}

#[test]
fn files_are_found_by_filters_and_few_by_asking_all() {
    for lookup in BLOOM {
        let mut cluster = founded(lookup, 4, 12);
        fill(&mut cluster, 12);
        // In an order that does not lead clients, who go round, always to the home.
        let mut numbers: Vec<u32> = (0..2400).collect();
        numbers.sort_by_key(|number| key(*number).0);
        for number in numbers {
            assert_eq!(cluster.find(key(number)), End::Served(home(number, 12)));
        }
        assert_eq!(cluster.find(key(1 << 20)), End::Failed(LookupError::Absent));
        let counts = cluster.counts();
        let all = f64::from(2400);
        // Several filters answer for a tenth to a fifth of the files: 11 of f0 = 0.02 each; with 16 bits for
        // hardly any.
        let asked_all = counts.found_all as f64 / all;
        let most = if lookup == LookupKind::BloomArray16 { 0.02 } else { 0.3 };
        assert!(asked_all < most, "{lookup}: {counts:?}");
        let by_group = counts.found_group as f64 / all;
        assert!((by_group > 0.3) == (lookup == LookupKind::BloomGroups), "{lookup}: {counts:?}");
        println!("{lookup}: {counts:?}");
    }
}

#[test]
fn asking_the_few_that_were_named_spares_asking_all() {
    for lookup in [LookupKind::BloomLevels, LookupKind::BloomGroups] {
        let messages = [0, 3].map(|named_max| {
            let mut cluster = founded_asking(lookup, 4, 12, named_max);
            fill(&mut cluster, 12);
            let before = cluster.messages;
            for number in 0..600 {
                assert_eq!(cluster.find(key(number * 5 / 3)), End::Served(home(number * 5 / 3, 12)));
            }
            let counts = cluster.counts();
            assert!((counts.found_named == 0) == (named_max == 0), "{counts:?}");
            assert!(named_max == 0 || counts.found_all < 30, "{counts:?}");
            cluster.messages - before
        });
        println!("{lookup}: {messages:?} messages for 600 queries");
        assert!(messages[1] < messages[0], "{lookup}: {messages:?}");
    }
}

#[test]
fn what_was_found_lately_is_found_at_the_first_level() {
    let mut cluster = founded(LookupKind::BloomGroups, 4, 6);
    fill(&mut cluster, 6);
    (0..30).for_each(|_| assert_eq!(cluster.find(key(7)), End::Served(home(7, 6))));
    let counts = cluster.counts();
    assert!(counts.found_recent >= 30 - 6 - 1, "each server learns it once: {counts:?}");
}

#[test]
fn a_filter_that_misleads_costs_a_level_and_no_wrong_answer() {
    let mut cluster = founded(LookupKind::BloomLevels, 1, 3);
    let [old, new] = [ServerId(1), ServerId(2)];
    fill(&mut cluster, 3);
    // Too small a change to be published: all still believe that it is where it was.
    cluster.remove(old, key(0));
    cluster.store(new, key(0));
    let before = cluster.counts();
    for _ in 0..3 {
        assert_eq!(cluster.find(key(0)), End::Served(new));
    }
    let counts = cluster.counts();
    assert_eq!(counts.published, before.published);
    assert!(counts.misled > before.misled && counts.found_all > before.found_all, "{counts:?}");
}

#[test]
fn a_new_edition_is_one_message_to_each_group_and_reaches_the_member_that_holds_it() {
    for (lookup, most, groups) in [(LookupKind::BloomGroups, 4, 4), (LookupKind::BloomLevels, 1, 13)] {
        let mut cluster = founded(lookup, most, 13);
        let division = cluster.machines().next().unwrap().1.layout().unwrap().division().clone();
        assert_eq!(division.groups().len(), groups);
        let before = cluster.counts();
        (0..13).for_each(|number| cluster.store(ServerId(5), key(number)));
        cluster.run(Duration::from_millis(50));
        let counts = cluster.counts();
        let edition = cluster.machines().find(|(id, _)| *id == ServerId(5)).unwrap().1.edition();
        let editions = (counts.published - before.published) / (groups as u64 - 1);
        assert_eq!((counts.published - before.published) % (groups as u64 - 1), 0);
        assert!(editions >= 1);
        assert!(counts.forwarded - before.forwarded <= editions * (groups as u64 + 1), "{counts:?}");
        let held: Vec<_> = cluster
            .machines()
            .flat_map(|(_, machine)| machine.replicas().filter(|(of, _)| *of == ServerId(5)))
            .map(|(_, held)| held)
            .collect();
        assert_eq!(held, vec![edition; groups - 1], "the newest, once in every other group");
    }
}

/// Servers that begin with files say so once they are asked, and none has to be published for it.
#[test]
fn servers_that_begin_with_files_exchange_filters_of_them() {
    let sizes = Sizes { servers: 12, keys_each: 200 };
    let options = BloomOptions { group_most: 4, ..BloomOptions::of(LookupKind::BloomGroups, sizes).unwrap() };
    let founding = Founding::of((1..=12).map(ServerId), 4).unwrap();
    let mut world: World<BloomServer> = World::new(Duration::from_micros(100), Box::new(|_| None));
    for server in (1..=12).map(ServerId) {
        let files = (0..2400).filter(|number| home(*number, 12) == server).map(key);
        let machine = BloomServer::founded_with(server, options, &founding, Mono::ZERO, files).unwrap();
        assert!(machine.filters().all(|filter| filter.ones() > 0));
        world.add_server(server, machine);
    }
    world.run_for(options.beat + Duration::from_millis(1));
    for server in (1..=12).map(ServerId) {
        let machine = world.server(server).unwrap();
        assert_eq!(machine.filters().count(), 1 + machine.shares().unwrap().held_by(server).count());
        assert!(machine.filters().all(|filter| filter.ones() > 500), "{server}");
        assert_eq!(machine.counts().published, 0);
        for (of, _) in machine.replicas() {
            let mine = (0..2400).filter(|number| home(*number, 12) == of);
            let named = |number: u32| machine.filters().any(|filter| filter.may_hold(key(number)));
            assert!(mine.into_iter().all(named), "{server} does not know what {of} has");
        }
    }
}

#[test]
fn a_join_migrates_what_is_published() {
    // (N - M')/(M' + 1) from the members to the newcomer; HBA: all N, from their servers.
    for (servers, most) in [(9, 4), (14, 5), (17, 6)] {
        let mut cluster = founded(LookupKind::BloomGroups, most, servers);
        let division = cluster.machines().next().unwrap().1.layout().unwrap().division().clone();
        let smallest = division.groups().values().map(Vec::len).min().unwrap() as u32;
        assert!(smallest < most, "has room");
        let before = cluster.counts();
        cluster.start(ServerId(99), Some(ServerId(1)));
        cluster.run(Duration::from_millis(900));
        let counts = cluster.counts();
        assert_eq!(counts.migrated - before.migrated, u64::from((servers - smallest) / (smallest + 1)));
        assert_eq!(counts.published - before.published, division.groups().len() as u64 - 1);
        // Before the first heart-beat: handed over by the members, not asked for.
        let newcomer = ServerId(99);
        let (_, machine) = cluster.machines().find(|(id, _)| *id == newcomer).unwrap();
        let held: Vec<ServerId> = machine.replicas().map(|(of, _)| of).collect();
        assert_eq!(held, machine.shares().unwrap().held_by(newcomer).collect::<Vec<_>>());
        cluster.settle();
        cluster.check().unwrap();
    }
    let mut cluster = founded(LookupKind::BloomLevels, 1, 9);
    let before = cluster.counts();
    cluster.start(ServerId(99), Some(ServerId(1)));
    cluster.run(Duration::from_millis(900));
    let counts = cluster.counts();
    // Each of the nine asks the newcomer for its filter too, as the share-out says that nobody has it yet.
    assert_eq!(counts.refetched - before.refetched, 9 + 9);
    assert_eq!(counts.published - before.published, 9);
}

#[test]
fn a_full_group_splits_between_machines_and_small_ones_merge() {
    let mut cluster = founded(LookupKind::BloomGroups, 4, 4);
    let sizes = |cluster: &Cluster| -> Vec<usize> {
        let (_, machine) = cluster.machines().next().unwrap();
        machine.layout().unwrap().division().groups().values().map(Vec::len).collect()
    };
    assert_eq!(sizes(&cluster), [4]);
    cluster.start(ServerId(5), Some(ServerId(3)));
    cluster.settle();
    cluster.check().unwrap();
    assert_eq!(sizes(&cluster), [2, 3]);
    cluster.crash(ServerId(1));
    cluster.settle();
    cluster.check().unwrap();
    assert_eq!(sizes(&cluster), [4]);
    let (_, machine) = cluster.machines().next().unwrap();
    assert_eq!(machine.layout().unwrap().division().members(GroupId(0)).len(), 4);
}

#[test]
fn the_filters_of_a_failed_server_are_removed_and_service_goes_on() {
    for lookup in BLOOM {
        let mut cluster = founded(lookup, 3, 8);
        fill(&mut cluster, 8);
        cluster.crash(ServerId(4));
        // Before anybody noticed, and after.
        for _ in 0..2 {
            for number in 0..80 {
                let wanted = match home(number, 8) {
                    ServerId(4) => End::Failed(LookupError::Absent),
                    home => End::Served(home),
                };
                assert_eq!(cluster.find(key(number)), wanted);
            }
            cluster.settle();
        }
        cluster.check().unwrap();
        assert!(cluster.machines().all(|(_, machine)| machine.replicas().all(|(of, _)| of != ServerId(4))));
    }
}

/// Half of the servers at once, the one that decides who is in and all that would follow it among them: each
/// of those used to be waited for in turn.
#[test]
fn the_first_half_of_the_servers_may_fail_at_once() {
    let mut cluster = founded(LookupKind::BloomGroups, 4, 40);
    (1..=20).for_each(|server| cluster.crash(ServerId(server)));
    cluster.run(cluster.options.beat * (12 * cluster.options.silent_beats));
    assert_eq!(cluster.check(), Ok(()));
}

/// It answers heart-beats, but not as the one that is in: who was told so must not take it for that one
/// again.
#[test]
fn who_decides_may_start_again_while_the_next_in_turn_is_gone() {
    for (most, through) in [(1, 3), (1, 5), (4, 3), (4, 5)] {
        let lookup = if most == 1 { LookupKind::BloomLevels } else { LookupKind::BloomGroups };
        let mut cluster = founded(lookup, most, 5);
        [1, 2].into_iter().for_each(|server| cluster.crash(ServerId(server)));
        let layout = cluster.machines().next().unwrap().1.layout().unwrap().clone();
        cluster.start(ServerId(1), Some(ServerId(through)));
        // A late one, of before.
        let late = Message::Bloom(BloomMessage::Layout(Arc::new(layout)));
        cluster.tell(ServerId(1), Event::Message(ServerId(3), late));
        cluster.settle();
        assert_eq!(cluster.check(), Ok(()), "M = {most}, through {through}");
    }
}

#[test]
fn machines_take_the_bytes_that_the_formulas_say() {
    for (servers, most) in [(12, 1), (12, 4), (20, 5), (35, 7)] {
        let lookup = if most == 1 { LookupKind::BloomLevels } else { LookupKind::BloomGroups };
        let cluster = founded(lookup, most, servers);
        let filter = cluster.options.filter.encoded_bytes();
        let bytes: usize = cluster.machines().map(|(_, machine)| machine.bytes().filters).sum();
        let groups = cluster.machines().next().unwrap().1.layout().unwrap().division().groups().len();
        // Each server's own filter and one replica of it in every other group.
        assert_eq!(bytes, servers as usize * groups * filter);
        let exact = cluster.machines().map(|(_, machine)| machine.bytes());
        assert!(exact.into_iter().all(|bytes| bytes.counters > 3 * filter && bytes.all() > bytes.filters));
    }
}

/// Two filters name a file: that is no unique hit, so the next level decides, at the cost of its messages.
#[test]
fn a_file_that_several_filters_name_goes_to_the_next_level() {
    for lookup in BLOOM {
        let mut cluster = founded(lookup, 4, 12);
        fill(&mut cluster, 12);
        // At two homes, as filters see it; one of them answers.
        let both = key(1 << 21);
        for server in [3, 7].map(ServerId) {
            cluster.store(server, both);
        }
        for number in 1..300 {
            for server in [3, 7] {
                cluster.store(ServerId(server), key(1 << 22 | number << 4 | server));
            }
        }
        cluster.settle();
        let before = cluster.counts();
        for _ in 0..12 {
            assert!(matches!(cluster.find(both), End::Served(_)));
        }
        let after = cluster.counts();
        let beyond = (after.found_group + after.found_all) - (before.found_group + before.found_all);
        assert!(beyond > 0, "{lookup}: {before:?} {after:?}");
    }
}
