//! The bare store: the tablet log and the entry store, fed with records of the sizes that a metadata server
//! writes, in batches, with the same sync and the same cutting of the log, and nothing else.

use super::machine::{self, CLIENT_CORE, SERVER_CORE};
use anyhow::{Context, Result, ensure};
use bearing_engines_local::{FileTabletLog, FjallStore};
use bearing_meta::{Key, LogEntry};
use bearing_seams::{Change, LoggedRecord, Store, TabletLog};
use bearing_server::config::MetadataLimits;
use bearing_server::formats::{LOG_CONTENTS, STORE_CONTENTS};
use bearing_types::{Epoch, LogIndex, NameHash, NodeId, Sequence, TabletSerial};
use std::path::Path;
use std::time::{Duration, Instant};

/// The log is read in pages of so many records.
const PAGE: usize = 4_096;
/// All is written to one tablet.
const TABLET: TabletSerial = TabletSerial(1);

/// What a metadata server logged for one create.
#[derive(Clone, Debug)]
struct Template {
    bytes: Vec<u8>,
    changes: Vec<(Key, Option<Vec<u8>>)>,
}

/// Records of creates as a metadata server wrote them.
pub struct Templates(Vec<Template>);

impl Templates {
    /// Reads them from the directory of a stopped metadata server.
    pub fn read(server: &Path) -> Result<Templates> {
        let mut log =
            FileTabletLog::open(&server.join("tablet-log"), &LOG_CONTENTS).context("open the tablet log")?;
        let mut templates = Vec::new();
        let mut from = None;
        loop {
            let page = log.read(from, PAGE).context("read the tablet log")?;
            let end = page.len() < PAGE;
            for (mark, record) in page {
                if from != Some(mark) {
                    templates.extend(template(record)?);
                }
                from = Some(mark);
            }
            if end {
                break;
            }
        }
        ensure!(!templates.is_empty(), "the metadata server logged no creates");
        Ok(Templates(templates))
    }

    /// The bytes of a log record of a create, on average.
    pub fn bytes_mean(&self) -> usize {
        self.0.iter().map(|template| template.bytes.len()).sum::<usize>() / self.0.len()
    }

    /// The changes of a create, on average.
    pub fn changes_mean(&self) -> f64 {
        self.0.iter().map(|template| template.changes.len()).sum::<usize>() as f64 / self.0.len() as f64
    }
}

/// The template that a record gives, if it is of a create: a name, a node and a fragment.
fn template(record: LoggedRecord) -> Result<Option<Template>> {
    let entry = LogEntry::decode(&record.bytes).context("decode a log record")?;
    let mut changes = Vec::new();
    for change in entry.changes {
        changes.push((Key::decode(&change.key).context("decode a key")?, change.value));
    }
    let has = |wanted: fn(&Key) -> bool| changes.iter().any(|(key, _)| wanted(key));
    let is_create = has(|key| matches!(key, Key::Name(..)))
        && has(|key| matches!(key, Key::Node(_)))
        && has(|key| matches!(key, Key::Fragment(_)));
    Ok(is_create.then_some(Template { bytes: record.bytes, changes }))
}

/// What the bare store did.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Records written, each as one create's.
    pub records: u64,
    /// The time in the log and the store.
    pub elapsed: Duration,
    /// The processor time of this process meanwhile, the making of batches included.
    pub processor: Duration,
}

impl Written {
    /// Processor time per record, in microseconds.
    pub fn processor_us_per_record(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / self.records.max(1) as f64
    }
}

/// See the module.
pub struct Bare {
    store: FjallStore,
    log: FileTabletLog,
    index: LogIndex,
    number: u64,
    flushed: bool,
}

impl Bare {
    /// An empty log and an empty store in a directory.
    pub fn make(directory: &Path) -> Result<Bare> {
        std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
        // The store's own threads belong to the server's core, as they do in the server.
        machine::pin(SERVER_CORE)?;
        let mut store =
            FjallStore::open(&directory.join("store"), &STORE_CONTENTS).context("open the store")?;
        let path = directory.join("tablet-log");
        let segment_bytes = bearing_server::segment_bytes(MetadataLimits::default().log_bytes_max);
        let log = FileTabletLog::open_with_segments(&path, &LOG_CONTENTS, segment_bytes)
            .context("open the tablet log")?;
        store.create_tablet(TABLET).context("make a tablet")?;
        machine::pin(CLIENT_CORE)?;
        Ok(Bare { store, log, index: LogIndex::ZERO, number: 0, flushed: false })
    }

    /// Writes batches on the server's core for some time, and does something between any two of them, which
    /// is not part of the time.
    pub fn run(
        &mut self,
        templates: &Templates,
        batch: usize,
        duration: Duration,
        between: impl FnMut() -> Result<()>,
    ) -> Result<Written> {
        machine::pin(SERVER_CORE)?;
        let written = self.write(templates, batch, duration, between);
        machine::pin(CLIENT_CORE)?;
        written
    }

    fn write(
        &mut self,
        templates: &Templates,
        batch: usize,
        duration: Duration,
        mut between: impl FnMut() -> Result<()>,
    ) -> Result<Written> {
        let mut written = Written { records: 0, elapsed: Duration::ZERO, processor: Duration::ZERO };
        let before = machine::processor_time(std::process::id())?;
        while written.elapsed < duration {
            between()?;
            let (records, changes) = self.prepare(templates, batch);
            let started = Instant::now();
            let mark = self.log.append(&records).context("append to the log")?;
            self.log.sync().context("sync the log")?;
            if std::mem::take(&mut self.flushed) {
                self.log.cut(mark).context("cut the log")?;
            }
            self.store.apply(TABLET, self.index, &changes).context("apply to the store")?;
            if !self.flushed && self.log.bytes_used() >= MetadataLimits::default().log_bytes_max {
                self.store.flush().context("flush the store")?;
                self.flushed = true;
            }
            written.elapsed += started.elapsed();
            written.records += records.len() as u64;
        }
        written.processor = machine::processor_time(std::process::id())? - before;
        Ok(written)
    }

    /// A batch like the server's, under keys of its own. Not part of the time.
    fn prepare(&mut self, templates: &Templates, batch: usize) -> (Vec<LoggedRecord>, Vec<Change>) {
        let (mut records, mut changes, commit) = (Vec::with_capacity(batch), Vec::new(), self.index);
        for _ in 0..batch {
            self.number += 1;
            self.index = self.index.next();
            let template = &templates.0[self.number as usize % templates.0.len()];
            let (serial, epoch, index, bytes) = (TABLET, Epoch(1), self.index, template.bytes.clone());
            records.push(LoggedRecord { serial, epoch, index, commit, bytes });
            let renamed = |(key, value): &(Key, Option<Vec<u8>>)| Change {
                key: own_key(*key, self.number).encode(),
                value: value.clone(),
            };
            changes.extend(template.changes.iter().map(renamed));
        }
        (records, changes)
    }
}

/// The key of the same kind for the create with a number; hashes are spread as the server's are.
fn own_key(key: Key, number: u64) -> Key {
    match key {
        Key::Name(directory, _, ordinal) => {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
            Key::Name(directory, NameHash::from_bits(hash), ordinal)
        }
        Key::Node(_) => Key::Node(NodeId(1_000_000 + number)),
        Key::Reply(session, _) => Key::Reply(session, Sequence(number)),
        other => other,
    }
}
