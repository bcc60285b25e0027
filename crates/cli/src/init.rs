//! `init`: a new cluster of several machines, with its first servers on this one.

use crate::target::Directory;
use crate::up::EtcdFlags;
use crate::voice::say;
use anyhow::Result;
use bearing_placement::{LookupKind, Scheme};
use bearing_proto::prefix::Prefix;
use bearing_server::cluster::{DaemonName, Layout, live_lookup};
use bearing_server::init::{self, Plan};
use clap::Args;
use std::net::IpAddr;

/// The first port if nothing else is said.
pub const PORT_BASE: u16 = 9100;

const EXAMPLES: &str = "\
Examples:
  bearing init --dir /var/lib/bearing --address 10.0.0.1
  bearing token --dir /var/lib/bearing      for `bearing join` on the next host

It starts nothing: the servers are processes of their own, such as units of systemd (docs/deploy.md). For a
cluster on one machine, `bearing up` does all of it.";

/// `init`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Init {
    /// Where the cluster lies
    #[command(flatten)]
    pub directory: Directory,
    /// The servers of this host
    #[command(flatten)]
    pub host: Host,
    /// On how many data servers each byte of a file is kept, as far as there are so many
    #[arg(long, value_name = "R", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub data_copies: u8,
    /// On how many metadata servers each part of the tree is kept. Nothing is changed while more than one of
    /// these is missing: a cluster of one host needs 1
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub metadata_copies: u8,
    /// How entries are placed: anglecut-hashed or hash
    #[arg(long, value_name = "S", default_value = "anglecut-hashed", value_parser = Scheme::live_from_name)]
    pub scheme: Scheme,
    /// Whom clients ask first: client-map (who their map names), all-know-all (any server, which passes the
    /// request on), bloom-groups (any server, which finds the owner by Bloom filters) or in-network (the
    /// network carries it to --prefix)
    #[arg(long, value_name = "L", default_value = "client-map", value_parser = live_lookup)]
    pub lookup: LookupKind,
    /// The IPv6 prefix of 64 bits to which the network carries requests, such as fd42:7:7:7::/64
    #[arg(long, value_name = "PREFIX", required_if_eq("lookup", "in-network"))]
    pub prefix: Option<Prefix>,
    /// Etcd instead of a coordinator
    #[command(flatten)]
    pub etcd: EtcdFlags,
}

/// The servers that a host brings.
#[derive(Args, Clone, Debug)]
pub struct Host {
    /// An address of this host at which all others reach it, IPv4 or IPv6
    #[arg(long, value_name = "IP")]
    pub address: IpAddr,
    /// Listen at this address instead, such as 0.0.0.0 or :: for all of this host
    #[arg(long, value_name = "IP")]
    pub listen: Option<IpAddr>,
    /// The first port: of a coordinator; metadata servers follow, then data servers
    #[arg(long, value_name = "P", default_value_t = PORT_BASE)]
    pub port_base: u16,
    /// Metadata servers on this host
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub metadata: u32,
    /// Data servers on this host
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub data: u32,
}

/// Runs `init`.
pub fn run(flags: &Init) -> Result<()> {
    let layout = flags.directory.layout()?;
    if layout.cluster_file().exists() {
        anyhow::bail!("{} holds a cluster already", layout.root().display());
    }
    let Host { address, listen, port_base, metadata, data } = flags.host;
    let cluster = init::init(
        &layout,
        &Plan {
            metadata,
            data,
            data_copies: flags.data_copies,
            metadata_copies: flags.metadata_copies,
            scheme: flags.scheme,
            lookup: flags.lookup,
            prefix: flags.prefix,
            tablet_bits: init::TABLET_BITS,
            host: address,
            listen,
            port_base: Some(port_base),
            etcd: flags.etcd.file(),
        },
    )?;
    if let Some(id) = cluster.id {
        say!("cluster {id} is made in {}", layout.root().display())?;
    }
    say_how_to_start(&layout, &cluster.daemons().into_iter().map(|daemon| daemon.name).collect::<Vec<_>>())
}

/// How servers are started, for people.
pub fn say_how_to_start(layout: &Layout, names: &[DaemonName]) -> Result<()> {
    say!("start its servers:")?;
    for name in names {
        let config = layout.daemon_config(*name);
        say!("  bearing daemon {} --config {}", name.kind_word(), config.display())?;
    }
    Ok(())
}
