//! The tablet log in memory.

use super::{CrashFault, Switches};
use crate::{DiskLabel, EngineError, EngineResult, LogMark, LoggedRecord, TabletLog};
use bearing_types::DiskId;
use std::collections::VecDeque;

/// What a frame takes beside its bytes; only [`TabletLog::bytes_used`] and the marks show it.
const FRAME_BYTES: u64 = 40;

/// [`TabletLog`] in memory.
#[derive(Clone, Debug, Default)]
pub struct MemTabletLog {
    records: VecDeque<(LogMark, LoggedRecord)>,
    unsynced_count: usize,
    end: u64,
    switches: Switches,
    disk: Option<DiskId>,
    /// The planted fault: what is found after a failed sync is believed as it is, and not written again.
    believes_the_page_cache: bool,
    /// From here on the disk has nothing, though it is read.
    absent_from: Option<LogMark>,
    /// It does not open.
    rotten: bool,
}

impl DiskLabel for MemTabletLog {
    fn disk(&mut self) -> EngineResult<Option<DiskId>> {
        Ok(self.disk)
    }

    fn set_disk(&mut self, disk: DiskId) -> EngineResult<()> {
        self.disk = Some(disk);
        Ok(())
    }
}

impl MemTabletLog {
    /// An empty log.
    pub fn new() -> MemTabletLog {
        MemTabletLog::default()
    }

    /// An empty log that takes what it reads after a failed sync for stable, to show that a suite notices.
    pub fn believing_the_page_cache() -> MemTabletLog {
        MemTabletLog { believes_the_page_cache: true, ..MemTabletLog::default() }
    }

    /// A record that was stable cannot be read any more: it does not open.
    pub fn rot(&mut self) {
        self.rotten = true;
    }

    /// What the disk does not have is gone with the machine's memory, and is taken for stable as long as that
    /// lasts.
    fn show_what_is_absent(&mut self, fault: &CrashFault) {
        if !fault.keeps_all() {
            if let Some(from) = self.absent_from.take() {
                let kept = self.records.partition_point(|(mark, _)| *mark < from);
                self.unsynced_count = self.unsynced_count.min(self.records.len() - kept);
                self.records.truncate(kept);
            }
        } else if self.believes_the_page_cache && self.switches.broken {
            let first = self.records.len() - self.unsynced_count;
            self.absent_from = self.absent_from.or(self.records.get(first).map(|(mark, _)| *mark));
        }
    }

    /// Stops without closing and opens again. A disk may write the unsynced blocks in any order and tear one,
    /// but opening cuts the log at the first record that is not whole, so what is left is always a prefix: of
    /// the records that happened to reach the disk, those before the first hole. What is left is stable,
    /// since opening writes it again and syncs it.
    pub fn crash(&mut self, fault: &mut CrashFault) {
        self.show_what_is_absent(fault);
        let reached = fault.survivors(self.unsynced_count);
        let whole = if fault.damages() { fault.survivors(reached) } else { reached };
        let kept = self.records.len() - self.unsynced_count + whole;
        self.records.truncate(kept);
        if let Some((mark, record)) = self.records.back() {
            self.end = mark.0 + frame_bytes(record);
        }
        self.unsynced_count = 0;
        self.switches = Switches { full: self.switches.full, ..Switches::default() };
    }

    /// The next sync fails, and with it every later call that writes until a crash.
    pub fn fail_next_sync(&mut self) {
        self.switches.fail_next_sync = true;
    }

    /// While full, appends are refused.
    pub fn set_full(&mut self, full: bool) {
        self.switches.full = full;
    }
}

fn frame_bytes(record: &LoggedRecord) -> u64 {
    FRAME_BYTES + record.bytes.len() as u64
}

impl TabletLog for MemTabletLog {
    fn append(&mut self, records: &[LoggedRecord]) -> EngineResult<LogMark> {
        self.switches.check_write("append to the tablet log")?;
        let first = LogMark(self.end);
        for record in records {
            self.records.push_back((LogMark(self.end), record.clone()));
            self.end += frame_bytes(record);
        }
        self.unsynced_count += records.len();
        Ok(first)
    }

    fn sync(&mut self) -> EngineResult<()> {
        self.switches.check_sync("sync the tablet log")?;
        self.unsynced_count = 0;
        Ok(())
    }

    fn read(
        &mut self,
        from: Option<LogMark>,
        count_max: usize,
    ) -> EngineResult<Vec<(LogMark, LoggedRecord)>> {
        if self.rotten {
            return Err(EngineError::Corrupt { what: "a log in memory".to_owned() });
        }
        let start = from.map_or(0, |from| self.records.partition_point(|(mark, _)| *mark < from));
        Ok(self.records.iter().skip(start).take(count_max).cloned().collect())
    }

    fn cut(&mut self, before: LogMark) -> EngineResult<()> {
        self.switches.check_sync("cut the tablet log")?;
        // Unsynced records stay: a real log cuts whole files, and never the one it writes.
        while self.records.len() > self.unsynced_count
            && self.records.front().is_some_and(|(mark, _)| *mark < before)
        {
            self.records.pop_front();
        }
        Ok(())
    }

    fn bytes_used(&self) -> u64 {
        self.records.front().map_or(0, |(mark, _)| self.end - mark.0)
    }
}
