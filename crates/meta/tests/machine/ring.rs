//! The ring of the metadata servers: neighbours, and who gets copies by it; first all is served, then it is
//! linked anew.

use crate::cluster::{self, ALICE, Cluster};
use bearing_meta::{Config, Event, RingView};
use bearing_placement::Scheme;
use bearing_proto::ring::{Purpose, RingMessage};
use bearing_types::{Position, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const DEAD: ServerId = ServerId(3);
const HEIR: ServerId = ServerId(4);
/// Every server is linked in after so long.
const LINKED: Duration = Duration::from_secs(2);

fn cluster() -> Cluster {
    let mut cluster = Cluster::with_copies(5, 3);
    cluster.open_session(ALICE);
    cluster.pass(LINKED);
    cluster
}

fn view(cluster: &Cluster, server: ServerId) -> RingView {
    cluster.hosts[&server].machine.ring().expect("it is on the ring")
}

/// Front predecessor, predecessor, successor and next one of each server that is there.
fn neighbours(cluster: &Cluster) -> Vec<[u32; 4]> {
    let servers = cluster.hosts.keys();
    let views = servers.map(|server| view(cluster, *server));
    views
        .map(|view| [view.front_predecessor, view.predecessor, view.successor, view.next_successor])
        .map(|four| four.map(|server| server.0))
        .collect()
}

fn served(cluster: &Cluster) -> usize {
    cluster.hosts.values().map(|host| host.machine.serving().count()).sum()
}

/// Owner and members of each tablet.
fn members(cluster: &mut Cluster) -> BTreeMap<Position, (ServerId, Vec<ServerId>)> {
    let blocks: Vec<Position> = cluster
        .hosts
        .values()
        .flat_map(|host| host.machine.serving())
        .map(|(block, _)| block.start())
        .collect();
    let register = |start: Position| {
        let register = cluster.register_of(start);
        (start, (register.owner, register.members))
    };
    blocks.into_iter().map(register).collect()
}

#[test]
fn servers_that_begin_together_are_linked_by_their_numbers() {
    let mut cluster = cluster();
    let all = [[4, 5, 2, 3], [5, 1, 3, 4], [1, 2, 4, 5], [2, 3, 5, 1], [3, 4, 1, 2]];
    assert_eq!(neighbours(&cluster), all);
    cluster.pass(Duration::from_secs(1));
    // 1 + 2^i: 2, 3, 5, and from 9 on the first again.
    let fingers = view(&cluster, ServerId(1)).fingers;
    assert_eq!(fingers[..4], [2, 3, 5, 1].map(ServerId));
    assert!(fingers[4..].iter().all(|owner| *owner == ServerId(1)));
}

#[test]
fn what_a_dead_server_owned_is_served_before_the_ring_is_linked_anew_and_its_successors_get_copies() {
    let mut cluster = cluster();
    let (before, tablets) = (members(&mut cluster), served(&cluster));
    assert!(before.values().any(|(owner, _)| *owner == DEAD));
    let log = cluster.kill(DEAD);
    let (mut served_after, mut linked_after) = (None, None);
    for step in 0..400 {
        cluster.pass(Duration::from_millis(5));
        if served(&cluster) == tablets {
            served_after = served_after.or(Some(step * 5));
        }
        if cluster.hosts.keys().any(|server| {
            let view = view(&cluster, *server);
            view.predecessor != DEAD && view.successor != DEAD && view.reconstructions > 0
        }) {
            linked_after = linked_after.or(Some(step * 5));
        }
    }
    let (served_after, linked_after) = (served_after.unwrap(), linked_after.unwrap());
    assert!(served_after < linked_after, "served after {served_after} ms, linked after {linked_after}");
    assert!(linked_after <= 700, "linked after {linked_after} ms");
    // They skip the dead one.
    assert_eq!(neighbours(&cluster), [[4, 5, 2, 4], [5, 1, 4, 5], [1, 2, 5, 1], [2, 4, 1, 2]]);
    let heir = view(&cluster, HEIR);
    assert_eq!((heir.reconstructions, heir.reconstructed.unwrap().gone), (1, DEAD));
    // New members are the successors of whoever owns the tablet now.
    cluster.pass(Duration::from_secs(4));
    for (start, (owner, members)) in members(&mut cluster) {
        let ring = [1, 2, 4, 5].map(ServerId);
        let kept: Vec<ServerId> = before[&start].1.iter().copied().filter(|member| *member != DEAD).collect();
        let behind = (0..4).map(|steps| {
            let place = ring.iter().position(|server| *server == owner).unwrap();
            ring[(place + steps) % 4]
        });
        let new = behind.filter(|server| !kept.contains(server)).take(3 - kept.len());
        let expected: BTreeSet<ServerId> = kept.iter().copied().chain(new).collect();
        assert_eq!(members.into_iter().collect::<BTreeSet<_>>(), expected, "tablet at {start:?}");
    }
    // It comes back and is linked in again.
    cluster.revive(DEAD, log);
    cluster.pass(LINKED);
    let all = [[4, 5, 2, 3], [5, 1, 3, 4], [1, 2, 4, 5], [2, 3, 5, 1], [3, 4, 1, 2]];
    assert_eq!(neighbours(&cluster), all);
}

#[test]
fn a_server_that_is_long_in_serving_what_it_took_links_the_ring_only_then() {
    let mut cluster = cluster();
    let before = served(&cluster);
    cluster.kill(DEAD);
    cluster.stores_take = Duration::from_secs(2);
    cluster.pass(Duration::from_millis(1500));
    assert!(served(&cluster) < before, "the stores take long");
    assert_eq!((view(&cluster, HEIR).predecessor, view(&cluster, HEIR).reconstructions), (DEAD, 0));
    // It answers meanwhile: nobody takes it for gone.
    assert_eq!(view(&cluster, ServerId(5)).predecessor, HEIR);
    assert_eq!(view(&cluster, ServerId(5)).reconstructions, 0);
    cluster.pass(Duration::from_millis(1500));
    assert_eq!(served(&cluster), before);
    assert_eq!((view(&cluster, HEIR).predecessor, view(&cluster, HEIR).reconstructions), (ServerId(2), 1));
}

#[test]
fn a_server_that_cannot_serve_what_it_took_links_the_ring_after_its_patience() {
    let mut cluster = cluster();
    cluster.kill(DEAD);
    cluster.stores_take = Duration::from_secs(60);
    let patience = Config::standard().relink_patience;
    cluster.pass(patience);
    assert_eq!(view(&cluster, HEIR).predecessor, DEAD);
    cluster.pass(Duration::from_millis(700));
    assert_eq!(view(&cluster, HEIR).predecessor, ServerId(2));
}

#[test]
fn an_idle_server_sends_at_most_sixty_messages_of_the_ring_in_a_second() {
    let mut cluster = cluster();
    cluster.ring_messages.clear();
    cluster.pass(Duration::from_secs(30));
    for (server, sent) in &cluster.ring_messages {
        assert!(*sent <= 60 * 30, "{server} sent {sent} in 30 s");
    }
}

#[test]
fn whatever_the_ring_is_told_no_register_changes_and_neighbours_are_right_again() {
    let mut cluster = cluster();
    let (before, linked) = (members(&mut cluster), neighbours(&cluster));
    let all: Vec<ServerId> = (1..=5).map(ServerId).collect();
    for to in &all {
        for gone in &all {
            let (to, gone) = (*to, *gone);
            let from = ServerId(1 + to.0 % 5);
            let said = [
                RingMessage::Gone { gone, heir: from, next: gone, acknowledge: true },
                RingMessage::Follows { gone: Some(gone), sc: from, nsc: from },
                RingMessage::Precedes { gone, pd: from, fpd: from },
                RingMessage::Welcome { fpd: gone, pd: gone, sc: gone, nsc: gone },
                RingMessage::Ping { pd: gone, sc: gone },
                RingMessage::Pong { pd: gone, sc: gone },
                RingMessage::Joined { new: gone, next: from },
                RingMessage::Found { key: Position(0), owner: gone, next: gone },
                RingMessage::Find { key: Position(9), asker: gone, purpose: Purpose::Place, hops: 255 },
                RingMessage::Find { key: Position(9), asker: gone, purpose: Purpose::Update, hops: 0 },
                RingMessage::Acknowledged(gone),
            ];
            said.into_iter().for_each(|message| cluster.send(to, Event::Ring(from, message)));
        }
    }
    cluster.pass(Duration::from_secs(4));
    assert_eq!(members(&mut cluster), before);
    assert_eq!(neighbours(&cluster), linked);
}

#[test]
fn a_server_in_no_list_is_not_taken_for_a_neighbour() {
    let mut cluster = cluster();
    let linked = neighbours(&cluster);
    let stranger = ServerId(77);
    for from in [stranger, cluster::DATA[0], ServerId(2)] {
        let (pd, sc) = if from == ServerId(2) { (stranger, stranger) } else { (from, from) };
        cluster.send(ServerId(1), Event::Ring(from, RingMessage::Ping { pd, sc }));
        cluster.send(
            ServerId(1),
            Event::Ring(from, RingMessage::Follows { gone: Some(ServerId(2)), sc, nsc: sc }),
        );
        assert_eq!(neighbours(&cluster), linked);
    }
}

#[test]
fn one_server_and_two_have_rings_too() {
    let mut one = Cluster::new(1, Scheme::AnglecutHashed);
    one.pass(LINKED);
    assert_eq!(neighbours(&one), [[1; 4]]);
    assert!(one.ring_messages.is_empty());
    let mut two = Cluster::new(2, Scheme::AnglecutHashed);
    two.pass(LINKED);
    assert_eq!(neighbours(&two), [[1, 2, 2, 1], [2, 1, 1, 2]]);
    let log = two.kill(ServerId(1));
    two.pass(LINKED);
    assert_eq!(neighbours(&two), [[2; 4]]);
    two.revive(ServerId(1), log);
    two.pass(LINKED);
    assert_eq!(neighbours(&two), [[1, 2, 2, 1], [2, 1, 1, 2]]);
}

#[test]
fn a_process_that_was_stopped_takes_nobody_for_gone_when_it_goes_on() {
    let mut cluster = cluster();
    let linked = neighbours(&cluster);
    cluster.stop_for(Duration::from_secs(3));
    cluster.pass(Duration::from_millis(50));
    assert_eq!(neighbours(&cluster), linked);
    cluster.pass(LINKED);
    assert_eq!(neighbours(&cluster), linked);
    assert!(cluster.hosts.keys().all(|server| view(&cluster, *server).reconstructions == 0));
}
