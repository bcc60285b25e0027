//! The coordinator daemon: registers over the wire. What it answers is said in `bearing_proto::coordinator`.

use crate::StartError;
use crate::config::DaemonConfig;
use crate::init::registers_file;
use crate::post::Post;
use crate::shell::{self, Driver};
use bearing_engines_local::RedbCoordinator;
use bearing_proto::coordinator::{Ask, answer};
use bearing_proto::{Message, Sender};
use bearing_seams::Coordinator;
use bearing_types::{Mono, Now, Squash};

/// Runs the coordinator until it is told to stop.
pub fn run_coordinator(config: DaemonConfig) -> Result<(), StartError> {
    shell::run(config, |config, _, _| {
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
        Ok(Registrar { registers, questions: Vec::new() })
    })
}

struct Registrar<C> {
    registers: C,
    questions: Vec<(Sender, Ask)>,
}

impl<C: Coordinator> Driver for Registrar<C> {
    fn take(&mut self, sender: Sender, _squash: Squash, messages: Vec<Message>, _attachment: Vec<u8>) {
        // Only servers may see or change registers.
        if !matches!(sender, Sender::Server(_)) {
            return;
        }
        for message in messages {
            if let Message::Ask(ask) = message {
                self.questions.push((sender, ask));
            }
        }
    }

    fn turn(&mut self, _now: Now, post: &mut Post) -> Result<(), StartError> {
        for (asker, ask) in std::mem::take(&mut self.questions) {
            post.answer(asker, &Message::Told(answer(&mut self.registers, ask)), &[]);
        }
        Ok(())
    }

    fn next_wake(&self) -> Option<Mono> {
        None
    }

    fn is_serving(&self) -> bool {
        true
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
    use bearing_proto::coordinator::AskCall;
    use bearing_seams::MemCoordinator;

    #[test]
    fn clients_are_not_answered() {
        let mut registrar = Registrar { registers: MemCoordinator::default(), questions: Vec::new() };
        let ask = Ask { id: 1, call: AskCall::Read { key: "server/1".into() } };
        registrar.take(
            Sender::Client(bearing_types::SessionId(1)),
            Squash::None,
            vec![Message::Ask(ask)],
            Vec::new(),
        );
        assert!(registrar.questions.is_empty());
    }
}
