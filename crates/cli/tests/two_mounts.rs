//! Two mounts of one cluster: what one does never takes away what is right on the other, and what one held is
//! free when it is gone.
//!
//! These tests need root and /dev/fuse; without them they say so and pass.

mod common;

use common::{Ran, TestCluster, bearing, can_mount, shell};
use std::path::Path;

fn shown(path: &Path) -> &str {
    path.to_str().expect("plain names")
}

/// A cluster that is mounted twice in the same way.
struct Twice {
    cluster: TestCluster,
}

impl Twice {
    fn new(name: &str, options: &str) -> Twice {
        let twice = Twice { cluster: TestCluster::started(name) };
        for point in ["first", "second"] {
            std::fs::create_dir(twice.cluster.root().join(point)).expect("a mount point");
            twice.mount(point, options);
        }
        twice
    }

    fn mount(&self, point: &str, options: &str) {
        let point = self.cluster.root().join(point);
        bearing(&["mount", "-o", options, &self.cluster.dir(), shown(&point)]).ok();
    }

    /// Runs a shell's script, which finds both mounts in `$first` and `$second`, the cluster in `$cluster`,
    /// the program in `$bearing` and a place that is neither in `$root`.
    fn run(&self, script: &str) -> Ran {
        let (root, cluster) = (shown(self.cluster.root()), self.cluster.dir());
        let bearing = env!("CARGO_BIN_EXE_bearing");
        let names = format!(
            "root={root} first={root}/first second={root}/second cluster={cluster} bearing={bearing}"
        );
        shell(&format!("export {names}; {script}"))
    }
}

impl Drop for Twice {
    fn drop(&mut self) {
        for point in ["first", "second"] {
            bearing(&["umount", shown(&self.cluster.root().join(point))]);
        }
    }
}

/// Works in a directory of the second mount while the first makes names around it, and moves it away and
/// back.
const AT_WORK: &str = "
import os, sys
first, second = sys.argv[1] + '/top', sys.argv[2] + '/top'
os.makedirs(first + '/busy/deep')
for n in range(40):
    open(f'{first}/before-{n}', 'w').close()
os.chdir(second + '/busy/deep')
deep = os.open('.', os.O_PATH)
os.chdir('..')
work = os.open('.', os.O_PATH)

def places():
    os.fchdir(work)
    inner = os.readlink(f'/proc/self/fd/{deep}')
    return os.getcwd(), os.readlink('/proc/self/cwd'), inner

def stays(what):
    assert places() == (second + '/busy', second + '/busy', second + '/busy/deep'), (what, places())

stays('at first')
for n in range(30):
    open(f'{first}/{n}', 'w').close()
    stays(f'{n} was made')
    # So that the kernel of the second mount knows all names again.
    assert len([entry.stat() for entry in os.scandir(second)]) == 41 + n + 1
    os.rename(first + '/busy', first + '/away')
    os.rename(first + '/away', first + '/busy')
    stays(f'away and back {n}')
    os.rename(first + '/before-0', first + '/before-1')
    os.rename(first + '/before-1', first + '/before-0')
    open(f'{first}/before-1', 'w').close()
    stays(f'another was replaced {n}')
# What is not right any more is not believed.
number = os.stat(second + '/busy').st_ino
os.rename(first + '/busy', first + '/away')
assert not os.path.exists(second + '/busy')
assert os.stat(second + '/away').st_ino == number
assert places() == (second + '/away', second + '/away', second + '/away/deep'), places()
os.rmdir(first + '/away/deep')
os.rmdir(first + '/away')
os.mkdir(first + '/away')
assert os.stat(second + '/away').st_ino != number
";

#[test]
fn a_directory_in_use_stays_where_it_is_whatever_the_other_mount_does_around_it() {
    if !can_mount() || shell("command -v python3").code != Some(0) {
        return;
    }
    for options in ["delegate", "nodelegate"] {
        let mounts = Twice::new(&format!("in-use-{options}"), options);
        std::fs::write(mounts.cluster.root().join("at-work.py"), AT_WORK).unwrap();
        mounts.run("timeout 100 python3 $root/at-work.py $first $second").ok();
    }
}

/// Commits and makes references in a repository that another does the same in, and makes files beside it.
const COMMITS: &str = r#"
cd "$1" && parent=""
for n in $(seq 20); do
    blob=$(echo "$2 $n" | git hash-object -w --stdin)
    tree=$(printf '100644 blob %s\tfile\n' "$blob" | git mktree)
    parent=$(git commit-tree "$tree" ${parent:+-p $parent} -m "$2 $n")
    git update-ref "refs/heads/$2" "$parent"
    echo "$n" > "../beside-$2"; mv "../beside-$2" "../beside-$2-$n"
done
for n in $(seq 30); do git branch "of-$2-$n" "$2"; done
git reflog expire --all && git pack-refs --all
"#;

#[test]
fn git_works_on_two_mounts_of_one_repository_at_the_same_time() {
    if !can_mount() || shell("command -v git").code != Some(0) {
        return;
    }
    for options in ["delegate", "nodelegate"] {
        let mounts = Twice::new(&format!("git-{options}"), options);
        std::fs::write(mounts.cluster.root().join("commits.sh"), COMMITS).unwrap();
        let script = r#"
export HOME=$root GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@localhost GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@localhost
git config --global --add safe.directory '*'
git config --global core.packedRefsTimeout 60000; git config --global core.filesRefLockTimeout 60000
git init -q $first/repository
timeout 100 bash -eu $root/commits.sh $first/repository one & one=$!
timeout 100 bash -eu $root/commits.sh $second/repository two
wait $one
for at in $first $second; do
    cd $at/repository
    git fsck --full --strict
    test "$(git rev-list --count one) $(git rev-list --count two)" = "20 20"
    test "$(git for-each-ref | wc -l)" = 62
done"#;
        mounts.run(script).ok();
    }
}

#[test]
fn what_a_mount_held_is_free_when_it_is_gone_and_what_a_command_held_when_it_is_stopped() {
    if !can_mount() {
        return;
    }
    let mounts = Twice::new("gone", "delegate");
    // Far less than a lease of what is delegated lasts, and than a lease of a name.
    let script = "
mkdir $second/lent $second/lent/deep; for n in $(seq 50); do echo $n > $second/lent/$n; echo $n > $second/lent/deep/$n; done
ls -l $second/lent $second/lent/deep > /dev/null
$bearing umount $second
test $(timeout 2 ls $first/lent | wc -l) = 51
timeout 2 rm $first/lent/1; rm -r $first/lent
$bearing fs mkdir --cluster $cluster /held; mkfifo $root/pipe
$bearing fs put --cluster $cluster - /held/file < $root/pipe & command=$!
exec 3> $root/pipe; echo content >&3
timeout 20 bash -c 'until test -e $first/held/file; do sleep 0.01; done'
kill -TERM $command
set +e; wait $command; code=$?; set -e; test $code = 143
timeout 2 rm -r $first/held";
    mounts.run(script).ok();
}

/// Appends through one mount, and reads each piece through an open file of the other as soon as it is stored.
const FOLLOW: &str = "
import os, sys
log = os.open(sys.argv[1] + '/log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
tail = os.open(sys.argv[2] + '/log', os.O_RDONLY)
at, late = 0, 0
for number in range(300):
    line = b'%d %s\\n' % (number, b'x' * (number * 37 % 5000))
    assert os.write(log, line) == len(line)
    os.fsync(log)
    size = os.fstat(tail).st_size
    read = os.pread(tail, 8192, at)
    late += size != at + len(line) or read != line
    at += len(line)
print('late', late)
";

#[test]
fn a_linearizable_mount_reads_every_append_that_was_stored_before() {
    if !can_mount() {
        return;
    }
    let twice = Twice::new("linearizable", "consistency=linearizable");
    std::fs::write(twice.cluster.root().join("follow.py"), FOLLOW).unwrap();
    let told = twice.run("python3 $root/follow.py $first $second").ok();
    assert_eq!(told.trim(), "late 0");
    // It is seen in what the mount says of itself, and a wrong word is refused.
    let refused =
        bearing(&["mount", "-o", "consistency=strict", &twice.cluster.dir(), "/nowhere"]).refused(2);
    assert!(refused.contains("consistency=linearizable"), "{refused}");
}
