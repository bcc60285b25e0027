//! Checkpoints of tablets on data servers: stored when something has changed, and only then; the one before
//! goes when the next is whole; what fails is begun anew.

use crate::cluster::members::still;
use crate::cluster::{ALICE, Cluster, DATA};
use bearing_meta::Config;
use bearing_placement::Scheme;
use bearing_proto::data::{DataBody, DataCall, DataError};
use bearing_types::{ChunkId, ServerId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(300);

/// What data servers hold for checkpoints.
#[derive(Debug, Default)]
struct Disks {
    /// Bytes of chunks, and whether they are sealed.
    held: BTreeMap<(ServerId, ChunkId), (u64, bool)>,
    /// Chunks that were ever written.
    written: BTreeSet<ChunkId>,
    refuses: bool,
}

impl Disks {
    fn answer(&mut self, server: ServerId, chunk: ChunkId, call: &DataCall) -> Result<DataBody, DataError> {
        let here = (server, chunk);
        match call {
            DataCall::Ping => Ok(DataBody::Space {
                used: 0,
                free: 1 << 30,
                filesystem: None,
                damaged: Vec::new(),
                life: 1,
                waiting: 0,
            }),
            DataCall::Replicate { .. } if self.refuses => Err(DataError::Failed),
            DataCall::Replicate { offset, committed, .. } => {
                assert_eq!(offset, committed, "what is before is on all servers");
                self.written.insert(chunk);
                self.held.insert(here, (*offset, false));
                Ok(DataBody::Done)
            }
            DataCall::Seal { length, .. } => {
                let held = self.held.get_mut(&here).expect("what is sealed was written");
                assert!(*length > held.0);
                *held = (*length, true);
                Ok(DataBody::Done)
            }
            DataCall::Remove { .. } => {
                self.held.remove(&here);
                Ok(DataBody::Done)
            }
            other => panic!("{other:?} is not of checkpoints"),
        }
    }
}

fn cluster() -> (Cluster, Rc<RefCell<Disks>>) {
    let config = Config { checkpoint_interval: INTERVAL, ..still() };
    let mut cluster = Cluster::with_data(2, Scheme::AnglecutHashed, config, &DATA);
    let disks: Rc<RefCell<Disks>> = Rc::default();
    let shared = Rc::clone(&disks);
    cluster.data = Box::new(move |server, request| {
        Some(shared.borrow_mut().answer(server, request.chunk, &request.call))
    });
    cluster.pass(Duration::from_secs(2));
    (cluster, disks)
}

fn pass_intervals(cluster: &mut Cluster, count: u32) {
    for _ in 0..count {
        cluster.pass(INTERVAL);
    }
}

/// Chunks that are held, all of them sealed and on both servers.
fn chunks(disks: &Rc<RefCell<Disks>>) -> BTreeSet<ChunkId> {
    let disks = disks.borrow();
    assert!(disks.held.values().all(|(_, sealed)| *sealed), "{disks:?}");
    let chunks: BTreeSet<ChunkId> = disks.held.keys().map(|(_, chunk)| *chunk).collect();
    assert_eq!(disks.held.len(), chunks.len() * DATA.len());
    chunks
}

#[test]
fn a_tablet_that_has_not_changed_gets_no_further_checkpoint_and_one_that_has_loses_the_old_one() {
    let (mut cluster, disks) = cluster();
    pass_intervals(&mut cluster, 2);
    let first = chunks(&disks);
    let tablets: usize = cluster.hosts.values().map(|host| host.machine.serving().count()).sum();
    assert_eq!(first.len(), tablets, "each has one");
    pass_intervals(&mut cluster, 4);
    assert_eq!(chunks(&disks), first, "nothing has changed but what checkpoints log themselves");
    assert_eq!(disks.borrow().written, first);
    cluster.open_session(ALICE);
    let grant = cluster.root(ALICE).grant;
    cluster.create(ALICE, &grant, "f").unwrap();
    pass_intervals(&mut cluster, 2);
    let now = chunks(&disks);
    assert_eq!(now.len(), first.len());
    assert!(now != first && disks.borrow().written.len() > first.len());
}

#[test]
fn what_a_data_server_refuses_is_begun_anew_and_nothing_is_left_of_it() {
    let (mut cluster, disks) = cluster();
    disks.borrow_mut().refuses = true;
    pass_intervals(&mut cluster, 3);
    assert!(disks.borrow().held.is_empty());
    disks.borrow_mut().refuses = false;
    pass_intervals(&mut cluster, 2);
    let tablets: usize = cluster.hosts.values().map(|host| host.machine.serving().count()).sum();
    assert_eq!(chunks(&disks).len(), tablets);
}
