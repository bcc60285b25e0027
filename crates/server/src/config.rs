//! Configuration of one daemon: `config.toml` in its directory. Everything but its number has a default;
//! unknown keys are refused.

use crate::cluster::{Cluster, Daemon, DaemonName, Layout};
use crate::{StartError, toml_file};
use bearing_engines_etcd::{EtcdMembers, EtcdTls};
use bearing_proto::client::ServerKind;
use bearing_routing::{SELECTIONS, Selection};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What every daemon's file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonFile {
    /// The daemon's number among its kind.
    #[serde(default = "first")]
    pub number: u32,
    /// The cluster's directory, relative to this file's directory.
    #[serde(default = "parent")]
    pub cluster: PathBuf,
    /// Where others reach it, by datagram and by stream. Without it, what `cluster.toml` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Where it listens, if that is another address, such as all of this host (0.0.0.0 or [::]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Where it shows metrics and whether it serves, by HTTP and to anybody; without it, nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// Where the cluster's registers are, if it has no coordinator of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdFile>,
    /// What only a metadata server uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataLimits>,
    /// What only a data server uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataLimits>,
    /// What only the flow server uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowLimits>,
}

impl DaemonFile {
    /// That of a new daemon.
    pub fn new(name: DaemonName, etcd: Option<EtcdFile>) -> DaemonFile {
        let metadata = (name.kind == ServerKind::Metadata).then(MetadataLimits::default);
        let data = (name.kind == ServerKind::Data).then(DataLimits::default);
        let flow = (name.kind == ServerKind::Flow).then(FlowLimits::default);
        let (number, cluster) = (name.number, parent());
        DaemonFile { number, cluster, address: None, listen: None, metrics: None, etcd, metadata, data, flow }
    }

    /// Writes it into the daemon's directory.
    pub fn write(&self, layout: &Layout, name: DaemonName) -> Result<(), StartError> {
        let reached = if self.address.is_some() { "" } else { " Where it is reached is in cluster.toml." };
        let heading = format!("# Configuration of {name}.{reached}\n");
        toml_file::write(&layout.daemon_config(name), &heading, self)
    }
}

/// How an etcd cluster is reached. Files are in PEM, relative to the directory of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdFile {
    /// The client URLs of its members.
    pub endpoints: Vec<String>,
    /// For `https`: the certificate of the authority that signed those of the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<PathBuf>,
    /// This server's certificate, if members ask for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The key of that certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl EtcdFile {
    /// The same with files named from the root.
    pub fn absolute(&self) -> Result<EtcdFile, StartError> {
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|error| StartError::file("find", path, &error))
        };
        let absolute = |path: &Option<PathBuf>| path.as_ref().map(absolute).transpose();
        Ok(EtcdFile {
            endpoints: self.endpoints.clone(),
            authority: absolute(&self.authority)?,
            certificate: absolute(&self.certificate)?,
            key: absolute(&self.key)?,
        })
    }

    /// The members, with files found from a directory.
    pub fn members(&self, directory: &Path) -> Result<EtcdMembers, String> {
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some((directory.join(certificate), directory.join(key))),
            (None, None) => None,
            _ => return Err("[etcd] needs both certificate and key, or none of them".to_owned()),
        };
        let tls = match (&self.authority, identity) {
            (Some(authority), identity) => Some(EtcdTls { authority: directory.join(authority), identity }),
            (None, None) => None,
            (None, Some(_)) => return Err("[etcd] has a certificate, but no authority".to_owned()),
        };
        let members = EtcdMembers { endpoints: self.endpoints.clone(), tls };
        members.check()?;
        Ok(members)
    }
}

/// Limits of a data server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataLimits {
    /// Copies of chunks that other servers have lost are fetched at this rate together at most.
    pub copy_bytes_per_second: u64,
    /// The disk is read for damage at this rate at most.
    pub scrub_bytes_per_second: u64,
    /// So often it is read from end to end.
    pub scrub_every_s: u64,
}

impl Default for DataLimits {
    fn default() -> DataLimits {
        let standard = bearing_data::Config::standard();
        DataLimits {
            copy_bytes_per_second: standard.copy_bytes_per_second,
            scrub_bytes_per_second: standard.scrub_bytes_per_second,
            scrub_every_s: standard.scrub_interval.as_secs(),
        }
    }
}

/// How the flow server advises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlowLimits {
    /// How replicas and paths are chosen.
    #[serde(with = "selection_name")]
    pub selection: Selection,
    /// The network (docs/formats/topology.md), relative to this file's directory. Without it data servers'
    /// counters alone decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<PathBuf>,
}

impl Default for FlowLimits {
    fn default() -> FlowLimits {
        FlowLimits { selection: SELECTIONS[0], topology: None }
    }
}

mod selection_name {
    use bearing_routing::{Selection, UnknownSelection};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(selection: &Selection, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(selection.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Selection, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|error: UnknownSelection| D::Error::custom(error))
    }
}

/// Limits of a metadata server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetadataLimits {
    /// Above so many bytes of tablet log the store is flushed and the log cut: it bounds the replay after a
    /// crash.
    pub log_bytes_max: u64,
    /// Clean entries cached per tablet.
    pub cache_entries_max: usize,
    /// A data server that was silent for so long is lost: what it holds is copied again.
    pub data_server_lost_after_s: u64,
    /// A chunk is sealed so long after it was opened. Writers stop appending 600 s after, and a chunk of
    /// which its writer says that it is done with it is sealed before.
    pub chunk_life_s: u64,
    /// And looked at, what of it is in use, so long after its writer said that it is done with it.
    pub chunk_look_after_s: u64,
    /// A tablet that has changed gets another checkpoint on data servers after so long.
    pub checkpoint_interval_s: u64,
    /// So much of the disk is kept free for removals and for the server's own work, or an eighth of a disk
    /// that is smaller than eight times that. Below, nothing new is made. A quarter of it is held in a file
    /// of its own.
    pub reserve_bytes: u64,
}

impl Default for MetadataLimits {
    fn default() -> MetadataLimits {
        let standard = bearing_meta::Config::standard();
        MetadataLimits {
            log_bytes_max: 32 << 20,
            cache_entries_max: standard.cache_entries_max,
            data_server_lost_after_s: standard.lost_timeout.as_secs(),
            chunk_life_s: standard.chunk_ttl.as_secs(),
            chunk_look_after_s: standard.scan_delay.as_secs(),
            checkpoint_interval_s: standard.checkpoint_interval.as_secs(),
            reserve_bytes: standard.reserve_bytes,
        }
    }
}

fn first() -> u32 {
    1
}

fn parent() -> PathBuf {
    PathBuf::from("..")
}

/// A daemon that knows who it is and what cluster it belongs to.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// Its name, and where others reach it.
    pub daemon: Daemon,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where it shows metrics.
    pub metrics: Option<SocketAddr>,
    /// Its directory.
    pub directory: PathBuf,
    /// The cluster's directory.
    pub layout: Layout,
    /// The cluster.
    pub cluster: Cluster,
    /// Where its registers are, if not with a coordinator.
    pub etcd: Option<EtcdMembers>,
    /// Limits of a metadata server.
    pub metadata: MetadataLimits,
    /// Limits of a data server.
    pub data: DataLimits,
    /// How a flow server advises.
    pub flow: FlowLimits,
}

impl DaemonConfig {
    /// Reads a daemon's file and its cluster's.
    pub fn read(kind: ServerKind, path: &Path) -> Result<DaemonConfig, StartError> {
        let file: DaemonFile = toml_file::read(path)?;
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let layout = Layout::new(directory.join(&file.cluster));
        let cluster = Cluster::read(&layout.cluster_file())?;
        let name = DaemonName { kind, number: file.number };
        let complain = |complaint| StartError::Config { file: path.to_owned(), line: 1, complaint };
        let etcd = file.etcd.as_ref().map(|etcd| etcd.members(&directory)).transpose().map_err(complain)?;
        match (&etcd, cluster.coordinator) {
            (None, None) => {
                let file = layout.cluster_file();
                let complaint = format!(
                    "{} names no coordinator, so [etcd] has to say where the registers are",
                    file.display()
                );
                return Err(complain(complaint));
            }
            (Some(_), Some(address)) => {
                let complaint = format!(
                    "[etcd] is given, but the registers of this cluster are with the coordinator at {address}"
                );
                return Err(complain(complaint));
            }
            _ => {}
        }
        let tables = [
            (ServerKind::Metadata, "metadata", file.metadata.is_some()),
            (ServerKind::Data, "data", file.data.is_some()),
            (ServerKind::Flow, "flow", file.flow.is_some()),
        ];
        if let Some((_, other, _)) = tables.into_iter().find(|(of, _, given)| *given && *of != kind) {
            return Err(complain(format!(
                "[{other}] is for another kind of server than {}",
                name.kind_word()
            )));
        }
        let address = file.address.or_else(|| cluster.address_of(name)).ok_or_else(|| {
            let listed = layout.cluster_file();
            complain(format!(
                "there is no address = \"HOST:PORT\" here, and {} does not list {name}",
                listed.display()
            ))
        })?;
        if address.ip().is_unspecified() || address.port() == 0 {
            let complaint = format!(
                "address = \"{address}\" is none at which others reach this server; give one of this host's, and \
                 listen = \"{address}\" to listen on all of them"
            );
            return Err(complain(complaint));
        }
        let listen = file.listen.unwrap_or(address);
        if listen.port() != address.port() {
            tracing::warn!("listens on port {} and is reached at port {}", listen.port(), address.port());
        }
        let (metadata, data) = (file.metadata.unwrap_or_default(), file.data.unwrap_or_default());
        let flow = file.flow.unwrap_or_default();
        Ok(DaemonConfig {
            daemon: Daemon { name, address },
            listen,
            metrics: file.metrics,
            directory,
            layout,
            cluster,
            etcd,
            metadata,
            data,
            flow,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_first_daemon_with_defaults() {
        let file: DaemonFile = toml_file::parse(Path::new("config.toml"), "").unwrap();
        let cluster = "..".into();
        assert_eq!(
            file,
            DaemonFile {
                number: 1,
                cluster,
                address: None,
                listen: None,
                metrics: None,
                etcd: None,
                metadata: None,
                data: None,
                flow: None,
            }
        );
    }

    fn read(cluster: &str, kind: ServerKind, text: &str) -> Result<DaemonConfig, String> {
        let directory = tempfile::tempdir().unwrap();
        let (file, inside) = (directory.path().join("cluster.toml"), directory.path().join("server"));
        std::fs::write(file, cluster).unwrap();
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("config.toml"), text).unwrap();
        DaemonConfig::read(kind, &inside.join("config.toml")).map_err(|error| error.to_string())
    }

    const CLUSTER: &str = "format = 3\nscheme = \"hash\"\ndata_copies = 1\nmetadata_copies = 3\n\
        coordinator = \"10.0.0.1:9100\"\nmetadata = [{ number = 1, address = \"10.0.0.1:9101\" }]\n\
        data = [{ number = 1, address = \"10.0.0.1:9102\" }]\n";

    #[test]
    fn a_server_is_reached_where_its_file_says_and_listens_there_or_elsewhere() {
        let listed = read(CLUSTER, ServerKind::Metadata, "").unwrap();
        assert_eq!((listed.daemon.address, listed.listen), (listed.listen, "10.0.0.1:9101".parse().unwrap()));
        let text = "number = 7\naddress = \"[fd00::7]:9101\"\nlisten = \"[::]:9101\"\n";
        let own = read(CLUSTER, ServerKind::Metadata, text).unwrap();
        assert_eq!(own.daemon.address, "[fd00::7]:9101".parse().unwrap());
        assert_eq!(own.listen, "[::]:9101".parse().unwrap());
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_with_what_is_wrong() {
        let etcd = CLUSTER.replace("coordinator", "id = \"00000000000000aa\" #");
        for (cluster, kind, text, said) in [
            (CLUSTER, ServerKind::Metadata, "number = 7\n", "there is no address = \"HOST:PORT\" here"),
            (CLUSTER, ServerKind::Metadata, "address = \"0.0.0.0:9101\"", "listen = \"0.0.0.0:9101\""),
            (CLUSTER, ServerKind::Metadata, "address = \"10.0.0.1\"", "config.toml:1: "),
            (CLUSTER, ServerKind::Data, "number = 1\nmetrics = \"9202\"", "config.toml:2: "),
            (CLUSTER, ServerKind::Data, "[metadata]\n", "[metadata] is for another kind of server"),
            (
                CLUSTER,
                ServerKind::Data,
                "[etcd]\nendpoints = [\"http://10.0.0.1:2379\"]",
                "are with the coordinator",
            ),
            (&etcd, ServerKind::Data, "", "[etcd] has to say where"),
            (&etcd, ServerKind::Data, "[etcd]\nendpoints = [\"10.0.0.1:2379\"]", "has no http"),
            (&etcd, ServerKind::Data, "[etcd]\nendpoints = []\nkey = \"k\"", "both certificate and key"),
        ] {
            let error = read(cluster, kind, text).unwrap_err();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn an_unknown_limit_is_refused_with_its_line() {
        let text = "number = 2\n[metadata]\nlog_byte_max = 3\n";
        let error = toml_file::parse::<DaemonFile>(Path::new("config.toml"), text).unwrap_err();
        assert!(error.to_string().starts_with("config.toml:3: "), "{error}");
    }
}
