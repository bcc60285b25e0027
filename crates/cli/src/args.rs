//! The command line: the commands. Each has its flags and their help beside what it does.

use crate::bench::Bench;
use crate::check::Check;
use crate::daemon::DaemonCommand;
use crate::disk::DiskCommand;
use crate::down::Down;
use crate::enrol::Enrol;
use crate::explain::ExplainCommand;
use crate::flow::FlowCommand;
use crate::fs::Fs;
use crate::init::Init;
use crate::join::{JoinHost, MakeToken};
use crate::lab::LabCommand;
use crate::members::MembersCommand;
use crate::mount::{Mount, Umount};
use crate::network::NetworkCommand;
use crate::recover::RecoverCommand;
use crate::ring::RingCommand;
use crate::status::Status;
use crate::top::Top;
use crate::units::Units;
use crate::up::Up;
use clap::{Parser, Subcommand};
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
  bearing top                           what it does right now
  bearing ring show                     the ring: owners, successors, copies
  bearing down                          stop it; the data stays in .bearing
  bearing mount 10.0.0.5:9000 /mnt --secret enrolment.key

Exit codes: 0 done, 1 refused (such as: not found), 2 wrong usage, 3 the cluster cannot be reached.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a cluster on this machine (and make it, the first time)
    Up(Up),
    /// Make a cluster of several machines, with its first servers on this one
    Init(Init),
    /// Make a one-time token by which another host joins
    Token(MakeToken),
    /// Bring the servers of this host to a cluster
    Join(JoinHost),
    /// Write units of systemd, one for each kind of server
    Units(Units),
    /// Stop a cluster and unmount it; the data stays
    Down(Down),
    /// Show the daemons, who owns which tablet, and who uses the cluster
    Status(Status),
    /// Show what a cluster does right now: operations, latencies, the hottest tablets and directories
    Top(Top),
    /// Show the ring of metadata servers
    #[command(subcommand)]
    Ring(RingCommand),
    /// Show how a request finds its owner, or from where a file is read
    #[command(subcommand)]
    Explain(ExplainCommand),
    /// Show what is being read, and which hosts would read a file fastest
    #[command(subcommand)]
    Flow(FlowCommand),
    /// Have a switch carry requests to the owners of what they ask for
    #[command(subcommand)]
    Network(NetworkCommand),
    /// Mount a cluster
    Mount(Mount),
    /// Unmount
    #[command(alias = "unmount")]
    Umount(Umount),
    /// Use the files of a cluster without mounting it
    Fs(Fs),
    /// Walk all names, as fsck does: names lead to nodes, link counts and sizes match; and compare all copies
    /// of metadata
    Check(Check),
    /// Make, list or revoke secrets by which clients may take part
    Enrol(Enrol),
    /// Show the metadata servers, have one come or leave
    #[command(subcommand)]
    Metadata(MembersCommand),
    /// Show the data servers, have one come or leave
    #[command(subcommand)]
    Data(MembersCommand),
    /// Say that a server's disk is lost for good
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Store checkpoints of metadata on data servers; make metadata anew of them when it is lost
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// Measure this program on this machine
    #[command(subcommand)]
    Bench(Bench),
    /// Draw published figures anew, and look at topologies
    #[command(subcommand)]
    Lab(LabCommand),
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
    /// Run one server: what systemd's units start
    #[command(subcommand)]
    Daemon(DaemonCommand),
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  bearing completions bash > /etc/bash_completion.d/bearing
  bearing completions zsh  > /usr/local/share/zsh/site-functions/_bearing
  bearing completions fish > ~/.config/fish/completions/bearing.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  bearing man /usr/local/share/man/man1 && man bearing-up";

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
