//! Finds the whole, valid frames of a log. After a crash any unsynced byte may be wrong, so every payload is
//! checked.
//!
//! A [`Scan`] ends where the first frame does not fit its checksums. A [`DeepScan`] goes on behind it: other
//! replicas may have the damaged frame, and nobody else may have those that follow.

use bearing_proto::data::DAMAGED_RANGES_MAX;
use bearing_proto::frame::{BLOCK_BYTES, FrameError, FrameHeader, HEADER_BYTES_MAX, MAGIC as FRAME_MAGIC};
use std::ops::Range;

/// Frames begin at a multiple of it.
const FRAME_ALIGN: u64 = 8;

/// What a disk reads or fails to read as a whole.
const SECTOR_BYTES: u64 = 4096;

/// After so many failed reads of single sectors what cannot be read is passed over a window at a time: a disk
/// may take seconds for each.
const SECTORS_FAILED_MAX: u32 = 64;

/// A scan from the start of a log: [`Scan::want`] says what to read, [`Scan::take`] takes it.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    /// A frame starts here; all before are whole.
    at: u64,
    /// Where the log ends.
    end: u64,
    /// Bytes to read at a time.
    window: u32,
    /// The frame at `at`, when it is longer than the window, and how much of its payload was checked.
    body: Option<(FrameHeader, u32)>,
}

/// What a scan knows after a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Not yet the end.
    More,
    /// Whole frames end here.
    End(u64),
    /// A frame of a newer version: not ours to cut.
    Newer,
}

impl Scan {
    pub fn new(end: u64, scan_bytes: u32) -> Scan {
        let window = (scan_bytes / BLOCK_BYTES).max(1) * BLOCK_BYTES;
        Scan { at: 0, end, window, body: None }
    }

    /// The same, from a place at which a frame may begin.
    fn from(self, at: u64) -> Scan {
        Scan { at, body: None, ..self }
    }

    /// The next read, by offset and length; its length is 0 only for an empty log.
    pub fn want(&self) -> (u64, u32) {
        match &self.body {
            None => (self.at, u64::from(self.window).min(self.end - self.at) as u32),
            Some((header, done)) => {
                let offset = self.at + u64::from(header.header_bytes) + u64::from(*done);
                (offset, self.window.min(header.payload_bytes - done))
            }
        }
    }

    /// Where the log ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// All below fits its checksums.
    pub fn verified(&self) -> u64 {
        match &self.body {
            None => self.at,
            Some((header, done)) => self.at + u64::from(header.header_bytes) + u64::from(*done),
        }
    }

    /// All frames below are whole, as far as that is not known already.
    pub fn whole_up_to(&mut self, at: u64) {
        if self.body.is_none() {
            self.at = self.at.max(at);
        }
    }

    pub fn take(&mut self, bytes: &[u8]) -> Found {
        let found = match self.body.take() {
            Some((header, done)) => self.take_body(header, done, bytes),
            None => self.take_window(bytes),
        };
        if found == Found::More && self.at == self.end { Found::End(self.end) } else { found }
    }

    fn take_body(&mut self, header: FrameHeader, done: u32, bytes: &[u8]) -> Found {
        let wanted = self.window.min(header.payload_bytes - done);
        if bytes.len() < wanted as usize || !header.verify(done, bytes) {
            return Found::End(self.at);
        }
        let done = done + wanted;
        if done == header.payload_bytes {
            self.at += header.frame_bytes();
        } else {
            self.body = Some((header, done));
        }
        Found::More
    }

    fn take_window(&mut self, bytes: &[u8]) -> Found {
        let mut position = 0;
        while self.at + (position as u64) < self.end {
            let here = self.at + position as u64;
            let rest = &bytes[position..];
            let header = match FrameHeader::decode(rest) {
                Ok(header) => header,
                Err(_) if position > 0 && rest.len() < HEADER_BYTES_MAX as usize => return self.go_on(here),
                Err(FrameError::Version(_)) if header_fits(rest) => {
                    self.at = here;
                    return Found::Newer;
                }
                Err(FrameError::Version(_) | FrameError::Damaged) => return Found::End(here),
            };
            let start = header.header_bytes as usize;
            let end = start + header.payload_bytes as usize;
            if here + header.frame_bytes() > self.end {
                return Found::End(here);
            }
            match rest.get(start..end) {
                Some(payload) if header.verify(0, payload) => position += header.frame_bytes() as usize,
                Some(_) => return Found::End(here),
                None if position > 0 => return self.go_on(here),
                None => {
                    self.body = Some((header, 0));
                    return Found::More;
                }
            }
            if position > bytes.len() {
                return self.go_on(self.at + position as u64);
            }
        }
        Found::End(self.end)
    }

    fn go_on(&mut self, at: u64) -> Found {
        self.at = at;
        Found::More
    }
}

/// Goes over a whole log and past what is damaged. [`DeepScan::want`] says what to read; what came of it goes
/// to [`DeepScan::take`] or, if it could not be read, to [`DeepScan::pass_over`].
///
/// Where the frames before are whole, a header tells its frame's length whatever became of the payload.
/// Behind damage that is not so: what is found there may be a file's content, such as a copy of another log,
/// or made to look like a frame. From then on a header says nothing unless its payload fits it.
#[derive(Clone, Debug)]
pub(crate) struct DeepScan {
    /// Over frames that are whole so far.
    scan: Scan,
    /// The next whole frame is sought.
    seeking: Option<Seeking>,
    /// The damage that was passed last. Before there is any, every place is certain.
    passed: Option<Passed>,
    damaged: Vec<Range<u64>>,
    /// A read failed that ended here: up to there no more is read at once than a header needs.
    careful_until: u64,
    /// That failed too: the next read ends here.
    limit: Option<u64>,
    /// Reads of single sectors that failed.
    sectors_failed: u32,
}

/// Damage behind which the scan goes on.
#[derive(Clone, Copy, Debug)]
struct Passed {
    from: u64,
    /// Something was found there that may be a frame.
    to: u64,
    unread: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seeking {
    /// The damage begins here.
    from: u64,
    /// No whole frame begins before this place.
    at: u64,
    /// Some of what was passed over could not be read, or may be of a newer version.
    unread: bool,
}

/// What a deep scan knows after a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DeepScanStep {
    /// Not yet the end.
    More,
    /// The furthest whole frame ends here; before it lie these damaged ranges. What could not be read at the
    /// end of the log is damaged, not behind the end: it may be read another time.
    End(u64, Vec<Range<u64>>),
    /// A frame of a newer version: not ours to cut.
    Newer,
}

impl DeepScan {
    pub fn new(end: u64, scan_bytes: u32) -> DeepScan {
        let scan = Scan::new(end, scan_bytes);
        DeepScan {
            scan,
            seeking: None,
            passed: None,
            damaged: Vec::new(),
            careful_until: 0,
            limit: None,
            sectors_failed: 0,
        }
    }

    /// The next read, by offset and length.
    pub fn want(&self) -> (u64, u32) {
        let (offset, length) = match self.seeking {
            None => self.scan.want(),
            Some(Seeking { at, .. }) => {
                (at, u64::from(self.scan.window).min(self.scan.end.saturating_sub(at)) as u32)
            }
        };
        let limit = match self.limit {
            Some(limit) => limit,
            None if offset < self.careful_until && !self.is_in_payload() => sector_behind_header(offset),
            None => return (offset, length),
        };
        (offset, u64::from(length).min(limit - offset) as u32)
    }

    /// Whether what is read next is checked block by block.
    fn is_in_payload(&self) -> bool {
        self.seeking.is_none() && self.scan.body.is_some()
    }

    pub fn take(&mut self, bytes: &[u8]) -> DeepScanStep {
        self.limit = None;
        match self.seeking {
            None => match self.scan.take(bytes) {
                Found::More => DeepScanStep::More,
                Found::Newer if self.passed.is_none() => DeepScanStep::Newer,
                Found::Newer => self.seek_from(self.scan.at, true),
                Found::End(end) if end == self.scan.end => self.ends(end),
                Found::End(at) => self.seek_from(at, false),
            },
            Some(seeking) => self.take_sought(seeking, bytes),
        }
    }

    /// What was wanted cannot be read. Frames that share a read with a sector that fails may be whole: it is
    /// read in smaller pieces, down to that sector.
    pub fn pass_over(&mut self) -> DeepScanStep {
        let (offset, length) = self.want();
        let end = offset + u64::from(length);
        let limits = [sector_behind_header(offset), (offset + 1).next_multiple_of(SECTOR_BYTES)];
        self.limit = limits.into_iter().find(|limit| *limit < end);
        let patient = self.sectors_failed < SECTORS_FAILED_MAX;
        self.careful_until = if patient { self.careful_until.max(end) } else { 0 };
        self.limit = self.limit.filter(|_| patient && !self.is_in_payload());
        if self.limit.is_some() {
            return DeepScanStep::More;
        }
        self.sectors_failed += 1;
        let behind = end.next_multiple_of(FRAME_ALIGN);
        let scanned = self.scan.at;
        match (self.seeking, self.passed, &self.scan.body) {
            (Some(Seeking { from, .. }), ..) => self.seek(Seeking { from, at: behind, unread: true }),
            (None, None, Some((header, _))) => {
                self.seek(Seeking { from: scanned, at: scanned + header.frame_bytes(), unread: true })
            }
            (None, None, None) => self.seek(Seeking { from: scanned, at: behind, unread: true }),
            (None, Some(_), _) => self.seek_from(scanned, true),
        }
    }

    /// The frame at a place is not whole. What was found behind damage and is not whole is a part of that.
    fn seek_from(&mut self, at: u64, unread: bool) -> DeepScanStep {
        let behind = at + FRAME_ALIGN;
        self.seek(match self.passed {
            None => Seeking { from: at, at, unread },
            Some(passed) if passed.to == at => {
                Seeking { from: passed.from, at: behind, unread: unread || passed.unread }
            }
            Some(_) => Seeking { from: at, at: behind, unread },
        })
    }

    fn seek(&mut self, seeking: Seeking) -> DeepScanStep {
        if seeking.at < self.scan.end {
            self.seeking = Some(seeking);
            return DeepScanStep::More;
        }
        if seeking.unread {
            self.add_damaged(seeking.from..self.scan.end);
            return self.ends(self.scan.end);
        }
        // What is torn at the end is nobody's loss here.
        if let Some(last) = self.damaged.last_mut() {
            last.end = last.end.min(seeking.from);
        }
        self.damaged.pop_if(|last| last.is_empty());
        self.ends(seeking.from)
    }

    fn ends(&mut self, end: u64) -> DeepScanStep {
        DeepScanStep::End(end, std::mem::take(&mut self.damaged))
    }

    fn take_sought(&mut self, seeking: Seeking, bytes: &[u8]) -> DeepScanStep {
        let Seeking { from, at, mut unread } = seeking;
        if at == from
            && let Ok(header) = FrameHeader::decode(bytes)
        {
            // Only its payload is damaged: its length is known. Frames within it are a file's content.
            return self.seek(Seeking { from, at: at + header.frame_bytes(), unread });
        }
        let is_last = at + bytes.len() as u64 >= self.scan.end;
        for position in (0..bytes.len()).step_by(FRAME_ALIGN as usize) {
            let (here, rest) = (at + position as u64, &bytes[position..]);
            if here == from || !rest.starts_with(&FRAME_MAGIC) {
                continue;
            }
            if position > 0 && rest.len() < HEADER_BYTES_MAX as usize && !is_last {
                return self.seek(Seeking { from, at: here, unread });
            }
            match FrameHeader::decode(rest) {
                Ok(header) if here + header.frame_bytes() <= self.scan.end && may_be_whole(&header, rest) => {
                    self.add_damaged(from..here);
                    self.passed = Some(Passed { from, to: here, unread });
                    (self.seeking, self.scan) = (None, self.scan.clone().from(here));
                    return DeepScanStep::More;
                }
                // It is kept, whatever it is.
                Err(FrameError::Version(_)) => unread |= header_fits(rest),
                Ok(_) | Err(FrameError::Damaged) => {}
            }
        }
        // A read that came back short says that there is no more.
        let passed = if bytes.is_empty() { u64::MAX - at } else { bytes.len() as u64 };
        self.seek(Seeking { from, at: (at + passed).min(self.scan.end), unread })
    }

    /// Adds damage, which may go on from what was added last.
    fn add_damaged(&mut self, range: Range<u64>) {
        let full = self.damaged.len() >= DAMAGED_RANGES_MAX;
        match self.damaged.last_mut() {
            Some(last) if full || last.end >= range.start => last.end = range.end,
            _ => self.damaged.push(range),
        }
    }
}

/// Where the first sector ends that lies behind a header, if one begins here.
fn sector_behind_header(offset: u64) -> u64 {
    (offset + u64::from(HEADER_BYTES_MAX)).next_multiple_of(SECTOR_BYTES)
}

/// Whether what is here of a frame fits its header, as far as it is here.
fn may_be_whole(header: &FrameHeader, bytes: &[u8]) -> bool {
    let start = header.header_bytes as usize;
    let first = header.payload_bytes.min(BLOCK_BYTES) as usize;
    bytes.get(start..start + first).is_none_or(|block| header.verify(0, block))
}

/// Whether a header of any version fits its checksum: its length and its checksum lie at the same place in
/// all versions, so that a newer frame is told from a torn one.
fn header_fits(bytes: &[u8]) -> bool {
    let fixed = bytes.first_chunk::<16>();
    let length = fixed.map_or(0, |fixed| usize::from(u16::from_le_bytes([fixed[6], fixed[7]])));
    let header = bytes.get(..length).filter(|header| header.len() >= 16);
    header.is_some_and(|header| {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..]);
        crc.to_le_bytes() == header[12..16]
    })
}
