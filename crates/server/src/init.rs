//! Making a cluster: directories, secrets, the first registers, and last of all `cluster.toml`.
//!
//! Every step but the last can be repeated: a crash in between leaves a directory without `cluster.toml`, and
//! the next attempt starts over. Nothing is thrown away that a server may have stored something in.

use crate::cluster::{Cluster, ClusterId, DaemonName, FORMAT, Layout, Member};
use crate::config::{DaemonFile, EtcdFile};
use crate::{StartError, toml_file};
use bearing_engines_etcd::EtcdCoordinator;
use bearing_engines_local::RedbCoordinator;
use bearing_env::{Secret, random_u64, reserve};
use bearing_placement::{Assignment, LookupKind, Scheme};
use bearing_proto::client::{FilesystemRecord, ServerEntry, ServerKind};
use bearing_proto::coordinator::{FILESYSTEM_KEY, SWAP_MAX, encode_register, server_key, tablet_key};
use bearing_proto::prefix::Prefix;
use bearing_seams::{Coordinator, RegisterChange, Swap};
use bearing_types::{FilesystemId, NameKey, NodeId, ServerId};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A new cluster's ring is cut into 2^4 tablets: a few per server, so that they can be spread anew when
/// servers are added.
pub const TABLET_BITS: u8 = 4;
/// Where chosen ports are looked for: above the registered ones, below those that Linux gives to outgoing
/// connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Metrics are shown at a server's port and so many more, to this machine alone: nobody has to prove himself
/// who reads them.
const METRICS_PORT_AFTER: u16 = 100;

/// The host of a cluster that is for this machine alone.
pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What a new cluster shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Metadata servers.
    pub metadata: u32,
    /// Data servers.
    pub data: u32,
    /// Copies of each byte of a file.
    pub data_copies: u8,
    /// Servers on which a tablet lies.
    pub metadata_copies: u8,
    /// How children are placed.
    pub scheme: Scheme,
    /// Whom clients ask first.
    pub lookup: LookupKind,
    /// Where the network carries requests to, if it does.
    pub prefix: Option<Prefix>,
    /// The ring is cut into two to the power of this many tablets.
    pub tablet_bits: u8,
    /// Where the servers are reached: an address of this host.
    pub host: IpAddr,
    /// Where they listen, if that is another address, such as all of this host.
    pub listen: Option<IpAddr>,
    /// The first of consecutive ports, or any that are free.
    pub port_base: Option<u16>,
    /// The etcd that has the registers, instead of a coordinator; files as found from here.
    pub etcd: Option<EtcdFile>,
}

/// The first line of `cluster.toml`.
const HEADING: &str = "# A Bearing cluster. Servers and clients read this file; `bearing` rewrites it when servers come or go.\n";

/// Where a coordinator keeps its registers.
pub fn registers_file(coordinator: &Path) -> PathBuf {
    coordinator.join("registers.redb")
}

/// Makes a cluster with its first servers, all of them on this host.
pub fn init(layout: &Layout, plan: &Plan) -> Result<Cluster, StartError> {
    refuse_leftovers(layout)?;
    let count = plan.metadata as usize + plan.data as usize + 2;
    // The first is the coordinator's, also on hosts that have none: so a kind has the same ports everywhere.
    let (addresses, metrics) = addresses(plan, count)?;
    let metrics: BTreeMap<_, _> = addresses.iter().copied().zip(metrics).collect();
    let mut addresses = addresses.into_iter();
    let mut members = |count: u32| -> Vec<Member> {
        (1..=count).zip(&mut addresses).map(|(number, address)| Member { number, address }).collect()
    };
    let coordinator = members(1).first().map(|coordinator| coordinator.address);
    let coordinator = coordinator.filter(|_| plan.etcd.is_none());
    let (metadata, data) = (members(plan.metadata), members(plan.data));
    let flow = members(1).first().map(|flow| flow.address);
    let id = ClusterId(random_u64());
    let cluster = Cluster {
        format: FORMAT,
        id: Some(id),
        scheme: plan.scheme,
        data_copies: plan.data_copies,
        metadata_copies: plan.metadata_copies,
        coordinator,
        lookup: plan.lookup,
        prefix: plan.prefix,
        flow,
        metadata,
        data,
    };
    cluster.check().map_err(StartError::Refused)?;
    make_secrets(layout)?;
    let etcd = plan.etcd.as_ref().map(EtcdFile::absolute).transpose()?;
    for daemon in cluster.daemons() {
        make_directory(&layout.daemon(daemon.name))?;
        let listen = plan.listen.map(|ip| (ip, daemon.address.port()).into());
        let metrics = metrics.get(&daemon.address).copied().flatten();
        let file = DaemonFile { listen, metrics, ..DaemonFile::new(daemon.name, etcd.clone()) };
        file.write(layout, daemon.name)?;
    }
    match &plan.etcd {
        Some(etcd) => {
            let members = etcd.members(Path::new(".")).map_err(StartError::Refused)?;
            let root = id.etcd_root();
            let mut registers =
                EtcdCoordinator::new(&members, &root).map_err(StartError::engine("reach etcd"))?;
            registers.create().map_err(StartError::engine("make the registers"))?;
            write_registers(&mut registers, &cluster, plan.tablet_bits)?;
        }
        None => {
            let path = registers_file(&layout.daemon(DaemonName::COORDINATOR));
            // What an interrupted attempt left: there is no cluster.toml, so nobody has used it.
            if path.exists() {
                fs::remove_file(&path).map_err(|error| StartError::file("remove", &path, &error))?;
            }
            let registers = RedbCoordinator::open(&path);
            let mut registers = registers.map_err(StartError::engine("make the coordinator's registers"))?;
            write_registers(&mut registers, &cluster, plan.tablet_bits)?;
        }
    }
    rewrite(layout, &cluster)?;
    Ok(cluster)
}

/// Writes `cluster.toml`.
pub fn rewrite(layout: &Layout, cluster: &Cluster) -> Result<(), StartError> {
    toml_file::write(&layout.cluster_file(), HEADING, cluster)
}

/// Makes the directory of one more server of a cluster on this machine, with its configuration: like that of
/// another one, but for where it shows metrics. Gives a free address for it.
pub fn add_daemon(
    layout: &Layout,
    name: DaemonName,
    like: DaemonName,
    host: IpAddr,
) -> Result<SocketAddr, StartError> {
    let free = choose_addresses(host, 2, None)?;
    make_directory(&layout.daemon(name))?;
    let file: DaemonFile = toml_file::read(&layout.daemon_config(like))?;
    let metrics = file.metrics.map(|_| (LOOPBACK, free[1].port()).into());
    DaemonFile { number: name.number, metrics, ..file }.write(layout, name)?;
    Ok(free[0])
}

/// Directories with stores, but without `cluster.toml`: somebody's data whose description is lost.
pub(crate) fn refuse_leftovers(layout: &Layout) -> Result<(), StartError> {
    let Ok(entries) = fs::read_dir(layout.root()) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_server = name.starts_with("metadata-") || name.starts_with("data-");
        if is_server && crate::state::state_file(&entry.path()).exists() {
            return Err(StartError::Refused(format!(
                "{root} holds the stores of servers (such as {name}) but no cluster.toml; put that file back, \
                 or remove {root} if its data may go",
                root = layout.root().display()
            )));
        }
    }
    Ok(())
}

fn make_secrets(layout: &Layout) -> Result<(), StartError> {
    make_directory(&layout.secrets())?;
    for path in [layout.cluster_key(), layout.enrolment_key()] {
        Secret::read_or_create(&path).map_err(|error| StartError::Refused(error.to_string()))?;
    }
    Ok(())
}

/// Makes a directory and those above it. Their names are stable then: a power cut soon after must not leave a
/// cluster that nobody finds.
pub(crate) fn make_directory(path: &Path) -> Result<(), StartError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|ancestor| is_missing(ancestor)).collect();
    let make = || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        for made in missing {
            let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty());
            fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    };
    make().map_err(|error: std::io::Error| StartError::file("create", path, &error))
}

fn is_missing(path: &Path) -> bool {
    !path.as_os_str().is_empty() && !path.exists()
}

/// Where so many servers are reached, and where each shows metrics.
fn addresses(plan: &Plan, count: usize) -> Result<(Vec<SocketAddr>, Vec<Option<SocketAddr>>), StartError> {
    if plan.port_base.is_some() {
        let addresses = choose_addresses(plan.host, count, plan.port_base)?;
        let metrics = addresses.iter().map(|address| metrics_beside(*address)).collect();
        return Ok((addresses, metrics));
    }
    let mut addresses = choose_addresses(plan.host, 2 * count, None)?;
    let metrics = addresses.split_off(count).into_iter().map(|free| Some((LOOPBACK, free.port()).into()));
    Ok((addresses, metrics.collect()))
}

/// Where a server at this address shows metrics if nobody says otherwise.
pub(crate) fn metrics_beside(address: SocketAddr) -> Option<SocketAddr> {
    Some((LOOPBACK, address.port().checked_add(METRICS_PORT_AFTER)?).into())
}

/// Addresses that are free, for datagrams and for streams. What is chosen here, not given, nobody else
/// chooses as long as this process lives.
pub fn choose_addresses(
    host: IpAddr,
    count: usize,
    port_base: Option<u16>,
) -> Result<Vec<SocketAddr>, StartError> {
    if let Some(base) = port_base {
        return fixed_addresses(host, count, base);
    }
    let span = PORTS.end - PORTS.start;
    let first = (random_u64() % u64::from(span)) as u16;
    let candidates = (0..span).map(|step| (host, PORTS.start + (first + step) % span).into());
    let reserved: Vec<SocketAddr> =
        candidates.filter(|address| reserve(*address).is_ok()).take(count).collect();
    if reserved.len() < count {
        let (start, end, found) = (PORTS.start, PORTS.end, reserved.len());
        return Err(StartError::Refused(format!(
            "only {found} of {count} ports are free between {start} and {end}; give --port-base"
        )));
    }
    Ok(reserved)
}

fn fixed_addresses(host: IpAddr, count: usize, base: u16) -> Result<Vec<SocketAddr>, StartError> {
    let last = usize::from(base) + count - 1;
    if base == 0 || last > usize::from(u16::MAX) {
        return Err(StartError::Refused(format!(
            "--port-base {base} needs the ports {base} to {last}; give 1 to {}",
            usize::from(u16::MAX) + 1 - count
        )));
    }
    let addresses: Vec<_> = (0..count).map(|step| (host, base + step as u16).into()).collect();
    let held: Result<Vec<_>, StartError> = addresses.iter().map(|address| hold(*address)).collect();
    held.map(|_| addresses)
}

/// Whether an address is free; it is as long as the sockets live.
fn hold(address: SocketAddr) -> Result<(UdpSocket, TcpListener), StartError> {
    let refused = |error: std::io::Error| {
        StartError::Listen(format!(
            "cannot listen on {address}: {error}; is it an address of this host? Stop what uses the port, or choose \
             others with --port-base"
        ))
    };
    Ok((UdpSocket::bind(address).map_err(refused)?, TcpListener::bind(address).map_err(refused)?))
}

/// The first registers: who serves which tablet, where the servers are, and the filesystem's constants.
fn write_registers(
    coordinator: &mut dyn Coordinator,
    cluster: &Cluster,
    tablet_bits: u8,
) -> Result<(), StartError> {
    let registers = registers(cluster, tablet_bits)?;
    let change = |(key, value): &(String, Vec<u8>)| RegisterChange::new(key, None, Some(value.clone()));
    for some in registers.chunks(SWAP_MAX) {
        let changes: Vec<RegisterChange> = some.iter().map(change).collect();
        let swap = coordinator.swap(&changes).map_err(StartError::engine("write the registers"))?;
        assert!(matches!(swap, Swap::Done(_)), "a new coordinator has no registers");
    }
    Ok(())
}

fn registers(cluster: &Cluster, tablet_bits: u8) -> Result<Vec<(String, Vec<u8>)>, StartError> {
    let daemons = cluster.daemons();
    let mut servers: Vec<ServerId> = Vec::new();
    let mut registers = Vec::new();
    for daemon in daemons.iter().filter(|daemon| daemon.name.kind != ServerKind::Coordinator) {
        let server = daemon.name.server();
        if daemon.name.kind == ServerKind::Metadata {
            servers.push(server);
        }
        let entry = ServerEntry { server, kind: daemon.name.kind, address: daemon.address };
        registers.push((server_key(server), encode_register(&entry)));
    }
    // The rest of the copies is made as servers join.
    let copies = usize::from(cluster.metadata_copies).min(servers.len());
    let assignment = Assignment::even(&servers, tablet_bits, copies)
        .map_err(|error| StartError::Refused(error.to_string()))?;
    registers.extend(assignment.tablets().map(|tablet| (tablet_key(tablet.block), encode_register(tablet))));
    let filesystem = FilesystemRecord {
        filesystem: FilesystemId(1),
        name_key: NameKey(random_u64()),
        scheme: cluster.scheme,
        root: NodeId::ROOT,
        data_copies: cluster.data_copies,
        metadata_copies: cluster.metadata_copies,
    };
    registers.push((FILESYSTEM_KEY.to_owned(), encode_register(&filesystem)));
    Ok(registers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DaemonConfig;
    use bearing_proto::coordinator::decode_register;

    fn plan() -> Plan {
        Plan {
            metadata: 3,
            data: 2,
            data_copies: 2,
            metadata_copies: 1,
            tablet_bits: TABLET_BITS,
            scheme: Scheme::AnglecutHashed,
            lookup: LookupKind::ClientMap,
            prefix: None,
            host: LOOPBACK,
            listen: None,
            port_base: None,
            etcd: None,
        }
    }

    #[test]
    fn a_new_cluster_can_be_read_back_and_its_registers_hold_an_assignment() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path().join("cluster"));
        let cluster = init(&layout, &plan()).unwrap();
        assert_eq!(Cluster::read(&layout.cluster_file()).unwrap(), cluster);
        for daemon in cluster.daemons() {
            let config = DaemonConfig::read(daemon.name.kind, &layout.daemon_config(daemon.name)).unwrap();
            assert_eq!(config.daemon, daemon);
        }
        let path = registers_file(&layout.daemon(crate::cluster::DaemonName::COORDINATOR));
        let mut coordinator = RedbCoordinator::open(&path).unwrap();
        let changes = coordinator.changes(bearing_proto::coordinator::TABLET_PREFIX, 0).unwrap();
        let tablets: Vec<bearing_placement::Tablet> =
            changes.found.present.iter().map(|entry| decode_register(&entry.value).unwrap()).collect();
        assert_eq!(Assignment::new(tablets).unwrap().tablets().count(), 16);
    }

    #[test]
    fn an_interrupted_attempt_is_started_over() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        init(&layout, &plan()).unwrap();
        fs::remove_file(layout.cluster_file()).unwrap();
        init(&layout, &plan()).unwrap();
    }

    #[test]
    fn stores_without_their_description_are_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        let cluster = init(&layout, &plan()).unwrap();
        fs::remove_file(layout.cluster_file()).unwrap();
        let daemon = cluster.daemons()[1];
        drop(crate::state::Occupied::take(&layout.daemon(daemon.name), daemon).unwrap());
        let error = init(&layout, &plan()).unwrap_err();
        assert!(error.to_string().contains("metadata-1"), "{error}");
    }

    #[test]
    fn a_chosen_port_is_chosen_by_nobody_else() {
        let address = choose_addresses(LOOPBACK, 1, None).unwrap()[0];
        assert!(reserve(address).is_err(), "{address} can be chosen again");
        // A server gets it all the same, also when one has just ended.
        for _ in 0..2 {
            drop(hold(address).unwrap());
        }
        assert!(reserve(address).is_err(), "{address} can be chosen when its server ends");
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let base = taken.local_addr().unwrap().port();
        let error = choose_addresses(LOOPBACK, 1, Some(base)).unwrap_err().to_string();
        assert!(error.contains(&base.to_string()) && error.contains("--port-base"), "{error}");
        let error = choose_addresses(LOOPBACK, 9, Some(65_530)).unwrap_err().to_string();
        assert!(error.contains("65530"), "{error}");
    }
}
