//! `disk`: which disk a server is registered with, and how it goes on with another one when that is lost.

use crate::ask;
use crate::failure::Usage;
use crate::target::Directory;
use anyhow::{Context, Result, anyhow, bail};
use bearing_engines_local::RedbCoordinator;
use bearing_placement::Tablet;
use bearing_proto::client::ServerKind;
use bearing_proto::coordinator::{AskCall, Register, TABLET_PREFIX, TellBody, decode_register};
use bearing_proto::disk::{DiskRecord, disk_key};
use bearing_seams::{Coordinator, RegisterChange, Swap};
use bearing_server::cluster::{Cluster, DaemonName, Layout};
use bearing_server::init::registers_file;
use bearing_server::state::DaemonState;
use clap::{Args, Subcommand};
use std::time::Duration;

/// `disk`.
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Have another disk take the place of a server's that is lost for good
    #[command(after_help = DISK_REPLACE_HELP)]
    Replace(DiskReplace),
}

const DISK_REPLACE_HELP: &str = "\
A server serves from the disk that it was first started on, and from no other: what
lies in its directory has an id, and so has the coordinator. When a server's disk is
lost, put an empty one in its place, run this command, and start the server again.

Of a data server's disk, chunks that have a copy on another server are copied again from
there; chunks that were on the lost disk alone are lost. Of a metadata server's disk,
other servers have copies (`bearing up --metadata-copies`), and serve what it owned;
it is refused as long as the lost disk may be all that is left of a tablet.

Examples:
  bearing disk replace data-1              says what is lost, and changes nothing
  bearing disk replace data-1 --yes";

/// `disk replace`.
#[derive(Args, Clone, Debug)]
pub struct DiskReplace {
    /// The server, such as data-1
    pub server: String,
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Do it; without this, only what is lost is said
    #[arg(long)]
    pub yes: bool,
}

/// The coordinator answers within this time or not at all.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs `disk`.
pub fn run(command: &DiskCommand) -> Result<()> {
    match command {
        DiskCommand::Replace(flags) => replace(flags),
    }
}

fn replace(flags: &DiskReplace) -> Result<()> {
    let layout = flags.directory.layout()?;
    let cluster = Cluster::read(&layout.cluster_file())?;
    let name = find(&cluster, &flags.server)?;
    if DaemonState::read(&layout.daemon(name)).is_some_and(|state| state.is_alive()) {
        bail!("{name} runs; stop it first: as long as it runs on its disk, that is not lost");
    }
    let registers = Registers::of(&layout, &cluster)?;
    let Some(register) = registers.read(name)? else {
        println!("no disk is registered for {name}; it takes what lies in its directory when it is started");
        return Ok(());
    };
    let record: DiskRecord =
        decode_register(&register.value).map_err(|error| anyhow!("{} {error}", register.key))?;
    if name.kind == ServerKind::Metadata {
        refuse_if_needed(name, &registers.tablets()?)?;
    }
    if !flags.yes && name.kind == ServerKind::Metadata {
        bail!(
            "{name} is registered with disk {}. No tablet counts on that any more: others have all that was on it, and {name} learns again what it \
             shall have a copy of. Add --yes to have the disk replaced",
            record.disk
        );
    }
    if !flags.yes {
        bail!(
            "{name} is registered with disk {}. When it is replaced, all that only that disk holds is lost for good: bytes of files whose \
             other copies are missing or damaged, and with one copy of data all bytes there. What has a copy on another server is copied \
             again from there. Add --yes to have it replaced",
            record.disk
        );
    }
    registers.remove(name, register.version)?;
    println!("disk {} is forgotten; {name} takes what lies in its directory when it is started", record.disk);
    Ok(())
}

/// A metadata server, or its disk, is not given up while a tablet counts on it.
pub fn refuse_if_needed(name: DaemonName, tablets: &[Tablet]) -> Result<()> {
    let server = name.server();
    let alone: Vec<&Tablet> = tablets.iter().filter(|tablet| tablet.members == [server]).collect();
    if !alone.is_empty() {
        let blocks: Vec<String> = alone.iter().map(|tablet| tablet.block.to_string()).collect();
        bail!(Usage(format!(
            "{name} has the only copy of {} of {} tablets, so no other disk can take its place: {}. Put the disk back that it ran on, or a copy of it \
             that was made after {name} last stopped",
            alone.len(),
            tablets.len(),
            blocks.join(" ")
        )));
    }
    let counts = |tablet: &&Tablet| tablet.members.contains(&server) || tablet.learner == Some(server);
    let counting = tablets.iter().filter(counts).count();
    if counting > 0 {
        bail!(
            "{counting} tablets still count on {name}'s disk. Others go on without it a moment after it stops: start the cluster with `bearing up`, \
             which runs without {name}, and try again"
        );
    }
    Ok(())
}

fn find(cluster: &Cluster, wanted: &str) -> Result<DaemonName> {
    let names: Vec<DaemonName> = cluster.daemons().into_iter().map(|daemon| daemon.name).collect();
    let found = names.iter().find(|name| name.to_string() == wanted).copied();
    found.ok_or_else(|| {
        let names: Vec<String> = names.iter().map(DaemonName::to_string).collect();
        Usage(format!("there is no server {wanted:?}; there are {}", names.join(", "))).into()
    })
}

/// The coordinator's registers: through the coordinator where it runs, else in its file. (A cluster of which
/// a server refuses its disk may not come up, and then its coordinator does not run.)
enum Registers<'a> {
    Running(&'a Layout, &'a Cluster),
    File(std::cell::RefCell<RedbCoordinator>),
}

impl Registers<'_> {
    fn of<'a>(layout: &'a Layout, cluster: &'a Cluster) -> Result<Registers<'a>> {
        let directory = layout.daemon(DaemonName::COORDINATOR);
        let file = registers_file(&directory);
        let runs = DaemonState::read(&directory).is_some_and(|state| state.is_alive());
        if runs || !file.exists() {
            return Ok(Registers::Running(layout, cluster));
        }
        Ok(Registers::File(RedbCoordinator::open(&file).context("open the coordinator's registers")?.into()))
    }

    fn read(&self, name: DaemonName) -> Result<Option<Register>> {
        let key = disk_key(name.server());
        match self {
            Registers::Running(layout, cluster) => {
                match ask::ask_registers(layout, cluster, AskCall::Read { key }, PATIENCE)? {
                    TellBody::Register(register) => Ok(register),
                    other => bail!("the coordinator answered {other:?} to a question for a register"),
                }
            }
            Registers::File(file) => {
                let entry = file.borrow_mut().read(&key)?;
                Ok(entry.map(|entry| Register { key: entry.key, version: entry.version, value: entry.value }))
            }
        }
    }

    fn tablets(&self) -> Result<Vec<Tablet>> {
        match self {
            Registers::Running(layout, cluster) => Ok(ask::tablets(layout, cluster, PATIENCE)?.1),
            Registers::File(file) => {
                let found = file.borrow_mut().changes(TABLET_PREFIX, 0)?.found;
                found.present.iter().map(|entry| ask::postcard_tablet(&entry.value)).collect()
            }
        }
    }

    fn remove(&self, name: DaemonName, version: u64) -> Result<()> {
        let (key, expected) = (disk_key(name.server()), Some(version));
        let removed = match self {
            Registers::Running(layout, cluster) => {
                let call = AskCall::swap(key, expected, None);
                matches!(ask::ask_registers(layout, cluster, call, PATIENCE)?, TellBody::Swapped(_))
            }
            Registers::File(file) => {
                let removal = [RegisterChange::new(key, expected, None)];
                matches!(file.borrow_mut().swap(&removal)?, Swap::Done(_))
            }
        };
        if removed {
            Ok(())
        } else {
            bail!("somebody else changed the register of {name} just now; try again")
        }
    }
}
