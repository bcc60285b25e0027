//! What a tree holds, entry by entry, and whether another tree holds the same.
//!
//! On disk: a first line naming the format, then one line per entry, ordered by path:
//! `kind mode mtime sum path`, where a file's sum is the BLAKE3 of its bytes, a link's that of its target,
//! and a directory has none (`-`). Times are whole seconds and, as modes, kept for files only: a
//! directory's time changes with its content. In paths, `%` and bytes that are not printable ASCII are
//! written `%XX`, so every name survives.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const FORMAT: &str = "bearing demo manifest 1";
/// Reading over a mount waits more than it computes, so a few readers help even on one core.
const READERS: usize = 4;

/// What is known of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    File {
        mode: u32,
        mtime_seconds: i64,
        sum: String,
    },
    Link {
        sum: String,
    },
    /// Neither: a device, a socket. Not compared.
    Other,
}

/// The entries of a tree by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    entries: BTreeMap<PathBuf, Entry>,
}

/// Where a tree is not what the manifest says.
#[derive(Debug)]
pub struct Differences {
    /// One line each: the path, what was expected, what was found.
    pub list: Vec<String>,
}

impl Manifest {
    /// Adds all of the tree at `path`, under the name `name`.
    pub fn add_tree(&mut self, path: &Path, name: &str) -> Result<()> {
        let mut names = Vec::new();
        for entry in walkdir::WalkDir::new(path).sort_by_file_name() {
            let entry = entry.with_context(|| format!("walk {}", path.display()))?;
            names.push(entry.path().strip_prefix(path).unwrap_or(entry.path()).to_owned());
        }
        for (relative, entry) in look_at_all(path, &names) {
            let entry = entry.with_context(|| format!("read {}", path.join(&relative).display()))?;
            if entry != Entry::Other {
                self.entries.insert(joined(name, &relative), entry);
            }
        }
        Ok(())
    }

    /// Looks up every entry under `root`. What else is there is not looked at.
    pub fn compare(&self, root: &Path) -> Result<Differences> {
        let names: Vec<PathBuf> = self.entries.keys().cloned().collect();
        let mut list = Vec::new();
        for (name, found) in look_at_all(root, &names) {
            let Some(expected) = self.entries.get(&name) else { continue };
            let difference = match found {
                Ok(found) if found == *expected => continue,
                Ok(found) => format!("expected {}, found {}", described(expected), described(&found)),
                Err(error) => format!("expected {}: {error}", described(expected)),
            };
            list.push(format!("{}: {difference}", name.display()));
        }
        Ok(Differences { list })
    }

    /// How many entries there are.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// How many of them are files.
    pub fn files(&self) -> usize {
        self.entries.values().filter(|entry| matches!(entry, Entry::File { .. })).count()
    }

    /// Writes it whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = format!("{FORMAT}\n");
        for (name, entry) in &self.entries {
            let name = escaped(name);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {name}", fields(entry));
        }
        let part = path.with_extension("part");
        std::fs::write(&part, text).with_context(|| format!("write {}", part.display()))?;
        std::fs::rename(&part, path).with_context(|| format!("rename to {}", path.display()))
    }

    /// Reads what `write` wrote.
    pub fn read(path: &Path) -> Result<Manifest> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, line)| line) != Some(FORMAT) {
            bail!("{}: not a demo manifest of this version; remove it to import again", path.display());
        }
        let mut entries = BTreeMap::new();
        for (index, line) in lines {
            let (name, entry) = parsed(line)
                .with_context(|| format!("{}:{}: not an entry: {line:?}", path.display(), index + 1))?;
            entries.insert(name, entry);
        }
        Ok(Manifest { entries })
    }
}

fn joined(name: &str, relative: &Path) -> PathBuf {
    if relative.as_os_str().is_empty() { PathBuf::from(name) } else { Path::new(name).join(relative) }
}

/// Looks at `names` under `root` with several readers; the answers come in the order of the names.
fn look_at_all(root: &Path, names: &[PathBuf]) -> Vec<(PathBuf, Result<Entry>)> {
    let share = names.len().div_ceil(READERS).max(1);
    let look = |name: &PathBuf| (name.clone(), look_at(&root.join(name)));
    std::thread::scope(|scope| {
        let readers: Vec<_> = names
            .chunks(share)
            .map(|part| scope.spawn(move || part.iter().map(look).collect::<Vec<_>>()))
            .collect();
        readers.into_iter().flat_map(|reader| reader.join().expect("a reader does not panic")).collect()
    })
}

fn look_at(path: &Path) -> Result<Entry> {
    let attributes = path.symlink_metadata()?;
    let kind = attributes.file_type();
    if kind.is_dir() {
        Ok(Entry::Directory)
    } else if kind.is_symlink() {
        let target = path.read_link()?;
        Ok(Entry::Link { sum: blake3::hash(target.as_os_str().as_bytes()).to_hex().to_string() })
    } else if kind.is_file() {
        let (mode, mtime_seconds) = (attributes.mode() & 0o7777, attributes.mtime());
        Ok(Entry::File { mode, mtime_seconds, sum: sum_of(path)? })
    } else {
        Ok(Entry::Other)
    }
}

fn sum_of(path: &Path) -> Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().to_hex().to_string()),
            count => hasher.update(&buffer[..count]),
        };
    }
}

fn fields(entry: &Entry) -> String {
    match entry {
        Entry::Directory => "directory - - -".to_owned(),
        Entry::File { mode, mtime_seconds, sum } => format!("file {mode:04o} {mtime_seconds} {sum}"),
        Entry::Link { sum } => format!("link - - {sum}"),
        Entry::Other => "other - - -".to_owned(),
    }
}

fn described(entry: &Entry) -> String {
    match entry {
        Entry::Directory => "a directory".to_owned(),
        Entry::File { mode, mtime_seconds, sum } => {
            format!("a file (mode {mode:04o}, mtime {mtime_seconds}, sum {}..)", &sum[..sum.len().min(12)])
        }
        Entry::Link { sum } => format!("a link (sum {}..)", &sum[..sum.len().min(12)]),
        Entry::Other => "a device or socket".to_owned(),
    }
}

fn parsed(line: &str) -> Option<(PathBuf, Entry)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [kind, mode, mtime, sum, name] = words.as_slice() else { return None };
    let sum = (*sum).to_owned();
    let entry = match *kind {
        "directory" => Entry::Directory,
        "link" => Entry::Link { sum },
        "file" => {
            let mode = u32::from_str_radix(mode, 8).ok()?;
            Entry::File { mode, mtime_seconds: mtime.parse().ok()?, sum }
        }
        _ => return None,
    };
    Some((unescaped(name)?, entry))
}

fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn unescaped(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small_tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("d")).expect("makes");
        std::fs::write(root.path().join("d/with space %"), "one").expect("writes");
        std::fs::write(root.path().join(OsString::from_vec(vec![b'n', 0xff, b'\n'])), "two").expect("writes");
        std::os::unix::fs::symlink("nowhere", root.path().join("link")).expect("links");
        root
    }

    fn manifest(root: &Path) -> Manifest {
        let mut manifest = Manifest::default();
        manifest.add_tree(root, "t").expect("reads");
        manifest
    }

    /// The tree as it would stand in the mount: under its name.
    fn mounted() -> (tempfile::TempDir, Manifest) {
        let mount = tempfile::tempdir().expect("a directory");
        let tree = small_tree();
        std::fs::rename(tree.path(), mount.path().join("t")).expect("moves");
        let manifest = manifest(&mount.path().join("t"));
        (mount, manifest)
    }

    #[test]
    fn a_manifest_reads_back_as_it_was_written() {
        let tree = small_tree();
        let before = manifest(tree.path());
        assert_eq!((before.entries(), before.files()), (5, 2));
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("manifest");
        before.write(&path).expect("writes");
        assert_eq!(Manifest::read(&path).expect("reads"), before);
    }

    #[test]
    fn an_equal_tree_has_no_differences_and_strays_do_not_count() {
        let (mount, manifest) = mounted();
        std::fs::write(mount.path().join("stray"), "x").expect("writes");
        assert_eq!(manifest.compare(mount.path()).expect("compares").list, Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_change_is_told() {
        let (mount, manifest) = mounted();
        let differences = || manifest.compare(mount.path()).expect("compares").list;
        let file = mount.path().join("t/d/with space %");
        let mtime = file.metadata().and_then(|m| m.modified()).expect("has a time");
        std::fs::write(&file, "One").expect("writes");
        std::fs::File::open(&file).and_then(|f| f.set_modified(mtime)).expect("sets the time");
        assert_eq!(differences().len(), 1);
        std::fs::remove_file(mount.path().join("t/link")).expect("removes");
        assert_eq!(differences().len(), 2);
        std::os::unix::fs::symlink("elsewhere", mount.path().join("t/link")).expect("links");
        assert_eq!(differences().len(), 2);
        std::fs::remove_file(&file).expect("removes");
        std::fs::create_dir(&file).expect("makes");
        let told = differences().join("\n");
        assert!(told.contains("found a directory") && told.contains("a link"), "{told}");
    }

    #[test]
    fn a_manifest_of_another_form_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("manifest");
        for text in ["", "bearing demo manifest 9\n", &format!("{FORMAT}\nfile 0644 x\n")] {
            std::fs::write(&path, text).expect("writes");
            assert!(Manifest::read(&path).is_err(), "{text:?}");
        }
    }
}
