//! copy_file_range(2) on a mount: data servers copy, the mount does not.
//!
//! These tests need root and /dev/fuse; without them they say so and pass.

mod common;

use common::{TestCluster, can_mount, kill, shell};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

const MIB: usize = 1 << 20;

fn shown(path: &Path) -> &str {
    path.to_str().expect("plain names")
}

/// Bytes that say where they belong.
fn content(salt: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 12) ^ salt) as u8).collect()
}

/// One call.
fn copy_once(source: (&File, u64), target: (&File, u64), length: usize) -> io::Result<usize> {
    let (mut from, mut to) = (source.1 as i64, target.1 as i64);
    // SAFETY: both descriptors are open, and the offsets live longer than the call.
    let count = unsafe {
        libc::copy_file_range(source.0.as_raw_fd(), &mut from, target.0.as_raw_fd(), &mut to, length, 0)
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// As many calls as it takes. How many bytes were copied before the end of the source.
fn copy(source: (&File, u64), target: (&File, u64), length: usize) -> io::Result<usize> {
    let mut done = 0;
    while done < length {
        let (from, to) = (source.1 + done as u64, target.1 + done as u64);
        match copy_once((source.0, from), (target.0, to), length - done)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Bytes that the connections of a process have carried, both ways.
fn carried(pid: u64) -> u64 {
    // SAFETY: these calls take plain numbers and give descriptors that nobody else has.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    assert!(process >= 0, "{}", io::Error::last_os_error());
    let process = unsafe { OwnedFd::from_raw_fd(process as i32) };
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let numbers = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let sockets = numbers.filter_map(|number| {
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
        (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy as i32) })
    });
    sockets.filter_map(|socket| carried_by(&socket)).sum()
}

/// The same for one connection; `None`: it is none.
fn carried_by(socket: &OwnedFd) -> Option<u64> {
    let mut info = [0u64; 32];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the buffer is as long as is said.
    let known = unsafe {
        let info = info.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info, &mut length)
    };
    // `tcpi_bytes_acked` and `tcpi_bytes_received` of `struct tcp_info`, at 120 and 128.
    (known == 0 && length >= 136).then(|| info[15] + info[16])
}

#[test]
fn a_copy_of_64_mib_moves_almost_nothing_through_the_mount_and_lasts() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("copy-range");
    let mnt = cluster.mnt();
    let (bytes, odd) = (content(1, 64 * MIB + 12_345), 777);
    fs::write(mnt.join("source"), &bytes).unwrap();
    let mount = cluster.status()["mount"]["pid"].as_u64().expect("the mount's process");

    let (source, target) = (File::open(mnt.join("source")).unwrap(), open(&mnt.join("target")));
    let before = carried(mount);
    let wanted = bytes.len() - odd;
    assert_eq!(copy((&source, odd as u64), (&target, 5), usize::MAX >> 1).unwrap(), wanted);
    let moved = carried(mount) - before;
    assert!(moved < MIB as u64, "{moved} bytes went through the mount");
    assert_eq!(target.metadata().unwrap().len(), wanted as u64 + 5);
    // The same measure sees bytes that do go through it.
    fs::write(mnt.join("written"), &bytes).unwrap();
    let written = carried(mount) - before - moved;
    assert!(written >= bytes.len() as u64, "{written} bytes were seen of those that were written");

    let expected = [&[0; 5][..], &bytes[odd..]].concat();
    let second = cluster.mount_again();
    assert!(fs::read(second.join("target")).unwrap() == expected, "another mount sees something else");
    assert!(fs::read(mnt.join("target")).unwrap() == expected, "the mount sees something else");
    target.sync_all().unwrap();
    // What is done to the source does not touch the copy.
    fs::write(mnt.join("source"), b"short").unwrap();
    kill(cluster.daemons());
    assert!(fs::read(second.join("target")).unwrap() == expected, "it changed when the servers died");
    drop((source, target));
    shell(&format!("umount {}", shown(&second))).ok();
    cluster.down().ok();
    cluster.up_again().ok();
    assert!(fs::read(mnt.join("target")).unwrap() == expected, "it changed in a restart");
    assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
}

#[test]
fn holes_stay_holes_and_parts_go_to_their_places() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("copy-holes");
    let mnt = cluster.mnt();
    let (source, target) = (open(&mnt.join("source")), open(&mnt.join("target")));
    let (first, second) = (content(2, 100_001), content(3, 5000));
    source.write_all_at(&first, 10).unwrap();
    source.write_all_at(&second, 20 * MIB as u64 + 3).unwrap();
    source.set_len(40 * MIB as u64).unwrap();
    // Nothing is flushed before.
    assert_eq!(copy((&source, 0), (&target, 0), usize::MAX >> 1).unwrap(), 40 * MIB);
    let bytes = fs::read(mnt.join("source")).unwrap();
    assert!(fs::read(mnt.join("target")).unwrap() == bytes);
    let (from, to) = (source.metadata().unwrap(), target.metadata().unwrap());
    assert_eq!((to.len(), to.blocks()), (from.len(), from.blocks()));
    assert!(to.blocks() * 512 < MIB as u64, "{} blocks", to.blocks());
    let seek = |offset: i64, whence| unsafe { libc::lseek(target.as_raw_fd(), offset, whence) };
    // They are told in blocks of 4 KiB.
    assert_eq!(seek(10, libc::SEEK_HOLE), 25 * 4_096);
    assert_eq!(seek(25 * 4_096, libc::SEEK_DATA), 20 * MIB as i64);

    // A hole covers bytes, and bytes cover bytes, in the middle of a file that was written just now.
    let (plain, mut oracle) = (open(&mnt.join("plain")), content(4, 300_000));
    plain.write_all_at(&oracle, 0).unwrap();
    assert_eq!(copy((&source, 90_000), (&plain, 1000), 50_000).unwrap(), 50_000);
    oracle[1000..51_000].copy_from_slice(&bytes[90_000..140_000]);
    assert_eq!(copy((&source, 20 * MIB as u64), (&plain, 200_000), 7000).unwrap(), 7000);
    oracle[200_000..207_000].copy_from_slice(&bytes[20 * MIB..20 * MIB + 7000]);
    // To the end, and what is written there afterwards.
    let end = oracle.len() as u64;
    assert_eq!(copy((&source, 5), (&plain, end), 1000).unwrap(), 1000);
    oracle.extend_from_slice(&bytes[5..1005]);
    let mut log = OpenOptions::new().append(true).open(mnt.join("plain")).unwrap();
    log.write_all(b"the end").unwrap();
    oracle.extend_from_slice(b"the end");
    drop(log);
    assert!(fs::read(mnt.join("plain")).unwrap() == oracle);
    let mapped = fs::read(cluster.mount_again().join("plain")).unwrap();
    assert!(mapped == oracle, "another mount sees something else");
    shell(&format!("umount {}/second", shown(cluster.root()))).ok();
}

#[test]
fn what_may_not_be_copied_is_refused_as_everywhere() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("copy-refused");
    let mnt = cluster.mnt();
    let file = open(&mnt.join("file"));
    let bytes = content(5, 10_000);
    file.write_all_at(&bytes, 0).unwrap();
    let code = |result: io::Result<usize>| result.unwrap_err().raw_os_error();
    // Overlapping ranges of one file, also through two descriptors; ranges that only touch are no matter.
    let again = open(&mnt.join("file"));
    for target in [&file, &again] {
        assert_eq!(code(copy_once((&file, 0), (target, 4999), 5000)), Some(libc::EINVAL));
        assert_eq!(code(copy_once((&file, 4999), (target, 0), 5000)), Some(libc::EINVAL));
    }
    assert_eq!(copy((&file, 0), (&again, 5000), 5000).unwrap(), 5000);
    assert!(fs::read(mnt.join("file")).unwrap() == [&bytes[..5000], &bytes[..5000]].concat());
    assert_eq!(copy((&file, 10_000), (&again, 20_000), 5000).unwrap(), 0, "behind the end is nothing");
    assert_eq!(file.metadata().unwrap().len(), 10_000);

    let log = OpenOptions::new().append(true).open(mnt.join("file")).unwrap();
    assert_eq!(code(copy_once((&file, 0), (&log, 0), 10)), Some(libc::EBADF));
    let reader = File::open(mnt.join("file")).unwrap();
    assert_eq!(code(copy_once((&file, 0), (&reader, 20_000), 10)), Some(libc::EBADF));

    // A quota counts copied bytes; what does not fit is not there.
    fs::create_dir(mnt.join("small")).unwrap();
    cluster.run(&["fs", "quota", "set", "/small", "--space", "12000"]).ok();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).custom_flags(libc::O_SYNC);
    let target = options.open(mnt.join("small/file")).unwrap();
    assert_eq!(copy((&file, 0), (&target, 0), 10_000).unwrap(), 10_000);
    assert_eq!(code(copy((&file, 0), (&target, 10_000), 10_000)), Some(libc::EDQUOT));
    assert_eq!(target.metadata().unwrap().len(), 10_000);
}
