//! Where what lies in the keyspace: the row of each tablet, the rows of its generation, and which generations
//! are left over.
//!
//! A tablet that is made gets a generation, a number that no rows have, and its rows begin with it. So one
//! that is removed and made again is empty at once, whatever is left of it.

use bearing_seams::{EngineError, EngineResult, KeyRange, Pair};
use bearing_types::{LogIndex, TabletSerial};
use std::ops::Range;

/// Rows of tablets begin with this number.
pub const TABLETS: u64 = 0;
/// Rows that name generations of removed tablets begin with this number.
pub const LEFT_OVER: u64 = 1;
/// The least generation.
pub const FIRST_GENERATION: u64 = 2;
const NUMBER_BYTES: usize = size_of::<u64>();
/// What fjall allows, less our prefix.
pub const KEY_BYTES_MAX: usize = 65_535 - NUMBER_BYTES;

/// A tablet that the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub generation: u64,
    pub applied: LogIndex,
    /// Rows of it could not be read when the database was written anew, and are not in it.
    pub damaged: bool,
}

/// What the value of a tablet's row ends with if it is damaged.
const DAMAGED: &[u8] = &[1];

impl Held {
    /// Of a tablet's row.
    pub fn read((key, value): &Pair) -> EngineResult<(TabletSerial, Held)> {
        let (generation, applied) = (number(value, 0), number(value, NUMBER_BYTES));
        let rest = value.get(2 * NUMBER_BYTES..).filter(|rest| rest.is_empty() || *rest == DAMAGED);
        match (number(key, NUMBER_BYTES), generation, applied, rest) {
            (Some(serial), Some(generation), Some(applied), Some(rest)) if generation >= FIRST_GENERATION => {
                let (applied, damaged) = (LogIndex(applied), !rest.is_empty());
                Ok((TabletSerial(serial), Held { generation, applied, damaged }))
            }
            _ => damaged(format!("the row of a tablet, {key:02x?} with {value:02x?}")),
        }
    }

    /// What its row says.
    pub fn value(self) -> Vec<u8> {
        let damaged = if self.damaged { DAMAGED } else { &[] };
        [&two_numbers(self.generation, self.applied.0)[..], damaged].concat()
    }
}

/// The key of a tablet's row.
pub fn tablet_row(tablet: TabletSerial) -> Vec<u8> {
    two_numbers(TABLETS, tablet.0).to_vec()
}

/// The key of the row of a generation that is left over.
pub fn left_over_row(generation: u64) -> Vec<u8> {
    two_numbers(LEFT_OVER, generation).to_vec()
}

/// The generation that a row says is left over.
pub fn generation_of(key: &[u8]) -> EngineResult<u64> {
    match number(key, NUMBER_BYTES).filter(|generation| *generation >= FIRST_GENERATION) {
        Some(generation) => Ok(generation),
        None => damaged(format!("the row of a removed tablet, {key:02x?}")),
    }
}

/// Where a key of a generation is.
pub fn row_key(generation: u64, key: &[u8]) -> EngineResult<Vec<u8>> {
    if key.len() > KEY_BYTES_MAX {
        let doing = format!("use a key of {} bytes (at most {KEY_BYTES_MAX})", key.len());
        return Err(EngineError::Failed { doing });
    }
    Ok([&generation.to_be_bytes(), key].concat())
}

/// The key that is there.
pub fn key_of(row: &[u8]) -> &[u8] {
    &row[NUMBER_BYTES..]
}

/// Where the rows of a range are; `None` for an empty one.
pub fn within(generation: u64, range: &KeyRange) -> EngineResult<Option<Range<Vec<u8>>>> {
    let start = row_key(generation, &range.start)?;
    let end = match &range.end {
        Some(end) => row_key(generation, end)?,
        None => (generation + 1).to_be_bytes().to_vec(),
    };
    Ok((start < end).then_some(start..end))
}

fn two_numbers(first: u64, second: u64) -> [u8; 2 * NUMBER_BYTES] {
    let mut bytes = [0; 2 * NUMBER_BYTES];
    bytes[..NUMBER_BYTES].copy_from_slice(&first.to_be_bytes());
    bytes[NUMBER_BYTES..].copy_from_slice(&second.to_be_bytes());
    bytes
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

fn damaged<T>(what: String) -> EngineResult<T> {
    Err(EngineError::Corrupt { what })
}
