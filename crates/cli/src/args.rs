//! The command line: commands, flags and their help.

use bearing_placement::Scheme;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Bearing: a distributed filesystem that always knows where things are.
#[derive(Debug, Parser)]
#[command(name = "bearing", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  bearing up --mount ./mnt --detach     a cluster in .bearing, mounted at ./mnt
  cp -a /usr/share/doc ./mnt            use it
  bearing status                        who runs, who owns what
  bearing down                          stop it; the data stays in .bearing
  bearing mount 10.0.0.5:9000 /mnt --secret enrolment.key

Exit codes: 0 done, 1 refused (such as: not found), 2 wrong usage, 3 the cluster cannot be reached.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a cluster on this machine (and make it, the first time)
    #[command(after_help = UP_EXAMPLES)]
    Up(Up),
    /// Stop a cluster and unmount it; the data stays
    #[command(after_help = DOWN_EXAMPLES)]
    Down(Down),
    /// Show the daemons, who owns which tablet, and who uses the cluster
    #[command(after_help = STATUS_EXAMPLES)]
    Status(Status),
    /// Mount a cluster
    #[command(after_help = MOUNT_EXAMPLES)]
    Mount(Mount),
    /// Unmount
    #[command(alias = "unmount", after_help = UMOUNT_EXAMPLES)]
    Umount(Umount),
    /// Use the files of a cluster without mounting it
    #[command(after_help = FS_EXAMPLES)]
    Fs(Fs),
    /// Walk all names, as fsck does: every name leads to a node, link counts match, sizes match the extents
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Check),
    /// Make, list or revoke secrets by which clients may take part
    #[command(after_help = ENROL_EXAMPLES)]
    Enrol(Enrol),
    /// Say that a server's disk is lost for good
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Measure this program on this machine
    #[command(subcommand)]
    Bench(crate::bench::Bench),
    /// Print what has a shell complete commands and flags
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one for each command
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The directory for them; made if it is not there
        directory: PathBuf,
    },
    /// Run one daemon (started by `up`)
    #[command(hide = true, subcommand)]
    Daemon(DaemonCommand),
}

const UP_EXAMPLES: &str = "\
Examples:
  bearing up                                     in the foreground; ctrl-c stops it
  bearing up --mount ./mnt --detach              in the background, mounted
  bearing up --dir /srv/b --metadata 5 --data 4 --data-copies 3

The first `up` makes the cluster, later ones start it again. Flags that
contradict its cluster.toml are refused.";

const DOWN_EXAMPLES: &str = "\
Examples:
  bearing down                                   the cluster in .bearing
  bearing down --dir /srv/b

Mounts that were made from the cluster's directory are unmounted first.";

const STATUS_EXAMPLES: &str = "\
Examples:
  bearing status
  bearing status --json | jq .sessions           who uses it, from where";

const UMOUNT_EXAMPLES: &str = "\
Examples:
  bearing umount ./mnt

It returns when everything is stored and the mount's processes have ended.";

const CHECK_EXAMPLES: &str = "\
Examples:
  bearing check                                  names, nodes and sizes
  bearing check --read                           and every byte, once
  bearing check --verify --json                  and every copy of every byte";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  bearing completions bash > /etc/bash_completion.d/bearing
  bearing completions zsh  > /usr/local/share/zsh/site-functions/_bearing
  bearing completions fish > ~/.config/fish/completions/bearing.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  bearing man /usr/local/share/man/man1 && man bearing-up";

const MOUNT_EXAMPLES: &str = "\
Examples:
  bearing mount .bearing ./mnt
  bearing mount 10.0.0.5:9000,10.0.0.6:9000 /mnt --secret enrolment.key";

const FS_EXAMPLES: &str = "\
Examples:
  bearing fs ls /
  bearing fs put notes.txt /notes.txt
  bearing fs cat /notes.txt
  bearing fs stat /notes.txt --json
  tar c src | bearing fs put - /src.tar
  bearing fs put -r ./src /src
  bearing fs cp -r /src /copy && bearing fs mv /copy /old
  bearing fs find /src --name '*.rs' --larger 10000
  bearing fs rm -r /old

Exit codes: 0 done, 1 refused (such as: not found), 2 wrong usage, 3 the cluster cannot be reached.";

const FIND_EXAMPLES: &str = "\
Examples:
  bearing fs find / --name '*.log' --larger 1000000
  bearing fs find /home --kind directory --depth 1";

const QUOTA_EXAMPLES: &str = "\
Examples:
  bearing fs mkdir /team && bearing fs quota set /team --space 10G --entries 1M
  bearing fs quota get /team/set1              the quota of /team, which counts it
  df -h mnt/team                               the same through a mount
  bearing fs quota clear /team";
const TRASH_EXAMPLES: &str = "\
Examples:
  bearing mount .bearing mnt -o trash=7        removed files are kept for a week
  bearing fs trash list
  bearing fs trash restore /data/set1          with all that was removed from it
  bearing fs trash empty";
const XATTR_EXAMPLES: &str = "\
Examples:
  bearing fs xattr /notes.txt                       all, with their values
  bearing fs xattr /notes.txt user.origin           this one's value, byte by byte
  bearing fs xattr /notes.txt user.origin scanner   set it
  bearing fs xattr -x /notes.txt user.origin        remove it";

const CHMOD_EXAMPLES: &str = "\
Examples:
  bearing fs chmod 640 /notes.txt
  bearing fs chmod -r u=rwX,go=rX /shared";

/// Where a cluster on this machine lies.
#[derive(Args, Clone, Debug)]
pub struct Directory {
    /// The cluster's directory
    #[arg(long, value_name = "DIR", default_value = ".bearing")]
    pub dir: PathBuf,
}

/// `up`.
#[derive(Args, Clone, Debug)]
pub struct Up {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Metadata servers [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub metadata: Option<u32>,
    /// Data servers [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub data: Option<u32>,
    /// On how many data servers each byte is kept [default: 2, or 1 with one data server]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub data_copies: Option<u8>,
    /// How entries are placed: anglecut-hashed or hash [default: anglecut-hashed]
    #[arg(long, value_name = "S", value_parser = Scheme::live_from_name)]
    pub scheme: Option<Scheme>,
    /// Mount it at this directory
    #[arg(long, value_name = "PATH")]
    pub mount: Option<PathBuf>,
    /// Return once everything answers, and leave it running
    #[arg(long)]
    pub detach: bool,
    /// Use this port and the following ones instead of any that are free (a new cluster only)
    #[arg(long, value_name = "P")]
    pub port_base: Option<u16>,
    /// Leave daemons dead that die (for tests)
    #[arg(long, hide = true)]
    pub no_restart: bool,
}

const ENROL_EXAMPLES: &str = "\
Examples:
  bearing enrol laptops --root-squash --out laptops.key   a secret for clients whose root is nobody
  bearing mount 10.0.0.5:9000 /mnt --secret laptops.key   used by one of them
  bearing enrol --list
  bearing enrol --revoke laptops

Run it in the cluster's directory, while the cluster runs. A revoked name stays revoked.";

/// `enrol`.
#[derive(Args, Debug)]
pub struct Enrol {
    /// Its name: letters, digits, '.', '_', '-'
    #[arg(conflicts_with_all = ["list", "revoke"])]
    pub name: Option<String>,
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Users with id 0 become nobody
    #[arg(long, requires = "name")]
    pub root_squash: bool,
    /// All users become nobody
    #[arg(long, requires = "name", conflicts_with = "root_squash")]
    pub all_squash: bool,
    /// The user that stands for squashed ones
    #[arg(long, value_name = "UID", default_value_t = bearing_types::Squash::NOBODY)]
    pub anon_uid: u32,
    /// The group that stands for squashed ones
    #[arg(long, value_name = "GID", default_value_t = bearing_types::Squash::NOBODY)]
    pub anon_gid: u32,
    /// Write the secret into a new file instead of to the terminal
    #[arg(long, value_name = "FILE", requires = "name")]
    pub out: Option<PathBuf>,
    /// Show all enrolments
    #[arg(long, conflicts_with = "revoke")]
    pub list: bool,
    /// Refuse an enrolment from now on, and for ever
    #[arg(long, value_name = "NAME")]
    pub revoke: Option<String>,
}

/// `down`.
#[derive(Args, Debug)]
pub struct Down {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
}

/// `status`.
#[derive(Args, Debug)]
pub struct Status {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `mount`.
#[derive(Args, Clone, Debug)]
pub struct Mount {
    /// A cluster's directory, or addresses of metadata servers (HOST:PORT[,HOST:PORT])
    #[arg(value_hint = clap::ValueHint::DirPath)]
    pub cluster: OsString,
    /// The directory to mount at
    pub path: PathBuf,
    /// The enrolment secret, when CLUSTER is not a directory
    #[arg(long, value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// Options as in mount(8): rw, ro, allow_other, owner_only, nonempty, suid, dev, locks=shared, locks=local, locks=refused, nodelegate, noatime, trash=DAYS, threads=N, fsname=NAME
    #[arg(short, long, value_name = "OPTIONS", default_value = "")]
    pub options: String,
    /// Stay in the foreground; ctrl-c unmounts
    #[arg(long)]
    pub foreground: bool,
    /// Where to report the state (used by `up`).
    #[arg(long, hide = true)]
    pub state: Option<PathBuf>,
}

/// `umount`.
#[derive(Args, Debug)]
pub struct Umount {
    /// Where it is mounted
    pub path: PathBuf,
}

/// The cluster to talk to as a client.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// A cluster's directory, or addresses of metadata servers (HOST:PORT[,HOST:PORT])
    #[arg(long, visible_alias = "dir", value_name = "CLUSTER", default_value = ".bearing", global = true, value_hint = clap::ValueHint::DirPath)]
    pub cluster: OsString,
    /// The enrolment secret, when the cluster is not given as a directory
    #[arg(long, value_name = "FILE", global = true)]
    pub secret: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// `fs`.
#[derive(Args, Debug)]
pub struct Fs {
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
    /// What to do with its files.
    #[command(subcommand)]
    pub command: FsCommand,
}

/// What can be done without a mount. Paths in the cluster begin with `/`.
#[derive(Debug, Subcommand)]
pub enum FsCommand {
    /// List a directory, one name per line
    Ls {
        /// The directory
        #[arg(default_value = "/")]
        path: OsString,
        /// With kind, mode, owner, size and time
        #[arg(short, long)]
        long: bool,
    },
    /// Show the attributes of a file or directory
    Stat {
        /// The file or directory
        path: OsString,
    },
    /// Show a directory with all below it
    Tree {
        /// The directory
        #[arg(default_value = "/")]
        path: OsString,
        /// At most so many levels
        #[arg(long, value_name = "N")]
        depth: Option<u32>,
    },
    /// Print the paths of what fits
    #[command(after_help = FIND_EXAMPLES)]
    Find(FindFlags),
    /// Count files and bytes of a directory, with all below it
    Du {
        /// The directory
        #[arg(default_value = "/")]
        path: OsString,
        /// Only the sum
        #[arg(short, long)]
        summary: bool,
    },
    /// Make directories
    Mkdir {
        /// The new directories
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<OsString>,
        /// Make their parents too, and do not mind if they exist
        #[arg(short, long)]
        parents: bool,
    },
    /// Move or rename; into TARGET if that is a directory
    Mv {
        /// What to move
        #[arg(required = true, value_name = "SOURCE")]
        sources: Vec<OsString>,
        /// Where to
        target: OsString,
        /// Refuse if the new name exists
        #[arg(short, long)]
        no_replace: bool,
    },
    /// Copy within the cluster; into TARGET if that is a directory. Holes stay holes
    Cp {
        /// What to copy
        #[arg(required = true, value_name = "SOURCE")]
        sources: Vec<OsString>,
        /// Where to
        target: OsString,
        /// Directories too, with all below them
        #[arg(short, long, short_alias = 'R')]
        recursive: bool,
        /// Keep owner, group and times
        #[arg(short, long)]
        preserve: bool,
    },
    /// Remove
    Rm {
        /// What to remove
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<OsString>,
        /// Directories too, with all below them
        #[arg(short, long, short_alias = 'R')]
        recursive: bool,
        /// Do not mind if it is not there
        #[arg(short, long)]
        force: bool,
    },
    /// Give a file a further name, or make a symbolic link
    Ln {
        /// What the name leads to
        target: OsString,
        /// The new name, or a directory for it
        name: OsString,
        /// Make a symbolic link; TARGET is kept as it is written
        #[arg(short, long)]
        symbolic: bool,
    },
    /// Change permission bits
    #[command(after_help = CHMOD_EXAMPLES)]
    Chmod {
        /// As for chmod(1): 644, u+x, go-w, a+rX
        #[arg(allow_hyphen_values = true)]
        mode: String,
        /// Of what
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<OsString>,
        /// And of all below
        #[arg(short, long, short_alias = 'R')]
        recursive: bool,
    },
    /// Change owner and group
    Chown {
        /// USER, USER:GROUP or :GROUP; numbers, or names of this machine
        owner: String,
        /// Of what
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<OsString>,
        /// And of all below
        #[arg(short, long, short_alias = 'R')]
        recursive: bool,
    },
    /// Show, set or remove extended attributes
    #[command(after_help = XATTR_EXAMPLES)]
    Xattr {
        /// Of what
        path: OsString,
        /// Only this one
        name: Option<OsString>,
        /// Set it to this
        value: Option<OsString>,
        /// Remove it
        #[arg(short = 'x', long)]
        remove: bool,
    },
    /// What was removed through mounts with `-o trash=DAYS`: show it, put it back, remove it for good
    #[command(after_help = TRASH_EXAMPLES)]
    Trash {
        /// What to do
        #[command(subcommand)]
        command: TrashCommand,
    },
    /// Limit what directories may hold: space and entries, with all below
    #[command(after_help = QUOTA_EXAMPLES)]
    Quota {
        /// What to do
        #[command(subcommand)]
        command: QuotaCommand,
    },
    /// Store a local file; into TARGET if that is a directory
    Put {
        /// The local file, or - for standard input
        source: PathBuf,
        /// The file in the cluster; replaced if it exists
        target: OsString,
        /// A directory, with all below it
        #[arg(short, long)]
        recursive: bool,
    },
    /// Fetch a file; into TARGET if that is a directory. Holes stay holes
    Get {
        /// The file in the cluster
        source: OsString,
        /// The local file; replaced if it exists
        target: PathBuf,
        /// A directory, with all below it
        #[arg(short, long)]
        recursive: bool,
    },
    /// Print files
    Cat {
        /// The files in the cluster
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
}

/// `fs quota`.
#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// Set limits (root only). A directory gets its first ones while it is empty; a limit that is not named stays as it is
    Set {
        /// The directory
        directory: OsString,
        /// At most so many bytes of files: 500M, 10G, 2T (powers of 1024)
        #[arg(long, value_name = "BYTES", value_parser = crate::fs::quota::bytes)]
        space: Option<u64>,
        /// At most so many names: 5000, 20K, 1M (powers of 1000)
        #[arg(long, value_name = "COUNT", value_parser = crate::fs::quota::count)]
        entries: Option<u64>,
    },
    /// Show the quota that counts a file or directory, and what is used of it
    Get {
        /// The file or directory
        #[arg(default_value = "/")]
        path: OsString,
    },
    /// Take the limits away (root only); what is used is counted on
    Clear {
        /// The directory
        directory: OsString,
    },
}

/// `fs trash`.
#[derive(Debug, Subcommand)]
pub enum TrashCommand {
    /// Show what you removed, where it was, and the day after which it goes for good
    List {
        /// What everybody removed (root only)
        #[arg(short, long)]
        all: bool,
    },
    /// Put something back; a directory with all that was removed from it. Of several with one path, the one removed last
    Restore {
        /// Where it was, as `list` shows it
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<OsString>,
        /// Put it into this directory instead of where it was
        #[arg(long, value_name = "DIRECTORY")]
        to: Option<OsString>,
        /// Look through what everybody removed (root only)
        #[arg(short, long)]
        all: bool,
    },
    /// Remove for good what you removed
    Empty {
        /// What everybody removed (root only)
        #[arg(short, long)]
        all: bool,
    },
    /// Remove for good what was kept long enough (root only); mounts with a trash do it every hour
    Expire,
}

/// `fs find`.
#[derive(Args, Debug)]
pub struct FindFlags {
    /// Where to begin
    #[arg(default_value = "/")]
    pub path: OsString,
    /// Names that fit a pattern: * is anything, ? is any byte
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<OsString>,
    /// Only of this kind
    #[arg(long, value_enum)]
    pub kind: Option<Kind>,
    /// Only files with more bytes
    #[arg(long, value_name = "BYTES")]
    pub larger: Option<u64>,
    /// Only files with fewer bytes
    #[arg(long, value_name = "BYTES")]
    pub smaller: Option<u64>,
    /// At most so many levels
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
}

/// A kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// `check`.
#[derive(Args, Debug)]
pub struct Check {
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
    /// Also read every file to its end, each byte from one of its replicas
    #[arg(long)]
    pub read: bool,
    /// Also have every data server read all its replicas, as fast as it looks for damage by itself (`scrub_bytes_per_second`)
    #[arg(long)]
    pub verify: bool,
}

/// One process of a cluster.
#[derive(Debug, Subcommand)]
pub enum DaemonCommand {
    /// The coordinator.
    Coordinator(DaemonFile),
    /// A metadata server.
    Metadata(DaemonFile),
    /// A data server.
    Data(DaemonFile),
    /// The supervisor of a cluster that was made before.
    Supervise(Supervise),
    /// Has the kernel give up a mount whose process was killed and cannot end.
    Guard(Guard),
    /// Not a daemon: fails when the mount is dead.
    Probe {
        /// Where it is mounted
        point: PathBuf,
    },
}

/// A daemon's configuration.
#[derive(Args, Debug)]
pub struct DaemonFile {
    /// Its configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

const DISK_REPLACE_HELP: &str = "\
A server serves from the disk that it was first started on, and from no other: what
lies in its directory has an id, and so has the coordinator. When a data server's disk
is lost, put another one in its place, run this command, and start the server again.
Chunks that have a copy on another server are copied again from there; chunks that were
on the lost disk alone are lost.

A metadata server has the only copy of its part of the metadata. Its disk cannot be
replaced by another one, only by a copy that was made after the server last stopped.

Examples:
  bearing disk replace data-1              says what is lost, and changes nothing
  bearing disk replace data-1 --yes";

/// `disk`.
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Have another disk take the place of a data server's that is lost for good
    #[command(after_help = DISK_REPLACE_HELP)]
    Replace(DiskReplace),
}

/// `disk replace`.
#[derive(Args, Clone, Debug)]
pub struct DiskReplace {
    /// The server, such as data-1
    pub server: String,
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Do it; without this, only what is lost is said
    #[arg(long)]
    pub yes: bool,
}

/// `daemon guard`.
#[derive(Args, Debug)]
pub struct Guard {
    /// The mount's process
    #[arg(long)]
    pub pid: u32,
    /// When that started, in ticks since boot
    #[arg(long)]
    pub started: u64,
    /// The device of what is mounted, as in /proc/self/mountinfo
    #[arg(long)]
    pub device: String,
    /// Where it is mounted
    pub point: PathBuf,
}

/// `daemon supervise`.
#[derive(Args, Clone, Debug)]
pub struct Supervise {
    /// Where the cluster lies.
    #[arg(long)]
    pub dir: PathBuf,
    /// Where to mount it.
    #[arg(long)]
    pub mount: Option<PathBuf>,
    /// Leave daemons dead that die.
    #[arg(long)]
    pub no_restart: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_unknown_scheme_is_refused_with_the_known_ones() {
        let said = |scheme| {
            Arguments::try_parse_from(["bearing", "up", "--scheme", scheme]).unwrap_err().to_string()
        };
        assert!(
            said("best").contains("the known ones are anglecut-hashed, anglecut, hash"),
            "{}",
            said("best")
        );
        assert!(said("chord").contains("a cluster can run anglecut-hashed, hash"), "{}", said("chord"));
    }

    #[test]
    fn the_cluster_of_fs_may_be_called_dir_before_or_after_the_command() {
        for line in [["bearing", "fs", "--dir", "d", "ls"], ["bearing", "fs", "ls", "--cluster", "d"]] {
            let Command::Fs(fs) = Arguments::try_parse_from(line).unwrap().command else { panic!("not fs") };
            assert_eq!(fs.target.cluster, "d");
        }
    }
}
