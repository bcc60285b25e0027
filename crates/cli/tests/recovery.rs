//! All metadata servers lose their disks, and what data servers hold is enough: what is older than the last
//! checkpoint is what it was, and of what is younger what has bytes.
//!
//! Needs root and /dev/fuse; without them it says so and passes.

mod common;

use common::{TestCluster, bearing, can_mount};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files, in directories of very different sizes, as real trees have them.
const FILES: usize = 10_000;

/// What programs see of something: its attributes, and its bytes or where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    modified: (i64, i64),
    content: Vec<u8>,
    xattrs: String,
}

fn walk(root: &Path, at: &Path, seen: &mut BTreeMap<PathBuf, Seen>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = match meta.file_type() {
            kind if kind.is_file() => fs::read(&path).unwrap(),
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            _ => Vec::new(),
        };
        let one = Seen {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            links: meta.nlink(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            content,
            xattrs: String::new(),
        };
        seen.insert(path.strip_prefix(root).unwrap().to_owned(), one);
        if meta.is_dir() {
            walk(root, &path, seen);
        }
    }
    // One process for all of a directory: there are thousands of files.
    let names: Vec<PathBuf> =
        seen.keys().filter(|path| root.join(path).parent() == Some(at)).cloned().collect();
    let listed =
        Command::new("getfattr").args(["-h", "-d", "-m", "-"]).current_dir(root).args(&names).output();
    let text = String::from_utf8(listed.unwrap().stdout).unwrap();
    for part in text.split("\n\n").filter(|part| !part.is_empty()) {
        let (name, xattrs) = part.trim_start_matches("# file: ").split_once('\n').unwrap();
        seen.get_mut(Path::new(name)).unwrap().xattrs = xattrs.to_owned();
    }
}

fn seen(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = BTreeMap::new();
    walk(root, root, &mut all);
    all
}

/// A tree with all that there is in trees.
fn make_tree(root: &Path) {
    fs::create_dir(root).unwrap();
    let (mut made, mut directory) = (0, 0);
    while made < FILES {
        // Few directories are large, most are small, some are empty.
        let size = [0, 1, 3, 7, 20, 60, 300, 1200][(directory * 5) % 8].min(FILES - made);
        let at = match directory % 3 {
            0 => root.join(format!("d{directory}")),
            1 => root.join(format!("deep/{}/{}/d{directory}", directory % 7, directory % 5)),
            _ => root.join(format!("wide/d{directory}")),
        };
        fs::create_dir_all(&at).unwrap();
        for file in 0..size {
            let bytes = match (directory + file) % 9 {
                0 => Vec::new(),
                1 => vec![b'x'; 5_000 + file],
                other => format!("{directory} {file} {other}\n").into_bytes(),
            };
            fs::write(at.join(format!("file-{file}")), bytes).unwrap();
        }
        if size >= 7 {
            let path = |file: usize| at.join(format!("file-{file}"));
            fs::hard_link(path(0), at.join("second-name")).unwrap();
            fs::hard_link(path(1), root.join(format!("far-name-{directory}"))).unwrap();
            fs::rename(path(2), at.join("renamed")).unwrap();
            fs::rename(path(3), root.join(format!("moved-{directory}"))).unwrap();
            symlink("renamed", at.join("link")).unwrap();
            fs::set_permissions(path(4), fs::Permissions::from_mode(0o640)).unwrap();
            std::os::unix::fs::chown(path(5), Some(1000), Some(1001)).unwrap();
            fs::remove_file(path(6)).unwrap();
        }
        (made, directory) = (made + size, directory + 1);
    }
    fs::rename(root.join("wide"), root.join("wide-and-moved")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
    let large: Vec<u8> = (0..20_000_000u32).map(|at| (at / 997) as u8).collect();
    fs::write(root.join("large"), &large).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"far behind", 5_000_000).unwrap();
    sparse.write_all_at(b"and in between", 1_000_000).unwrap();
    let rewritten = OpenOptions::new().write(true).open(root.join("large")).unwrap();
    for place in 0..40 {
        rewritten.write_all_at(b"written over", place * 400_009).unwrap();
    }
    let mut grown = OpenOptions::new().create(true).append(true).open(root.join("grown")).unwrap();
    for line in 0..100 {
        writeln!(grown, "line {line}").unwrap();
        grown.sync_data().unwrap();
    }
    let set = |name: &str, value: &str, file: &str| {
        let done = Command::new("setfattr").args(["-n", name, "-v", value]).arg(root.join(file)).status();
        assert!(done.unwrap().success());
    };
    set("user.color", "blue", "grown");
    set("user.empty", "", "empty");
}

#[test]
fn all_metadata_comes_back_from_data_servers_and_what_does_not_is_listed() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::new("recovery");
    let dir = cluster.dir();
    let up = ["up", "--dir", &dir, "--detach", "--data", "3", "--metadata", "2", "--mount"];
    let mount = cluster.mnt().display().to_string();
    let up: Vec<&str> = up.iter().copied().chain([mount.as_str()]).collect();
    bearing(&up).ok();
    let (mnt, old) = (cluster.mnt(), cluster.mnt().join("old"));
    make_tree(&old);
    fs::create_dir(mnt.join("project")).unwrap();
    fs::write(mnt.join("project/notes"), "from before\n").unwrap();
    assert!(Command::new("sync").arg("-f").arg(&mnt).status().unwrap().success());
    let before = seen(&old);
    assert!(before.len() > FILES);
    let told = bearing(&["recover", "checkpoint", "--dir", &dir, "--json"]).ok();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["tablets"], 16, "{told}");
    let synced = |path: &Path, bytes: &[u8]| {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
    };
    synced(&mnt.join("project/young"), b"younger than the checkpoint\n");
    synced(&mnt.join("project/notes"), b"and from after\n");
    fs::create_dir(mnt.join("project/new")).unwrap();
    synced(&mnt.join("project/new/inside"), b"in a directory that nobody knows\n");
    File::create(mnt.join("project/young-and-empty")).unwrap().sync_all().unwrap();
    assert!(Command::new("sync").arg("-f").arg(&mnt).status().unwrap().success());
    cluster.down().ok();

    // As long as there is any metadata, nothing is written over it; but it may be rehearsed.
    let refused = bearing(&["recover", "metadata", "--dir", &dir]).refused(1);
    assert!(refused.contains("metadata is still on metadata-1, metadata-2"), "{refused}");
    let rehearsed = bearing(&["recover", "metadata", "--dir", &dir, "--dry-run"]).ok();
    assert!(
        rehearsed.contains("would be recovered") && rehearsed.contains("nothing was changed"),
        "{rehearsed}"
    );
    for server in ["metadata-1", "metadata-2"] {
        for part in ["store", "tablet-log"] {
            fs::remove_dir_all(Path::new(&dir).join(server).join(part)).unwrap();
        }
    }
    // What another host has found counts as what is found here.
    let scan = cluster.file("elsewhere.scan").display().to_string();
    bearing(&["recover", "scan", "--dir", &dir, "--to", &scan]).ok();
    let (chunks, aside) = (Path::new(&dir).join("data-2/chunks"), Path::new(&dir).join("data-2/aside"));
    fs::rename(&chunks, &aside).unwrap();
    let refused = bearing(&["recover", "metadata", "--dir", &dir]).refused(1);
    assert!(refused.contains("what data-2 hold") && refused.contains("--without"), "{refused}");
    let told = bearing(&["recover", "metadata", "--dir", &dir, "--scan", &scan, "--json"]).ok();
    fs::rename(&aside, &chunks).unwrap();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let list = |name: &str| -> Vec<String> {
        let entries = told[name].as_array().unwrap().iter();
        entries.map(|entry| entry["path"].as_str().or(entry.as_str()).unwrap().to_owned()).collect()
    };
    let (young, changed, lost) = (list("younger"), list("changed"), list("lost"));
    assert!(young.contains(&"/project/young".to_owned()), "{young:?}");
    let inside: Vec<&String> = young.iter().filter(|path| path.ends_with("/inside")).collect();
    assert!(inside.len() == 1 && inside[0].starts_with("/lost+found/directory-"), "{young:?}");
    assert_eq!(changed, ["/project/notes"]);
    let stranger = Path::new(inside[0]).parent().unwrap().display().to_string();
    assert_eq!(lost, [stranger], "{told}");

    bearing(&up).ok();
    let after = seen(&old);
    for (path, was) in &before {
        assert_eq!(after.get(path), Some(was), "{}", path.display());
    }
    let more: Vec<&PathBuf> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    assert!(more.is_empty(), "nothing that was removed is back: {more:?}");
    assert_eq!(fs::read(mnt.join("project/young")).unwrap(), b"younger than the checkpoint\n");
    assert_eq!(fs::read(mnt.join("project/notes")).unwrap(), b"from before\nand from after\n");
    let inside = mnt.join(inside[0].trim_start_matches('/'));
    assert_eq!(fs::read(inside).unwrap(), b"in a directory that nobody knows\n");
    assert!(!mnt.join("project/young-and-empty").exists(), "nothing tells that it ever was");
    // It is a cluster as any other: it takes changes, all copies come to be, and nothing contradicts itself.
    fs::write(mnt.join("project/later"), "and on\n").unwrap();
    fs::remove_file(old.join("moved-3")).ok();
    let checked = bearing(&["check", "--dir", &dir]).ok();
    assert!(checked.contains("0 problems"), "{checked}");
    cluster.down().ok();
}
