//! `fs`: files of a cluster without mounting it.

mod access;
mod append;
mod change;
pub mod paths;
mod progress;
mod quota;
mod show;
mod together;
mod transfer;
mod trash;
mod walk;
mod xattr;

use crate::connect;
use crate::target::Target;
use anyhow::Result;
use append::Record;
use bearing_mount::session::Session;
use change::Reach;
use clap::{Args, Subcommand};
use paths::masked;
use quota::QuotaCommand;
use show::FindFlags;
use std::ffi::OsString;
use std::path::PathBuf;
use transfer::{Depth, Keep};
use trash::TrashCommand;

const EXAMPLES: &str = "\
Examples:
  bearing fs ls /
  bearing fs put notes.txt /notes.txt
  bearing fs cat /notes.txt
  bearing fs stat /notes.txt --json
  tar c src | bearing fs put - /src.tar
  bearing fs put -r ./src /src
  tail -f log | bearing fs append --lines - /logs/all
  bearing fs cp -r /src /copy && bearing fs mv /copy /old
  bearing fs find /src --name '*.rs' --larger 10000
  bearing fs rm -r /old

Exit codes: 0 done, 1 refused (such as: not found), 2 wrong usage, 3 the cluster cannot be reached.";

/// `fs`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Fs {
    /// The cluster.
    #[command(flatten)]
    pub target: Target,
    /// What to do with its files.
    #[command(subcommand)]
    pub command: FsCommand,
}

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
    Trash {
        /// What to do
        #[command(subcommand)]
        command: TrashCommand,
    },
    /// Limit what directories may hold: space and entries, with all below
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
    /// Append to a file, in one piece: what several append at the same time lies one behind the other
    Append {
        /// The local file, or - for standard input: 4 MiB at most
        source: PathBuf,
        /// The file in the cluster; made if it is not there
        target: OsString,
        /// Each line for itself, as soon as it is there; any number of them
        #[arg(long)]
        lines: bool,
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

/// Runs `fs`.
pub fn run(flags: &Fs) -> Result<()> {
    masked(0);
    let mount = connect::connect(&flags.target.cluster, flags.target.secret.as_deref())?;
    connect::end_on_signal(&mount)?;
    let session = connect::session(&mount)?;
    let done = carry_out(&session, &flags.command, flags.target.json);
    let ended = connect::end(&mount);
    done.and(ended)
}

fn carry_out(session: &Session, command: &FsCommand, as_json: bool) -> Result<()> {
    let depth = |recursive: &bool| if *recursive { Depth::Tree } else { Depth::One };
    let reach = |recursive: &bool| if *recursive { Reach::Below } else { Reach::Named };
    match command {
        FsCommand::Ls { path, long } => show::list(session, path, *long, as_json),
        FsCommand::Stat { path } => show::stat(session, path, as_json),
        FsCommand::Tree { path, depth } => show::tree(session, path, *depth, as_json),
        FsCommand::Find(flags) => show::find(session, flags, as_json),
        FsCommand::Du { path, summary } => show::usage(session, path, *summary, as_json),
        FsCommand::Mkdir { paths, parents } => change::make_directories(session, paths, *parents, as_json),
        FsCommand::Mv { sources, target, no_replace } => {
            change::rename(session, sources, target, *no_replace, as_json)
        }
        FsCommand::Rm { paths, recursive, force } => {
            change::remove(session, paths, reach(recursive), *force, as_json)
        }
        FsCommand::Ln { target, name, symbolic } => change::link(session, target, name, *symbolic, as_json),
        FsCommand::Chmod { mode, paths, recursive } => {
            change::change_mode(session, mode, paths, reach(recursive), as_json)
        }
        FsCommand::Chown { owner, paths, recursive } => {
            change::change_owner(session, owner, paths, reach(recursive), as_json)
        }
        FsCommand::Xattr { path, name, value, remove } => {
            xattr::run(session, path, (name.as_deref(), value.as_deref()), *remove, as_json)
        }
        FsCommand::Cp { sources, target, recursive, preserve } => {
            let keep = if *preserve { Keep::All } else { Keep::Content };
            transfer::copy(session, sources, target, (depth(recursive), keep), as_json)
        }
        FsCommand::Put { source, target, recursive } => {
            transfer::put(session, source, target, depth(recursive), as_json)
        }
        FsCommand::Append { source, target, lines } => {
            let record = if *lines { Record::Line } else { Record::Whole };
            append::append(session, source, target, record, as_json)
        }
        FsCommand::Get { source, target, recursive } => {
            transfer::get(session, source, target, depth(recursive), as_json)
        }
        FsCommand::Quota { command } => quota::run(session, command, as_json),
        FsCommand::Trash { command } => trash::run(session, command, as_json),
        FsCommand::Cat { paths } => transfer::cat(session, paths),
    }
}
