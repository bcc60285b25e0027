//! The data server's daemon: the chunk logs around the data machine.

use crate::StartError;
use crate::cluster::{COORDINATOR, DaemonName};
use crate::config::DaemonConfig;
use crate::contacts::MACHINE_ASKS;
use crate::formats::CHUNK_CONTENTS;
use crate::metrics::{self, Page, Requests, of_data};
use crate::post::Post;
use crate::shell::{self, Driver};
use bearing_data::{Claim, Claimed, Command, Config, DataServer, Event, Note, Start};
use bearing_engines_local::FileChunkLog;
use bearing_env::{Clock, carried_by, interface_of, random_u64};
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
/// It goes on so long before what there is to send is sent: scans of large chunks take seconds.
const TURN_MAX: Duration = Duration::from_millis(20);

/// Runs a data server until it is told to stop.
pub fn run_data(config: DaemonConfig) -> Result<(), StartError> {
    shell::run(config, |config, keys, _| {
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
            log,
            claim: Some(claim),
            told: Vec::new(),
            name: config.daemon.name,
            interface: interface_of(config.daemon.address.ip()),
            events: Backlog::default(),
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

/// So much may wait until a slow disk is through with what came before. What comes beyond it is dropped: all
/// that is sent here is sent again.
const BACKLOG_BYTES_MAX: u64 = 256 << 20;

/// What a message takes besides its attachment, roughly.
const MESSAGE_BYTES: u64 = 256;

/// What came and was not looked at yet.
#[derive(Default)]
struct Backlog {
    events: VecDeque<Event>,
    bytes: u64,
}

impl Backlog {
    fn bytes_of(event: &Event) -> u64 {
        match event {
            Event::Request { attachment, .. } | Event::Reply { attachment, .. } => {
                MESSAGE_BYTES + attachment.len() as u64
            }
            // The machine's own: there are few.
            _ => 0,
        }
    }

    fn push(&mut self, event: Event) {
        let bytes = Backlog::bytes_of(&event);
        if bytes == 0 || self.bytes + bytes <= BACKLOG_BYTES_MAX {
            self.bytes += bytes;
            self.events.push_back(event);
        }
    }

    fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.bytes -= Backlog::bytes_of(&event);
        Some(event)
    }
}

struct ChunkKeeper<L> {
    machine: DataServer,
    log: L,
    /// As long as it is not known whether this is the right disk: nobody gets an answer.
    claim: Option<Claim>,
    /// What the coordinator said meanwhile.
    told: Vec<Told>,
    name: DaemonName,
    /// The network interface by which this server is reached.
    interface: Option<String>,
    events: Backlog,
    commands: Vec<Command>,
    disk_failure: Option<String>,
    /// The disk was full when something was to be appended, and when it was looked at last, whether it still
    /// is.
    full: Option<Mono>,
    requests: Requests,
}

impl<L: ChunkLog + DiskLabel> Driver for ChunkKeeper<L> {
    fn take(&mut self, sender: Sender, _squash: Squash, messages: Vec<Message>, attachment: Vec<u8>) {
        if self.claim.is_some() {
            let told = messages.into_iter().filter_map(|message| match message {
                Message::Told(told) if sender == Sender::Server(COORDINATOR) => Some(told),
                _ => None,
            });
            return self.told.extend(told);
        }
        let mut attachment = Some(attachment);
        for message in messages {
            let event = match message {
                Message::Data(request) => {
                    if request.call == DataCall::Counters {
                        let told = self.interface.as_deref().and_then(carried);
                        told.into_iter().for_each(|told| self.events.push(told));
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
            self.events.push(event);
        }
    }

    fn turn(&mut self, now: Now, post: &mut Post) -> Result<(), StartError> {
        if self.claim.is_some() {
            return self.claim_disk(now.mono, post);
        }
        if self.machine.next_wake().is_some_and(|wake| wake <= now.mono) {
            self.events.push(Event::Tick);
        }
        let began = Clock.mono();
        // What is left goes on in the next turn: others hear of this server in between.
        while Clock.mono().since(began) < TURN_MAX
            && let Some(event) = self.events.pop()
        {
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
        match &self.claim {
            Some(claim) => Some(claim.next_wake()),
            None if !self.events.events.is_empty() => Some(Mono::ZERO),
            None => self.machine.next_wake(),
        }
    }

    fn is_serving(&self) -> bool {
        self.claim.is_none()
    }

    fn has_own_disk(&self) -> bool {
        self.claim.is_none()
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
        let (used, free) = self.log.space().unwrap_or_default();
        of_data::show_disk(page, used, free, self.disk_failure.is_some());
    }

    fn set_clock_off(&mut self, off: bool) {
        self.events.push(Event::ClockOff(off));
    }

    fn stop(&mut self) -> Result<(), StartError> {
        // What was not synced was promised to nobody.
        Ok(())
    }
}

impl<L: ChunkLog + DiskLabel> ChunkKeeper<L> {
    /// Finds out whether this is the right disk.
    fn claim_disk(&mut self, now: Mono, post: &mut Post) -> Result<(), StartError> {
        for told in std::mem::take(&mut self.told) {
            let Some(claim) = &mut self.claim else { break };
            match claim.take(&told) {
                Claimed::Nothing => {}
                Claimed::SetDisk(disk) => {
                    self.log.set_disk(disk).map_err(StartError::engine("give the chunks a disk id"))?;
                    claim.is_labelled(disk);
                }
                Claimed::Ours => self.claim = None,
                Claimed::Refused(reason) => return Err(self.wrong_disk(&reason)),
            }
        }
        if let Some(ask) = self.claim.as_mut().and_then(|claim| claim.ask(now)) {
            post.to_server(COORDINATOR, &Message::Ask(ask), &[]);
        }
        Ok(())
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
        let full = self.log.space().is_ok_and(|(used, free)| free < (used + free) / FULL_BELOW);
        self.full = full.then_some(now);
    }

    fn carry_out(&mut self, now: Mono, command: Command, post: &mut Post) {
        match command {
            Command::Ask { to, request, attachment } => {
                post.to_server(to, &Message::Data(request), &attachment)
            }
            Command::Answer { to, reply, attachment } => {
                self.requests.end(Clock.mono(), (metrics::number_of(to), reply.id));
                post.answer(to, &Message::DataReply(reply), &attachment);
            }
            Command::Log { ticket, command } => self.events.push(command.run(ticket, &mut self.log)),
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
    use bearing_proto::data::DataRequest;
    use bearing_types::{ChunkId, SessionId};

    #[test]
    fn what_waits_for_a_slow_disk_is_bounded_and_there_is_room_again_behind_it() {
        let request = |id, bytes| Event::Request {
            from: Sender::Client(SessionId(1)),
            request: DataRequest { id, chunk: ChunkId(1), call: DataCall::Ping },
            attachment: vec![0; bytes],
        };
        let mut backlog = Backlog::default();
        for id in 0..100 {
            backlog.push(request(id, 4 << 20));
        }
        backlog.push(Event::Tick);
        assert_eq!((backlog.events.len(), backlog.bytes > BACKLOG_BYTES_MAX), (64, false));
        while backlog.pop().is_some() {}
        assert_eq!(backlog.bytes, 0);
        backlog.push(request(100, 4 << 20));
        assert_eq!(backlog.events.len(), 1);
    }

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
