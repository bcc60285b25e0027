//! Configuration of one daemon: `config.toml` in its directory. Everything but its number has a default;
//! unknown keys are refused.

use crate::cluster::{Cluster, Daemon, DaemonName, Layout};
use crate::{StartError, toml_file};
use bearing_proto::client::ServerKind;
use serde::{Deserialize, Serialize};
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
    /// What only a metadata server uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataLimits>,
    /// What only a data server uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataLimits>,
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
    /// Its name and address.
    pub daemon: Daemon,
    /// Its directory.
    pub directory: PathBuf,
    /// The cluster's directory.
    pub layout: Layout,
    /// The cluster.
    pub cluster: Cluster,
    /// Limits of a metadata server.
    pub metadata: MetadataLimits,
    /// Limits of a data server.
    pub data: DataLimits,
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
        let address = cluster.address_of(name).ok_or_else(|| StartError::Config {
            file: path.to_owned(),
            line: 1,
            complaint: format!("{name} is not listed in {}", layout.cluster_file().display()),
        })?;
        let (metadata, data) = (file.metadata.unwrap_or_default(), file.data.unwrap_or_default());
        Ok(DaemonConfig { daemon: Daemon { name, address }, directory, layout, cluster, metadata, data })
    }

    /// Writes the file of a new daemon.
    pub fn write_new(layout: &Layout, name: DaemonName) -> Result<(), StartError> {
        let metadata = (name.kind == ServerKind::Metadata).then(MetadataLimits::default);
        let data = (name.kind == ServerKind::Data).then(DataLimits::default);
        let file = DaemonFile { number: name.number, cluster: parent(), metadata, data };
        let heading = format!("# Configuration of {name}. Where it listens is in cluster.toml.\n");
        toml_file::write(&layout.daemon_config(name), &heading, &file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_first_daemon_with_defaults() {
        let file: DaemonFile = toml_file::parse(Path::new("config.toml"), "").unwrap();
        assert_eq!(file, DaemonFile { number: 1, cluster: "..".into(), metadata: None, data: None });
    }

    #[test]
    fn an_unknown_limit_is_refused_with_its_line() {
        let text = "number = 2\n[metadata]\nlog_byte_max = 3\n";
        let error = toml_file::parse::<DaemonFile>(Path::new("config.toml"), text).unwrap_err();
        assert!(error.to_string().starts_with("config.toml:3: "), "{error}");
    }
}
