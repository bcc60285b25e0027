//! Finds where the whole, valid frames of a log end. After a crash any unsynced byte may be wrong, so every payload is checked.

use crate::check::HEADER_BYTES_MAX;
use bearing_proto::frame::{BLOCK_BYTES, FrameError, FrameHeader};

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
                Err(FrameError::Version(_)) if header_fits(rest) => return Found::Newer,
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

/// Whether a header of any version fits its checksum: its length and its checksum lie at the same place in all versions, so that a newer frame
/// is told from a torn one.
fn header_fits(bytes: &[u8]) -> bool {
    let fixed = bytes.first_chunk::<16>();
    let length = fixed.map_or(0, |fixed| usize::from(u16::from_le_bytes([fixed[6], fixed[7]])));
    let header = bytes.get(..length).filter(|header| header.len() >= 16);
    header.is_some_and(|header| {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..]);
        crc.to_le_bytes() == header[12..16]
    })
}
