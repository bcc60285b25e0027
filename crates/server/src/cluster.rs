//! What a cluster is: `cluster.toml`, and where everything lies in a cluster's directory.
//!
//! ```text
//! DIR/cluster.toml              servers, addresses, copies, scheme; the one file that all servers and
//!                               clients share
//! DIR/secrets/cluster.key       servers only
//! DIR/secrets/enrolment.key     servers and clients
//! DIR/coordinator/              config.toml, state, log, and the coordinator's registers
//! DIR/metadata-1/ ...           config.toml, state, log, and the server's stores
//! DIR/data-1/ ...
//! DIR/flow/                     config.toml, state, log
//! ```
//!
//! `cluster.toml` is written once, last of all, when the cluster is made: a directory without it holds no
//! cluster.

use crate::{StartError, toml_file};
use bearing_placement::{LookupKind, Scheme, UnknownScheme};
use bearing_proto::client::ServerKind;
use bearing_proto::prefix::Prefix;
use bearing_types::ServerId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The newest format of `cluster.toml` that this program knows.
pub const FORMAT: u32 = 5;
/// The most servers of one kind.
pub const SERVERS_MAX: u32 = 999;

/// The most copies of metadata. While there are fewer servers there are as many copies as servers.
pub const METADATA_COPIES_MAX: u8 = 5;
/// The most copies of data, likewise.
pub const DATA_COPIES_MAX: u8 = 8;

/// The coordinator's server id.
pub const COORDINATOR: ServerId = ServerId(1_000_000);
/// The flow server's id.
pub const FLOW: ServerId = ServerId(1_000_001);
/// Data servers are numbered from here, so that their ids differ from those of metadata servers.
const DATA_BASE: u32 = 1_000;

/// The content of `cluster.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The format's version; a newer one is refused.
    pub format: u32,
    /// Which cluster it is. Before format 3 nobody had to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ClusterId>,
    /// How children are placed.
    #[serde(with = "scheme_name")]
    pub scheme: Scheme,
    /// On how many data servers each byte of a file is kept.
    pub data_copies: u8,
    /// On how many metadata servers each tablet is kept. Before format 2 it was one.
    #[serde(default = "one_copy")]
    pub metadata_copies: u8,
    /// Where the coordinator listens; none: its registers are in etcd, where each server's configuration
    /// says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<SocketAddr>,
    /// Whom clients ask first. Before format 4 it was who their map names.
    #[serde(with = "lookup_name", default = "client_map")]
    pub lookup: LookupKind,
    /// Where the network carries requests to, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
    /// Where the flow server listens, if there is one. Before format 5 there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<SocketAddr>,
    /// The metadata servers.
    pub metadata: Vec<Member>,
    /// The data servers.
    pub data: Vec<Member>,
}

/// Which cluster it is: drawn when it is made, written in 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterId(pub u64);

impl ClusterId {
    /// Where etcd has the registers of this cluster.
    pub fn etcd_root(self) -> String {
        format!("/bearing/{self}")
    }
}

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<ClusterId> for String {
    fn from(id: ClusterId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for ClusterId {
    type Error = String;

    fn try_from(text: String) -> Result<ClusterId, String> {
        let id = u64::from_str_radix(&text, 16).ok().filter(|_| text.len() == 16);
        id.map(ClusterId).ok_or_else(|| format!("{text:?} is no cluster id: 16 hexadecimal digits"))
    }
}

/// A server of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its number among its kind, from 1.
    pub number: u32,
    /// Where it listens, by datagram and by stream.
    pub address: SocketAddr,
}

/// One daemon of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DaemonName {
    /// What it does.
    pub kind: ServerKind,
    /// Its number among its kind, from 1.
    pub number: u32,
}

/// A daemon with its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Which one.
    pub name: DaemonName,
    /// Where it listens.
    pub address: SocketAddr,
}

impl DaemonName {
    /// The coordinator.
    pub const COORDINATOR: DaemonName = DaemonName { kind: ServerKind::Coordinator, number: 1 };

    /// The flow server.
    pub const FLOW: DaemonName = DaemonName { kind: ServerKind::Flow, number: 1 };

    /// The word for its kind.
    pub fn kind_word(self) -> &'static str {
        match self.kind {
            ServerKind::Metadata => "metadata",
            ServerKind::Data => "data",
            ServerKind::Coordinator => "coordinator",
            ServerKind::Flow => "flow",
        }
    }

    /// Its id in the cluster.
    pub fn server(self) -> ServerId {
        match self.kind {
            ServerKind::Metadata => ServerId(self.number),
            ServerKind::Data => ServerId(DATA_BASE + self.number),
            ServerKind::Coordinator => COORDINATOR,
            ServerKind::Flow => FLOW,
        }
    }

    /// The daemon that has an id.
    pub fn of(server: ServerId) -> DaemonName {
        match server {
            COORDINATOR => DaemonName::COORDINATOR,
            FLOW => DaemonName::FLOW,
            ServerId(id) if id > DATA_BASE => DaemonName { kind: ServerKind::Data, number: id - DATA_BASE },
            ServerId(number) => DaemonName { kind: ServerKind::Metadata, number },
        }
    }
}

impl std::fmt::Display for DaemonName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            ServerKind::Coordinator | ServerKind::Flow => write!(f, "{}", self.kind_word()),
            ServerKind::Metadata | ServerKind::Data => write!(f, "{}-{}", self.kind_word(), self.number),
        }
    }
}

impl Cluster {
    /// Reads and checks a `cluster.toml`.
    pub fn read(path: &Path) -> Result<Cluster, StartError> {
        // What this user may not see is not told to be missing.
        if fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            let directory = path.parent().unwrap_or(path).to_owned();
            return Err(StartError::NoCluster { directory });
        }
        // The version first: a newer file may hold keys that this program would call unknown.
        let Versioned { format } = toml_file::read(path)?;
        if format > FORMAT {
            return Err(StartError::NewerFormat { file: path.to_owned(), found: format, known: FORMAT });
        }
        let cluster: Cluster = toml_file::read(path)?;
        cluster.check().map_err(|complaint| StartError::Config {
            file: path.to_owned(),
            line: 1,
            complaint,
        })?;
        Ok(cluster)
    }

    /// What would make no sense, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.coordinator.is_none() && self.id.is_none() {
            return Err("there is neither the address of a coordinator nor, for etcd, the id of the cluster"
                .to_owned());
        }
        check_members("metadata", &self.metadata)?;
        check_members("data", &self.data)?;
        for (what, copies, max) in [
            ("data_copies", self.data_copies, DATA_COPIES_MAX),
            ("metadata_copies", self.metadata_copies, METADATA_COPIES_MAX),
        ] {
            if copies == 0 || copies > max {
                return Err(format!("{what} = {copies}: give 1 to {max}"));
            }
        }
        check_lookup(self.lookup, self.prefix)?;
        let mut seen = BTreeSet::new();
        match self.daemons().into_iter().find(|daemon| !seen.insert(daemon.address)) {
            Some(twice) => Err(format!("two servers have the address {}; give each its own", twice.address)),
            None => Ok(()),
        }
    }

    /// All daemons, in the order in which they are started.
    pub fn daemons(&self) -> Vec<Daemon> {
        let of = |kind, members: &[Member]| -> Vec<Daemon> {
            let daemon = |member: &Member| Daemon {
                name: DaemonName { kind, number: member.number },
                address: member.address,
            };
            members.iter().map(daemon).collect()
        };
        let coordinator = |address| Daemon { name: DaemonName::COORDINATOR, address };
        let mut all: Vec<Daemon> = self.coordinator.map(coordinator).into_iter().collect();
        all.extend(of(ServerKind::Metadata, &self.metadata));
        all.extend(of(ServerKind::Data, &self.data));
        all.extend(self.flow.map(|address| Daemon { name: DaemonName::FLOW, address }));
        all
    }

    /// The address of one daemon.
    pub fn address_of(&self, name: DaemonName) -> Option<SocketAddr> {
        self.daemons().into_iter().find(|daemon| daemon.name == name).map(|daemon| daemon.address)
    }

    /// Who can be asked for registers: the coordinator, or any metadata server asks etcd.
    pub fn registrars(&self) -> Vec<SocketAddr> {
        self.coordinator.map_or_else(|| self.metadata_addresses(), |address| vec![address])
    }

    /// Where to ask for metadata first.
    pub fn metadata_addresses(&self) -> Vec<SocketAddr> {
        self.metadata.iter().map(|member| member.address).collect()
    }
}

/// Only the version; other keys are left to the full reading.
#[derive(Deserialize)]
struct Versioned {
    format: u32,
}

fn check_members(kind: &str, members: &[Member]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for member in members {
        if member.number == 0 || member.number >= SERVERS_MAX || !seen.insert(member.number) {
            return Err(format!(
                "{kind} server number {} is out of 1 to {SERVERS_MAX} or is given twice",
                member.number
            ));
        }
    }
    if members.is_empty() {
        Err(format!("there is no {kind} server; a cluster needs one at least"))
    } else {
        Ok(())
    }
}

fn one_copy() -> u8 {
    1
}

fn client_map() -> LookupKind {
    LookupKind::ClientMap
}

/// A lookup that a cluster can run today, by its name.
pub fn live_lookup(name: &str) -> Result<LookupKind, String> {
    const LIVE: [LookupKind; 4] =
        [LookupKind::ClientMap, LookupKind::OneHop, LookupKind::BloomGroups, LookupKind::InNetwork];
    let lookup: LookupKind = name.parse().map_err(|error: UnknownScheme| error.to_string())?;
    if LIVE.contains(&lookup) {
        return Ok(lookup);
    }
    let known = LIVE.map(LookupKind::name).join(", ");
    Err(format!("lookup {lookup} runs in the lab only so far; a cluster can run {known}"))
}

fn check_lookup(lookup: LookupKind, prefix: Option<Prefix>) -> Result<(), String> {
    match (lookup, prefix) {
        (LookupKind::InNetwork, None) => {
            Err("lookup = \"in-network\" needs the prefix that the network carries requests to, such as prefix = \"fd42:7:7:7::/64\"".to_owned())
        }
        (LookupKind::InNetwork, Some(_)) => Ok(()),
        (_, Some(prefix)) => {
            Err(format!("prefix = \"{prefix}\" is used by lookup = \"in-network\" only, and lookup is \"{lookup}\""))
        }
        (_, None) => Ok(()),
    }
}

mod lookup_name {
    use super::LookupKind;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(lookup: &LookupKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(lookup.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LookupKind, D::Error> {
        super::live_lookup(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

mod scheme_name {
    use super::Scheme;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(scheme: &Scheme, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(scheme.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Scheme, D::Error> {
        Scheme::live_from_name(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The places in a cluster's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout of a directory.
    pub fn new(root: impl Into<PathBuf>) -> Layout {
        Layout { root: root.into() }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `cluster.toml`.
    pub fn cluster_file(&self) -> PathBuf {
        self.root.join("cluster.toml")
    }

    /// The directory of secrets.
    pub fn secrets(&self) -> PathBuf {
        self.root.join("secrets")
    }

    /// The key that servers share.
    pub fn cluster_key(&self) -> PathBuf {
        self.secrets().join("cluster.key")
    }

    /// The secret that servers and clients share.
    pub fn enrolment_key(&self) -> PathBuf {
        self.secrets().join("enrolment.key")
    }

    /// A daemon's directory.
    pub fn daemon(&self, name: DaemonName) -> PathBuf {
        self.root.join(name.to_string())
    }

    /// A daemon's configuration.
    pub fn daemon_config(&self, name: DaemonName) -> PathBuf {
        self.daemon(name).join("config.toml")
    }

    /// What a daemon prints.
    pub fn daemon_log(&self, name: DaemonName) -> PathBuf {
        self.daemon(name).join("log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        let member = |number, port| Member { number, address: ([127, 0, 0, 1], port).into() };
        Cluster {
            format: FORMAT,
            id: Some(ClusterId(0x1f)),
            scheme: Scheme::AnglecutHashed,
            lookup: LookupKind::ClientMap,
            prefix: None,
            flow: None,
            data_copies: 2,
            metadata_copies: 2,
            coordinator: Some(([127, 0, 0, 1], 7000).into()),
            metadata: vec![member(1, 7001), member(2, 7002)],
            data: vec![member(1, 7003), member(2, 7004)],
        }
    }

    fn written(cluster: &Cluster, change: impl FnOnce(String) -> String) -> Result<Cluster, StartError> {
        let directory = tempfile::tempdir().unwrap();
        let path = Layout::new(directory.path()).cluster_file();
        toml_file::write(&path, "# test", cluster).unwrap();
        let text = change(std::fs::read_to_string(&path).unwrap());
        std::fs::write(&path, text).unwrap();
        Cluster::read(&path)
    }

    #[test]
    fn a_cluster_survives_its_file() {
        assert_eq!(written(&cluster(), |text| text).unwrap(), cluster());
    }

    #[test]
    fn a_cluster_from_before_copies_of_metadata_has_one() {
        let older =
            |text: String| text.replace("format = 5", "format = 1").replace("metadata_copies = 2\n", "");
        let read = written(&Cluster { id: None, ..cluster() }, older).unwrap();
        assert_eq!(read, Cluster { format: 1, id: None, metadata_copies: 1, ..cluster() });
    }

    #[test]
    fn a_newer_format_is_refused_by_its_number_even_with_unknown_keys() {
        let error =
            written(&cluster(), |text| text.replace("format = 5", "format = 7\nshiny = true")).unwrap_err();
        assert!(error.to_string().contains("format version 7"), "{error}");
    }

    #[test]
    fn copies_out_of_bounds_and_shared_addresses_are_refused() {
        let error = written(&Cluster { data_copies: 0, ..cluster() }, |text| text).unwrap_err();
        assert!(error.to_string().contains("data_copies = 0: give 1 to 8"), "{error}");
        let error = written(&Cluster { metadata_copies: 6, ..cluster() }, |text| text).unwrap_err();
        assert!(error.to_string().contains("metadata_copies = 6: give 1 to 5"), "{error}");
        let shared = Cluster { coordinator: Some(cluster().data[0].address), ..cluster() };
        let error = written(&shared, |text| text).unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:7003"), "{error}");
    }

    #[test]
    fn a_cluster_in_etcd_has_an_id_and_its_metadata_servers_know_its_registers() {
        let etcd = Cluster { coordinator: None, ..cluster() };
        let read = written(&etcd, |text| text).unwrap();
        assert_eq!(read.id.unwrap().etcd_root(), "/bearing/000000000000001f");
        assert_eq!(read.registrars(), read.metadata_addresses());
        let nameless = |text: String| text.replace("id = \"000000000000001f\"\n", "");
        let error = written(&etcd, nameless).unwrap_err();
        assert!(error.to_string().contains("for etcd, the id of the cluster"), "{error}");
        let wrong = |text: String| text.replace("000000000000001f", "1f");
        let error = written(&etcd, wrong).unwrap_err();
        assert!(
            error.to_string().contains("cluster.toml:3: ") && error.to_string().contains("16 hex"),
            "{error}"
        );
    }

    #[test]
    fn ids_lead_back_to_their_daemons() {
        for daemon in cluster().daemons() {
            assert_eq!(DaemonName::of(daemon.name.server()), daemon.name);
        }
    }

    #[test]
    fn a_directory_without_a_cluster_says_how_to_make_one() {
        let directory = tempfile::tempdir().unwrap();
        let error = Cluster::read(&Layout::new(directory.path()).cluster_file()).unwrap_err();
        assert!(error.to_string().contains("bearing up --dir"), "{error}");
    }
}
