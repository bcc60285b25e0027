//! The tablet log on a thread of its own: no sync stops the network.

use crate::engine_thread::EngineThread;
use bearing_seams::{DiskLabel, EngineError, EngineResult, LogMark, LoggedRecord, TabletLog};
use bearing_types::DiskId;
use std::io;

/// What the log is to do.
#[derive(Debug)]
pub enum LogWork {
    /// Append records, and make them stable by one sync.
    Write(Vec<LoggedRecord>),
    /// Let go of what lies before a mark.
    Cut(LogMark),
    /// Keep a disk id.
    SetDisk(DiskId),
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub enum LogDone {
    /// [`LogWork::Write`]: the mark of the first record, and all are stable.
    Written(EngineResult<LogMark>),
    /// [`LogWork::Write`] found no space: nothing of it is in the log. The records, and what was being done.
    NoSpace(Vec<LoggedRecord>, String),
    /// [`LogWork::Cut`].
    Cut(EngineResult<()>),
    /// [`LogWork::SetDisk`].
    Labelled(EngineResult<()>),
}

/// See the module.
pub type LogThread = EngineThread<LogWork, LogDone>;

impl LogThread {
    /// Gives a log a thread; `wake` is called there whenever results are ready.
    pub fn start<L: TabletLog + DiskLabel + Send + 'static>(
        log: L,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<LogThread> {
        EngineThread::around("tablet log", log, carry_out, wake)
    }
}

fn carry_out(log: &mut (impl TabletLog + DiskLabel), work: LogWork) -> LogDone {
    match work {
        LogWork::Write(records) => match log.append(&records) {
            // A sync that finds no space is as fatal as any that fails.
            Err(EngineError::Full { doing }) => LogDone::NoSpace(records, doing),
            appended => LogDone::Written(appended.and_then(|mark| log.sync().map(|()| mark))),
        },
        LogWork::Cut(before) => LogDone::Cut(log.cut(before)),
        LogWork::SetDisk(disk) => LogDone::Labelled(log.set_disk(disk)),
    }
}
