//! The tablet log in segment files.
//!
//! Invariants: marks count bytes of frames from the first segment that ever was, without gaps over segments;
//! only the last segment can have a torn tail, since it was synced and cut to its length before the next was
//! made; its frames lie as they are written now, whatever older segments have; behind the end of the log
//! there are zeros or nothing. What lies behind the last mark of which a record says that it was synced is
//! written again when the log is opened (`device`).

mod frame;
mod segment;

use crate::device;
use crate::directory::{Directory, Format, failed, refused, sync_directory};
use bearing_seams::{DiskLabel, EngineError, EngineResult, LogMark, LoggedRecord, TabletLog};
use bearing_types::DiskId;
use frame::{Layout, PAYLOAD_BYTES_MAX, SEGMENT_HEADER_BYTES, encode_frame, frame_bytes};
use segment::{Reader, Segment, Unfinished};
use std::path::Path;

const FORMAT: Format = Format { name: "bearing-tablet-log", version: frame::VERSION };
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// [`TabletLog`] in files of 64 MiB.
#[derive(Debug)]
pub struct FileTabletLog {
    directory: Directory,
    /// In order; the last is written. Never empty.
    segments: Vec<Segment>,
    segment_bytes: u64,
    end: u64,
    synced: u64,
    buffer: Vec<u8>,
    broken: bool,
}

impl FileTabletLog {
    /// Opens the log in a directory, or makes an empty one, for payloads of these formats. A torn tail is cut
    /// off, and what is left is stable.
    pub fn open(path: &Path, contents: &[Format]) -> EngineResult<FileTabletLog> {
        FileTabletLog::open_with_segments(path, contents, SEGMENT_BYTES)
    }

    /// As [`FileTabletLog::open`], with another size of new segments in bytes. Segments of any size are read.
    pub fn open_with_segments(
        path: &Path,
        contents: &[Format],
        segment_bytes: u64,
    ) -> EngineResult<FileTabletLog> {
        let directory = Directory::open(path, FORMAT, contents)?;
        let mut segments = Segment::open_all(directory.path())?;
        for pair in segments.windows(2) {
            check_whole(&pair[0], pair[1].first)?;
        }
        let end = match segments.last() {
            Some(last) => {
                let (end, synced) = last.find_end()?;
                last.write_again(synced, end)?;
                // Zeros behind the end: a whole record of the cut tail must not turn up again behind the
                // records to come. And what is left must be stable, since its reader acts on it.
                last.truncate(end, if goes_on(last) { segment_bytes } else { 0 })?;
                end
            }
            // It gets its id when it has a segment, and always has one from then on.
            None if directory.disk()?.is_some() => {
                let what = format!("{}: the log has an id, and none of its segments", path.display());
                return Err(EngineError::Corrupt { what });
            }
            None => 0,
        };
        if !segments.last().is_some_and(goes_on) {
            let next = Segment::create(directory.path(), end, segment_bytes)?;
            // One without records had the name of the next, which took its place.
            segments.pop_if(|last| last.first == end);
            segments.push(next);
        }
        let buffer = Vec::new();
        Ok(FileTabletLog { directory, segments, segment_bytes, end, synced: end, buffer, broken: false })
    }

    fn last(&self) -> &Segment {
        self.segments.last().expect("there is always a segment to write to")
    }

    fn check(&self, doing: &str) -> EngineResult<()> {
        if self.broken { refused(format!("{doing}: an earlier sync")) } else { Ok(()) }
    }

    /// Whether the present segment, with what is pending, is full for another frame. A frame larger than a
    /// segment gets one of its own.
    fn is_full_for(&self, pending_bytes: u64, frame_bytes: u64) -> bool {
        let last = self.last();
        let end = self.end + pending_bytes;
        end > last.first && last.offset(end) + frame_bytes > self.segment_bytes
    }

    fn begin_segment(&mut self) -> EngineResult<()> {
        // Its room first: on a full disk this one keeps the room that it has.
        let next = Unfinished::create(self.directory.path(), self.end, self.segment_bytes)?;
        // All before the new segment is stable before the new one exists: so only the last can be torn.
        let result = self.last().truncate(self.end, 0);
        self.broken |= result.is_err();
        result?;
        self.synced = self.end;
        let next = next.finish();
        // Whether an unnamed one is found after a crash nobody knows, but on a full disk it never got its
        // name.
        self.broken |= next.as_ref().is_err_and(|error| !matches!(error, EngineError::Full { .. }));
        self.segments.push(next?);
        Ok(())
    }

    fn write_buffer(&mut self) -> EngineResult<()> {
        let last = self.last();
        let written = device::write_at(&last.file, &self.buffer, last.offset(self.end));
        written.map_err(|error| failed("append to", &last.path, &error))?;
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn append_all(&mut self, records: &[LoggedRecord]) -> EngineResult<()> {
        self.buffer.clear();
        for record in records {
            let pending = self.buffer.len() as u64;
            if self.is_full_for(pending, frame_bytes(record.bytes.len()) as u64) {
                self.write_buffer()?;
                self.begin_segment()?;
            }
            let mark = self.end + self.buffer.len() as u64;
            encode_frame(&mut self.buffer, mark, self.synced, record);
        }
        self.write_buffer()
    }

    /// Takes a failed append back as a whole: nothing of it may be found after a crash. On a full disk the
    /// next try finds the log as it was, and the room that it has.
    fn take_back(&mut self, start: u64) {
        if self.try_take_back(start).is_err() {
            self.broken = true;
            return;
        }
        self.end = start;
        self.synced = self.synced.min(start);
    }

    fn try_take_back(&mut self, start: u64) -> EngineResult<()> {
        while self.last().first > start {
            let path = &self.last().path;
            std::fs::remove_file(path).map_err(|error| failed("remove", path, &error))?;
            // Before the one before it is cut: a segment that another follows ends exactly there.
            sync_directory(self.directory.path())?;
            self.segments.pop();
        }
        // All that a write may have reached.
        self.last().erase(start, self.end + self.buffer.len() as u64)
    }

    /// Reads within one segment from the first record at or behind a mark.
    fn read_segment(
        &self,
        number: usize,
        from: u64,
        count_max: usize,
        out: &mut Vec<(LogMark, LoggedRecord)>,
    ) -> EngineResult<()> {
        let segment = &self.segments[number];
        let segment_end = self.segments.get(number + 1).map_or(self.end, |next| next.first);
        if from >= segment_end {
            return Ok(());
        }
        let is_boundary = from > segment.first && Reader::new(segment, from).next()?.is_some();
        // A mark within a record means the next one, which only a walk from the start can find.
        let mut reader = Reader::new(segment, if is_boundary { from } else { segment.first });
        while out.len() < count_max && reader.mark() < segment_end {
            let mark = reader.mark();
            match reader.next()? {
                Some(record) if mark >= from => out.push((LogMark(mark), record)),
                Some(_) => {}
                None => {
                    let (path, byte) = (segment.path.display(), segment.offset(mark));
                    return Err(EngineError::Corrupt {
                        what: format!("{path}: record at mark {mark} (byte {byte})"),
                    });
                }
            }
        }
        Ok(())
    }
}

/// Whether a segment may get more records, or only the next one, because its frames lie as they did in an
/// older version.
fn goes_on(segment: &Segment) -> bool {
    segment.layout == Layout::Serials
}

/// A segment that is not the last ends exactly where the next begins.
fn check_whole(segment: &Segment, next_first: u64) -> EngineResult<()> {
    let (expected, found) = (segment.offset(next_first), segment.file_bytes()?);
    if expected != found {
        let path = segment.path.display();
        let what = format!("{path}: {found} bytes instead of {expected}, or a segment behind it is missing");
        return Err(EngineError::Corrupt { what });
    }
    Ok(())
}

impl DiskLabel for FileTabletLog {
    fn disk(&mut self) -> EngineResult<Option<DiskId>> {
        self.directory.disk()
    }

    fn set_disk(&mut self, disk: DiskId) -> EngineResult<()> {
        self.directory.set_disk(disk)
    }
}

impl TabletLog for FileTabletLog {
    fn append(&mut self, records: &[LoggedRecord]) -> EngineResult<LogMark> {
        self.check("append to the tablet log")?;
        if let Some(bytes) =
            records.iter().map(|record| record.bytes.len()).find(|bytes| *bytes > PAYLOAD_BYTES_MAX)
        {
            return refused(format!("append a record of {bytes} bytes (at most {PAYLOAD_BYTES_MAX})"));
        }
        let start = self.end;
        self.append_all(records).inspect_err(|_| self.take_back(start))?;
        Ok(LogMark(start))
    }

    fn sync(&mut self) -> EngineResult<()> {
        self.check("sync the tablet log")?;
        if self.synced == self.end {
            return Ok(());
        }
        let last = self.last();
        if let Err(error) = device::sync_data(&last.file) {
            let error = failed("sync", &last.path, &error);
            self.broken = true;
            return Err(error);
        }
        self.synced = self.end;
        Ok(())
    }

    fn read(
        &mut self,
        from: Option<LogMark>,
        count_max: usize,
    ) -> EngineResult<Vec<(LogMark, LoggedRecord)>> {
        self.check("read the tablet log")?;
        let oldest = self.segments[0].first;
        let mut from = from.map_or(oldest, |mark| mark.0.max(oldest));
        let mut found = Vec::new();
        let mut number = self.segments.partition_point(|segment| segment.first <= from) - 1;
        while number < self.segments.len() && found.len() < count_max {
            self.read_segment(number, from, count_max, &mut found)?;
            number += 1;
            from = self.segments.get(number).map_or(from, |next| next.first.max(from));
        }
        Ok(found)
    }

    fn cut(&mut self, before: LogMark) -> EngineResult<()> {
        self.check("cut the tablet log")?;
        let mut removed = false;
        while self.segments.len() > 1 && self.segments[1].first <= before.0.min(self.synced) {
            let path = &self.segments[0].path;
            std::fs::remove_file(path).map_err(|error| failed("remove", path, &error))?;
            self.segments.remove(0);
            removed = true;
        }
        if removed { sync_directory(self.directory.path()) } else { Ok(()) }
    }

    fn bytes_used(&self) -> u64 {
        self.end - self.segments[0].first + (self.segments.len() * SEGMENT_HEADER_BYTES) as u64
    }
}

#[cfg(test)]
mod tests;
