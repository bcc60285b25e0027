//! The chunk logs on threads of their own: the network never waits for a disk, and no chunk for another.
//!
//! Invariant: what is asked of one chunk is done in the order given, but for reads, which wait for nothing
//! (see the machine: it reads what it knows to be written). This is what the simulator draws.

use crate::engine_thread::EngineThread;
use bearing_data::{Event, LogCommand, Ticket};
use bearing_engines_local::{ChunkReader, FileChunkLog, lane_of};
use bearing_seams::EngineResult;
use std::io;

/// Syncs of so many chunks run side by side: journals of filesystems and queues of disks gather what comes at
/// a time.
const WRITERS: usize = 8;
/// Reads under way at a time: what a disk can have in its queue.
const READERS: usize = 4;
/// Reads up to this size are done at once if the system has the bytes in memory: another thread takes longer
/// to wake.
const READ_HERE_BYTES_MAX: u32 = 64 << 10;

type Work = (Ticket, LogCommand);

/// See the module.
pub struct ChunkThreads {
    writers: Vec<EngineThread<Work, Event>>,
    readers: Vec<EngineThread<Work, Event>>,
    reader: ChunkReader,
    next_reader: usize,
}

impl ChunkThreads {
    /// Gives chunk logs their threads; `wake` is called there whenever results are ready.
    pub fn start(log: FileChunkLog, wake: impl Fn() + Send + Clone + 'static) -> io::Result<ChunkThreads> {
        let reader = log.reader();
        let write = |lane| EngineThread::around("chunk writer", lane, write, wake.clone());
        let writers = log.split(WRITERS).into_iter().map(write).collect::<io::Result<_>>()?;
        let read = |_| EngineThread::around("chunk reader", reader.clone(), read, wake.clone());
        let readers = (0..READERS).map(read).collect::<io::Result<_>>()?;
        Ok(ChunkThreads { writers, readers, reader, next_reader: 0 })
    }

    /// Has something done. What takes no waiting is done now.
    pub fn begin(&mut self, ticket: Ticket, command: LogCommand) -> Option<Event> {
        if let LogCommand::Read { chunk, offset, length } = command
            && length <= READ_HERE_BYTES_MAX
            && let Some(bytes) = self.reader.read_at_once(chunk, offset, length)
        {
            return Some(Event::ReadDone { ticket, result: Ok(bytes) });
        }
        let thread = match command.writes() {
            Some(chunk) => &mut self.writers[lane_of(chunk, WRITERS)],
            None => {
                self.next_reader = (self.next_reader + 1) % READERS;
                &mut self.readers[self.next_reader]
            }
        };
        // At once, each for itself: nothing that is done waits for what was asked for later.
        thread.add((ticket, command));
        thread.send();
        None
    }

    /// What is done by now. An error says that a thread died.
    pub fn done(&mut self, mut take: impl FnMut(Event)) -> EngineResult<()> {
        for thread in self.writers.iter_mut().chain(&mut self.readers) {
            while let Some(event) = thread.next()? {
                take(event);
            }
        }
        Ok(())
    }

    /// Bytes used and bytes free on the device, in that order.
    pub fn space(&self) -> EngineResult<(u64, u64)> {
        self.reader.space()
    }
}

fn write(log: &mut FileChunkLog, (ticket, command): Work) -> Event {
    command.run(ticket, log)
}

fn read(reader: &mut ChunkReader, (ticket, command): Work) -> Event {
    match command {
        LogCommand::Read { chunk, offset, length } => {
            Event::ReadDone { ticket, result: reader.read(chunk, offset, length) }
        }
        // The only other one that writes nothing.
        _ => Event::SpaceDone { ticket, result: reader.space() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bearing_types::{ChunkId, Epoch};
    use std::collections::BTreeMap;
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_written_to_a_chunk_is_done_in_order_and_told_by_a_wake() {
        let place = tempfile::tempdir().unwrap();
        let log = FileChunkLog::open(&place.path().join("chunks"), &[]).unwrap();
        let (woken, wakes) = channel();
        let mut threads = ChunkThreads::start(log, move || woken.send(()).unwrap_or_default()).unwrap();
        let chunks: Vec<ChunkId> = (1..=20).map(ChunkId).collect();
        let mut told = BTreeMap::new();
        for chunk in &chunks {
            threads.begin(Ticket(chunk.0 * 100), LogCommand::Create { chunk: *chunk, epoch: Epoch(1) });
        }
        for offset in 0..30 {
            for chunk in &chunks {
                let bytes = vec![offset as u8].into();
                let ticket = Ticket(chunk.0 * 100 + 1 + offset);
                threads.begin(ticket, LogCommand::Append { chunk: *chunk, offset, bytes });
            }
        }
        while told.len() < chunks.len() * 31 {
            wakes.recv().unwrap();
            let mut take = |event| match event {
                Event::Done { ticket, result } => {
                    result.unwrap();
                    // Those of a chunk before it are done.
                    let number = ticket.0 % 100;
                    assert_eq!(told.range(ticket.0 - number..ticket.0).count() as u64, number);
                    told.insert(ticket.0, ());
                }
                event => panic!("{event:?}"),
            };
            threads.done(&mut take).unwrap();
        }
        let wanted: Vec<u8> = (0..30).collect();
        for chunk in &chunks {
            let read = LogCommand::Read { chunk: *chunk, offset: 0, length: 100 };
            let mut read = threads.begin(Ticket(1), read);
            // The other threads read what this one would have to wait for.
            let long = LogCommand::Read { chunk: *chunk, offset: 0, length: READ_HERE_BYTES_MAX + 1 };
            assert_eq!(threads.begin(Ticket(2), long), None);
            assert_eq!(threads.begin(Ticket(3), LogCommand::Space), None);
            let mut left = if read.is_none() { 3 } else { 2 };
            while left > 0 {
                wakes.recv().unwrap();
                let mut take = |event| match event {
                    Event::ReadDone { ref result, .. } => {
                        assert_eq!(result.as_ref(), Ok(&wanted));
                        read = Some(event);
                    }
                    Event::SpaceDone { result, .. } => assert!(result.unwrap().0 > 600),
                    event => panic!("{event:?}"),
                };
                threads.done(|event| (left, ()) = (left - 1, take(event))).unwrap();
            }
            assert!(matches!(read, Some(Event::ReadDone { result: Ok(bytes), .. }) if bytes == wanted));
        }
    }
}
