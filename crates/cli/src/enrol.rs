//! `enrol`: makes, lists and revokes named enrolments, by which clients get sessions.
//!
//! The secret follows from the cluster key, the name and the rule, so it is nowhere stored but in the file
//! that is given away. The coordinator remembers the names, and which were revoked; servers ask it.

use crate::ask;
use crate::failure::{Unreachable, Usage};
use crate::target::Directory;
use anyhow::{Result, anyhow, bail};
use bearing_env::{Clock, Secret, write_private};
use bearing_proto::coordinator::{
    AskCall, ENROLMENT_PREFIX, EnrolmentRecord, RegisterChanges, TellBody, decode_register, encode_register,
    enrolment_key, enrolment_of_key,
};
use bearing_proto::enrolment::{Enrolment, EnrolmentName, squash_text};
use bearing_proto::join::is_token;
use bearing_proto::keys::{Key, ServerKeys};
use bearing_server::cluster::{Cluster, Layout};
use bearing_types::{Gid, Squash, Uid};
use clap::Args;
use comfy_table::{Table, presets};
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  bearing enrol laptops --root-squash --out laptops.key   a secret for clients whose root is nobody
  bearing mount 10.0.0.5:9000 /mnt --secret laptops.key   used by one of them
  bearing enrol --list
  bearing enrol --revoke laptops

Run it in the cluster's directory, while the cluster runs. A revoked name stays revoked.";

/// `enrol`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Enrol {
    /// Its name: letters, digits, '.', '_', '-'
    #[arg(conflicts_with_all = ["list", "revoke"])]
    pub name: Option<String>,
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Users with id 0 become nobody
    #[arg(long, requires = "name")]
    pub root_squash: bool,
    /// All users become nobody
    #[arg(long, requires = "name", conflicts_with = "root_squash")]
    pub all_squash: bool,
    /// The user that stands for squashed ones
    #[arg(long, value_name = "UID", default_value_t = bearing_types::Squash::NOBODY)]
    pub anon_uid: u32,
    /// The group that stands for squashed ones
    #[arg(long, value_name = "GID", default_value_t = bearing_types::Squash::NOBODY)]
    pub anon_gid: u32,
    /// Write the secret into a new file instead of to the terminal
    #[arg(long, value_name = "FILE", requires = "name")]
    pub out: Option<PathBuf>,
    /// Show all enrolments
    #[arg(long, conflicts_with = "revoke")]
    pub list: bool,
    /// Refuse an enrolment from now on, and for ever
    #[arg(long, value_name = "NAME")]
    pub revoke: Option<String>,
}

/// How long the coordinator may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs `enrol`.
pub fn enrol(flags: &Enrol) -> Result<()> {
    let layout = flags.directory.layout()?;
    let cluster = Cluster::read(&layout.cluster_file())?;
    let office = Office { layout: &layout, cluster: &cluster };
    match (&flags.name, &flags.revoke) {
        _ if flags.list => office.list(),
        (_, Some(name)) => office.revoke(&parse(name)?),
        (Some(name), None) => office.make(&parse(name)?, flags),
        (None, None) => bail!(Usage("give a name, or --list, or --revoke NAME".to_owned())),
    }
}

fn parse(name: &str) -> Result<EnrolmentName> {
    let name = EnrolmentName::new(name).filter(|name| !name.is_default());
    name.ok_or_else(|| {
        anyhow!(Usage(
            "a name has letters, digits, '.', '_' and '-', 63 at most, and at least one".to_owned()
        ))
    })
}

struct Office<'a> {
    layout: &'a Layout,
    cluster: &'a Cluster,
}

impl Office<'_> {
    fn ask(&self, call: AskCall) -> Result<TellBody> {
        ask::ask_registers(self.layout, self.cluster, call, PATIENCE).map_err(|error| {
            anyhow!(Unreachable(format!("{error:#}; the cluster has to run: start it with `bearing up`")))
        })
    }

    fn read(&self, name: &EnrolmentName) -> Result<Option<(u64, EnrolmentRecord)>> {
        match self.ask(AskCall::Read { key: enrolment_key(name) })? {
            TellBody::Register(None) => Ok(None),
            TellBody::Register(Some(register)) => {
                let record = decode_register(&register.value);
                let record = record.map_err(|error| anyhow!("the register of {name} {error}"))?;
                Ok(Some((register.version, record)))
            }
            other => bail!("the coordinator answered {other:?} to a question for one register"),
        }
    }

    fn write(&self, name: &EnrolmentName, expected: Option<u64>, record: &EnrolmentRecord) -> Result<()> {
        let value = Some(encode_register(record));
        match self.ask(AskCall::swap(enrolment_key(name), expected, value))? {
            TellBody::Swapped(_) => Ok(()),
            TellBody::Conflict { .. } => {
                bail!("somebody else changed the enrolment {name} just now; look again")
            }
            other => bail!("the coordinator answered {other:?} to a change"),
        }
    }

    fn make(&self, name: &EnrolmentName, flags: &Enrol) -> Result<()> {
        if is_token(name) {
            bail!(Usage(format!(
                "{name} is a name of a token; `bearing token` makes one, or take another name"
            )));
        }
        let squash = squash_of(flags);
        match self.read(name)? {
            Some((_, EnrolmentRecord { revoked: Some(_), .. })) => {
                bail!("the enrolment {name} was revoked, and stays so: take another name")
            }
            Some((_, known)) if known.squash != squash => bail!(
                "there is an enrolment {name} already, with squash {}; take another name, or revoke it",
                squash_text(known.squash)
            ),
            // The same again: whoever lost the file gets it once more.
            Some(_) => {}
            None => {
                self.write(name, None, &EnrolmentRecord { squash, made: Clock.now().wall, revoked: None })?
            }
        }
        let key = |path| Secret::read(path).map(|secret| Key::new(*secret.bytes()));
        let keys = ServerKeys::new(&key(&self.layout.cluster_key())?, key(&self.layout.enrolment_key())?);
        let secret = keys.enrolment(name, squash);
        let text = Enrolment { name: name.clone(), squash, secret }.to_text();
        match &flags.out {
            Some(path) => {
                write_private(path, &text)?;
                println!("wrote {}; a client uses it with --secret {}", path.display(), path.display());
            }
            None => print!("{text}"),
        }
        Ok(())
    }

    fn revoke(&self, name: &EnrolmentName) -> Result<()> {
        let now = Clock.now().wall;
        // One that nobody asked to be made can be revoked too: its secret follows from its name.
        let (expected, record) = match self.read(name)? {
            Some((_, EnrolmentRecord { revoked: Some(_), .. })) => {
                println!("{name} was revoked before");
                return Ok(());
            }
            Some((version, record)) => (Some(version), EnrolmentRecord { revoked: Some(now), ..record }),
            None => bail!("there is no enrolment {name}; `bearing enrol --list` shows all"),
        };
        self.write(name, expected, &record)?;
        println!("revoked {name}: servers refuse it within a second; its sessions end within 30 s");
        Ok(())
    }

    fn list(&self) -> Result<()> {
        let call = AskCall::Changes { prefix: ENROLMENT_PREFIX.to_owned(), since: 0 };
        let TellBody::Registers(RegisterChanges { present: registers, .. }) = self.ask(call)? else {
            bail!("the coordinator gave no list")
        };
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(["ENROLMENT", "SQUASH", "STATE"]);
        table.add_row(["(default)", "none", "good: secrets/enrolment.key"]);
        for register in &registers {
            let record: EnrolmentRecord = decode_register(&register.value)
                .map_err(|error| anyhow!("the register {} {error}", register.key))?;
            let Some(name) = enrolment_of_key(&register.key) else { continue };
            let state = match (record.revoked, is_token(&name)) {
                (None, false) => "good",
                (Some(_), false) => "revoked",
                (None, true) => "a token for `bearing join`",
                (Some(_), true) => "a token that was used",
            };
            table.add_row([name.as_str(), &squash_text(record.squash), state]);
        }
        println!("{table}");
        Ok(())
    }
}

fn squash_of(flags: &Enrol) -> Squash {
    let (uid, gid) = (Uid(flags.anon_uid), Gid(flags.anon_gid));
    match (flags.all_squash, flags.root_squash) {
        (true, _) => Squash::All { uid, gid },
        (false, true) => Squash::Root { uid, gid },
        (false, false) => Squash::None,
    }
}
