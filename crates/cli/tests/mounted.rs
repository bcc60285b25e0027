//! Clusters mounted through the kernel: what people and their programs do with files, also across restarts
//! and deaths.
//!
//! These tests need root and /dev/fuse; without them they say so and pass.

mod common;

use common::{TestCluster, bearing, can_mount, kill, shell, wait_for};
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn shown(path: &Path) -> &str {
    path.to_str().expect("plain names")
}

/// A tree with what trees have: depth, empty and large files, links of both kinds, modes, odd names.
fn make_tree(root: &Path) {
    let script = format!(
        "mkdir -p {root}/tree/a/b/c/d {root}/tree/empty && cd {root}/tree
         for n in $(seq 1 60); do printf 'file %s\\n' $n > a/$n; done
         head -c 3000001 /dev/urandom > a/b/large; head -c 4096 /dev/urandom > a/b/page; : > a/b/nothing
         ln -s ../b/large a/b/c/link; ln -s nowhere a/dangling; ln a/1 a/b/hard
         printf x > 'name with blanks'; printf y > $'line\\nfeed'; printf z > \"$(printf 'ä%.0s' $(seq 1 120))\"
         chmod 700 a/b/c; chmod 4755 a/2; chmod 444 a/3; touch -d '2001-02-03 04:05:06.789' a/4 empty
         mkfifo a/pipe",
        root = shown(root)
    );
    shell(&script).ok();
}

/// Compares contents, links, modes, owners, times and hard links of two trees.
#[track_caller]
fn assert_same(left: &Path, right: &Path) {
    let list = |root: &Path| {
        let format = "%P %y %m %U %G %n %l %T@ %s\\n";
        // A directory's size is the filesystem's own business.
        shell(&format!(
            "cd {} && find . -type d -printf '%P d %m %T@\\n' -o -printf '{format}' | LC_ALL=C sort",
            shown(root)
        ))
    };
    assert_eq!(list(left).ok(), list(right).ok());
    shell(&format!("diff -r --no-dereference {} {} --exclude=pipe", shown(left), shown(right))).ok();
}

#[test]
fn a_copied_tree_survives_a_restart_and_the_death_of_everything() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("tree");
    make_tree(cluster.root());
    let (source, target) = (cluster.root().join("tree"), cluster.mnt().join("tree"));
    shell(&format!("cp -a {} {}", shown(&source), shown(&cluster.mnt()))).ok();
    assert_same(&source, &target);
    assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));

    cluster.down().ok();
    assert!(!target.exists(), "unmounted");
    cluster.up_again().ok();
    assert_same(&source, &target);

    kill(cluster.daemons());
    assert_same(&source, &target);

    let status = cluster.status();
    let mount = status["mount"]["pid"].as_u64().expect("the mount's process");
    kill(cluster.daemons().into_iter().chain([mount]));
    wait_for("it is mounted again by another process", PATIENCE, || {
        let status = cluster.status();
        status["mount"]["state"] == "mounted"
            && status["mount"]["pid"].as_u64().is_some_and(|pid| pid != mount)
    });
    assert_same(&source, &target);

    let supervisor = status["supervisor"]["pid"].as_u64().expect("the supervisor's process");
    let mount = cluster.status()["mount"]["pid"].as_u64().expect("the mount's process");
    kill([supervisor, mount].into_iter().chain(cluster.daemons()));
    cluster.up_again().ok();
    assert_same(&source, &target);
    assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
}

#[test]
fn a_tree_is_the_same_under_every_scheme_and_with_one_server_of_each_kind() {
    if !can_mount() {
        return;
    }
    for (scheme, servers) in [("hash", "3"), ("anglecut-hashed", "1")] {
        let cluster = TestCluster::new(scheme);
        let mnt = cluster.mnt();
        let dir = cluster.dir();
        let flags = ["--scheme", scheme, "--metadata", servers, "--data", servers, "--mount", shown(&mnt)];
        bearing(&[&["up", "--detach", "--dir", &dir], &flags[..]].concat()).ok();
        make_tree(cluster.root());
        shell(&format!("cp -a {}/tree {}", shown(cluster.root()), shown(&mnt))).ok();
        kill(cluster.daemons());
        assert_same(&cluster.root().join("tree"), &mnt.join("tree"));
        shell(&format!("cd {} && mv tree/a/b moved && rm -r tree && find moved | wc -l", shown(&mnt))).ok();
        assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
    }
}

#[test]
fn tar_goes_in_and_comes_out_the_same() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("tar");
    make_tree(cluster.root());
    let (root, mnt) = (shown(cluster.root()).to_owned(), cluster.mnt());
    let script = format!(
        "tar -C {root} -cf {root}/in.tar tree && tar -C {mnt} -xpf {root}/in.tar && tar -C {mnt} -df {root}/in.tar
         tar -C {mnt} -cf {mnt}/out.tar tree && tar -C {root} -df {mnt}/out.tar",
        mnt = shown(&mnt)
    );
    shell(&script).ok();
    shell(&format!("rm -r {mnt}/tree {mnt}/out.tar && test -z \"$(ls -A {mnt})\"", mnt = shown(&mnt))).ok();
    assert!(cluster.run(&["check"]).ok().starts_with("1 directory, 0 files"));
}

#[test]
fn what_is_synced_survives_the_death_of_everything_at_once() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("synced");
    let mnt = cluster.mnt();
    let script = format!(
        "cd {} && for n in $(seq 1 20); do echo $n > $n; mv $n moved-$n; done; head -c 2000000 /dev/zero > zeros; sync -f .",
        shown(&mnt)
    );
    shell(&script).ok();
    let status = cluster.status();
    let others = ["mount", "supervisor"].map(|who| status[who]["pid"].as_u64().expect("a process"));
    kill(cluster.daemons().into_iter().chain(others));
    cluster.up_again().ok();
    for n in 1..=20 {
        assert_eq!(fs::read_to_string(mnt.join(format!("moved-{n}"))).unwrap(), format!("{n}\n"));
        assert!(!mnt.join(n.to_string()).exists());
    }
    assert_eq!(fs::read(mnt.join("zeros")).unwrap(), vec![0; 2_000_000]);
}

#[test]
fn a_sync_of_the_mounts_root_makes_all_that_was_written_through_it_stable() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("root-synced");
    let mnt = cluster.mnt();
    // Written and not closed: so far only the mount has it.
    let mut open = fs::File::create(mnt.join("open")).unwrap();
    open.write_all(&[7; 100_000]).unwrap();
    shell(&format!("sync {}", shown(&mnt))).ok();
    let status = cluster.status();
    let others = ["mount", "supervisor"].map(|who| status[who]["pid"].as_u64().expect("a process"));
    kill(cluster.daemons().into_iter().chain(others));
    drop(open);
    cluster.up_again().ok();
    assert_eq!(fs::read(mnt.join("open")).unwrap(), vec![7; 100_000]);
}

#[test]
fn two_mounts_see_each_others_changes_and_crossed_changes_do_not_block() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("two");
    let second = cluster.root().join("second");
    fs::create_dir(&second).unwrap();
    let (address, secret) = (cluster.address("metadata"), cluster.file("secrets/enrolment.key"));
    bearing(&["mount", &address, shown(&second), "--secret", shown(&secret)]).ok();
    let first = cluster.mnt();
    let script = format!(
        "cd {first} && mkdir one two && test -d {second}/one
         echo hello > one/file && test \"$(cat {second}/one/file)\" = hello
         chmod 600 {second}/one/file && test \"$(stat -c %a one/file)\" = 600
         rm {second}/one/file && test ! -e one/file
         (for n in $(seq 1 60); do chmod 7$((n % 8))5 {first}/one; : > {first}/two/a$n; done) &
         (for n in $(seq 1 60); do chmod 7$((n % 8))5 {second}/two; : > {second}/one/b$n; done) &
         wait
         test $(ls {second}/two | wc -l) = 60 && test $(ls {first}/one | wc -l) = 60",
        first = shown(&first),
        second = shown(&second)
    );
    let ran = shell(&format!("timeout 60 bash -euc '{}'", script.replace('\'', "'\\''")));
    bearing(&["umount", shown(&second)]).ok();
    ran.ok();
    let nothing = bearing(&["umount", shown(&second)]).refused(1);
    assert!(nothing.contains("nothing is mounted"), "{nothing}");
}

#[test]
fn bench_tree_sees_through_a_second_mount_all_that_it_did_through_the_first() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("bench");
    let second = cluster.mount_again();
    let mnt = cluster.mnt();
    let flags =
        ["bench", "tree", shown(&mnt), "--also", shown(&second), "--files", "40", "--small-files", "60"];
    let more = ["--clone-files", "30", "--bytes", "3M", "--repetitions", "1", "--json"];
    let ran = bearing(&[&flags[..], &more].concat());
    bearing(&["umount", shown(&second)]).ok();
    let json: serde_json::Value = serde_json::from_str(&ran.ok()).unwrap();
    assert_eq!(json["subject"], "fuse.bearing");
    for line in json["lines"].as_array().unwrap() {
        let changes = [
            "create",
            "rename",
            "remove",
            "mkdir",
            "rename-dir",
            "rmdir",
            "untar",
            "rm-r",
            "git-clone",
            "write",
        ];
        let drains = line["drain_seconds"][0].as_f64().unwrap() > 0.0;
        assert_eq!(drains, changes.contains(&line["phase"].as_str().unwrap()), "{line}");
    }
    assert_eq!(fs::read_dir(&mnt).unwrap().count(), 0);
}

fn allocate(file: &fs::File, mode: i32, offset: i64, length: i64) -> Result<(), i32> {
    // SAFETY: the call takes plain numbers, and the descriptor is open.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn seek(file: &fs::File, offset: i64, whence: i32) -> Result<i64, i32> {
    // SAFETY: as above.
    let place = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    if place >= 0 { Ok(place) } else { Err(last_error()) }
}

fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().expect("a system call failed")
}

#[test]
fn holes_are_made_found_and_cost_nothing_up_to_8_tib_and_beyond() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("holes");
    let path = cluster.mnt().join("sparse");
    let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    let (keep, punch, zero) =
        (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_ZERO_RANGE);
    file.write_all_at(&[7; 30_000], 0).unwrap();
    allocate(&file, punch | keep, 2_000, 13_000).unwrap();
    let mut expected = vec![7; 30_000];
    expected[2_000..15_000].fill(0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    // Told in blocks: where 2,000 bytes are stored, 4,096 are no hole.
    assert_eq!([libc::SEEK_DATA, libc::SEEK_HOLE].map(|whence| seek(&file, 0, whence)), [Ok(0), Ok(4_096)]);
    assert_eq!(
        [libc::SEEK_DATA, libc::SEEK_HOLE].map(|whence| seek(&file, 5_000, whence)),
        [Ok(12_288), Ok(5_000)]
    );
    assert_eq!(seek(&file, 13_000, libc::SEEK_HOLE), Ok(30_000));
    assert_eq!(seek(&file, 30_000, libc::SEEK_DATA), Err(libc::ENXIO));
    allocate(&file, keep, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 30_000);
    allocate(&file, zero, 29_000, 2_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 31_000);
    assert_eq!(fs::read(&path).unwrap()[29_000..], [0; 2_000]);
    for refused in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
        assert_eq!(allocate(&file, refused, 0, 4_096), Err(libc::EOPNOTSUPP));
    }
    // Beyond 8 TiB: only what is written takes space.
    let far = 9_i64 << 40;
    file.write_all_at(b"far", far as u64).unwrap();
    file.sync_all().unwrap();
    assert_eq!(seek(&file, 40_000, libc::SEEK_DATA), Ok(far));
    assert_eq!(allocate(&file, 0, far, 1 << 40), Err(libc::ENOSPC), "no such disk has room for it");
    file.set_len(10 << 40).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10 << 40);
    assert!(file.metadata().unwrap().blocks() * 512 < 100_000);
    // A copy has the same holes: else this would take for ever.
    cluster.run(&["fs", "cp", "/sparse", "/copy"]).ok();
    let copy = fs::File::open(cluster.mnt().join("copy")).unwrap();
    assert_eq!((copy.metadata().unwrap().len(), seek(&copy, 40_000, libc::SEEK_DATA)), (10 << 40, Ok(far)));
    assert_eq!(seek(&copy, 0, libc::SEEK_HOLE), Ok(4_096));
    assert!(cluster.run(&["check"]).ok().contains("0 problems"));
}

#[test]
fn a_shared_mapping_reads_and_direct_bytes_are_the_same_file() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("mapped");
    let path = cluster.mnt().join("file");
    fs::write(&path, [1; 8_192]).unwrap();
    let mut options = fs::OpenOptions::new();
    let file = options.read(true).write(true).open(&path).unwrap();
    let direct = options.custom_flags(libc::O_DIRECT).open(&path).unwrap();
    // SAFETY: a new mapping of an open file of this length, unmapped below.
    let mapped = unsafe {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), 8_192, both, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_ne!(mapped, libc::MAP_FAILED);
    // SAFETY: the mapping is of this length, and nothing else refers to it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), 8_192) };
    bytes[4_000..4_200].fill(2);
    // SAFETY: the mapping is whole.
    assert_eq!(unsafe { libc::msync(mapped, 8_192, libc::MS_SYNC) }, 0);
    let mut seen = [0; 300];
    file.read_exact_at(&mut seen, 3_950).unwrap();
    assert_eq!((seen[49], seen[50], seen[249], seen[250]), (1, 2, 2, 1));
    let page = AlignedPage([3; 4_096]);
    direct.write_all_at(&page.0, 4_096).unwrap();
    assert_eq!((bytes[4_095], bytes[4_096], bytes[8_191]), (2, 3, 3));
    let mut page = AlignedPage([0; 4_096]);
    direct.read_exact_at(&mut page.0, 0).unwrap();
    assert_eq!((page.0[3_999], page.0[4_000]), (1, 2));
    // SAFETY: mapped above; `bytes` is not used any more.
    assert_eq!(unsafe { libc::munmap(mapped, 8_192) }, 0);
    drop((file, direct));
    let whole = fs::read(&path).unwrap();
    assert_eq!((whole.len(), whole[4_000], whole[5_000]), (8_192, 2, 3));
}

#[repr(align(4096))]
struct AlignedPage([u8; 4_096]);

#[test]
fn a_busy_mount_point_is_refused_before_anything_starts() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::new("busy");
    let refusal = cluster.up(&["--mount", "/proc"]).refused(2);
    assert!(refusal.contains("busy") && refusal.contains("proc"), "{refusal}");
    fs::write(cluster.mnt().join("mine"), "kept").unwrap();
    let refusal = cluster.up_again().refused(1);
    assert!(refusal.contains("not empty"), "{refusal}");
    assert_eq!(fs::read_to_string(cluster.mnt().join("mine")).unwrap(), "kept");
    assert!(cluster.daemons().is_empty(), "nothing runs");
}

#[test]
fn a_machine_without_fuse_is_told_what_is_missing_before_anything_starts() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::new("deviceless");
    // In a namespace of its own, where /dev holds nothing but what any program needs.
    let script = format!(
        "unshare --mount sh -c 'mount -t tmpfs none /dev && mknod /dev/null c 1 3 && exec {} up --dir {} --mount {} --detach'",
        env!("CARGO_BIN_EXE_bearing"),
        cluster.dir(),
        shown(&cluster.mnt()),
    );
    let said = shell(&script).refused(1);
    assert!(said.contains("/dev/fuse is missing") && said.contains("modprobe fuse"), "{said}");
    assert!(!Path::new(&cluster.dir()).exists(), "nothing was made");
}

#[test]
fn a_mount_in_use_does_not_hold_up_the_end() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("in-use");
    let mnt = cluster.mnt();
    fs::write(mnt.join("file"), "written before the end").unwrap();
    let held = fs::File::open(mnt.join("file")).unwrap();
    cluster.down().ok();
    assert!(!mnt.join("file").exists());
    drop(held);
    cluster.up_again().ok();
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "written before the end");
}

#[test]
fn the_end_does_not_wait_for_servers_that_stay_dead() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::new("dead-end");
    cluster.up(&["--no-restart", "--mount", shown(&cluster.mnt())]).ok();
    fs::write(cluster.mnt().join("synced"), "one").unwrap();
    shell(&format!("sync {}", shown(&cluster.mnt().join("synced")))).ok();
    let metadata = &cluster.status()["daemons"].as_array().unwrap()[1..=2].to_vec();
    kill(metadata.iter().map(|daemon| daemon["pid"].as_u64().unwrap()));
    wait_for("they are seen to be dead", PATIENCE, || {
        let daemons = cluster.status()["daemons"].clone();
        (1..=2).all(|number| daemons[number]["state"] == "dead")
    });
    let began = Instant::now();
    cluster.down().ok();
    // A deadline and no measure: waiting for the dead would take 20 s.
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

#[test]
fn logs_that_are_cut_often_lose_nothing() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::new("cut");
    cluster.up(&[]).ok();
    cluster.down().ok();
    for server in ["metadata-1", "metadata-2"] {
        let path = cluster.file(&format!("{server}/config.toml"));
        let text = fs::read_to_string(&path).unwrap();
        let small = text.replace("log_bytes_max = 33554432", "log_bytes_max = 100000");
        assert_ne!(text, small, "the setting is there");
        fs::write(&path, small).unwrap();
    }
    cluster.up_again().ok();
    make_tree(cluster.root());
    let (source, target) = (cluster.root().join("tree"), cluster.mnt().join("tree"));
    for round in 0..3 {
        shell(&format!("cp -a {} {}", shown(&source), shown(&cluster.mnt()))).ok();
        kill(cluster.daemons());
        assert_same(&source, &target);
        if round < 2 {
            shell(&format!("rm -r {}", shown(&target))).ok();
        }
    }
    assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
}
