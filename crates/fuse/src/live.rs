//! The bridge under a real kernel, over a filesystem in memory. Where nothing can be mounted these tests say
//! so and pass.

use crate::mounted::{Mounted, start};
use crate::options::Options;
use crate::point::check_device;
use bearing_mount::memory::MemoryTree;
use bearing_mount::{Answer, Caller, KernelCache, Operation, RenameMode};
use bearing_types::{Credentials, Name, NodeId, Outcome, SetIds};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A mounted directory, unmounted at the end of the test.
struct Live {
    mounted: Option<Mounted>,
    tree: Arc<MemoryTree>,
    cache: Arc<Mutex<Option<Arc<dyn KernelCache>>>>,
    directory: TempDir,
}

impl Live {
    /// Mounts; `None` where that is impossible.
    fn mount(kept: Duration) -> Option<Live> {
        // SAFETY: geteuid takes nothing and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        if !is_root || check_device().is_err() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let tree = Arc::new(MemoryTree::new(kept));
        let cache: Arc<Mutex<Option<Arc<dyn KernelCache>>>> = Arc::default();
        let slot = cache.clone();
        let set_cache = move |cache| *slot.lock().unwrap() = cache;
        let mounted = start(tree.clone(), directory.path(), &Options::new(), set_cache).unwrap();
        Some(Live { mounted: Some(mounted), tree, cache, directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    fn cache(&self) -> Arc<dyn KernelCache> {
        self.cache.lock().unwrap().clone().unwrap()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            let unmounted = mounted.unmount();
            if !std::thread::panicking() {
                unmounted.unwrap();
                assert!(self.cache.lock().unwrap().is_none(), "the kernel's cache is gone");
            }
        }
    }
}

/// Mounts or ends the test.
macro_rules! live {
    ($kept:expr) => {
        match Live::mount($kept) {
            Some(live) => live,
            None => return,
        }
    };
}

const KEPT: Duration = Duration::from_secs(600);

fn error<T>(result: std::io::Result<T>) -> i32 {
    result.err().unwrap().raw_os_error().unwrap()
}

#[test]
fn files_are_made_written_read_moved_and_removed() {
    let live = live!(KEPT);
    let (a, b) = (live.path("a"), live.path("b"));
    let content: Vec<u8> = (0..3_000_000u32).map(|at| (at * 7) as u8).collect();
    fs::write(&a, &content).unwrap();
    assert!(fs::read(&a).unwrap() == content);
    assert_eq!(fs::metadata(&a).unwrap().len(), content.len() as u64);
    fs::rename(&a, &b).unwrap();
    assert_eq!(error(fs::metadata(&a)), libc::ENOENT);
    fs::hard_link(&b, &a).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().nlink(), 2);
    fs::remove_file(&b).unwrap();
    assert!(fs::read(&a).unwrap() == content);
    fs::write(&a, b"short").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"short", "O_TRUNC");
}

#[test]
fn directories_are_made_listed_and_removed() {
    let live = live!(KEPT);
    fs::create_dir_all(live.path("x/y/z")).unwrap();
    let count = 3000;
    for at in 0..count {
        File::create(live.path(&format!("x/file-{at}"))).unwrap();
    }
    let mut names: Vec<String> = fs::read_dir(live.path("x"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut expected: Vec<String> = (0..count).map(|at| format!("file-{at}")).collect();
    expected.push("y".to_owned());
    expected.sort();
    assert_eq!(names, expected);
    let kinds = fs::read_dir(live.path("x"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir());
    assert_eq!(kinds.count(), 1);
    assert_eq!(error(fs::remove_dir(live.path("x"))), libc::ENOTEMPTY);
    fs::remove_dir_all(live.path("x")).unwrap();
    assert_eq!(fs::read_dir(live.root()).unwrap().count(), 0);
}

#[test]
fn attributes_are_changed_and_read_back() {
    let live = live!(Duration::ZERO);
    let path = live.path("f");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640 & !umask());
    file.set_permissions(fs::Permissions::from_mode(0o604)).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    let past = SystemTime::UNIX_EPOCH + Duration::new(1_000_000, 123_456_789);
    file.set_modified(past).unwrap();
    file.set_len(1000).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid(), metadata.gid()), (0o604, 12, 34));
    assert_eq!(metadata.modified().unwrap(), past);
    assert_eq!(metadata.len(), 1000);
    assert_eq!(fs::metadata(live.root()).unwrap().ino(), 1);
}

fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    u32::from_str_radix(line.trim(), 8).unwrap()
}

#[test]
fn links_and_special_files_are_what_they_are() {
    let live = live!(KEPT);
    symlink("target/of link", live.path("l")).unwrap();
    assert_eq!(fs::read_link(live.path("l")).unwrap(), Path::new("target/of link"));
    let fifo = std::ffi::CString::new(live.path("p").to_str().unwrap()).unwrap();
    // SAFETY: the path is a string with its zero byte.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    use std::os::unix::fs::FileTypeExt;
    assert!(fs::symlink_metadata(live.path("p")).unwrap().file_type().is_fifo());
}

#[test]
fn an_open_file_outlives_its_name() {
    let live = live!(KEPT);
    let path = live.path("f");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b"still here").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    file.sync_all().unwrap();
}

#[test]
fn appends_of_many_threads_are_all_there() {
    let live = live!(KEPT);
    let path = live.path("log");
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let path = &path;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for _ in 0..100 {
                    file.write_all(&[thread; 10]).unwrap();
                }
            });
        }
    });
    let log = fs::read(&path).unwrap();
    assert_eq!(log.len(), 4000);
    assert!(log.chunks(10).all(|record| record.iter().all(|byte| *byte == record[0])), "appends are whole");
}

/// The file that the other process of the next test maps.
const MAPPED: &str = "BEARING_TEST_MAPPED_FILE";

#[test]
fn a_mapping_that_is_written_after_close_reaches_the_file() {
    let live = live!(KEPT);
    let path = live.path("m");
    fs::write(&path, [0; 4096]).unwrap();
    // In a process of its own: unmapping waits for the bytes to be written while it locks the memory of the
    // process, which whoever serves the write would need.
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "live::maps_a_file_for_another_test", "--ignored"]).env(MAPPED, &path);
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(fs::read(&path).unwrap()[0], 42);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn maps_a_file_for_another_test() {
    let Some(path) = std::env::var_os(MAPPED) else { return };
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    use std::os::fd::AsRawFd;
    let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: a fresh mapping of one page of an open file, unmapped below, used only in between.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd, 0);
        assert_ne!(page, libc::MAP_FAILED);
        drop(file);
        page.cast::<u8>().write(42);
        assert_eq!(libc::munmap(page, 4096), 0);
    }
}

#[test]
fn holes_and_random_writes_read_back() {
    let live = live!(KEPT);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(live.path("f")).unwrap();
    file.write_all_at(b"end", 1_000_000).unwrap();
    file.write_all_at(b"start", 0).unwrap();
    let mut bytes = [1; 8];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"start\0\0\0");
    assert_eq!(file.metadata().unwrap().len(), 1_000_003);
}

#[test]
fn what_cannot_be_is_said_with_the_right_number() {
    let live = live!(KEPT);
    let path = live.path("f");
    fs::write(&path, b"x").unwrap();
    assert_eq!(error(fs::File::create_new(&path)), libc::EEXIST);
    assert_eq!(error(fs::read_dir(&path)), libc::ENOTDIR);
    assert_eq!(error(fs::metadata(live.path(&"x".repeat(256)))), libc::ENAMETOOLONG);
    let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: both names are strings with their zero bytes; no buffer is given.
    let size = unsafe { libc::getxattr(text.as_ptr(), c"user.a".as_ptr(), std::ptr::null_mut(), 0) };
    assert_eq!((size, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENODATA)));
    let nameless = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(live.root());
    assert_eq!(error(nameless), libc::EOPNOTSUPP, "programs make a file with a name and remove that");
}

#[test]
fn a_lock_is_waited_for_in_turn_and_refused_where_the_mount_says_so() {
    let live = live!(KEPT);
    fs::write(live.path("f"), b"x").unwrap();
    let [first, second] = [0; 2].map(|_| File::open(live.path("f")).unwrap());
    first.lock().unwrap();
    assert!(matches!(second.try_lock(), Err(fs::TryLockError::WouldBlock)));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.lock().unwrap());
        first.unlock().unwrap();
        waiting.join().unwrap();
    });
    assert!(matches!(first.try_lock(), Err(fs::TryLockError::WouldBlock)), "the other has it now");
    drop(second);
    first.lock().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().apply("locks=refused").unwrap();
    let mounted = start(live.tree.clone(), directory.path(), &options, |_| {}).unwrap();
    let file = File::open(directory.path().join("f")).unwrap();
    assert_eq!(error(file.lock().map(drop)), libc::EOPNOTSUPP);
    drop(file);
    mounted.unmount().unwrap();
}

/// Changes the tree behind the kernel's back, like another client.
fn remove_behind(live: &Live, name: &str) {
    let root = live.tree.found(Operation::Root).unwrap().node;
    let name = Name::new(name.as_bytes()).unwrap();
    live.tree.done(Operation::Unlink { directory: root, name, who: Credentials::ROOT }).unwrap();
}

#[test]
fn the_kernel_keeps_what_is_leased_until_it_is_made_to_forget() {
    let live = live!(KEPT);
    let path = live.path("f");
    fs::write(&path, b"x").unwrap();
    fs::symlink_metadata(&path).unwrap();
    remove_behind(&live, "f");
    assert!(fs::symlink_metadata(&path).is_ok(), "leased, so nobody was asked");
    live.cache().invalidate_entries(&[(NodeId::ROOT, &Name::new(b"f").unwrap())]).unwrap();
    assert_eq!(error(fs::symlink_metadata(&path)), libc::ENOENT);
    // What the kernel does not know it need not forget.
    live.cache().invalidate_entries(&[(NodeId(99), &Name::new(b"f").unwrap())]).unwrap();
    live.cache().invalidate_node(NodeId(99)).unwrap();
}

/// What the kernel says where an open directory lies: what getcwd(2) says in it.
fn place_of(directory: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap()
}

#[test]
fn a_directory_in_use_stays_where_it_is_when_its_name_is_asked_back_and_goes_when_it_leads_elsewhere() {
    let live = live!(KEPT);
    let path = live.path("d");
    fs::create_dir_all(path.join("e")).unwrap();
    let in_use = [path.clone(), path.join("e")].map(|path| File::open(path).unwrap());
    live.cache().invalidate_entries(&[(NodeId::ROOT, &Name::new(b"d").unwrap())]).unwrap();
    assert_eq!(in_use.each_ref().map(place_of), [path.clone(), path.join("e")]);
    let node = fs::metadata(&path).unwrap().ino();
    assert_eq!(place_of(&in_use[0]), path, "also when it was looked up again");
    let root = live.tree.found(Operation::Root).unwrap().node;
    let [d, other] = [b"d", b"x"].map(|name| Name::new(name).unwrap());
    let rename = |source: &Name, target: &Name| Operation::Rename {
        source: root,
        source_name: source.clone(),
        target: root,
        target_name: target.clone(),
        who: Credentials::ROOT,
        mode: RenameMode::Replace,
    };
    let ask_back = || live.cache().invalidate_entries(&[(NodeId::ROOT, &d), (NodeId::ROOT, &other)]).unwrap();
    // Away and back, as another client does it.
    ask_back();
    live.tree.done(rename(&d, &other)).unwrap();
    ask_back();
    live.tree.done(rename(&other, &d)).unwrap();
    assert_eq!(place_of(&in_use[0]), path);
    ask_back();
    live.tree.done(rename(&d, &other)).unwrap();
    assert_eq!(error(fs::metadata(&path)), libc::ENOENT, "what is not there any more is not shown");
    assert_eq!(fs::metadata(live.path("x")).unwrap().ino(), node);
    assert_eq!(in_use.each_ref().map(place_of), [live.path("x"), live.path("x/e")]);
}

#[test]
fn the_kernel_forgets_attributes_and_pages_of_a_node() {
    let live = live!(KEPT);
    let path = live.path("f");
    fs::write(&path, b"old").unwrap();
    let open = File::open(&path).unwrap();
    let mut bytes = [0; 3];
    open.read_exact_at(&mut bytes, 0).unwrap();
    let node = NodeId(fs::metadata(&path).unwrap().ino());
    let root = live.tree.found(Operation::Root).unwrap().node;
    let found = live
        .tree
        .found(Operation::Lookup { directory: root, name: Name::new(b"f").unwrap(), who: Credentials::ROOT })
        .unwrap();
    let behind = Operation::Open {
        node: found.node,
        who: Credentials::ROOT,
        read: true,
        write: true,
        truncate: false,
        execute: false,
    };
    let (file, _) = live.tree.opened(behind).unwrap();
    live.tree
        .written(Operation::Write { file, offset: Some(0), bytes: b"newer".to_vec(), set_ids: SetIds::Keep })
        .unwrap();
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"old", "the kernel's pages");
    live.cache().invalidate_node(node).unwrap();
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"new");
    assert_eq!(fs::metadata(&path).unwrap().len(), 5);
}

#[test]
fn names_are_made_and_removed_by_many_threads_while_others_list() {
    let live = live!(KEPT);
    fs::write(live.path("always"), b"").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let live = &live;
            scope.spawn(move || {
                for round in 0..50 {
                    let path = live.path(&format!("{thread}-{round}"));
                    fs::write(&path, b"x").unwrap();
                    live.cache()
                        .invalidate_entries(&[(NodeId::ROOT, &Name::new(b"always").unwrap())])
                        .unwrap();
                    fs::remove_file(&path).unwrap();
                }
            });
        }
        for _ in 0..50 {
            let names = fs::read_dir(live.root()).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(names.filter(|name| name == "always").count(), 1);
        }
    });
}

#[test]
fn a_second_mount_on_the_same_directory_is_refused() {
    let live = live!(KEPT);
    let tree: Arc<dyn Caller> = Arc::new(MemoryTree::new(KEPT));
    let refused = start(tree, live.root(), &Options::new(), |_| {}).err().unwrap().to_string();
    assert!(refused.contains("already a mount point of fuse.bearing"), "{refused}");
}

#[test]
fn a_mount_in_use_leaves_the_tree_at_once_and_goes_on_for_its_user() {
    let live = live!(KEPT);
    fs::write(live.path("f"), b"x").unwrap();
    let open = File::open(live.path("f")).unwrap();
    live.mounted.as_ref().unwrap().unmounter().unmount().unwrap();
    assert_eq!(error(fs::metadata(live.path("f"))), libc::ENOENT, "nothing is mounted there any more");
    let mut bytes = [0];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"x");
}

#[test]
fn permissions_are_those_of_the_files() {
    let live = live!(KEPT);
    fs::create_dir(live.path("closed")).unwrap();
    fs::set_permissions(live.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(live.root(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(live.root().parent().unwrap(), fs::Permissions::from_mode(0o1777)).unwrap();
    use std::os::unix::process::CommandExt;
    let output =
        std::process::Command::new("ls").arg(live.path("closed")).uid(1000).gid(1000).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("Permission denied"), "{said}");
}

/// The directory that the other process of the next test mounts on.
const DEAD: &str = "BEARING_TEST_DEAD_MOUNT";

#[test]
fn a_dead_mount_of_ours_is_taken_away_before_mounting() {
    let live = live!(KEPT);
    drop(live);
    let directory = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "live::dies_with_a_mount_for_another_test", "--ignored"]);
    assert!(!child.env(DEAD, directory.path()).output().unwrap().status.success());
    assert_eq!(error(fs::read_dir(directory.path())), libc::ENOTCONN, "it is dead");
    let tree: Arc<dyn Caller> = Arc::new(MemoryTree::new(KEPT));
    let mounted = start(tree, directory.path(), &Options::new(), |_| {}).unwrap();
    fs::write(directory.path().join("f"), b"alive").unwrap();
    mounted.unmount().unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn dies_with_a_mount_for_another_test() {
    let Some(point) = std::env::var_os(DEAD) else { return };
    let tree: Arc<dyn Caller> = Arc::new(MemoryTree::new(KEPT));
    start(tree, Path::new(&point), &Options::new(), |_| {}).unwrap();
    std::process::abort();
}

/// A tree in which making "stuck" takes until the test lets it.
struct StuckTree {
    tree: MemoryTree,
    begun: Mutex<Sender<()>>,
    may_end: Mutex<Receiver<()>>,
}

impl Caller for StuckTree {
    fn call(&self, operation: Operation) -> Outcome<Answer> {
        if matches!(&operation, Operation::Create { name, .. } if name.as_bytes() == b"stuck") {
            self.begun.lock().unwrap().send(()).unwrap();
            self.may_end.lock().unwrap().recv().unwrap();
        }
        self.tree.call(operation)
    }

    fn call_while(&self, operation: Operation, is_wanted: &mut dyn FnMut() -> bool) -> Outcome<Answer> {
        self.tree.call_while(operation, is_wanted)
    }

    fn call_all(&self, operations: Vec<Operation>) -> Vec<Outcome<Answer>> {
        operations.into_iter().map(|operation| self.call(operation)).collect()
    }
}

/// Whether the kernel can forget all names without a lock (Linux 6.16).
fn kernel_has_epochs() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(16))
}

#[test]
fn a_name_is_forgotten_while_our_own_request_holds_its_directory() {
    drop(live!(KEPT));
    if !kernel_has_epochs() {
        return eprintln!("skipped: this needs Linux 6.16");
    }
    let directory = tempfile::tempdir().unwrap();
    let ((begun, has_begun), (let_end, may_end)) = (channel(), channel());
    let tree = MemoryTree::new(KEPT);
    let tree = Arc::new(StuckTree { tree, begun: Mutex::new(begun), may_end: Mutex::new(may_end) });
    let cache: Arc<Mutex<Option<Arc<dyn KernelCache>>>> = Arc::default();
    let slot = cache.clone();
    let set_cache = move |cache| *slot.lock().unwrap() = cache;
    let mounted = start(tree.clone(), directory.path(), &Options::new(), set_cache).unwrap();
    let path = directory.path().join("f");
    fs::write(&path, b"x").unwrap();
    fs::symlink_metadata(&path).unwrap();
    std::thread::scope(|scope| {
        let stuck = directory.path().join("stuck");
        scope.spawn(move || File::create(stuck).unwrap());
        has_begun.recv().unwrap();
        let root = tree.found(Operation::Root).unwrap().node;
        let name = Name::new(b"f").unwrap();
        let unlink = Operation::Unlink { directory: root, name: name.clone(), who: Credentials::ROOT };
        tree.done(unlink).unwrap();
        let kernel = cache.lock().unwrap().clone().unwrap();
        // It would wait for the creation, whose server would wait for this.
        kernel.invalidate_entries(&[(NodeId::ROOT, &name)]).unwrap();
        let_end.send(()).unwrap();
    });
    assert_eq!(error(fs::symlink_metadata(&path)), libc::ENOENT);
    mounted.unmount().unwrap();
}
