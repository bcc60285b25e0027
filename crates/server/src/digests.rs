//! Digests of whole tablets, on a thread of their own: the store's thread only says what is to be read, as of
//! one moment, and goes on.

use bearing_proto::tablets::Digest;
use bearing_seams::{EngineError, EngineResult, Pairs};
use bearing_types::{LogIndex, TabletSerial};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What a tablet's store has as of an entry.
pub struct Reading {
    /// The tablet.
    pub tablet: TabletSerial,
    /// The entry.
    pub index: LogIndex,
    /// What is there, or why it cannot be read.
    pub pairs: EngineResult<Pairs>,
}

/// What came of it.
pub type Digested = (TabletSerial, LogIndex, EngineResult<Digest>);

/// See the module.
pub struct Digests {
    /// `None` once it is to end.
    readings: Option<Sender<Reading>>,
    done: Receiver<Digested>,
    thread: Option<JoinHandle<()>>,
    ended: Arc<AtomicBool>,
}

impl Digests {
    /// Starts the thread; `wake` is called there whenever a digest is ready.
    pub fn start(wake: impl Fn() + Send + 'static) -> io::Result<Digests> {
        let (readings, given) = channel::<Reading>();
        let (ready, done) = channel();
        let ended = Arc::new(AtomicBool::new(false));
        let until = ended.clone();
        let run = move || {
            for Reading { tablet, index, pairs } in given {
                let digest = pairs.and_then(|pairs| digest(pairs, &until));
                if ready.send((tablet, index, digest)).is_err() {
                    return;
                }
                wake();
            }
        };
        let thread = Some(std::thread::Builder::new().name("digests".to_owned()).spawn(run)?);
        Ok(Digests { readings: Some(readings), done, thread, ended })
    }

    /// Where readings go.
    pub fn readings(&self) -> Sender<Reading> {
        self.readings.clone().expect("it is not told to end while it is used")
    }

    /// The next digest, if one is ready.
    pub fn next(&self) -> Option<Digested> {
        self.done.try_recv().ok()
    }
}

/// A server that stops does not wait for a large tablet.
fn digest(pairs: Pairs, ended: &AtomicBool) -> EngineResult<Digest> {
    let stopped = || EngineError::Failed { doing: "read a tablet (the server stops)".to_owned() };
    Digest::of(pairs.map(|pair| if ended.load(Ordering::Relaxed) { Err(stopped()) } else { pair }))
}

/// To be dropped after all who have readings to give.
impl Drop for Digests {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.readings = None;
        if let Some(thread) = self.thread.take() {
            // A panic there shows as a digest that never comes.
            let _ = thread.join();
        }
    }
}
