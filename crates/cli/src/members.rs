//! `metadata` and `data`: which servers of a kind there are, how one more comes, and how one leaves.
//!
//! What is wanted of a server is in its registers alone; the owners of tablets go by them. So all of this can
//! be done from any host, and may be interrupted anywhere.

use crate::ask;
use crate::disk;
use crate::failure::{Unreachable, Usage};
use crate::process::wait_until;
use crate::report::{Report, supervisor_file};
use crate::target::Directory;
use crate::voice::say;
use anyhow::{Context, Result, anyhow, bail};
use bearing_env::Clock;
use bearing_placement::Tablet;
use bearing_proto::client::{ServerEntry, ServerKind};
use bearing_proto::coordinator::{
    AskCall, DrainRecord, Register, RegisterChanges, SERVERS_PREFIX, TellBody, drain_key, encode_register,
    server_key,
};
use bearing_proto::disk::disk_key;
use bearing_proto::holders::{Held, HolderView, HoldersView};
use bearing_seams::RegisterChange;
use bearing_server::cluster::{Cluster, DaemonName, Layout, Member};
use bearing_server::init;
use bearing_server::members::Members;
use bearing_server::state::DaemonState;
use bearing_types::ServerId;
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  bearing metadata list              which there are, what each has, how far one is that leaves
  bearing metadata add               one more, in a cluster of `bearing up`
  bearing metadata drain 2           it gives all that it has to the others, while they are served
  bearing metadata add 2             it stays after all
  bearing metadata remove 2          once it has nothing any more, or is lost

The same for data servers: `bearing data list` and so on. To a cluster on several hosts servers come with
`bearing join`. Tablets are spread evenly by themselves when a server comes or leaves; chunks stay where they
are until their server leaves.";

/// `metadata` and `data`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum MembersCommand {
    /// Show the servers of this kind, and what each has
    List(List),
    /// Make one more server on this machine, or have one stay that was to leave
    Add(Add),
    /// Have a server leave: all that it has goes to the others, and it is given nothing more
    Drain(One),
    /// Take a server that has nothing any more, or is lost, out of the cluster for good
    Remove(Remove),
}

/// `list`.
#[derive(Args, Debug)]
pub struct List {
    /// Where the cluster lies
    #[command(flatten)]
    pub directory: Directory,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `add`.
#[derive(Args, Debug)]
pub struct Add {
    /// A server that was to leave and shall stay: 4 or metadata-4; without it, a new server is made
    #[arg(value_name = "SERVER")]
    pub which: Option<Which>,
    /// Where the cluster lies
    #[command(flatten)]
    pub directory: Directory,
}

/// `drain`.
#[derive(Args, Debug)]
pub struct One {
    /// The server, by its number or its name: 4 or metadata-4
    #[arg(value_name = "SERVER")]
    pub which: Which,
    /// Where the cluster lies
    #[command(flatten)]
    pub directory: Directory,
}

/// `remove`.
#[derive(Args, Debug)]
pub struct Remove {
    /// The server
    #[command(flatten)]
    pub one: One,
    /// Remove one that is lost although chunks are lost with it
    #[arg(long)]
    pub yes: bool,
}

/// A server as people write it: by its number, or by its name as lists show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    kind: Option<ServerKind>,
    number: u32,
}

impl FromStr for Which {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Which, &'static str> {
        let (kind, number) = match text.split_once('-') {
            Some(("metadata", number)) => (Some(ServerKind::Metadata), number),
            Some(("data", number)) => (Some(ServerKind::Data), number),
            _ => (None, text),
        };
        let number = number.parse().map_err(|_| "a server is a number or a name, such as 4 or metadata-4")?;
        Ok(Which { kind, number })
    }
}

/// Servers answer within this time or not at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// A new server serves within this time.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Runs `metadata` or `data`.
pub fn run(kind: ServerKind, command: &MembersCommand) -> Result<()> {
    let open = |directory: &Directory| Desk::open(kind, directory);
    match command {
        MembersCommand::List(flags) => open(&flags.directory)?.list(flags.json),
        MembersCommand::Add(flags) => match flags.which {
            Some(which) => open(&flags.directory)?.stay(which),
            None => open(&flags.directory)?.make(),
        },
        MembersCommand::Drain(one) => open(&one.directory)?.drain(one.which),
        MembersCommand::Remove(flags) => open(&flags.one.directory)?.remove(flags.one.which, flags.yes),
    }
}

/// The registers of servers, as they were read, and how they are changed.
struct Desk {
    kind: ServerKind,
    layout: Layout,
    cluster: Cluster,
    registers: Vec<Register>,
    members: Members,
}

/// A server, for people.
#[derive(Debug, Serialize)]
struct MemberView {
    server: u32,
    address: SocketAddr,
    state: &'static str,
    answers: bool,
    #[serde(flatten)]
    has: Has,
}

/// What it has.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Has {
    Tablets { owned: usize, copies: usize },
    Chunks { chunks: u64, bytes: u64, alone: u64, used: u64, free: u64 },
}

impl Desk {
    fn open(kind: ServerKind, directory: &Directory) -> Result<Desk> {
        let layout = directory.layout()?;
        let cluster = Cluster::read(&layout.cluster_file())?;
        let call = AskCall::Changes { prefix: SERVERS_PREFIX.to_owned(), since: 0 };
        let answer = ask::ask_registers(&layout, &cluster, call, PATIENCE);
        let answer = answer.map_err(|error| Unreachable(format!("{error:#}; the cluster has to run")))?;
        let TellBody::Registers(RegisterChanges { present, .. }) = answer else {
            bail!("the coordinator answered {answer:?} to a listing")
        };
        let members = Members::read(&present).map_err(|error| anyhow!("the register of a server {error}"))?;
        Ok(Desk { kind, layout, cluster, registers: present, members })
    }

    // --- what is there ---

    fn name(&self, number: u32) -> DaemonName {
        DaemonName { kind: self.kind, number }
    }

    fn find(&self, which: Which) -> Result<(DaemonName, ServerEntry)> {
        if let Some(kind) = which.kind.filter(|kind| *kind != self.kind) {
            let name = DaemonName { kind, number: which.number };
            let (ours, its) = (self.name(1).kind_word(), name.kind_word());
            bail!(Usage(format!("{name} is no {ours} server: `bearing {its}` has the same commands for it")));
        }
        let name = self.name(which.number);
        let entry = self.members.of(self.kind).find(|entry| entry.server == name.server());
        if let Some(entry) = entry {
            return Ok((name, entry.clone()));
        }
        if self.members.drain(name.server()).is_some() {
            bail!("{name} was removed, and its number does not come back");
        }
        let names = self.members.of(self.kind).map(|entry| DaemonName::of(entry.server).to_string());
        let names = names.collect::<Vec<_>>().join(", ");
        bail!(Usage(format!("there is no server {name}; there are {names}")))
    }

    fn tablets(&self) -> Result<Vec<Tablet>> {
        Ok(ask::tablets(&self.layout, &self.cluster, PATIENCE)?.1)
    }

    /// What all metadata servers say of data servers, and what keeps that from being the whole.
    fn holders(&self) -> Result<(Vec<HolderView>, Option<String>)> {
        let metadata: Vec<&ServerEntry> = self.members.of(ServerKind::Metadata).collect();
        let addresses: Vec<SocketAddr> = metadata.iter().map(|entry| entry.address).collect();
        let told = ask::each(&self.layout, &addresses, &AskCall::Holders, PATIENCE);
        let views = told.into_iter().filter_map(|told| match told {
            Ok(TellBody::Holders(view)) => Some(view),
            Ok(_) | Err(_) => None,
        });
        let views: Vec<HoldersView> = views.collect();
        let leaving = self.members.drains.iter().filter(|record| record.removed.is_none());
        let leaving: Vec<ServerId> = leaving.map(|record| record.server).collect();
        let knows = |view: &HoldersView| leaving.iter().all(|server| view.leaving.contains(server));
        let counted: u64 = views.iter().filter(|view| knows(view)).map(|view| view.counted).sum();
        let tablets = self.tablets()?.len();
        let lacking = (counted < tablets as u64)
            .then(|| format!("the chunks of {counted} of {tablets} tablets are counted so far"));
        let mut holders: Vec<HolderView> = Vec::new();
        for holder in views.into_iter().flat_map(|view| view.holders) {
            match holders.iter_mut().find(|known| known.server == holder.server) {
                Some(known) => {
                    known.held.add(holder.held);
                    known.answers |= holder.answers;
                    (known.used, known.free) = (known.used.max(holder.used), known.free.max(holder.free));
                }
                None => holders.push(holder),
            }
        }
        Ok((holders, lacking))
    }

    // --- list ---

    fn list(&self, json: bool) -> Result<()> {
        let (views, lacking) = self.views()?;
        if json {
            say!("{}", serde_json::to_string_pretty(&views)?)?;
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let head = match self.kind {
            ServerKind::Data => vec!["SERVER", "ADDRESS", "STATE", "CHUNKS", "BYTES", "USED", "FREE"],
            _ => vec!["SERVER", "ADDRESS", "STATE", "TABLETS", "COPIES"],
        };
        table.set_header(head);
        for view in &views {
            let state = if view.answers { view.state.to_owned() } else { format!("{}, silent", view.state) };
            let mut row = vec![self.name(view.server).to_string(), view.address.to_string(), state];
            match view.has {
                Has::Tablets { owned, copies } => row.extend([owned.to_string(), copies.to_string()]),
                Has::Chunks { chunks, bytes, used, free, .. } => {
                    row.extend([chunks, bytes, used, free].map(|count| count.to_string()));
                }
            }
            table.add_row(row);
        }
        say!("{table}")?;
        if let Some(lacking) = lacking {
            say!("{lacking}")?;
        }
        Ok(())
    }

    fn views(&self) -> Result<(Vec<MemberView>, Option<String>)> {
        let servers: Vec<&ServerEntry> = self.members.of(self.kind).collect();
        let (tablets, holders, lacking) = match self.kind {
            ServerKind::Data => {
                let (holders, lacking) = self.holders()?;
                (Vec::new(), holders, lacking)
            }
            _ => (self.tablets()?, Vec::new(), None),
        };
        let addresses: Vec<SocketAddr> = servers.iter().map(|entry| entry.address).collect();
        let answers = match self.kind {
            ServerKind::Data => servers.iter().map(|entry| is_answering(&holders, entry.server)).collect(),
            _ => ask::who_answers(&self.layout, &addresses, PATIENCE),
        };
        let views = servers.iter().zip(answers).map(|(entry, answers)| {
            let has = match self.kind {
                ServerKind::Data => chunks_of(&holders, entry.server),
                _ => tablets_of(&tablets, entry.server),
            };
            let leaves = self.members.drain(entry.server).is_some();
            let has_any = match has {
                Has::Tablets { copies, .. } => copies > 0,
                Has::Chunks { chunks, .. } => chunks > 0 || lacking.is_some(),
            };
            let state = match (leaves, has_any) {
                (false, _) => "active",
                (true, true) => "draining",
                (true, false) => "drained",
            };
            let server = DaemonName::of(entry.server).number;
            MemberView { server, address: entry.address, state, answers, has }
        });
        Ok((views.collect(), lacking))
    }

    // --- changes ---

    /// Changes registers that are still as they were read; what was not there is to be absent.
    fn swap(&self, read: &[Register], wanted: Vec<(String, Option<Vec<u8>>)>) -> Result<()> {
        let version =
            |key: &str| read.iter().find(|register| register.key == key).map(|register| register.version);
        let change = |(key, value): (String, Option<Vec<u8>>)| {
            let expected = version(&key);
            RegisterChange::new(key, expected, value)
        };
        let changes = wanted.into_iter().map(change).collect();
        match ask::ask_registers(&self.layout, &self.cluster, AskCall::Swap { changes }, PATIENCE)? {
            TellBody::Swapped(_) => Ok(()),
            _ => bail!("somebody else changed the cluster's servers just now; try again"),
        }
    }

    fn record(&self, server: ServerId) -> DrainRecord {
        let known = self.members.drain(server).copied();
        known.unwrap_or(DrainRecord { server, since: Clock.now().wall, removed: None })
    }

    fn drain(&self, which: Which) -> Result<()> {
        let (name, entry) = self.find(which)?;
        if self.members.drain(entry.server).is_some() {
            return Ok(say!(
                "{name} is to leave already; `bearing {} list` says how far it is",
                name.kind_word()
            )?);
        }
        let stays =
            |other: &&ServerEntry| other.server != entry.server && self.members.drain(other.server).is_none();
        let left = self.members.of(self.kind).filter(stays).count();
        let copies = usize::from(match self.kind {
            ServerKind::Data => self.cluster.data_copies,
            _ => self.cluster.metadata_copies,
        });
        if left < copies {
            bail!(
                "without {name} there are {left} {} servers, and the cluster keeps {copies} copies: add another one first",
                name.kind_word()
            );
        }
        self.swap(
            &self.registers,
            vec![(drain_key(entry.server), Some(encode_register(&self.record(entry.server))))],
        )?;
        let word = name.kind_word();
        Ok(say!("{name} gives what it has to the others; `bearing {word} list` says how far it is")?)
    }

    fn stay(&self, which: Which) -> Result<()> {
        let (name, entry) = self.find(which)?;
        if self.members.drain(entry.server).is_none() {
            return Ok(say!("{name} is active")?);
        }
        self.swap(&self.registers, vec![(drain_key(entry.server), None)])?;
        Ok(say!("{name} stays")?)
    }

    // --- a new server ---

    fn runs_here(&self) -> bool {
        Report::read(&supervisor_file(&self.layout)).is_some_and(|report| report.is_alive())
    }

    fn make(&self) -> Result<()> {
        let word = self.name(1).kind_word();
        if !self.runs_here() {
            bail!(Usage(format!(
                "only in a cluster that `bearing up` runs servers are made so; to one on several hosts they come with `bearing token` and `bearing \
                 join`. Give the number of a {word} server that is to leave, and it stays"
            )));
        }
        let name = self.name(self.members.next_number(self.kind));
        let like = self.members.of(self.kind).next().context("find a server of the kind")?;
        let like_name = DaemonName::of(like.server);
        let address = init::add_daemon(&self.layout, name, like_name, like.address.ip())?;
        let entry = ServerEntry { server: name.server(), kind: self.kind, address };
        self.swap(&self.registers, vec![(server_key(entry.server), Some(encode_register(&entry)))])?;
        let mut cluster = self.cluster.clone();
        let member = Member { number: name.number, address };
        match self.kind {
            ServerKind::Data => cluster.data.push(member),
            _ => cluster.metadata.push(member),
        }
        init::rewrite(&self.layout, &cluster)?;
        let serves = || {
            let state = DaemonState::read(&self.layout.daemon(name));
            state.is_some_and(|state| state.is_alive() && state.state.is_serving())
        };
        if !wait_until(Instant::now() + START_PATIENCE, serves) {
            bail!(
                "{name} is made, and does not serve after {} s; see {}",
                START_PATIENCE.as_secs(),
                self.layout.daemon_log(name).display()
            );
        }
        Ok(say!("{name} serves at {address}")?)
    }

    // --- a server that is gone ---

    fn remove(&self, which: Which, yes: bool) -> Result<()> {
        let (name, entry) = self.find(which)?;
        match self.kind {
            ServerKind::Data => self.refuse_if_chunks_are_there(name, &entry, yes)?,
            _ => self.refuse_if_tablets_are_there(name, &entry)?,
        }
        let disk = disk_key(entry.server);
        let read = AskCall::Read { key: disk.clone() };
        let registered = ask::ask_registers(&self.layout, &self.cluster, read, PATIENCE)?;
        let removed = DrainRecord { removed: Some(Clock.now().wall), ..self.record(entry.server) };
        let mut changes = vec![
            (server_key(entry.server), None),
            (drain_key(entry.server), Some(encode_register(&removed))),
        ];
        let mut known = self.registers.clone();
        if let TellBody::Register(Some(register)) = registered {
            known.push(register);
            changes.push((disk, None));
        }
        self.swap(&known, changes)?;
        let directory = self.layout.daemon(name);
        if !self.runs_here() {
            return Ok(say!("{name} is removed; stop it on its host if it runs")?);
        }
        let mut cluster = self.cluster.clone();
        cluster.metadata.retain(|member| self.kind != ServerKind::Metadata || member.number != name.number);
        cluster.data.retain(|member| self.kind != ServerKind::Data || member.number != name.number);
        init::rewrite(&self.layout, &cluster)?;
        let gone = || DaemonState::read(&directory).is_none_or(|state| !state.is_alive());
        if !wait_until(Instant::now() + START_PATIENCE, gone) {
            bail!("{name} is removed, and still runs; see {}", self.layout.daemon_log(name).display());
        }
        Ok(say!("{name} is removed; what is left of it in {} may go", directory.display())?)
    }

    fn refuse_if_tablets_are_there(&self, name: DaemonName, entry: &ServerEntry) -> Result<()> {
        let tablets = self.tablets()?;
        let answers = ask::who_answers(&self.layout, &[entry.address], PATIENCE) == [true];
        let Has::Tablets { owned, copies } = tablets_of(&tablets, entry.server) else { return Ok(()) };
        let leaves = self.members.drain(entry.server).is_some();
        match (answers, leaves) {
            (true, false) => bail!(
                "{name} runs and is to stay (it owns {owned} tablets and has a copy of {copies}): `bearing metadata drain {}` first",
                name.number
            ),
            (true, true) if copies > 0 => {
                bail!("{name} still owns {owned} tablets and has a copy of {copies}; try again in a while")
            }
            (true, true) => Ok(()),
            (false, _) => disk::refuse_if_needed(name, &tablets),
        }
    }

    fn refuse_if_chunks_are_there(&self, name: DaemonName, entry: &ServerEntry, yes: bool) -> Result<()> {
        let (holders, lacking) = self.holders()?;
        let answers = is_answering(&holders, entry.server);
        let Held { chunks, bytes, alone } = held_by(&holders, entry.server);
        if answers && self.members.drain(entry.server).is_none() {
            bail!(
                "{name} runs and is to stay (it has {chunks} chunks, {bytes} bytes): `bearing data drain {}` first",
                name.number
            );
        }
        if let Some(lacking) = lacking {
            bail!("{lacking}, so what {name} has is not known; try again in a few seconds");
        }
        if answers && chunks > 0 {
            bail!("{name} still has {chunks} chunks, {bytes} bytes; try again in a while");
        }
        if alone > 0 && !yes {
            bail!(
                "{alone} chunks have no copy but on {name}, which is silent: their bytes are lost for good with it. Start it again if it can be, or                  add --yes to have it removed"
            );
        }
        Ok(())
    }
}

fn tablets_of(tablets: &[Tablet], server: ServerId) -> Has {
    let owned = tablets.iter().filter(|tablet| tablet.owner == server).count();
    let has = |tablet: &&Tablet| tablet.members.contains(&server) || tablet.learner == Some(server);
    Has::Tablets { owned, copies: tablets.iter().filter(has).count() }
}

fn held_by(holders: &[HolderView], server: ServerId) -> Held {
    holders.iter().find(|holder| holder.server == server).map_or(Held::default(), |holder| holder.held)
}

fn is_answering(holders: &[HolderView], server: ServerId) -> bool {
    holders.iter().any(|holder| holder.server == server && holder.answers)
}

fn chunks_of(holders: &[HolderView], server: ServerId) -> Has {
    let Held { chunks, bytes, alone } = held_by(holders, server);
    let space = holders.iter().find(|holder| holder.server == server);
    let (used, free) = space.map_or((0, 0), |holder| (holder.used, holder.free));
    Has::Chunks { chunks, bytes, alone, used, free }
}
