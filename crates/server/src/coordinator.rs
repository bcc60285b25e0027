//! The coordinator daemon: registers over the wire. What it answers is said in `bearing_proto::coordinator`.

use crate::StartError;
use crate::cluster::COORDINATOR;
use crate::config::DaemonConfig;
use crate::desk::Desk;
use crate::init::registers_file;
use crate::metrics::{self, Page, Requests};
use crate::post::Post;
use crate::shell::{self, Driver};
use bearing_engines_local::RedbCoordinator;
use bearing_env::Clock;
use bearing_proto::coordinator::TellBody;
use bearing_proto::kinds::AskKind;
use bearing_proto::{Message, Sender};
use bearing_types::{Mono, Now, Squash};

/// Runs the coordinator until it is told to stop.
pub fn run_coordinator(config: DaemonConfig) -> Result<(), StartError> {
    shell::run(config, |config, _, waker| {
        let file = registers_file(&config.directory);
        // It was made with the cluster. An empty one would say that no tablet is anybody's.
        if !file.exists() {
            return Err(StartError::Refused(format!(
                "{} is gone, which says what server has which tablet: put it back as it was when the coordinator stopped",
                file.display()
            )));
        }
        let registers =
            RedbCoordinator::open(&file).map_err(StartError::engine("open the coordinator's registers"))?;
        let desk = Desk::start(registers, move || waker.wake()).map_err(|error| StartError::Stopped {
            server: COORDINATOR,
            reason: format!("no thread could be made for the registers: {error}"),
        })?;
        Ok(Office::new(desk))
    })
}

/// Servers know newer ones.
const OLDER: &str = "the registers are of an older copy than servers know: nothing is changed in them, so no server takes over for \
                     another. Stop the coordinator, put the newest copy of registers.redb back, and start it again";

struct Office {
    desk: Desk,
    older: bool,
    questions: Requests,
}

impl Office {
    fn new(desk: Desk) -> Office {
        let questions = Requests::new(AskKind::ALL.iter().map(|kind| kind.name()).collect());
        Office { desk, older: false, questions }
    }
}

impl Driver for Office {
    fn take(&mut self, sender: Sender, _squash: Squash, messages: Vec<Message>, _attachment: Vec<u8>) {
        // Only servers may see or change registers.
        let Sender::Server(asker) = sender else { return };
        for message in messages {
            if let Message::Ask(ask) = message {
                let asked = (u64::from(asker.0), ask.id);
                self.questions.begin(Clock.mono(), asked, ask.call.kind() as usize);
                self.desk.ask(asker, ask);
            }
        }
    }

    fn turn(&mut self, _now: Now, post: &mut Post) -> Result<(), StartError> {
        for (asker, told) in self.desk.turn().map_err(StartError::engine("answer servers"))? {
            if told.result != Ok(TellBody::Slow) {
                self.questions.end(Clock.mono(), (u64::from(asker.0), told.id));
            }
            post.answer(Sender::Server(asker), &Message::Told(told), None);
        }
        if self.desk.has_older() && !std::mem::replace(&mut self.older, true) {
            tracing::error!("{OLDER}");
        }
        Ok(())
    }

    fn next_wake(&self) -> Option<Mono> {
        None
    }

    fn is_serving(&self) -> bool {
        true
    }

    fn disk_failure(&self) -> Option<&str> {
        self.older.then_some(OLDER)
    }

    fn show(&mut self, _now: Mono, page: &mut Page) {
        self.questions.show(page, &metrics::QUESTIONS, &metrics::QUESTION_SECONDS);
    }

    // Registers carry no times.
    fn set_clock_off(&mut self, _off: bool) {}

    fn stop(&mut self) -> Result<(), StartError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::coordinator::{Ask, AskCall};
    use bearing_proto::keys::{Key, ServerKeys};
    use bearing_seams::MemCoordinator;
    use bearing_types::{ServerId, SessionId, Wall};
    use std::sync::mpsc::channel;

    #[test]
    fn clients_are_not_answered() {
        let (woke, wakes) = channel();
        let desk = Desk::start(MemCoordinator::default(), move || _ = woke.send(())).unwrap();
        let mut office = Office::new(desk);
        let keys = ServerKeys::new(&Key::new([1; 32]), Key::new([2; 32]));
        let mut post = Post::new(COORDINATOR, keys, [(ServerId(1), ([127, 0, 0, 1], 1).into())]);
        let now = Now { mono: Mono::ZERO, wall: Wall(0) };
        let mut asks = |sender, post: &mut Post| {
            let ask = Ask { id: 1, call: AskCall::Read { key: "server/1".into() } };
            office.take(sender, Squash::None, vec![Message::Ask(ask)], Vec::new());
            office.turn(now, post).unwrap();
        };
        asks(Sender::Client(SessionId(1)), &mut post);
        asks(Sender::Server(ServerId(1)), &mut post);
        wakes.recv().unwrap();
        assert!(wakes.try_recv().is_err(), "only the server's question was worked on");
    }
}
