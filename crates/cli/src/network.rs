//! `network`: has a switch carry requests to the owners of what they ask for.
//!
//! What the switch shall have is computed from the tablets' registers each time, and compared with what it
//! says that it has: so it does not matter who changed what meanwhile, or how often this was started.

use crate::ask;
use crate::target::Directory;
use crate::voice::say;
use anyhow::{Context, Result, anyhow, bail};
use bearing_openflow::ovs::{COOKIE, Mac, Requests, Way, ways};
use bearing_openflow::{Output, Pieces, compressed};
use bearing_placement::Tablet;
use bearing_proto::coordinator::{AskCall, RegisterChanges, TABLET_PREFIX, TellBody};
use bearing_proto::prefix::CARRIED_PORT;
use bearing_routing::Port;
use bearing_server::cluster::{Cluster, Layout};
use bearing_types::{Block, Position, ServerId};
use clap::{Args, Subcommand};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// `network`.
#[derive(Debug, Subcommand)]
pub enum NetworkCommand {
    /// Keep the table of a switch as the tablets are: at once, and whenever one gets another owner
    Follow(Switch),
    /// Show the entries that a switch has, and what it should have instead
    Show(Switch),
}

const EXAMPLES: &str = "\
The cluster was made with `bearing init --lookup in-network --prefix fd42:7:7:7::/64`. The switch is a bridge
of Open vSwitch with the flow of OpenFlow 1.3 allowed (`ovs-vsctl set bridge br0 protocols=OpenFlow13`). Each
metadata server takes the prefix for its own (`ip -6 route add local fd42:7:7:7::/64 dev lo`), clients send it
to the switch (`ip -6 route add fd42:7:7:7::/64 dev eth0`, and a static neighbour for the addresses they use,
or a router). Other traffic is switched as before.

Examples:
  bearing network follow --bridge br0 --port 1=2,02:00:00:00:00:01 --port 2=3,02:00:00:00:00:02
  bearing network show --bridge br0 --port 1=2,02:00:00:00:00:01 --port 2=3,02:00:00:00:00:02";

/// A switch, and what its ports lead to.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Switch {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// The bridge of Open vSwitch
    #[arg(long, value_name = "BRIDGE")]
    pub bridge: String,
    /// A metadata server's number, the bridge's port (OpenFlow's number) that leads to it, and its Ethernet
    /// address there; once for each
    #[arg(long = "port", value_name = "NUMBER=PORT,MAC", required = true)]
    pub ports: Vec<Attached>,
    /// Entries that the switch has room for
    #[arg(long, value_name = "N", default_value_t = 2048)]
    pub budget: usize,
}

/// A metadata server at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    server: ServerId,
    port: Port,
    mac: Mac,
}

impl FromStr for Attached {
    type Err = String;

    fn from_str(text: &str) -> Result<Attached, String> {
        let parts = text.split_once('=').and_then(|(server, rest)| Some((server, rest.split_once(',')?)));
        let complaint = || format!("{text:?} is not NUMBER=PORT,MAC, such as 1=2,02:00:00:00:00:01");
        let (server, (port, mac)) = parts.ok_or_else(complaint)?;
        let server = server.parse().map(ServerId).map_err(|_| complaint())?;
        let port = port.parse().map(Port).map_err(|_| complaint())?;
        Ok(Attached { server, port, mac: mac.parse()? })
    }
}

/// A change is awaited for so long at a time.
const AWAITED: Duration = Duration::from_secs(10);
/// The registers cannot be had: they are asked for again after this time.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a listing may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs `network`.
pub fn run(command: &NetworkCommand) -> Result<()> {
    match command {
        NetworkCommand::Follow(switch) => Table::of(switch)?.follow(),
        NetworkCommand::Show(switch) => Table::of(switch)?.show(),
    }
}

struct Table<'a> {
    switch: &'a Switch,
    layout: Layout,
    cluster: Cluster,
    requests: Requests,
    /// The tablets, and the version of the registers that they are of.
    tablets: BTreeMap<Position, Tablet>,
    version: u64,
}

impl Table<'_> {
    fn of(switch: &Switch) -> Result<Table<'_>> {
        let layout = switch.directory.layout()?;
        let cluster = Cluster::read(&layout.cluster_file())?;
        let Some(prefix) = cluster.prefix else {
            bail!(
                "the cluster in {} has no prefix: its clients do not ask by the network; it would have been made with `bearing init --lookup in-network --prefix PREFIX`",
                layout.root().display()
            );
        };
        let requests = Requests { prefix: prefix.address(Position(0)), port: CARRIED_PORT };
        Ok(Table { switch, layout, cluster, requests, tablets: BTreeMap::new(), version: 0 })
    }

    fn follow(mut self) -> Result<()> {
        loop {
            let call = match self.version {
                0 => AskCall::Changes { prefix: TABLET_PREFIX.to_owned(), since: 0 },
                since => AskCall::Await { prefix: TABLET_PREFIX.to_owned(), since },
            };
            let asked = Instant::now();
            match ask::ask_registers(&self.layout, &self.cluster, call, AWAITED) {
                Ok(TellBody::Registers(changes)) => self.take(changes)?,
                // Nothing changed, or nobody is there: what the switch has stays.
                _ => {
                    if let Some(left) = AGAIN.checked_sub(asked.elapsed()) {
                        std::thread::sleep(left);
                    }
                    continue;
                }
            }
            let began = Instant::now();
            let wanted = self.wanted()?;
            let bundle = self.requests.bundle(&self.present()?, &wanted);
            self.install(&bundle)?;
            say!(
                "{}: {} entries for {} tablets, {} changes, {} ms",
                self.switch.bridge,
                wanted.len(),
                self.tablets.len(),
                bundle.len(),
                began.elapsed().as_millis()
            )?;
        }
    }

    fn show(mut self) -> Result<()> {
        let (_, tablets) = ask::tablets(&self.layout, &self.cluster, PATIENCE)?;
        self.tablets = tablets.into_iter().map(|tablet| (tablet.block.start(), tablet)).collect();
        let (present, wanted) = (self.present()?, self.wanted()?);
        let server_at = |way: &Way| {
            let attached = self.switch.ports.iter().find(|attached| attached.port == way.port);
            attached.map_or_else(
                || format!("port {}", way.port.0),
                |found| format!("metadata-{}", found.server.0),
            )
        };
        for (block, way) in &present {
            let note = match wanted.get(block) {
                Some(right) if right == way => String::new(),
                Some(right) => format!("  WRONG: should lead to {}", server_at(right)),
                None => "  WRONG: should not be there".to_owned(),
            };
            say!("{block:<22} {}{note}", server_at(way))?;
        }
        let missing: Vec<&Block> = wanted.keys().filter(|block| !present.contains_key(block)).collect();
        for block in &missing {
            say!("{block:<22} {}  MISSING", server_at(&wanted[block]))?;
        }
        if present == wanted {
            say!("{} entries for {} tablets: as they should be", present.len(), self.tablets.len())?;
            return Ok(());
        }
        bail!("the switch does not have what it should; `bearing network follow` keeps it so")
    }

    fn take(&mut self, changes: RegisterChanges) -> Result<()> {
        self.version = changes.version;
        for register in &changes.present {
            let tablet = ask::postcard_tablet(&register.value)?;
            self.tablets.insert(tablet.block.start(), tablet);
        }
        Ok(())
    }

    /// What the switch shall have. Positions of servers that no port leads to have no entry: their clients
    /// ask by their maps.
    fn wanted(&self) -> Result<BTreeMap<Block, Way>> {
        let ports = &self.switch.ports;
        let output = |server: ServerId| {
            let attached = ports.iter().find(|attached| attached.server == server);
            attached.map_or(Output::Up, |attached| Output::Port(attached.port))
        };
        let starts = self.tablets.values().map(|tablet| (tablet.block.start(), output(tablet.owner)));
        let pieces = Pieces::new(starts).context("the registers of the tablets do not cover the ring")?;
        let macs = ports.iter().map(|attached| (attached.port, attached.mac)).collect();
        let wanted = ways(&compressed(&pieces), &macs);
        if wanted.len() > self.switch.budget {
            bail!(
                "{} entries are needed for {} tablets, and the switch has room for {}; nothing was changed. Raise --budget if it has more",
                wanted.len(),
                self.tablets.len(),
                self.switch.budget
            );
        }
        Ok(wanted)
    }

    fn present(&self) -> Result<BTreeMap<Block, Way>> {
        let filter = format!("cookie={COOKIE:#x}/-1");
        let dump =
            self.ofctl(&["--no-stats", "--no-names", "dump-flows", &self.switch.bridge, &filter], None)?;
        self.requests.parse_dump(&dump).map_err(|error| anyhow!(error))
    }

    fn install(&self, bundle: &[String]) -> Result<()> {
        if !bundle.is_empty() {
            let lines = bundle.join("\n") + "\n";
            self.ofctl(&["--bundle", "add-flows", &self.switch.bridge, "-"], Some(&lines))?;
        }
        Ok(())
    }

    fn ofctl(&self, arguments: &[&str], input: Option<&str>) -> Result<String> {
        let mut command = Command::new("ovs-ofctl");
        command.args(["-O", "OpenFlow13"]).args(arguments);
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.context("run ovs-ofctl (it comes with the package openvswitch-switch)")?;
        if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
            stdin.write_all(text.as_bytes()).context("give ovs-ofctl its commands")?;
        }
        let output = child.wait_with_output().context("wait for ovs-ofctl")?;
        if !output.status.success() {
            bail!(
                "the bridge {} did not take it: {}",
                self.switch.bridge,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_as_it_is_given() {
        let attached: Attached = "3=12,02:00:00:00:00:03".parse().unwrap();
        assert_eq!((attached.server, attached.port, attached.mac.0[5]), (ServerId(3), Port(12), 3));
        for wrong in ["", "3", "3=12", "3=x,02:00:00:00:00:03", "m=1,02:00:00:00:00:03", "3=12,02:00"] {
            assert!(wrong.parse::<Attached>().unwrap_err().contains("such as"), "{wrong}");
        }
    }
}
