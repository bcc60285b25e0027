//! An engine on a thread of its own: the network never waits for a disk.
//!
//! Invariant: work is done in the order given, and its results come back in that order.

use bearing_seams::{EngineError, EngineResult};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

/// See the module. `W` is what the engine is given to do, `D` what comes of it.
pub struct EngineThread<W, D> {
    name: &'static str,
    /// `None` once it is told to end.
    work: Option<Sender<Vec<W>>>,
    done: Receiver<Vec<D>>,
    thread: Option<JoinHandle<()>>,
    unsent: Vec<W>,
    arrived: VecDeque<D>,
    /// Work whose result has not been taken.
    owed: usize,
}

impl<W: Send + 'static, D: Send + 'static> EngineThread<W, D> {
    /// Gives an engine a thread; `wake` is called there whenever results are ready.
    pub fn around<E: Send + 'static>(
        name: &'static str,
        mut engine: E,
        carry_out: fn(&mut E, W) -> D,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<EngineThread<W, D>> {
        let (work, given) = channel::<Vec<W>>();
        let (ready, done) = channel();
        let run = move || {
            for batch in given {
                let results = batch.into_iter().map(|work| carry_out(&mut engine, work)).collect();
                if ready.send(results).is_err() {
                    return;
                }
                wake();
            }
        };
        let thread = Some(std::thread::Builder::new().name(name.to_owned()).spawn(run)?);
        let (unsent, arrived) = (Vec::new(), VecDeque::new());
        Ok(EngineThread { name, work: Some(work), done, thread, unsent, arrived, owed: 0 })
    }

    /// Adds work; [`EngineThread::send`] has it begun.
    pub fn add(&mut self, work: W) {
        self.unsent.push(work);
        self.owed += 1;
    }

    /// Hands over what was added.
    pub fn send(&mut self) {
        if let (false, Some(sender)) = (self.unsent.is_empty(), &self.work) {
            // If the thread is gone, `next` says so.
            let _ = sender.send(std::mem::take(&mut self.unsent));
        }
    }

    /// The next result, if it is there. An error says that the thread died.
    pub fn next(&mut self) -> EngineResult<Option<D>> {
        while self.arrived.is_empty() && self.owed > 0 {
            match self.done.try_recv() {
                Ok(results) => self.arrived.extend(results),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(self.died()),
            }
        }
        let next = self.arrived.pop_front();
        self.owed -= usize::from(next.is_some());
        Ok(next)
    }

    /// Has something done that must not wait for other turns, and waits for it.
    pub fn finish(&mut self, work: W) -> EngineResult<D> {
        self.add(work);
        self.settle()?;
        self.owed -= 1;
        self.arrived.pop_back().ok_or_else(|| self.died())
    }

    /// Waits until all that was given is done.
    pub fn settle(&mut self) -> EngineResult<()> {
        self.send();
        while self.arrived.len() < self.owed {
            let results = self.done.recv().map_err(|_| self.died())?;
            self.arrived.extend(results);
        }
        Ok(())
    }

    fn died(&self) -> EngineError {
        EngineError::Failed { doing: format!("work in the {} (its thread died)", self.name) }
    }
}

impl<W, D> Drop for EngineThread<W, D> {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was told by `next`.
            let _ = thread.join();
        }
    }
}
