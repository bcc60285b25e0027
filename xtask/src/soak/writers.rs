//! Programs that write with fsync, and keep in mind what they were told is there for good.
//!
//! A file of which nothing is certain (it is being changed when the world ends) may be as before or as after,
//! and nothing else.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::draw::Draw;

/// Rounds whose files are looked at again and again; what is older is removed.
pub const ROUNDS_KEPT: u64 = 6;
/// Files of one writer at a time.
const FILES_MAX: usize = 24;
/// The longest file that is written at once.
const BYTES_MAX: u64 = 60_000;

/// After an error.
const PAUSE: Duration = Duration::from_millis(50);

/// What a name may lead to. `None`: nothing.
type Possible = Vec<Option<Vec<u8>>>;

/// What is known, by path below the mount.
#[derive(Clone, Debug, Default)]
pub struct Known {
    files: BTreeMap<PathBuf, Possible>,
    /// Appended to: at least this is there.
    logs: BTreeMap<PathBuf, Vec<u8>>,
    /// Operations that went well.
    pub operations: u64,
}

impl Known {
    /// Takes in what another writer knows.
    pub fn absorb(&mut self, other: Known) {
        self.files.extend(other.files);
        self.logs.extend(other.logs);
        self.operations += other.operations;
    }

    /// How many files are known.
    pub fn count(&self) -> usize {
        self.files.len() + self.logs.len()
    }

    /// Removes what is older than a round.
    pub fn forget_before(&mut self, mount: &Path, round: u64) -> Result<()> {
        let old = |path: &Path| round_of(path).is_some_and(|of| of < round);
        self.files.retain(|path, _| !old(path));
        self.logs.retain(|path, _| !old(path));
        for entry in fs::read_dir(mount).context("list the mount")? {
            let name = entry.context("list the mount")?.file_name();
            if old(Path::new(&name)) {
                let directory = mount.join(&name);
                fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
            }
        }
        Ok(())
    }

    /// Looks at everything; what was uncertain is certain then.
    pub fn verify(&mut self, mount: &Path) -> Result<()> {
        let mut wrong = Vec::new();
        for (path, possible) in &mut self.files {
            let found = match fs::read(mount.join(path)) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                // Bytes that were never synced may be gone; the file says so.
                Err(_) if possible.len() > 1 => {
                    possible.truncate(0);
                    continue;
                }
                Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
            };
            // Of one that was being written when the world ended any bytes may be there.
            if possible.is_empty() {
                continue;
            }
            if !possible.contains(&found) {
                let told =
                    |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| (bytes.len(), blake3::hash(bytes)));
                let expected: Vec<_> = possible.iter().map(told).collect();
                wrong.push(format!(
                    "{} holds {:?}, expected was one of {expected:?}",
                    path.display(),
                    told(&found)
                ));
                continue;
            }
            *possible = vec![found];
        }
        if let Some(first) = wrong.first() {
            bail!("{} of {} files are wrong, such as: {first}", wrong.len(), self.files.len());
        }
        for (path, synced) in &self.logs {
            let file = File::open(mount.join(path)).with_context(|| format!("open {}", path.display()))?;
            let mut bytes = vec![0; synced.len()];
            file.read_exact_at(&mut bytes, 0).with_context(|| format!("read {}", path.display()))?;
            if bytes != *synced {
                let same = bytes.iter().zip(synced).take_while(|(found, expected)| found == expected).count();
                bail!("{} differs from byte {same} of {} that were synced", path.display(), synced.len());
            }
        }
        Ok(())
    }
}

/// The round in which a path was made.
fn round_of(path: &Path) -> Option<u64> {
    let directory = path.components().next()?.as_os_str().to_str()?;
    directory.strip_prefix("round-")?.split('-').next()?.parse().ok()
}

/// One program.
struct Writer {
    mount: PathBuf,
    directory: PathBuf,
    draw: Draw,
    known: Known,
    next: u64,
}

/// Programs at work.
pub struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Known>>,
}

impl Writers {
    /// Starts so many, each in a directory of its own. They end at the first error unless they are told to go
    /// on after errors.
    pub fn start(mount: &Path, round: u64, count: u64, seed: u64, goes_on: bool) -> Result<Writers> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for number in 0..count {
            let directory = PathBuf::from(format!("round-{round}-{number}"));
            fs::create_dir(mount.join(&directory))
                .with_context(|| format!("make {}", directory.display()))?;
            let draw = Draw(seed ^ (round << 16) ^ number);
            let mut writer =
                Writer { mount: mount.to_owned(), directory, draw, known: Known::default(), next: 0 };
            let stop = Arc::clone(&stop);
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if writer.step().is_err() {
                        if !goes_on {
                            break;
                        }
                        std::thread::sleep(PAUSE);
                    }
                }
                writer.known
            }));
        }
        Ok(Writers { stop, threads })
    }

    /// Ends them. Gives what they know.
    pub fn end(self) -> Known {
        self.stop.store(true, Ordering::Relaxed);
        let mut known = Known::default();
        for thread in self.threads {
            known.absorb(thread.join().expect("a writer does not panic"));
        }
        known
    }
}

impl Writer {
    fn sync_directory(&self) -> io::Result<()> {
        File::open(self.mount.join(&self.directory))?.sync_all()
    }

    /// A name of which all is known, and what it leads to.
    fn pick(&mut self) -> Option<(PathBuf, Vec<u8>)> {
        let certain = |(path, possible): (&PathBuf, &Possible)| match possible.as_slice() {
            [Some(bytes)] => Some((path.clone(), bytes.clone())),
            _ => None,
        };
        let all: Vec<(PathBuf, Vec<u8>)> = self.known.files.iter().filter_map(certain).collect();
        (!all.is_empty()).then(|| all[self.draw.below(all.len() as u64) as usize].clone())
    }

    fn step(&mut self) -> io::Result<()> {
        let picked = self.pick();
        let crowded = self.known.files.len() > FILES_MAX;
        match (self.draw.below(10), picked) {
            (0..3, _) => self.append()?,
            (3, Some((path, bytes))) => self.rename(path, bytes)?,
            (4, Some((path, bytes))) => self.replace(path, bytes)?,
            (5, Some((path, bytes))) => self.overwrite(path, bytes)?,
            (6.., Some((path, bytes))) if crowded => self.remove(path, bytes)?,
            _ => self.create()?,
        }
        self.known.operations += 1;
        Ok(())
    }

    fn fresh(&mut self) -> (PathBuf, Vec<u8>) {
        self.next += 1;
        let count = self.draw.below(BYTES_MAX);
        (self.directory.join(format!("f{}", self.next)), self.draw.bytes(count))
    }

    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(self.mount.join(path))?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn create(&mut self) -> io::Result<()> {
        let (path, bytes) = self.fresh();
        // Until it is synced any part of it may be there.
        self.known.files.insert(path.clone(), Vec::new());
        self.write_synced(&path, &bytes)?;
        self.sync_directory()?;
        self.known.files.insert(path, vec![Some(bytes)]);
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        let path = self.directory.join("log");
        let count = 1 + self.draw.below(5_000);
        let bytes = self.draw.bytes(count);
        let is_new = !self.known.logs.contains_key(&path);
        let mut synced = self.known.logs.get(&path).cloned().unwrap_or_default();
        // Where the certain part ends; what an earlier append left behind it is written over.
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).open(self.mount.join(&path))?;
        file.write_all_at(&bytes, synced.len() as u64)?;
        file.sync_data()?;
        if is_new {
            self.sync_directory()?;
        }
        synced.extend(bytes);
        self.known.logs.insert(path, synced);
        Ok(())
    }

    fn rename(&mut self, path: PathBuf, bytes: Vec<u8>) -> io::Result<()> {
        let (target, _) = self.fresh();
        for name in [&path, &target] {
            self.known.files.insert(name.clone(), vec![None, Some(bytes.clone())]);
        }
        fs::rename(self.mount.join(&path), self.mount.join(&target))?;
        self.sync_directory()?;
        self.known.files.insert(path, vec![None]);
        self.known.files.insert(target, vec![Some(bytes)]);
        Ok(())
    }

    /// As editors save: a new file takes the place of the old one.
    fn replace(&mut self, path: PathBuf, before: Vec<u8>) -> io::Result<()> {
        let (unfinished, bytes) = self.fresh();
        self.known.files.insert(unfinished.clone(), Vec::new());
        self.write_synced(&unfinished, &bytes)?;
        self.known.files.insert(path.clone(), vec![Some(before), Some(bytes.clone())]);
        fs::rename(self.mount.join(&unfinished), self.mount.join(&path))?;
        self.sync_directory()?;
        self.known.files.insert(unfinished, vec![None]);
        self.known.files.insert(path, vec![Some(bytes)]);
        Ok(())
    }

    fn overwrite(&mut self, path: PathBuf, mut bytes: Vec<u8>) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let from = self.draw.below(bytes.len() as u64);
        let count = 1 + self.draw.below(3_000);
        let new = self.draw.bytes(count);
        self.known.files.insert(path.clone(), Vec::new());
        let file = OpenOptions::new().write(true).open(self.mount.join(&path))?;
        file.write_all_at(&new, from)?;
        file.sync_all()?;
        let end = (from as usize + new.len()).max(bytes.len());
        bytes.resize(end, 0);
        bytes[from as usize..from as usize + new.len()].copy_from_slice(&new);
        self.known.files.insert(path, vec![Some(bytes)]);
        Ok(())
    }

    fn remove(&mut self, path: PathBuf, bytes: Vec<u8>) -> io::Result<()> {
        self.known.files.insert(path.clone(), vec![None, Some(bytes)]);
        fs::remove_file(self.mount.join(&path))?;
        self.sync_directory()?;
        self.known.files.insert(path, vec![None]);
        Ok(())
    }
}
