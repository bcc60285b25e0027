//! Programs that people use, on a mount: short runs of what `cargo xtask soak` does for long. A program that
//! is not installed is left out, and said.
//!
//! These tests need root and /dev/fuse; without them they say so and pass.

mod common;

use common::{TestCluster, bearing, can_mount, shell};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn shown(path: &Path) -> &str {
    path.to_str().expect("plain names")
}

/// Whether a program is there; says so if not.
fn has(program: &str) -> bool {
    let found = shell(&format!("command -v {program} || true")).ok();
    if found.is_empty() {
        eprintln!("left out: {program} is not installed");
    }
    !found.is_empty()
}

#[test]
fn git_clones_and_repacks_and_the_other_mount_finds_nothing_wrong() {
    if !can_mount() || !has("git") {
        return;
    }
    let cluster = TestCluster::mounted("git");
    let second = cluster.mount_again();
    let script = format!(
        "export HOME={root} GIT_CONFIG_NOSYSTEM=1; git config --global user.name t; git config --global user.email t@localhost
         git config --global --add safe.directory '*'
         git init -q {root}/source && cd {root}/source
         for n in $(seq 1 15); do seq $n $((n * 50)) > file-$n; git add .; git commit -qm $n; done
         git clone -q --no-hardlinks {root}/source {first}/clone && cd {first}/clone
         git fsck --full && git repack -adq && echo more > more && git add more && git commit -qm more
         cd {second}/clone && git fsck --full && test -z \"$(git status --porcelain)\" && test \"$(git log --oneline | wc -l)\" = 16",
        root = shown(cluster.root()),
        first = shown(&cluster.mnt()),
        second = shown(&second)
    );
    let ran = shell(&script);
    bearing(&["umount", shown(&second)]).ok();
    ran.ok();
}

#[test]
fn rsync_moves_nothing_the_second_time_nor_by_the_sums_that_the_other_mount_shows() {
    if !can_mount() || !has("rsync") {
        return;
    }
    let cluster = TestCluster::mounted("rsync");
    let second = cluster.mount_again();
    let script = format!(
        "mkdir -p {root}/source/deep/er && cd {root}/source
         for n in $(seq 1 80); do seq $n > deep/$n; done; ln deep/7 deep/er/hard; ln -s nowhere dangling; mkfifo pipe
         head -c 2000000 /dev/urandom > deep/large; touch -d '2001-02-03 04:05:06.123456789' deep/8; chmod 640 deep/9
         rsync -aH {root}/source/ {first}/copy/
         test -z \"$(rsync -aHi {root}/source/ {first}/copy/)\" && test -z \"$(rsync -aHic {root}/source/ {second}/copy/)\"",
        root = shown(cluster.root()),
        first = shown(&cluster.mnt()),
        second = shown(&second)
    );
    let ran = shell(&script);
    bearing(&["umount", shown(&second)]).ok();
    ran.ok();
}

#[test]
fn sqlite_keeps_its_sums_with_a_rollback_journal_and_with_a_write_ahead_log() {
    if !can_mount() || !has("python3") {
        return;
    }
    let cluster = TestCluster::mounted("sqlite");
    let (mnt, second) = (cluster.mnt(), cluster.mount_again());
    let program = "
import sqlite3, sys
for mode in ['delete', 'wal']:
    for turn in range(2):
        bank = sqlite3.connect(f'{sys.argv[1]}/{mode}.db', isolation_level=None)
        assert bank.execute(f'pragma journal_mode={mode}').fetchone()[0] == mode
        bank.execute('create table if not exists account(id integer primary key, sum integer)')
        if turn == 0:
            bank.executemany('insert into account values(?, 100)', [(n,) for n in range(50)])
        for n in range(40):
            bank.execute('begin immediate')
            bank.execute('update account set sum = sum - ? where id = ?', (n, n % 50))
            bank.execute('update account set sum = sum + ? where id = ?', (n, (n * 7) % 50))
            bank.execute('rollback' if n % 5 == 4 else 'commit')
        assert bank.execute('pragma integrity_check').fetchone()[0] == 'ok'
        assert bank.execute('select sum(sum) from account').fetchone()[0] == 5000
        bank.close()
";
    let script = cluster.root().join("bank.py");
    fs::write(&script, program).unwrap();
    // One bank that two mounts work on at the same time. A write-ahead log shares memory, which machines do
    // not.
    let program = "
import sqlite3, sys
bank = sqlite3.connect(f'{sys.argv[1]}/delete.db', isolation_level=None, timeout=120)
for n in range(30):
    bank.execute('begin immediate')
    bank.execute('update account set sum = sum - ? where id = ?', (n, n % 50))
    bank.execute('update account set sum = sum + ? where id = ?', (n, (n * 7) % 50))
    assert bank.execute('select sum(sum) from account').fetchone()[0] == 5000
    bank.execute('update turns set count = count + 1')
    bank.execute('commit')
assert bank.execute('pragma integrity_check').fetchone()[0] == 'ok'
";
    let both = cluster.root().join("both.py");
    fs::write(&both, program).unwrap();
    let run = format!(
        "python3 {bank} {first}
         python3 -c 'import sqlite3, sys; bank = sqlite3.connect(sys.argv[1]); bank.execute(\"create table turns(count)\"); \
             bank.execute(\"insert into turns values(0)\"); bank.commit()' {first}/delete.db
         python3 {both} {first} & one=$!
         python3 {both} {second}
         wait $one
         test $(python3 -c 'import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute(\"select count from turns\").fetchone()[0])' {second}/delete.db) = 60",
        bank = shown(&script),
        both = shown(&both),
        first = shown(&mnt),
        second = shown(&second),
    );
    let ran = shell(&run);
    bearing(&["umount", shown(&second)]).ok();
    ran.ok();
}

/// Draws that are the same every time (the generator of Steele, Lea and Flood, "SplitMix").
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("opens")
}

#[test]
fn random_operations_on_one_file_through_two_mounts_in_turn_are_those_of_an_array() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::mounted("turns");
    let second = cluster.mount_again();
    let paths = [cluster.mnt().join("file"), second.join("file")];
    let (mut draws, mut expected) = (Draws(1), Vec::<u8>::new());
    let mut file = open(&paths[0]);
    for step in 0..1_500_u64 {
        let (at, length) = (draws.below(200_000), draws.below(30_000) + 1);
        match draws.below(8) {
            // What was written before a close is seen by whoever opens later, on any mount.
            0 => {
                drop(file);
                file = open(&paths[draws.below(2) as usize]);
                assert_eq!(file.metadata().unwrap().len(), expected.len() as u64, "step {step}");
            }
            1 | 2 => {
                let bytes: Vec<u8> = (0..length).map(|n| (n ^ step) as u8).collect();
                file.write_all_at(&bytes, at).unwrap();
                expected.resize(expected.len().max((at + length) as usize), 0);
                expected[at as usize..(at + length) as usize].copy_from_slice(&bytes);
            }
            3 => {
                file.set_len(at).unwrap();
                expected.resize(at as usize, 0);
            }
            4 => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                // SAFETY: the call takes plain numbers, and the descriptor is open.
                let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, at as i64, length as i64) };
                assert_eq!(result, 0);
                let [start, end] = [at, at + length].map(|at| (at as usize).min(expected.len()));
                expected[start..end].fill(0);
            }
            5 if draws.below(4) == 0 => file.sync_all().unwrap(),
            _ => {
                let start = (at as usize).min(expected.len());
                let end = ((at + length) as usize).min(expected.len());
                let mut seen = vec![0; end - start];
                file.read_exact_at(&mut seen, start as u64).unwrap();
                assert!(seen == expected[start..end], "step {step}: bytes from {start} to {end}");
            }
        }
    }
    drop(file);
    let seen = paths.map(|path| fs::read(path).unwrap());
    bearing(&["umount", shown(&second)]).ok();
    assert!(seen.iter().all(|seen| *seen == expected));
    assert!(cluster.run(&["check", "--read"]).ok().contains("0 problems"));
}
