//! The data server's daemon: the chunk logs around the data machine.
//!
//! A turn steps the machine with all that came in and all that was done on the chunk logs meanwhile, which
//! work on threads of their own.

use crate::StartError;
use crate::chunk_threads::ChunkThreads;
use crate::cluster::{COORDINATOR, DaemonName};
use crate::config::DaemonConfig;
use crate::contacts::MACHINE_ASKS;
use crate::formats::CHUNK_CONTENTS;
use crate::metrics::{self, Page, Requests, of_data};
use crate::post::Post;
use crate::shell::{self, Driver};
use bearing_data::{Claim, Claimed, Command, Config, DataServer, Event, Note, Start};
use bearing_engines_local::FileChunkLog;
use bearing_env::{Clock, Waker, carried_by, interface_of, random_u64};
use bearing_proto::coordinator::Told;
use bearing_proto::data::{Carried, DataCall};
use bearing_proto::kinds::DataKind;
use bearing_proto::{Message, Sender};
use bearing_seams::{ChunkLog, DiskLabel};
use bearing_types::{DiskId, Mono, Now, Squash};
use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How often a full disk is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A disk is full no more when this part of it is free.
const FULL_BELOW: u64 = 64;

/// Runs a data server until it is told to stop.
pub fn run_data(config: DaemonConfig) -> Result<(), StartError> {
    shell::run(config, |config, keys, waker| {
        let mut log = FileChunkLog::open(&config.directory.join("chunks"), &CHUNK_CONTENTS)
            .map_err(StartError::engine("open the chunk logs"))?;
        let chunks = log.chunks().map_err(StartError::engine("list the chunks"))?;
        tracing::info!("{} chunks are here", chunks.len());
        let start = Start { server: config.daemon.name.server(), first_id: random_u64() >> 1 };
        let limits = Config {
            copy_bytes_per_second: config.data.copy_bytes_per_second,
            scrub_bytes_per_second: config.data.scrub_bytes_per_second,
            scrub_interval: Duration::from_secs(config.data.scrub_every_s),
            filesystem: filesystem_of(&config.directory),
            ..Config::standard()
        };
        let server = start.server;
        let disk = log.disk().map_err(StartError::engine("read the disk id of the chunks"))?;
        let machine = DataServer::new(start, limits, keys.grants().clone(), chunks);
        let claim = Claim::new(server, disk, random_disk_id(), MACHINE_ASKS | random_u64() >> 2);
        Ok(ChunkKeeper {
            machine,
            claiming: Some(Claiming { claim, log, told: Vec::new() }),
            threads: None,
            waker,
            name: config.daemon.name,
            interface: interface_of(config.daemon.address.ip()),
            events: VecDeque::new(),
            commands: Vec::new(),
            disk_failure: None,
            full: None,
            requests: Requests::new(DataKind::ALL.iter().map(|kind| kind.name()).collect()),
        })
    })
}

/// Tells the filesystem of a directory from all others, also of other machines: servers on one machine share
/// a boot, and those on one filesystem its device number.
fn filesystem_of(directory: &Path) -> Option<u64> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot: String = boot.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    let device = fs::metadata(directory).ok()?.dev();
    Some(u64::from_str_radix(&boot, 16).ok()? ^ device.rotate_left(32))
}

fn carried(interface: &str) -> Option<Event> {
    let (received, sent) = carried_by(interface)?;
    Some(Event::Carried(Carried { sent, received }))
}

/// An id that no disk has.
pub fn random_disk_id() -> DiskId {
    DiskId(u128::from(random_u64()) << 64 | u128::from(random_u64()))
}

/// As long as it is not known whether this is the right disk: nobody gets an answer.
struct Claiming {
    claim: Claim,
    log: FileChunkLog,
    /// What the coordinator said meanwhile.
    told: Vec<Told>,
}

struct ChunkKeeper {
    machine: DataServer,
    claiming: Option<Claiming>,
    /// The chunk logs, once their disk is known to be the right one.
    threads: Option<ChunkThreads>,
    waker: Waker,
    name: DaemonName,
    /// The network interface by which this server is reached.
    interface: Option<String>,
    events: VecDeque<Event>,
    commands: Vec<Command>,
    disk_failure: Option<String>,
    /// The disk was full when something was to be appended, and when it was looked at last, whether it still
    /// is.
    full: Option<Mono>,
    requests: Requests,
}

impl Driver for ChunkKeeper {
    fn take(&mut self, sender: Sender, _squash: Squash, messages: Vec<Message>, attachment: Vec<u8>) {
        if let Some(claiming) = &mut self.claiming {
            let told = messages.into_iter().filter_map(|message| match message {
                Message::Told(told) if sender == Sender::Server(COORDINATOR) => Some(told),
                _ => None,
            });
            return claiming.told.extend(told);
        }
        let mut attachment = Some(attachment);
        for message in messages {
            let event = match message {
                Message::Data(request) => {
                    if request.call == DataCall::Counters {
                        let told = self.interface.as_deref().and_then(carried);
                        self.events.extend(told);
                    }
                    let kind = request.call.kind() as usize;
                    self.requests.begin(Clock.mono(), (metrics::number_of(sender), request.id), kind);
                    // One attachment per packet: it belongs to the first request.
                    Event::Request {
                        from: sender,
                        request,
                        attachment: attachment.take().unwrap_or_default(),
                    }
                }
                Message::DataReply(reply) => {
                    let attachment = attachment.take().unwrap_or_default();
                    Event::Reply { from: sender, reply, attachment }
                }
                _ => continue,
            };
            self.events.push_back(event);
        }
    }

    fn turn(&mut self, now: Now, post: &mut Post) -> Result<(), StartError> {
        if self.claiming.is_some() {
            self.claim_disk(now.mono, post)?;
        }
        let Some(threads) = &mut self.threads else { return Ok(()) };
        threads
            .done(|event| self.events.push_back(event))
            .map_err(StartError::engine("use the chunk logs"))?;
        if self.machine.next_wake().is_some_and(|wake| wake <= now.mono) {
            self.events.push_back(Event::Tick);
        }
        while let Some(event) = self.events.pop_front() {
            // How long the disk took shows only by the clock itself.
            self.machine.step(Clock.now(), event, &mut self.commands);
            for command in std::mem::take(&mut self.commands) {
                self.carry_out(now.mono, command, post);
            }
        }
        self.look_for_space(now.mono);
        Ok(())
    }

    fn next_wake(&self) -> Option<Mono> {
        match &self.claiming {
            Some(claiming) => Some(claiming.claim.next_wake()),
            None => self.machine.next_wake(),
        }
    }

    fn is_serving(&self) -> bool {
        self.threads.is_some()
    }

    fn has_own_disk(&self) -> bool {
        self.threads.is_some()
    }

    fn disk_failure(&self) -> Option<&str> {
        self.disk_failure.as_deref()
    }

    fn disk_full(&self) -> Option<String> {
        let words = "the disk is full: what is there is read, but nothing is written until some of it is freed. Free some space on it";
        self.full.map(|_| words.to_owned())
    }

    fn show(&mut self, _now: Mono, page: &mut Page) {
        self.requests.show(page, &metrics::DATA_REQUESTS, &metrics::DATA_REQUEST_SECONDS);
        of_data::show_counters(page, &self.machine.counters());
        of_data::show_census(page, &self.machine.census());
        // A disk that cannot be asked any more is shown as failed.
        let (used, free) = self.space().unwrap_or_default();
        of_data::show_disk(page, used, free, self.disk_failure.is_some());
    }

    fn set_clock_off(&mut self, off: bool) {
        self.events.push_back(Event::ClockOff(off));
    }

    fn stop(&mut self) -> Result<(), StartError> {
        // What was not synced was promised to nobody.
        Ok(())
    }
}

impl ChunkKeeper {
    /// Finds out whether this is the right disk.
    fn claim_disk(&mut self, now: Mono, post: &mut Post) -> Result<(), StartError> {
        let Some(Claiming { claim, log, told }) = &mut self.claiming else { return Ok(()) };
        for told in std::mem::take(told) {
            match claim.take(&told) {
                Claimed::Nothing => {}
                Claimed::SetDisk(disk) => {
                    log.set_disk(disk).map_err(StartError::engine("give the chunks a disk id"))?;
                    claim.is_labelled(disk);
                }
                Claimed::Ours => return self.start_threads(),
                Claimed::Refused(reason) => return Err(self.wrong_disk(&reason)),
            }
        }
        if let Some(ask) = claim.ask(now) {
            post.to_server(COORDINATOR, &Message::Ask(ask), None);
        }
        Ok(())
    }

    /// The disk is the right one.
    fn start_threads(&mut self) -> Result<(), StartError> {
        let Some(Claiming { log, .. }) = self.claiming.take() else { return Ok(()) };
        let waker = self.waker.clone();
        let threads =
            ChunkThreads::start(log, move || waker.wake()).map_err(|error| StartError::Stopped {
                server: self.name.server(),
                reason: format!("no threads could be made for the chunk logs: {error}"),
            })?;
        self.threads = Some(threads);
        Ok(())
    }

    /// Bytes used and bytes free on the device, in that order.
    fn space(&self) -> Option<(u64, u64)> {
        self.threads.as_ref()?.space().ok()
    }

    fn wrong_disk(&self, reason: &str) -> StartError {
        StartError::Refused(format!(
            "{reason}; put that disk back. If it is lost for good, `bearing disk replace {}` says what is lost with it and has this one \
             take its place",
            self.name
        ))
    }

    /// A disk that was full is so until there is a little more than nothing.
    fn look_for_space(&mut self, now: Mono) {
        if self.full.is_none_or(|looked| now.since(looked) < LOOK_EVERY) {
            return;
        }
        let full = self.space().is_some_and(|(used, free)| free < (used + free) / FULL_BELOW);
        self.full = full.then_some(now);
    }

    fn carry_out(&mut self, now: Mono, command: Command, post: &mut Post) {
        match command {
            Command::Ask { to, request, attachment } => {
                post.to_server(to, &Message::Data(request), Some(attachment))
            }
            Command::Answer { to, reply, attachment } => {
                self.requests.end(Clock.mono(), (metrics::number_of(to), reply.id));
                post.answer(to, &Message::DataReply(reply), Some(attachment));
            }
            Command::Log { ticket, command } => {
                if let Some(threads) = &mut self.threads {
                    self.events.extend(threads.begin(ticket, command));
                }
            }
            Command::Note(Note::Step(name)) => tracing::trace!("{name}"),
            Command::Note(note) => {
                tracing::warn!("{note}");
                if matches!(note, Note::DiskFull { .. }) {
                    self.full = Some(now);
                }
                if matches!(note, Note::DiskFailed { .. }) {
                    self.disk_failure = Some(note.to_string());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_one_filesystem_name_the_same_one_and_of_others_another() {
        let place = tempfile::tempdir().unwrap();
        let (one, two) = (place.path().join("one"), place.path().join("two"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&two).unwrap();
        assert_eq!(filesystem_of(&one), filesystem_of(&two));
        assert_ne!(filesystem_of(&one), filesystem_of(Path::new("/proc")));
        assert_eq!(filesystem_of(&place.path().join("none")), None);
    }
}
