//! Mounts that decide in delegated directories by themselves (`-o delegate`).
//!
//! These tests need root and /dev/fuse; without them they say so and pass.

mod common;

use common::{Ran, TestCluster, bearing, can_mount, shell};
use std::path::Path;

fn shown(path: &Path) -> &str {
    path.to_str().expect("plain names")
}

/// A cluster that is mounted twice, with delegations.
struct Delegated {
    cluster: TestCluster,
}

impl Delegated {
    fn new(name: &str) -> Delegated {
        let cluster = TestCluster::started(name);
        for point in ["first", "second"] {
            let point = cluster.root().join(point);
            std::fs::create_dir(&point).expect("a mount point");
            bearing(&["mount", "-o", "delegate", &cluster.dir(), shown(&point)]).ok();
        }
        Delegated { cluster }
    }

    /// Runs a shell's script, which finds both mounts in `$first` and `$second`, and an empty place that is
    /// neither in `$root`. What takes longer than this stands still.
    fn run(&self, script: &str) -> Ran {
        let root = shown(self.cluster.root());
        let ran = shell(&format!("root={root} first={root}/first second={root}/second; {script}"));
        if ran.code == Some(TIMED_OUT) {
            // A mount whose programs wait for each other ends only by force.
            shell(&format!("umount -f {root}/first; umount -f {root}/second"));
        }
        ran
    }
}

/// How `timeout` says that it ended a program.
const TIMED_OUT: i32 = 124;

impl Drop for Delegated {
    fn drop(&mut self) {
        for point in ["first", "second"] {
            bearing(&["umount", shown(&self.cluster.root().join(point))]);
        }
    }
}

/// The kernel keeps the pages of a read locked until it is answered: nothing that the answer waits for may
/// ask it to drop them.
#[test]
fn a_file_that_was_made_here_is_read_while_its_home_hears_of_it() {
    if !can_mount() {
        return;
    }
    let mounts = Delegated::new("read-back");
    let script = "
import os, sys
top = sys.argv[1] + '/top'
os.mkdir(top)
for n in range(8):
    path = f'{top}/{n}'
    with open(path, 'wb') as file:
        file.write(bytes([n]) * 200_000)
    os.chmod(path, 0o400)
    with open(path, 'rb') as file:
        assert file.read() == bytes([n]) * 200_000, n
";
    std::fs::write(mounts.cluster.root().join("back.py"), script).unwrap();
    mounts.run("timeout 60 python3 $root/back.py $first; cmp $first/top/7 $second/top/7").ok();
}

/// By the time the many are made, the first are known to be closed.
#[test]
fn a_file_that_was_opened_again_here_is_read_on_when_the_other_mount_removes_it() {
    if !can_mount() {
        return;
    }
    let mounts = Delegated::new("open-again");
    let script = "
import os, sys
first, second = (mount + '/top' for mount in sys.argv[1:3])
os.mkdir(first)
for n in range(4_000):
    with open(f'{first}/{n}', 'w') as file:
        file.write(str(n))
opened = [os.open(f'{first}/{n}', os.O_RDONLY) for n in range(40)]
for n in range(40):
    os.unlink(f'{second}/{n}')
for n, file in enumerate(opened):
    os.fstat(file)
    assert os.pread(file, 9, 0) == str(n).encode(), n
    assert not os.path.exists(f'{first}/{n}')
    os.close(file)
";
    std::fs::write(mounts.cluster.root().join("again.py"), script).unwrap();
    mounts.run("timeout 60 python3 $root/again.py $first $second").ok();
}

#[test]
fn a_clone_is_whole_on_both_mounts_and_goes_away() {
    if !can_mount() || shell("command -v git").code != Some(0) {
        return;
    }
    let mounts = Delegated::new("clone");
    let script = "
export HOME=$root GIT_CONFIG_NOSYSTEM=1; git config --global user.name t; git config --global user.email t@localhost
git config --global --add safe.directory '*'
git init -q $root/source && cd $root/source
for n in $(seq 1 10); do mkdir d$n; for m in $(seq 1 12); do seq $n $((n * m)) > d$n/$m; done; git add .; git commit -qm $n; done
cd /
timeout 100 git clone -q --no-hardlinks $root/source $first/clone
cd $first/clone && timeout 60 git fsck --full && timeout 60 git repack -adq
cd $second/clone && timeout 60 git fsck --full && test -z \"$(timeout 60 git status --porcelain)\"
diff -r --exclude=.git $root/source $second/clone
cd / && timeout 60 rm -r $first/clone && test -z \"$(ls -A $second)\"";
    mounts.run(script).ok();
}
