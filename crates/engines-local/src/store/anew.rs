//! A database with damage is written anew when it is opened next. Otherwise it would end the server again and
//! again: fjall compacts many tables into one, and its worker gives up when it meets a block that makes no
//! sense, whichever tablet that is of, and although the tablet is long gone.

use super::rows::{Held, Lost, TABLETS, key_of, salvage, tablet_row};
use super::{DATABASE, Memtable, empty_journals, flush, open_database, translate, whole_row};
use crate::directory::{failed, sync_directory};
use bearing_seams::{EngineError, EngineResult};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

/// There when damage was met.
const MARK: &str = "DAMAGED";
/// The database with damage, until the new one has its name.
const SET_ASIDE: &str = "rows.damaged";
/// Rows that are written together.
const ROWS_AT_ONCE: usize = 1_000;

/// Has the database in a directory written anew when it is opened next.
pub fn mark(directory: &Path) {
    // If this is not stable, damage that is still there is met again.
    let _ = File::create(directory.join(MARK));
}

/// Writes the database in a directory anew, if damage was met. Of rows that cannot be read it is remembered
/// where they were; what is left over of removed tablets is not copied.
pub fn write_if_damaged(directory: &Path) -> EngineResult<()> {
    let (database, aside) = (directory.join(DATABASE), directory.join(SET_ASIDE));
    if aside.exists() && !database.exists() {
        rename(&aside, &database, directory)?;
    }
    let mark = directory.join(MARK);
    if mark.exists() && database.exists() {
        let new = database.with_extension("new");
        remove(&new)?;
        if let Err(error) = copy(&database, &new) {
            // With no room for both, the damage is lived with until there is.
            remove(&new)?;
            return if matches!(error, EngineError::Full { .. }) { Ok(()) } else { Err(error) };
        }
        remove(&aside)?;
        rename(&database, &aside, directory)?;
        rename(&new, &database, directory)?;
        fs::remove_file(&mark).map_err(|error| failed("remove", &mark, &error))?;
    }
    remove(&aside)
}

fn copy(from: &Path, to: &Path) -> EngineResult<()> {
    empty_journals(from)?;
    let (source_database, source) = open_database(from)?;
    let (database, target) = open_database(to)?;
    let mut memtable = Memtable::default();
    for row in source.prefix(TABLETS.to_be_bytes()).map(whole_row) {
        let (tablet, mut held) = Held::read(&row?)?;
        let (mut batch, mut gathered) = (database.batch(), 0);
        let lost = salvage(
            || source.prefix(held.generation.to_be_bytes()).map(whole_row),
            |(key, value)| {
                memtable.add(&key, &value);
                batch.insert(&target, key, value);
                gathered += 1;
                if gathered % ROWS_AT_ONCE == 0 {
                    commit(std::mem::replace(&mut batch, database.batch()))?;
                    memtable.rotate_if_full(&database, &target)?;
                }
                Ok(())
            },
        )?;
        let key = |row: Vec<u8>| key_of(&row).to_vec();
        let lost = lost.map(|Lost { after, before }| Lost { after: after.map(key), before: before.map(key) });
        held.lost = joined(held.lost, lost);
        batch.insert(&target, tablet_row(tablet), held.value());
        commit(batch)?;
    }
    flush(&database, &target)?;
    drop((source, source_database));
    Ok(())
}

/// All that is lost of a tablet.
fn joined(before: Option<Lost>, now: Option<Lost>) -> Option<Lost> {
    match (before, now) {
        (Some(one), Some(other)) => Some(Lost {
            after: one.after.min(other.after),
            before: one.before.zip(other.before).map(|(one, other)| one.max(other)),
        }),
        (one, other) => one.or(other),
    }
}

fn commit(batch: fjall::OwnedWriteBatch) -> EngineResult<()> {
    batch.commit().map_err(|error| translate("write the store anew", error))
}

fn rename(from: &Path, to: &Path, directory: &Path) -> EngineResult<()> {
    fs::rename(from, to).map_err(|error| failed("name", to, &error))?;
    sync_directory(directory)
}

fn remove(path: &Path) -> EngineResult<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
