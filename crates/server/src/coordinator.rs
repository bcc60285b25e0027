//! The coordinator daemon: registers over the wire. It decides nothing; compare-and-swap is the engine's.

use crate::StartError;
use crate::config::DaemonConfig;
use crate::init::registers_file;
use crate::post::Post;
use crate::shell::{self, Driver};
use bearing_engines_local::RedbCoordinator;
use bearing_proto::coordinator::{Ask, AskCall, Register, TellBody, Told};
use bearing_proto::{Message, Sender};
use bearing_seams::{Coordinator, EngineError, EngineResult, Entry, Swap};
use bearing_types::{Mono, Now, Squash};

/// Runs the coordinator until it is told to stop.
pub fn run_coordinator(config: DaemonConfig) -> Result<(), StartError> {
    shell::run(config, |config, _, _| {
        let registers = RedbCoordinator::open(&registers_file(&config.directory))
            .map_err(StartError::engine("open the coordinator's registers"))?;
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
            let result = self.answer(ask.call).map_err(|error| error.to_string());
            post.answer(asker, &Message::Told(Told { id: ask.id, result }), &[]);
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

impl<C: Coordinator> Registrar<C> {
    fn answer(&mut self, call: AskCall) -> EngineResult<TellBody> {
        match call {
            AskCall::Read { key } => Ok(TellBody::Register(self.registers.read(&key)?.map(register))),
            AskCall::List { prefix, since } => {
                let (version, entries) = self.registers.list(&prefix)?;
                let news = since.is_none_or(|since| since < version);
                Ok(TellBody::Registers(version, news.then(|| entries.into_iter().map(register).collect())))
            }
            AskCall::Swap { key, expected, value } => match self.registers.swap(&key, expected, value)? {
                Swap::Done(version) => Ok(TellBody::Swapped(version)),
                Swap::Conflict(entry) => Ok(TellBody::Conflict(entry.map(register))),
            },
            AskCall::Sessions => {
                Err(EngineError::Failed { doing: "only metadata servers know sessions".to_owned() })
            }
        }
    }
}

fn register(entry: Entry) -> Register {
    Register { key: entry.key, version: entry.version, value: entry.value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_seams::MemCoordinator;

    fn registrar() -> Registrar<MemCoordinator> {
        Registrar { registers: MemCoordinator::default(), questions: Vec::new() }
    }

    fn swap(expected: Option<u64>, value: &[u8]) -> AskCall {
        AskCall::Swap { key: "server/1".into(), expected, value: Some(value.to_vec()) }
    }

    #[test]
    fn a_swap_over_an_old_version_shows_what_is_there() {
        let mut registrar = registrar();
        let TellBody::Swapped(version) = registrar.answer(swap(None, b"a")).unwrap() else { panic!("swaps") };
        let conflict = registrar.answer(swap(None, b"b")).unwrap();
        let there = Register { key: "server/1".into(), version, value: b"a".to_vec() };
        assert_eq!(conflict, TellBody::Conflict(Some(there)));
    }

    #[test]
    fn a_listing_without_news_is_empty_handed() {
        let mut registrar = registrar();
        registrar.answer(swap(None, b"a")).unwrap();
        let list = |since| AskCall::List { prefix: "server/".into(), since };
        let TellBody::Registers(version, Some(found)) = registrar.answer(list(None)).unwrap() else {
            panic!("lists")
        };
        assert_eq!(found.len(), 1);
        assert_eq!(registrar.answer(list(Some(version))).unwrap(), TellBody::Registers(version, None));
    }

    #[test]
    fn clients_are_not_answered() {
        let mut registrar = registrar();
        let ask = Ask { id: 1, call: swap(None, b"a") };
        registrar.take(
            Sender::Client(bearing_types::SessionId(1)),
            Squash::None,
            vec![Message::Ask(ask)],
            Vec::new(),
        );
        assert!(registrar.questions.is_empty());
    }
}
