//! The coordinator daemon: registers over the wire. What it answers is said in `bearing_proto::coordinator`.

use crate::StartError;
use crate::config::DaemonConfig;
use crate::init::registers_file;
use crate::post::Post;
use crate::shell::{self, Driver};
use bearing_engines_local::RedbCoordinator;
use bearing_proto::coordinator::{Ask, Registrar};
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
        Ok(Office { registers, registrar: Registrar::default(), questions: Vec::new() })
    })
}

/// Servers know newer ones.
const OLDER: &str = "the registers are of an older copy than servers know: nothing is changed in them, so no server takes over for \
                     another. Stop the coordinator, put the newest copy of registers.redb back, and start it again";

struct Office<C> {
    registers: C,
    registrar: Registrar,
    questions: Vec<(Sender, Ask)>,
}

impl<C: Coordinator> Driver for Office<C> {
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
            let Sender::Server(server) = asker else { continue };
            let before = self.registrar.has_older();
            let told = self.registrar.answer(&mut self.registers, server, ask);
            post.answer(asker, &Message::Told(told), &[]);
            if self.registrar.has_older() && !before {
                tracing::error!("{OLDER}");
            }
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
        self.registrar.has_older().then_some(OLDER)
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
        let (registers, registrar) = (MemCoordinator::default(), Registrar::default());
        let mut office = Office { registers, registrar, questions: Vec::new() };
        let ask = Ask { id: 1, call: AskCall::Read { key: "server/1".into() } };
        office.take(
            Sender::Client(bearing_types::SessionId(1)),
            Squash::None,
            vec![Message::Ask(ask)],
            Vec::new(),
        );
        assert!(office.questions.is_empty());
    }
}
