//! Many writers append to one file, through two mounts and without any, while data servers are killed and
//! chunks sealed: every record is there once, whole, and those of each writer in their order.
//!
//! Needs root and /dev/fuse; without them it says so and passes.

mod common;

use common::{TestCluster, bearing, can_mount, kill, wait_for};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
/// Through each mount, and as many again by `bearing fs append`.
const WRITERS_EACH: usize = 4;
const WRITERS: usize = 4 * WRITERS_EACH;
const RECORDS: usize = 600;

/// A line that says whose it is, which of his, and what belongs in it. Most are short, some take many
/// blocks.
fn record(writer: usize, number: usize) -> String {
    let length = match (writer * 7 + number) % 10 {
        0 => 60_000,
        1 | 2 => 5_000,
        other => 10 * other,
    };
    let letter = char::from(b'a' + writer as u8);
    format!("{writer} {number} {length} {}\n", letter.to_string().repeat(length))
}

/// Appends as programs do through a mount.
fn append_through(point: &Path, writer: usize, written: &AtomicUsize) {
    let mut file = OpenOptions::new().append(true).create(true).open(point.join("log")).unwrap();
    for number in 0..RECORDS {
        let record = record(writer, number);
        assert_eq!(file.write(record.as_bytes()).unwrap(), record.len(), "one write(2)");
        if number % 20 == 19 {
            file.sync_data().unwrap();
        }
        written.fetch_add(1, Ordering::Relaxed);
    }
    file.sync_all().unwrap();
}

/// Appends without a mount.
fn append_lines(mut child: Child, writer: usize, written: &AtomicUsize) {
    let mut input = child.stdin.take().unwrap();
    for number in 0..RECORDS {
        input.write_all(record(writer, number).as_bytes()).unwrap();
        written.fetch_add(1, Ordering::Relaxed);
    }
    drop(input);
    let told = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.success(), "{out} {}", String::from_utf8_lossy(&told.stderr));
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["records"], RECORDS, "{told}");
}

fn check(content: &str) {
    let mut next = [0; WRITERS];
    for line in content.split_terminator('\n') {
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok());
        let (Some(writer), Some(found)) = (number(), number()) else {
            panic!("torn: {:?}", &line[..line.len().min(100)])
        };
        assert_eq!(found, next[writer], "the next of writer {writer}");
        assert!(
            format!("{line}\n") == record(writer, found),
            "record {found} of writer {writer} is not whole"
        );
        next[writer] += 1;
    }
    assert_eq!(next, [RECORDS; WRITERS], "all are there");
}

#[test]
fn sixteen_writers_append_while_data_servers_are_killed() {
    if !can_mount() {
        return;
    }
    let cluster = TestCluster::new("appends");
    let dir = cluster.dir();
    bearing(&["up", "--detach", "--data", "3", "--data-copies", "2", "--dir", &dir]).ok();
    let points = [cluster.root().join("first"), cluster.root().join("second")];
    for point in &points {
        fs::create_dir(point).unwrap();
        bearing(&["mount", &dir, point.to_str().unwrap()]).ok();
    }
    let written = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (written, points, dir) = (&written, &points, &dir);
            match points.get(writer / WRITERS_EACH) {
                Some(point) => drop(scope.spawn(move || append_through(point, writer, written))),
                None => {
                    let mut command = Command::new(env!("CARGO_BIN_EXE_bearing"));
                    command.args(["fs", "--dir", dir, "--json", "append", "--lines", "-", "/log"]);
                    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                    let child = command.spawn().unwrap();
                    scope.spawn(move || append_lines(child, writer, written));
                }
            }
        }
        for (victim, part) in [(0, 4), (1, 2)] {
            wait_for("records are written", PATIENCE, || {
                written.load(Ordering::Relaxed) > WRITERS * RECORDS / part
            });
            wait_for("all data servers serve", PATIENCE, || cluster.serves());
            let status = cluster.status();
            let daemons = status["daemons"].as_array().unwrap().iter();
            let data = daemons.filter(|daemon| daemon["kind"] == "data");
            kill(data.filter_map(|daemon| daemon["pid"].as_u64()).skip(victim).take(1));
            assert!(written.load(Ordering::Relaxed) < WRITERS * RECORDS, "all was written before that");
        }
    });
    for point in &points {
        check(&fs::read_to_string(point.join("log")).unwrap());
    }
    let seen = cluster.run(&["fs", "cat", "/log"]).ok();
    check(&seen);

    // What a person gives by hand, and by mistake.
    let (small, large) = (cluster.file("small"), cluster.file("large"));
    fs::write(&small, "one more\n").unwrap();
    File::create(&large).unwrap().set_len((4 << 20) + 1).unwrap();
    let (small, large) = (small.to_str().unwrap().to_owned(), large.to_str().unwrap().to_owned());
    cluster.run(&["fs", "append", &small, "/log"]).ok();
    assert!(cluster.run(&["fs", "append", &large, "/new"]).refused(2).contains("more than 4 MiB"));
    assert!(cluster.run(&["fs", "append", &small, "/"]).refused(1).contains("directory"));
    assert_eq!(cluster.run(&["fs", "cat", "/log"]).ok(), seen + "one more\n");
    assert_eq!(cluster.run(&["fs", "ls", "/"]).ok(), "log\n", "what is refused makes no file");
    for point in &points {
        bearing(&["umount", point.to_str().unwrap()]).ok();
    }
}
