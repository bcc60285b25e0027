//! What a chunk waits for holds up no other: disks that failed or are full, tablets that nobody serves.

use crate::cluster::chunks::*;
use crate::cluster::disks::LENGTH;
use crate::cluster::{ALICE, DATA};
use bearing_proto::client::ChunkView;
use bearing_proto::data::DataCall;
use bearing_types::{Code, Position, ServerId};
use std::time::Duration;

#[test]
fn a_server_whose_disk_failed_and_that_answers_all_the_same_holds_up_no_copy() {
    for count in [1, 600] {
        let servers = [100, 101, 102, 103].map(ServerId);
        let (mut cluster, disks) = cluster_with(&servers);
        let chunks: Vec<ChunkView> = (0..count).map(|_| cluster.open_chunk(ALICE, Position(0))).collect();
        for chunk in &chunks {
            cluster.seal_chunk(ALICE, chunk);
        }
        cluster.pass_with(&[ALICE], Duration::from_secs(30));
        for lost in 0..2 {
            match lost {
                0 => disks.borrow_mut().failed.insert(servers[0]),
                _ => disks.borrow_mut().silent.insert(servers[1]),
            };
            cluster.pass_with(&[ALICE], Duration::from_secs(40));
            for _ in 0..100 {
                let lacking: u64 =
                    cluster.hosts.values().map(|host| host.machine.chunk_tally().lacking).sum();
                if lacking == 0 {
                    break;
                }
                cluster.pass_with(&[ALICE], Duration::from_secs(5));
            }
            for chunk in &chunks {
                let holders = show(&mut cluster, chunk).unwrap().servers;
                assert_eq!(holders.len(), 2);
                assert!(!holders.iter().any(|holder| servers[..=lost].contains(holder)), "{holders:?}");
            }
        }
    }
}

#[test]
fn a_server_that_takes_neither_copies_nor_removals_holds_up_no_copy() {
    let servers = [100, 101, 102, 103].map(ServerId);
    // They have room by what they say, and the last one is the first to be asked. Where all refuse that lack
    // the chunk, its copy stays due.
    for refusing in [&servers[3..], &servers[2..]] {
        let (mut cluster, disks) = cluster_with(&servers);
        // More than can wait and be asked about at the same time.
        let chunks: Vec<ChunkView> = (0..300).map(|_| cluster.open_chunk(ALICE, Position(0))).collect();
        for chunk in &chunks {
            cluster.seal_chunk(ALICE, chunk);
        }
        cluster.pass_with(&[ALICE], Duration::from_secs(30));
        disks.borrow_mut().refusing.extend(refusing);
        disks.borrow_mut().silent.insert(servers[0]);
        cluster.pass_with(&[ALICE], Duration::from_secs(120));
        let asked = |(to, call): &(ServerId, DataCall)| {
            *to == servers[3] && matches!(call, DataCall::Copy { .. } | DataCall::Remove { .. })
        };
        assert!(disks.borrow().calls.iter().any(asked));
        let mut saved = 0;
        for chunk in &chunks {
            let (before, now) = (&chunk.servers, show(&mut cluster, chunk).unwrap().servers);
            let taker =
                servers[1..].iter().find(|server| !before.contains(server) && !refusing.contains(server));
            if before.contains(&servers[0]) && taker.is_some() {
                assert!(now.len() == 2 && !now.contains(&servers[0]), "{before:?} is now {now:?}");
                saved += 1;
            }
        }
        assert!(saved > 5, "{saved} had to be copied");
    }
}

#[test]
fn a_tablet_that_nobody_serves_holds_up_no_copy() {
    let servers = [100, 101, 102].map(ServerId);
    let (mut cluster, disks) = cluster_with(&servers);
    let file = create(&mut cluster, "f");
    let away = cluster.owner(file.0.home).0;
    let blocks = (0..16).map(|block| Position(block << 60));
    let place = blocks.into_iter().find(|place| cluster.owner(*place).0 != away).unwrap();
    // Whoever looks through a chunk has to ask the home of the file.
    disks.borrow_mut().frames = vec![frame_of(file.0)];
    let chunks: Vec<ChunkView> = (0..40).map(|_| cluster.open_chunk(ALICE, place)).collect();
    for chunk in &chunks {
        commit(&mut cluster, file, chunk).unwrap();
        cluster.seal_chunk(ALICE, chunk);
        finish(&mut cluster, chunk, 4_000).unwrap();
    }
    let here = cluster.owner(place).0;
    cluster.cut.extend([(here, away), (away, here)]);
    cluster.pass(Duration::from_secs(120));
    disks.borrow_mut().silent.insert(servers[0]);
    cluster.pass(Duration::from_secs(200));
    let is_there = |chunk: &&ChunkView| {
        let held = |server: &&ServerId| disks.borrow().held.contains(&(**server, chunk.chunk.chunk));
        servers[1..].iter().filter(held).count() == 2
    };
    assert_eq!(chunks.iter().filter(is_there).count(), chunks.len());
}

#[test]
fn chunks_that_wait_for_room_keep_no_room_from_being_made() {
    let (mut cluster, disks) = cluster();
    let (file, chunk) = file_in_a_chunk(&mut cluster, &disks);
    finish(&mut cluster, &chunk, 4_000).unwrap();
    cluster.pass_with(&[ALICE], Duration::from_secs(70));
    assert_eq!(show(&mut cluster, &chunk).unwrap().sealed, Some(LENGTH));
    // All disks are full. A program goes on writing all the same: each try opens a chunk that no server can
    // make, nor keep a fence of.
    disks.borrow_mut().full.extend(DATA);
    disks.borrow_mut().refusing.extend(DATA);
    for _ in 0..1200 {
        let chunk = cluster.open_chunk(ALICE, Position(0));
        finish(&mut cluster, &chunk, 0).unwrap();
    }
    cluster.pass_with(&[ALICE], Duration::from_secs(60));
    truncate(&mut cluster, file);
    cluster.pass_with(&[ALICE], Duration::from_secs(60));
    assert_eq!(show(&mut cluster, &chunk), Err(Code::Stale));
    assert!(disks.borrow().held.is_empty(), "there is room again");
}
