//! One file of the tablet log: making, opening and scanning it.

use super::frame::{
    ALIGNMENT, FRAME_MAGIC, Layout, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION, decode_segment_header,
    encode_segment_header,
};
use crate::device;
use crate::directory::{failed, is_full, sync_directory};
use bearing_seams::{EngineError, EngineResult, LoggedRecord};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Read ahead when frames are read in order.
const WINDOW_BYTES: usize = 256 * 1024;
/// What a segment is called until its header is stable.
const UNFINISHED: &str = "new";

/// A segment's file and the mark of its first record.
#[derive(Debug)]
pub struct Segment {
    /// The file.
    pub file: File,
    /// Its path, for messages and removal.
    pub path: PathBuf,
    /// The mark of the first record.
    pub first: u64,
    /// How its frames lie.
    pub layout: Layout,
}

/// A segment with room and a header, but without its name: nobody would find it.
#[derive(Debug)]
pub struct Unfinished {
    segment: Segment,
    directory: PathBuf,
}

impl Unfinished {
    /// Makes a segment with `reserve_bytes` of room.
    pub fn create(directory: &Path, first: u64, reserve_bytes: u64) -> EngineResult<Unfinished> {
        let path = directory.join(format!("log-{first:016x}.seg"));
        let unfinished = path.with_extension(UNFINISHED);
        let make = || {
            let file =
                OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&unfinished)?;
            reserve(&file, reserve_bytes)?;
            device::write_at(&file, &encode_segment_header(first), 0)?;
            device::sync_all(&file)?;
            Ok(file)
        };
        let file = make().map_err(|error: std::io::Error| {
            // Give back what was reserved; at opening it would be removed anyway.
            let _ = fs::remove_file(&unfinished);
            failed("make log segment", &path, &error)
        })?;
        let segment = Segment { file, path, first, layout: Layout::Serials };
        Ok(Unfinished { segment, directory: directory.to_owned() })
    }

    /// Gives it its name. When this returns, it is stable with its name and holds no record.
    pub fn finish(self) -> EngineResult<Segment> {
        let path = &self.segment.path;
        fs::rename(path.with_extension(UNFINISHED), path).map_err(|error| failed("name", path, &error))?;
        // Not `Full`, whatever the system says: the name is there, if not for sure.
        sync_directory(&self.directory)
            .map_err(|error| EngineError::Failed { doing: format!("name {} ({error})", path.display()) })?;
        Ok(self.segment)
    }
}

impl Segment {
    /// Makes a segment with `reserve_bytes` of room if there is so much: a full disk must not hinder opening.
    /// When this returns, it is stable with its name and holds no record.
    pub fn create(directory: &Path, first: u64, reserve_bytes: u64) -> EngineResult<Segment> {
        match Unfinished::create(directory, first, reserve_bytes) {
            Err(EngineError::Full { .. }) => Unfinished::create(directory, first, 0)?.finish(),
            made => made?.finish(),
        }
    }

    /// Opens all segments of a directory in order, and removes what an interrupted creation left.
    pub fn open_all(directory: &Path) -> EngineResult<Vec<Segment>> {
        let entries = fs::read_dir(directory).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let entries = entries.map_err(|error| failed("list", directory, &error))?;
        let mut segments = Vec::new();
        for path in entries.into_iter().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(first) = name.strip_prefix("log-").and_then(|rest| rest.strip_suffix(".seg")) {
                let first = u64::from_str_radix(first, 16).ok();
                segments.push(Segment::open(path.clone(), first)?);
            } else if name.starts_with("log-") && name.ends_with(".new") {
                fs::remove_file(&path).map_err(|error| failed("remove", &path, &error))?;
            }
        }
        segments.sort_by_key(|segment| segment.first);
        Ok(segments)
    }

    fn open(path: PathBuf, named_first: Option<u64>) -> EngineResult<Segment> {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        let mut open = || {
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let length = read_up_to(&file, &mut header, 0)?;
            Ok((file, length))
        };
        let (file, length) = open().map_err(|error: std::io::Error| failed("open", &path, &error))?;
        match decode_segment_header(&header[..length]) {
            SegmentHeader::First(first, layout) if Some(first) == named_first => {
                Ok(Segment { file, path, first, layout })
            }
            SegmentHeader::Newer(found) => {
                Err(EngineError::NewerVersion { what: path.display().to_string(), found, known: VERSION })
            }
            // A segment gets its name only after its header is stable, so this is damage and not an
            // interrupted creation.
            SegmentHeader::First(..) | SegmentHeader::Invalid => {
                Err(EngineError::Corrupt { what: format!("{}: its header", path.display()) })
            }
        }
    }

    /// The offset in the file at which a mark lies.
    pub fn offset(&self, mark: u64) -> u64 {
        mark - self.first + SEGMENT_HEADER_BYTES as u64
    }

    /// The mark at an offset of the file.
    pub fn mark(&self, offset: u64) -> u64 {
        offset - SEGMENT_HEADER_BYTES as u64 + self.first
    }

    /// The file's length in bytes.
    pub fn file_bytes(&self) -> EngineResult<u64> {
        let metadata = self.file.metadata().map_err(|error| failed("read", &self.path, &error))?;
        Ok(metadata.len())
    }

    /// Cuts the file behind a mark, reserves room again if asked and there is some, and makes that stable.
    pub fn truncate(&self, end: u64, reserve_bytes: u64) -> EngineResult<()> {
        let cut = || {
            self.file.set_len(self.offset(end))?;
            match reserve(&self.file, reserve_bytes) {
                // A full disk must not hinder opening: what is here is read, and appends say what they lack.
                Err(error) if is_full(&error) => {}
                reserved => reserved?,
            }
            device::sync_all(&self.file)
        };
        cut().map_err(|error| failed("cut", &self.path, &error))
    }

    /// Overwrites what lies between two marks with zeros, as far as the file goes, and makes that stable. The
    /// file keeps its room.
    pub fn erase(&self, start: u64, end: u64) -> EngineResult<()> {
        let erase = || {
            let mut window = vec![0; WINDOW_BYTES];
            let (mut offset, end) = (self.offset(start), self.offset(end));
            while offset < end {
                let length = WINDOW_BYTES.min((end - offset) as usize);
                let held = read_up_to(&self.file, &mut window[..length], offset)?;
                // Room that was never written reads as zeros; writing there could need more of it.
                if window[..held].iter().any(|byte| *byte != 0) {
                    window.fill(0);
                    device::write_at(&self.file, &window[..held], offset)?;
                }
                offset += if held < length { end - offset } else { held as u64 };
            }
            device::sync_all(&self.file)
        };
        erase().map_err(|error: std::io::Error| failed("erase the end of", &self.path, &error))
    }

    /// Writes what lies between two marks over itself: it may be in the system's memory only, and look
    /// written.
    pub fn write_again(&self, start: u64, end: u64) -> EngineResult<()> {
        let written = device::write_again(&self.file, self.offset(start), self.offset(end));
        written.map_err(|error| failed("write the end again of", &self.path, &error))
    }

    /// The mark behind the last whole record, behind which the rest of the file must be cut off; and the mark
    /// before which all was synced, as the records say. A record that is broken although a later one says
    /// that it had been synced is damage.
    pub fn find_end(&self) -> EngineResult<(u64, u64)> {
        let mut reader = Reader::new(self, self.first);
        // What is before this segment was stable before it was made.
        let mut known = self.first;
        while let Some((_, synced)) = reader.next_with_synced()? {
            known = known.max(synced);
        }
        let end = reader.mark();
        match self.synced_according_to_later(end)? {
            Some(synced) if synced > end => {
                let what = format!(
                    "{}: record at mark {end} (byte {}); a later record says that all before mark {synced} was synced",
                    self.path.display(),
                    self.offset(end)
                );
                Err(EngineError::Corrupt { what })
            }
            _ => Ok((end, known.min(end))),
        }
    }

    /// The largest synced mark that a whole record behind `end` claims. Blocks of an unsynced tail reach the
    /// disk in any order, so whole records behind a broken one are normal; but they tell how far the log was
    /// synced when they were written.
    fn synced_according_to_later(&self, end: u64) -> EngineResult<Option<u64>> {
        let mut window = Window::default();
        let mut offset = self.offset(end);
        let mut largest = None;
        loop {
            let piece = window.get(self, offset, WINDOW_BYTES)?;
            if piece.len() < self.layout.header_bytes() {
                return Ok(largest);
            }
            let mut steps = piece.chunks_exact(ALIGNMENT);
            let found = steps.position(|step| step.starts_with(FRAME_MAGIC));
            offset += found.map_or(piece.len() / ALIGNMENT * ALIGNMENT, |step| step * ALIGNMENT) as u64;
            if found.is_some() {
                let mut reader = Reader::new(self, self.mark(offset));
                largest = largest.max(reader.next_with_synced()?.map(|(_, synced)| synced));
                offset = self.offset(reader.mark()).max(offset + ALIGNMENT as u64);
            }
        }
    }
}

/// Reserves room so that later syncs need not write the file's length. Where the file system cannot, nothing
/// is lost but speed.
fn reserve(file: &File, bytes: u64) -> std::io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let length = libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
    // SAFETY: the descriptor is open for writing (borrowed here); the call takes no pointers.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A piece of the file in memory.
#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    start: u64,
}

impl Window {
    /// The bytes at an offset, fewer only at the end of the file.
    fn get(&mut self, segment: &Segment, offset: u64, length: usize) -> EngineResult<&[u8]> {
        let held = offset >= self.start && offset + length as u64 <= self.start + self.bytes.len() as u64;
        if !held {
            self.bytes.resize(length.max(WINDOW_BYTES), 0);
            let filled = read_up_to(&segment.file, &mut self.bytes, offset);
            let filled = filled.map_err(|error| failed("read", &segment.path, &error))?;
            self.bytes.truncate(filled);
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from..(from + length).min(self.bytes.len())])
    }
}

/// Reads a segment's records in order.
pub struct Reader<'a> {
    segment: &'a Segment,
    window: Window,
    mark: u64,
}

impl<'a> Reader<'a> {
    /// A reader from a mark on.
    pub fn new(segment: &'a Segment, mark: u64) -> Reader<'a> {
        Reader { segment, window: Window::default(), mark }
    }

    /// The mark of the next record.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// The next record, or `None` if no whole record lies here.
    pub fn next(&mut self) -> EngineResult<Option<LoggedRecord>> {
        Ok(self.next_with_synced()?.map(|(record, _)| record))
    }

    /// The next record and the mark before which all was synced when it was written.
    fn next_with_synced(&mut self) -> EngineResult<Option<(LoggedRecord, u64)>> {
        let offset = self.segment.offset(self.mark);
        let layout = self.segment.layout;
        let header = self.window.get(self.segment, offset, layout.header_bytes())?;
        let Some(length) = layout.payload_bytes(header) else { return Ok(None) };
        let frame = self.window.get(self.segment, offset, layout.frame_bytes(length))?;
        let Some(found) = layout.decode_frame(frame, self.mark) else { return Ok(None) };
        self.mark += layout.frame_bytes(length) as u64;
        Ok(Some(found))
    }
}
