//! Recovery of metadata: data servers' directories are read, and what comes out becomes the store of one
//! metadata server, which the coordinator's registers then name as the owner of everything. Others get copies
//! of it as of any server's tablets. The cluster is stopped meanwhile.

use crate::StartError;
use crate::cluster::{Cluster, DaemonName, Layout};
use crate::config::DaemonFile;
use crate::formats::{CHUNK_CONTENTS, LOG_CONTENTS, STORE_CONTENTS};
use crate::init::registers_file;
use crate::state::DaemonState;
use crate::toml_file;
use bearing_engines_etcd::EtcdCoordinator;
use bearing_engines_local::{FileChunkLog, FileTabletLog, FjallStore, RedbCoordinator};
use bearing_env::Clock;
use bearing_meta::recovery::{Found, Rebuilt, Shape, rebuild, scan_chunk};
use bearing_placement::{Seat, Tablet};
use bearing_proto::client::{FilesystemRecord, ServerEntry, ServerKind};
use bearing_proto::coordinator::{
    FILESYSTEM_KEY, SERVER_PREFIX, SWAP_MAX, TABLET_PREFIX, decode_register, encode_register, tablet_key,
};
use bearing_proto::disk::DISK_PREFIX;
use bearing_seams::{Change, ChunkLog, Coordinator, Entry, RegisterChange, Store, Swap, TabletLog};
use bearing_types::{Epoch, LogIndex, ServerId, TabletSerial};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Records that go to the store at a time.
const BATCH: usize = 4096;
/// Where the new store is made: it gets its name when the registers say that it counts.
const UNFINISHED: &str = "store.recovering";

/// See the module.
pub struct Recovery<'a> {
    layout: &'a Layout,
    registers: Box<dyn Coordinator>,
    filesystem: FilesystemRecord,
    tablets: Vec<(Entry, Tablet)>,
    /// The cluster's servers.
    servers: Vec<ServerId>,
    /// The metadata server that gets everything.
    owner: DaemonName,
}

/// Servers that lie in a cluster's directory on this host, in their order.
fn here(layout: &Layout, kind: ServerKind) -> Vec<DaemonName> {
    let Ok(entries) = fs::read_dir(layout.root()) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let number = name.strip_prefix(kind_prefix(kind))?.parse().ok()?;
        Some(DaemonName { kind, number })
    });
    let mut names: Vec<DaemonName> = names.filter(|name| layout.daemon_config(*name).exists()).collect();
    names.sort_by_key(|name| name.number);
    names
}

fn kind_prefix(kind: ServerKind) -> &'static str {
    if kind == ServerKind::Metadata { "metadata-" } else { "data-" }
}

fn refused(what: String) -> StartError {
    StartError::Refused(what)
}

/// Nothing of the cluster on this host may run: what it holds is read, or written.
fn refuse_if_running(layout: &Layout, cluster: &Cluster) -> Result<(), StartError> {
    for daemon in cluster.daemons() {
        if DaemonState::read(&layout.daemon(daemon.name)).is_some_and(|state| state.is_alive()) {
            let (name, root) = (daemon.name, layout.root().display());
            return Err(refused(format!("{name} runs; stop the cluster first: bearing down --dir {root}")));
        }
    }
    Ok(())
}

/// Reads the data servers of a cluster that lie on this host, and looks whether its metadata servers have
/// kept anything. Calls `told` for each data server that is read.
pub fn scan(
    layout: &Layout,
    cluster: &Cluster,
    found: &mut Found,
    mut told: impl FnMut(DaemonName, usize),
) -> Result<(), StartError> {
    refuse_if_running(layout, cluster)?;
    for name in here(layout, ServerKind::Metadata) {
        found.servers.insert(name.server(), has_kept(layout, name));
    }
    for name in here(layout, ServerKind::Data) {
        let path = layout.daemon(name).join("chunks");
        if !path.exists() {
            continue;
        }
        let mut log =
            FileChunkLog::open(&path, &CHUNK_CONTENTS).map_err(StartError::engine("open the chunks"))?;
        let entries = log.chunks().map_err(StartError::engine("list the chunks"))?;
        for entry in &entries {
            scan_chunk(&mut log, name.server(), entry, found)
                .map_err(StartError::engine("read the chunks"))?;
        }
        found.servers.insert(name.server(), false);
        told(name, entries.len());
    }
    Ok(())
}

impl Recovery<'_> {
    /// Opens the registers: they say which tablets and servers there are.
    pub fn begin<'a>(layout: &'a Layout, cluster: &Cluster) -> Result<Recovery<'a>, StartError> {
        refuse_if_running(layout, cluster)?;
        let metadata = here(layout, ServerKind::Metadata);
        let owner = *metadata.first().ok_or_else(|| {
            refused(format!(
                "no metadata server lies in {}: run this where one does",
                layout.root().display()
            ))
        })?;
        let mut registers = open_registers(layout, cluster, owner)?;
        let failed = StartError::engine("read the registers");
        let filesystem = registers.read(FILESYSTEM_KEY).map_err(&failed)?;
        let filesystem = filesystem.ok_or_else(|| {
            refused("the coordinator has no filesystem: its registers are lost too, and with them which tablets there are".to_owned())
        })?;
        let filesystem: FilesystemRecord = decode_register(&filesystem.value)
            .map_err(|error| refused(format!("{FILESYSTEM_KEY} {error}")))?;
        let found = registers.changes(TABLET_PREFIX, 0).map_err(&failed)?.found;
        let decode = |entry: Entry| match decode_register(&entry.value) {
            Ok(tablet) => Ok((entry, tablet)),
            Err(error) => Err(refused(format!("{} {error}", entry.key))),
        };
        let tablets: Vec<(Entry, Tablet)> =
            found.present.into_iter().map(decode).collect::<Result<_, _>>()?;
        let found = registers.changes(SERVER_PREFIX, 0).map_err(&failed)?.found;
        let decode = |entry: Entry| match decode_register::<ServerEntry>(&entry.value) {
            Ok(server) => Ok(server.server),
            Err(error) => Err(refused(format!("{} {error}", entry.key))),
        };
        let servers: Vec<ServerId> = found.present.into_iter().map(decode).collect::<Result<_, _>>()?;
        Ok(Recovery { layout, registers, filesystem, tablets, servers, owner })
    }

    /// Whether every server of the cluster was looked at, or is said to be lost, and none has kept metadata:
    /// that is newer than any checkpoint. For a rehearsal it may have.
    pub fn refuse_if_incomplete(
        &self,
        found: &Found,
        lost: &[String],
        rehearse: bool,
    ) -> Result<(), StartError> {
        let names = |servers: Vec<ServerId>| -> Vec<String> {
            servers.into_iter().map(|server| DaemonName::of(server).to_string()).collect()
        };
        let stored = |server: &&ServerId| {
            matches!(DaemonName::of(**server).kind, ServerKind::Metadata | ServerKind::Data)
        };
        let unseen = self.servers.iter().filter(stored).filter(|server| !found.servers.contains_key(server));
        let mut unseen = names(unseen.copied().collect());
        unseen.retain(|name| !lost.contains(name));
        if !unseen.is_empty() {
            return Err(refused(format!(
                "what {} hold is not known: bring what `bearing recover scan` writes on their hosts with --scan FILE; or say that their disks \
                 are lost, with --without NAME for each: what only they hold is lost then",
                unseen.join(", ")
            )));
        }
        let kept = found.servers.iter().filter(|(_, kept)| **kept).map(|(server, _)| *server);
        let kept = names(kept.collect());
        if !kept.is_empty() && !rehearse {
            return Err(refused(format!(
                "metadata is still on {}, and newer than any checkpoint; a cluster that has one metadata server left needs no recovery: start it with \
                 `bearing up`. If what is there is of no use any more, move store and tablet-log away there, and try again",
                kept.join(", ")
            )));
        }
        Ok(())
    }

    /// Makes everything anew, in memory.
    pub fn rebuild(&self, found: &Found) -> Rebuilt {
        let FilesystemRecord { root, scheme, name_key, .. } = self.filesystem;
        let shape = Shape {
            tablets: self.tablets.iter().map(|(_, tablet)| (tablet.serial, tablet.block)).collect(),
            root: Seat::root(root, scheme.seating()),
            name_key,
            now: Clock.now().wall,
        };
        rebuild(&shape, found)
    }

    /// Stores it. Whenever it ends before it is done, it can be begun anew.
    pub fn store(&mut self, rebuilt: Rebuilt) -> Result<DaemonName, StartError> {
        let directory = self.layout.daemon(self.owner);
        let (unfinished, path) = (directory.join(UNFINISHED), directory.join("store"));
        remove(&unfinished)?;
        let committed: BTreeMap<TabletSerial, LogIndex> =
            self.tablets.iter().map(|(_, tablet)| (tablet.serial, tablet.committed)).collect();
        let failed = StartError::engine("write the recovered records");
        let mut store = FjallStore::open(&unfinished, &STORE_CONTENTS).map_err(&failed)?;
        let mut ends = BTreeMap::new();
        for (serial, (index, records)) in rebuilt.tablets {
            let known = committed.get(&serial).copied().unwrap_or(LogIndex::ZERO);
            let end = index.max(known.next());
            ends.insert(serial, end);
            store.create_tablet(serial).map_err(&failed)?;
            store.apply(serial, end, &[]).map_err(&failed)?;
            let mut records = records.into_iter().peekable();
            while records.peek().is_some() {
                let batch: Vec<Change> = records
                    .by_ref()
                    .take(BATCH)
                    .map(|(key, record)| Change { key: key.encode(), value: Some(record.encode()) })
                    .collect();
                store.apply(serial, end, &batch).map_err(&failed)?;
            }
        }
        store.flush().map_err(&failed)?;
        store.close().map_err(&failed)?;
        self.register(&ends)?;
        remove(&path)?;
        remove(&directory.join("tablet-log"))?;
        fs::rename(&unfinished, &path).map_err(|error| StartError::file("rename", &unfinished, &error))?;
        let synced = fs::File::open(&directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| StartError::file("sync", &directory, &error))?;
        Ok(self.owner)
    }

    /// The registers name the owner for everything, and no disk of metadata servers any more.
    fn register(&mut self, ends: &BTreeMap<TabletSerial, LogIndex>) -> Result<(), StartError> {
        let owner = self.owner.server();
        let tablets = self.tablets.iter().map(|(entry, tablet)| {
            let committed = ends.get(&tablet.serial).copied().unwrap_or(tablet.committed);
            let epoch = Epoch(tablet.epoch.0 + 1);
            let wanted =
                Tablet { epoch, owner, members: vec![owner], learner: None, committed, ..tablet.clone() };
            debug_assert_eq!(entry.key, tablet_key(tablet.block));
            RegisterChange::new(entry.key.clone(), Some(entry.version), Some(encode_register(&wanted)))
        });
        let mut changes: Vec<RegisterChange> = tablets.collect();
        let failed = StartError::engine("write the registers");
        let disks = self.registers.changes(DISK_PREFIX, 0).map_err(&failed)?.found.present;
        let is_metadata = |entry: &Entry| {
            let server = entry.key.strip_prefix(DISK_PREFIX).and_then(|number| number.parse().ok());
            server.is_some_and(|server| DaemonName::of(ServerId(server)).kind == ServerKind::Metadata)
        };
        let disks = disks.into_iter().filter(is_metadata);
        changes.extend(disks.map(|entry| RegisterChange::new(entry.key, Some(entry.version), None)));
        for changes in changes.chunks(SWAP_MAX) {
            match self.registers.swap(changes).map_err(&failed)? {
                Swap::Done(_) => {}
                Swap::Conflict(_) => {
                    let what = "somebody changes the registers: a server of the cluster runs on another host. Stop it and try again";
                    return Err(refused(what.to_owned()));
                }
            }
        }
        Ok(())
    }
}

/// Whether a metadata server has anything, readable or not.
fn has_kept(layout: &Layout, name: DaemonName) -> bool {
    let directory = layout.daemon(name);
    let (store, log) = (directory.join("store"), directory.join("tablet-log"));
    let mut kept = false;
    if store.exists() {
        let store = FjallStore::open(&store, &STORE_CONTENTS);
        let tablets = store.and_then(|mut store| {
            let tablets = store.tablets()?;
            store.close()?;
            Ok(tablets)
        });
        kept |= tablets.map_or(true, |tablets| !tablets.is_empty());
    }
    if log.exists() {
        let log = FileTabletLog::open(&log, &LOG_CONTENTS);
        kept |= log.and_then(|mut log| log.read(None, 1)).map_or(true, |records| !records.is_empty());
    }
    kept
}

fn remove(path: &PathBuf) -> Result<(), StartError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StartError::file("remove", path, &error))
        }
        _ => Ok(()),
    }
}

fn open_registers(
    layout: &Layout,
    cluster: &Cluster,
    owner: DaemonName,
) -> Result<Box<dyn Coordinator>, StartError> {
    let file: DaemonFile = toml_file::read(&layout.daemon_config(owner))?;
    if let (Some(etcd), Some(id)) = (&file.etcd, cluster.id) {
        let members = etcd.members(&layout.daemon(owner)).map_err(StartError::Refused)?;
        let registers =
            EtcdCoordinator::new(&members, &id.etcd_root()).map_err(StartError::engine("reach etcd"))?;
        return Ok(Box::new(registers));
    }
    let path = registers_file(&layout.daemon(DaemonName::COORDINATOR));
    if !path.exists() {
        return Err(refused(format!(
            "there are no registers in {}: run this on the host of the coordinator",
            path.display()
        )));
    }
    let registers = RedbCoordinator::open(&path).map_err(StartError::engine("open the registers"))?;
    Ok(Box::new(registers))
}
