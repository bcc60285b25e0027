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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub generation: u64,
    pub applied: LogIndex,
    /// Rows of it that could not be read when the database was written anew, and are not in it.
    pub lost: Option<Lost>,
}

/// The keys between two that could be read, or from the first or to the last of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub after: Option<Vec<u8>>,
    pub before: Option<Vec<u8>>,
}

impl Lost {
    fn begins_before(&self, end: Option<&[u8]>) -> bool {
        self.after.as_deref().zip(end).is_none_or(|(after, end)| after < end)
    }

    fn ends_behind(&self, start: &[u8]) -> bool {
        self.before.as_deref().is_none_or(|before| start < before)
    }

    /// Whether what was stored at a key may be lost.
    pub fn has(&self, key: &[u8]) -> bool {
        self.begins_before(Some(key)) && self.ends_behind(key)
    }

    /// Whether something may be lost between these keys, as far as rows were found: of a range that has more
    /// rows than were wanted, up to the last of them.
    pub fn is_in(&self, range: &KeyRange, last: Option<&[u8]>) -> bool {
        self.begins_before(last.or(range.end.as_deref())) && self.ends_behind(&range.start)
    }
}

impl Held {
    /// Of a tablet's row.
    pub fn read((key, value): &Pair) -> EngineResult<(TabletSerial, Held)> {
        let (generation, applied) = (number(value, 0), number(value, NUMBER_BYTES));
        let lost = value.get(2 * NUMBER_BYTES..).and_then(lost_of);
        match (number(key, NUMBER_BYTES), generation, applied, lost) {
            (Some(serial), Some(generation), Some(applied), Some(lost)) if generation >= FIRST_GENERATION => {
                Ok((TabletSerial(serial), Held { generation, applied: LogIndex(applied), lost }))
            }
            _ => damaged(format!("the row of a tablet, {key:02x?} with {value:02x?}")),
        }
    }

    /// What its row says.
    pub fn value(&self) -> Vec<u8> {
        let mut value = two_numbers(self.generation, self.applied.0).to_vec();
        for key in self.lost.iter().flat_map(|Lost { after, before }| [after, before]) {
            match key {
                Some(key) => {
                    value.push(1);
                    value.extend((key.len() as u32).to_be_bytes());
                    value.extend(key);
                }
                None => value.push(0),
            }
        }
        value
    }
}

/// What is lost of a tablet by the end of its row's value.
fn lost_of(mut rest: &[u8]) -> Option<Option<Lost>> {
    if rest.is_empty() {
        return Some(None);
    }
    let mut key = || {
        let (is_there, behind) = rest.split_first()?;
        rest = behind;
        match is_there {
            0 => Some(None),
            1 => {
                let (length, behind) = rest.split_first_chunk()?;
                let (key, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
                rest = behind;
                Some(Some(key.to_vec()))
            }
            _ => None,
        }
    };
    let lost = Lost { after: key()?, before: key()? };
    rest.is_empty().then_some(Some(lost))
}

/// Gives all rows that can be read, from both ends up to damage, and what lies in between.
pub fn salvage<I: DoubleEndedIterator<Item = EngineResult<Pair>>>(
    rows: impl Fn() -> I,
    mut take: impl FnMut(Pair) -> EngineResult<()>,
) -> EngineResult<Option<Lost>> {
    let mut lost = Lost { after: None, before: None };
    for row in rows() {
        match row {
            Err(EngineError::Corrupt { .. }) => {
                for row in rows().rev() {
                    match row {
                        Ok((key, value)) if Some(&key) > lost.after.as_ref() => {
                            lost.before = Some(key.clone());
                            take((key, value))?;
                        }
                        Ok(_) | Err(EngineError::Corrupt { .. }) => break,
                        Err(error) => return Err(error),
                    }
                }
                return Ok(Some(lost));
            }
            row => {
                let row = row?;
                lost.after = Some(row.0.clone());
                take(row)?;
            }
        }
    }
    Ok(None)
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
