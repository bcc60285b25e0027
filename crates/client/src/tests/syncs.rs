//! What a sync of everything tells of files that are closed.

use super::files::*;
use super::servers::*;
use super::world::*;
use crate::*;
use bearing_proto::client::Handle;
use bearing_types::*;

/// Writes a file that nobody has open any more, and of which nothing was made stable.
fn written_and_closed(world: &mut World, servers: &mut Servers, text: &str) -> Handle {
    let (file, node) = create_open(world, servers, text);
    done(world, servers, write(file, 0, b"visible"));
    done(world, servers, Operation::Flush { file });
    done(world, servers, Operation::Close { file });
    node
}

/// The servers of all chunks lose power, and with it what was not synced.
fn lose_unsynced(servers: &mut Servers) {
    servers.dead.insert(D2);
    servers.cut_at_seal = u64::MAX;
}

#[test]
fn a_sync_of_everything_tells_what_closed_files_have_lost_and_so_does_the_next_sync_of_each() {
    for everything in [Operation::SyncAll, Operation::End] {
        let (mut world, mut servers) = stage();
        let node = written_and_closed(&mut world, &mut servers, "a");
        lose_unsynced(&mut servers);
        assert_eq!(servers.perform(&mut world, everything.clone()), Err(Code::Io));
        if everything == Operation::End {
            continue;
        }
        servers.dead.clear();
        assert_eq!(servers.perform(&mut world, Operation::SyncAll), Ok(Answer::Done), "it was told");
        let file = opened(servers.perform(&mut world, open(node, true)));
        assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Err(Code::Io));
        done(&mut world, &mut servers, Operation::Sync { file });
    }
}

#[test]
fn a_sync_of_everything_tells_once_what_open_files_have_lost_and_so_does_their_own_sync() {
    let (mut world, mut servers) = stage();
    let (file, _) = create_open(&mut world, &mut servers, "a");
    done(&mut world, &mut servers, write(file, 0, b"lost"));
    servers.commits_fail = Some(Code::NoSpace);
    while !world.notes.iter().any(|note| matches!(note, Note::WritesLost(..))) {
        if !servers.answer_all(&mut world) {
            world.pass_to_next();
        }
    }
    servers.commits_fail = None;
    assert_eq!(servers.perform(&mut world, Operation::SyncAll), Err(Code::NoSpace));
    done(&mut world, &mut servers, Operation::SyncAll);
    assert_eq!(servers.perform(&mut world, Operation::Sync { file }), Err(Code::NoSpace));
    done(&mut world, &mut servers, Operation::Sync { file });
}

#[test]
fn a_sync_of_everything_tells_what_a_chunk_that_is_sealed_already_had_lost() {
    let (mut world, mut servers) = stage();
    written_and_closed(&mut world, &mut servers, "a");
    lose_unsynced(&mut servers);
    synced(&mut world, &mut servers, "b", b"goes elsewhere");
    assert_eq!(servers.chunks.values().filter(|chunk| chunk.sealed == Some(0)).count(), 1);
    assert_eq!(servers.perform(&mut world, Operation::SyncAll), Err(Code::Io));
}

#[test]
fn a_sync_of_everything_says_nothing_of_lost_bytes_that_no_file_refers_to() {
    let (mut world, mut servers) = stage();
    let node = written_and_closed(&mut world, &mut servers, "a");
    written_and_closed(&mut world, &mut servers, "removed by somebody else");
    let file = opened(servers.perform(&mut world, open(node, true)));
    servers.files.retain(|known, _| *known == node.node);
    lose_unsynced(&mut servers);
    done(&mut world, &mut servers, write(file, 0, b"replaced"));
    done(&mut world, &mut servers, Operation::Flush { file });
    done(&mut world, &mut servers, Operation::Close { file });
    servers.dead.clear();
    done(&mut world, &mut servers, Operation::SyncAll);
}

#[test]
fn a_sync_of_everything_tells_of_closed_files_of_which_nothing_is_remembered() {
    let (mut world, mut servers) = stage_with(ClientConfig { closed_files_max: 1, ..config() });
    let nodes = ["a", "b"].map(|text| written_and_closed(&mut world, &mut servers, text));
    // What is remembered is found to be whole.
    let kept = servers.chunks.values().next().unwrap().logs[&D1].len() as u64;
    servers.dead.insert(D2);
    servers.holes_at_seal = vec![(0, kept / 2)];
    assert_eq!(servers.perform(&mut world, Operation::SyncAll), Err(Code::Io));
    servers.dead.clear();
    done(&mut world, &mut servers, Operation::SyncAll);
    let [lost, whole] = nodes.map(|node| {
        let file = opened(servers.perform(&mut world, open(node, true)));
        servers.perform(&mut world, Operation::Sync { file })
    });
    assert_eq!((lost, whole), (Err(Code::Io), Ok(Answer::Done)));
}
