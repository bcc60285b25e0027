//! The server's loop with its machine taken out: the same sockets, batches, opening and decoding, and a
//! canned reply that is encoded, sealed and sent the same way. What it reaches is what a metadata server
//! could reach at most.

use crate::server::DaemonFile;
use crate::voice::log_to_stderr;
use anyhow::Result;
use bearing_proto::client::{Answer, Body, EntryView, Handle, LeaseMs, NodeView, Reply, ServerKind};
use bearing_proto::{Message, Sender};
use bearing_server::config::DaemonConfig;
use bearing_server::post::Post;
use bearing_server::{Driver, StartError, run_driver};
use bearing_types::{
    Attributes, Block, Epoch, FileType, Gid, Mode, Mono, NodeId, Now, Position, Sequence, SessionId, Squash,
    Uid, Wall,
};

/// Tablets of a new cluster: their blocks have so many prefix bits.
const TABLET_BITS: u8 = 4;

/// Runs until it is told to stop.
pub fn run(file: &DaemonFile) -> Result<()> {
    log_to_stderr();
    let config = DaemonConfig::read(ServerKind::Metadata, &file.config)?;
    Ok(run_driver(config, |_, _, _| Ok(Canned { asked: Vec::new(), body: stat_body() }))?)
}

struct Canned {
    asked: Vec<(SessionId, Sequence, Position)>,
    body: Body,
}

impl Driver for Canned {
    fn take(&mut self, sender: Sender, _squash: Squash, messages: Vec<Message>, _attachment: Vec<u8>) {
        let Sender::Client(session) = sender else { return };
        for message in messages {
            if let Message::Request(request) = message {
                self.asked.push((session, request.sequence, request.position));
            }
        }
    }

    fn turn(&mut self, _now: Now, post: &mut Post) -> Result<(), StartError> {
        for (session, sequence, position) in self.asked.drain(..) {
            let tablet = Block::around(position, TABLET_BITS);
            let result = Ok(Box::new(self.body.clone()));
            let reply = Reply {
                sequence,
                answer: Answer::Done { tablet, epoch: Epoch(2), result, changed: Vec::new() },
            };
            post.to_session(session, &Message::Reply(reply), None);
        }
        Ok(())
    }

    fn next_wake(&self) -> Option<Mono> {
        None
    }

    fn is_serving(&self) -> bool {
        true
    }

    fn set_clock_off(&mut self, _off: bool) {}

    fn stop(&mut self) -> Result<(), StartError> {
        Ok(())
    }
}

/// An answer to stat as long as a real one.
fn stat_body() -> Body {
    let node = Handle { node: NodeId(500_000), home: Position(0x7bcd_ef01_2345_6789) };
    let time = Wall(1_795_000_000_123_456_789);
    let attributes = Attributes::new(FileType::Regular, Mode::new(0o644), (Uid(0), Gid(0)), time);
    let lease = LeaseMs(300);
    let attributes = Some(NodeView { node, attributes, lease, may_open: true, extended: false });
    Body::Entry(EntryView { node, file_type: FileType::Regular, lease, attributes, directory: None }, None)
}
