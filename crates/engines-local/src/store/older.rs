//! Stores made before version 4: a keyspace for each tablet, in a database of another name.

use super::rows::{FIRST_GENERATION, Held, Lost, row_key, salvage, tablet_row};
use super::{Memtable, empty_journals, flush, open_any_database, options, translate, whole_row};
use crate::directory::{failed, sync_directory};
use bearing_seams::{EngineError, EngineResult};
use bearing_types::{Block, LogIndex, Position, TabletSerial};
use fjall::{Database, Keyspace};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const DATABASE: &str = "fjall";
/// One row in it kept fjall's sequence numbers from going back.
const SEQUENCE: &str = "sequence";
/// The key of the applied index, 8 bytes, little-endian. Keys of rows begin with [`ROW`].
const APPLIED_KEY: [u8; 1] = [0];
const ROW: u8 = 1;
/// Rows that are written together.
const ROWS_AT_ONCE: usize = 1_000;

/// Writes all that an older database in a directory has to one of today, and makes it stable. Of rows
/// that cannot be read it is remembered where they were.
pub fn take_over(directory: &Path, into: &Database, rows: &Keyspace) -> EngineResult<()> {
    let path = directory.join(DATABASE);
    if !path.exists() {
        return Ok(());
    }
    empty_journals(&path)?;
    let database = open_any_database(&path)?;
    let mut known = BTreeSet::new();
    let names = database.list_keyspace_names().into_iter().filter(|name| &**name != SEQUENCE);
    let mut memtable = Memtable::default();
    for (name, generation) in names.zip(FIRST_GENERATION..) {
        let damage = |what: &str| EngineError::Corrupt {
            what: format!("{}: keyspace {:?} {what}", path.display(), &*name),
        };
        let tablet = tablet_of(&name).ok_or_else(|| damage("is not of a tablet"))?;
        if !known.insert(tablet) {
            return Err(damage("is the second one of its tablet"));
        }
        let keyspace =
            database.keyspace(&name, options).map_err(|error| translate("open keyspace", error))?;
        let (mut batch, mut gathered) = (into.batch(), 0);
        let mut applied = None;
        let lost = salvage(
            || keyspace.iter().map(whole_row),
            |(key, value)| {
                memtable.add(&key, &value);
                match key.split_first() {
                    Some((&ROW, key)) => batch.insert(rows, row_key(generation, key)?, value),
                    _ if key == APPLIED_KEY => {
                        let index = <[u8; 8]>::try_from(value).map_err(|_| damage("has no applied index"))?;
                        applied = Some(LogIndex(u64::from_le_bytes(index)));
                    }
                    _ => return Err(damage("has a row that no store wrote")),
                }
                gathered += 1;
                if gathered % ROWS_AT_ONCE == 0 {
                    commit(std::mem::replace(&mut batch, into.batch()))?;
                    memtable.rotate_if_full(into, rows)?;
                }
                Ok(())
            },
        )?;
        let key = |row: Vec<u8>| row.strip_prefix(&[ROW]).map(<[u8]>::to_vec);
        let lost = lost
            .map(|Lost { after, before }| Lost { after: after.and_then(key), before: before.and_then(key) });
        // Without knowing up to where it is applied, none of it can be gone on from.
        let nothing = lost.as_ref().filter(|_| applied.is_none()).map(|_| Lost { after: None, before: None });
        let held = Held { generation, applied: applied.unwrap_or(LogIndex::ZERO), lost: nothing.or(lost) };
        batch.insert(rows, tablet_row(tablet), held.value());
        commit(batch)?;
    }
    flush(into, rows)
}

fn commit(batch: fjall::OwnedWriteBatch) -> EngineResult<()> {
    batch.commit().map_err(|error| translate("take over an older store", error))
}

/// Removes an older database, of which all has been taken over.
pub fn remove(directory: &Path) -> EngineResult<()> {
    let path = directory.join(DATABASE);
    match fs::remove_dir_all(&path) {
        Ok(()) => sync_directory(directory),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", &path, &error)),
    }
}

fn tablet_of(name: &str) -> Option<TabletSerial> {
    let Some(number) = name.strip_prefix('t') else { return tablet_of_block(name) };
    let tablet = TabletSerial(number.parse().ok()?);
    (tablet.to_string() == name).then_some(tablet)
}

/// Keyspaces that were made before version 3 are named by blocks.
fn tablet_of_block(name: &str) -> Option<TabletSerial> {
    let (start, prefix_bits) = name.split_once('-')?;
    let (start, prefix_bits) = (u64::from_str_radix(start, 16).ok()?, prefix_bits.parse::<u8>().ok()?);
    let block = (prefix_bits <= 64).then(|| Block::around(Position(start), prefix_bits))?;
    let is_it = name == format!("{:016x}-{prefix_bits}", block.start().0);
    TabletSerial::of_first(block).filter(|_| is_it)
}
