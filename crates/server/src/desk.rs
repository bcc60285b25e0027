//! The coordinator's registers on a thread of their own: whatever a question takes there, whoever asks it
//! again hears that it is being worked on, and no loop waits for it.

use crate::engine_thread::EngineThread;
use bearing_proto::coordinator::{Ask, AskCall, Told};
use bearing_proto::registrar::{Registrar, Unanswered};
use bearing_seams::{Coordinator, EngineResult};
use bearing_types::ServerId;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

enum Work {
    Answer(ServerId, Ask),
    /// Answer those who await a change.
    News,
}

/// See the module.
pub struct Desk {
    thread: EngineThread<Work, Vec<(ServerId, Told)>>,
    unanswered: Unanswered,
    ready: Vec<(ServerId, Told)>,
    older: Arc<AtomicBool>,
    /// Something was asked that may change registers.
    changing: bool,
}

struct Registry<C> {
    registers: C,
    registrar: Registrar,
    older: Arc<AtomicBool>,
}

impl Desk {
    /// Gives registers a thread; `wake` is called there whenever answers are ready.
    pub fn start<C: Coordinator + Send + 'static>(
        registers: C,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Desk> {
        let older = Arc::new(AtomicBool::new(false));
        let registry = Registry { registers, registrar: Registrar::default(), older: older.clone() };
        let thread = EngineThread::around("coordinator's registers", registry, carry_out, wake)?;
        let (unanswered, ready) = (Unanswered::default(), Vec::new());
        Ok(Desk { thread, unanswered, ready, older, changing: false })
    }

    /// Takes a question.
    pub fn ask(&mut self, asker: ServerId, ask: Ask) {
        match self.unanswered.take(asker, ask.id) {
            Some(slow) => self.ready.push((asker, slow)),
            None => {
                self.changing |= matches!(ask.call, AskCall::Swap { .. });
                self.thread.add(Work::Answer(asker, ask));
            }
        }
    }

    /// Somebody else has changed registers, or may have.
    pub fn changed(&mut self) {
        self.changing = true;
    }

    /// Has what was asked worked on, and gives the answers that are ready.
    pub fn turn(&mut self) -> EngineResult<Vec<(ServerId, Told)>> {
        if std::mem::take(&mut self.changing) {
            self.thread.add(Work::News);
        }
        self.thread.send();
        let mut answers = std::mem::take(&mut self.ready);
        while let Some(done) = self.thread.next()? {
            done.iter().for_each(|(asker, told)| self.unanswered.answered(*asker, told.id));
            answers.extend(done);
        }
        Ok(answers)
    }

    /// Somebody asked who knows newer registers than these.
    pub fn has_older(&self) -> bool {
        self.older.load(Ordering::Relaxed)
    }
}

fn carry_out<C: Coordinator>(registry: &mut Registry<C>, work: Work) -> Vec<(ServerId, Told)> {
    let Registry { registers, registrar, older } = registry;
    let answers = match work {
        Work::Answer(asker, ask) => {
            registrar.answer(registers, asker, ask).map(|told| (asker, told)).into_iter().collect()
        }
        Work::News => registrar.news(registers),
    };
    older.store(registrar.has_older(), Ordering::Relaxed);
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_proto::coordinator::TellBody;
    use bearing_seams::{Changes, Entry, MemCoordinator, RegisterChange, Swap};
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Each call waits until it is allowed.
    struct Slow {
        registers: MemCoordinator,
        allowed: Receiver<()>,
    }

    impl Coordinator for Slow {
        fn read(&mut self, key: &str) -> EngineResult<Option<Entry>> {
            self.allowed.recv().unwrap();
            self.registers.read(key)
        }

        fn changes(&mut self, prefix: &str, since: u64) -> EngineResult<Changes> {
            self.allowed.recv().unwrap();
            self.registers.changes(prefix, since)
        }

        fn swap(&mut self, changes: &[RegisterChange]) -> EngineResult<Swap> {
            self.allowed.recv().unwrap();
            self.registers.swap(changes)
        }
    }

    fn desk() -> (Desk, Sender<()>, Receiver<()>) {
        let ((allow, allowed), (woke, wakes)) = (channel(), channel());
        let slow = Slow { registers: MemCoordinator::default(), allowed };
        (Desk::start(slow, move || _ = woke.send(())).unwrap(), allow, wakes)
    }

    fn read(id: u64) -> Ask {
        Ask { id, call: AskCall::Read { key: "k".into() } }
    }

    /// Sends and waits until something is answered.
    fn answers(desk: &mut Desk, wakes: &Receiver<()>) -> Vec<(u32, u64, TellBody)> {
        loop {
            let answers = desk.turn().unwrap();
            if !answers.is_empty() {
                return answers.into_iter().map(|(to, told)| (to.0, told.id, told.result.unwrap())).collect();
            }
            wakes.recv().unwrap();
        }
    }

    #[test]
    fn a_slow_engine_is_told_of_at_once_and_gets_no_question_twice() {
        let (mut desk, allow, wakes) = desk();
        desk.ask(ServerId(1), read(7));
        assert_eq!(desk.turn().unwrap(), []);
        for _ in 0..3 {
            desk.ask(ServerId(1), read(7));
            assert_eq!(answers(&mut desk, &wakes), [(1, 7, TellBody::Slow)]);
        }
        desk.ask(ServerId(2), read(7));
        desk.turn().unwrap();
        allow.send(()).unwrap();
        assert_eq!(answers(&mut desk, &wakes), [(1, 7, TellBody::Register(None))]);
        allow.send(()).unwrap();
        assert_eq!(answers(&mut desk, &wakes), [(2, 7, TellBody::Register(None))]);
        drop(allow);
    }

    #[test]
    fn a_swap_is_told_to_those_who_await_it_and_so_is_anothers() {
        let (mut desk, allow, wakes) = desk();
        (0..9).for_each(|_| allow.send(()).unwrap());
        desk.ask(ServerId(1), Ask { id: 1, call: AskCall::swap("k".into(), None, Some(vec![1])) });
        assert_eq!(answers(&mut desk, &wakes), [(1, 1, TellBody::Swapped(1))]);
        desk.ask(ServerId(2), Ask { id: 2, call: AskCall::Await { prefix: "k".into(), since: 1 } });
        desk.turn().unwrap();
        desk.ask(ServerId(1), Ask { id: 3, call: AskCall::swap("k".into(), Some(1), Some(vec![2])) });
        let mut heard = answers(&mut desk, &wakes);
        if heard.len() == 1 {
            heard.extend(answers(&mut desk, &wakes));
        }
        let heard: Vec<_> = heard.into_iter().map(|(to, id, _)| (to, id)).collect();
        assert_eq!(heard, [(1, 3), (2, 2)]);
        drop(allow);
    }
}
