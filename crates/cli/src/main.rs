//! `bearing`, the one binary: clusters, daemons, mounts and files.
//!
//! Commands parse, call, print. What they say goes to standard output, complaints to standard error, and the
//! exit code says what a script can do about it (see `failure`).

mod args;
mod ask;
mod bench;
mod check;
mod completions;
mod connect;
mod daemon;
mod disk;
mod down;
mod enrol;
mod explain;
mod failure;
mod flow;
mod fs;
mod guard;
mod init;
mod join;
mod lab;
mod members;
mod mount;
mod mount_files;
mod mounts;
mod names;
mod network;
mod process;
mod recover;
mod report;
mod ring;
mod server;
mod sessions;
mod status;
mod supervise;
mod tablets;
mod target;
mod top;
mod units;
mod up;
mod voice;

use anyhow::Result;
use args::{Arguments, Command};
use bearing_proto::client::ServerKind;
use clap::Parser;
use std::process::ExitCode;
use voice::complain;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let serves = matches!(arguments.command, Command::Daemon(_) | Command::Mount(_) | Command::Up(_));
    if serves {
        bearing_env::reuse_freed_buffers();
    } else {
        voice::end_with_the_reader();
    }
    match run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if voice::is_reader_gone(&error) => voice::end_by_broken_pipe(),
        Err(error) => {
            complain!("bearing: {error:#}");
            failure::exit_code(&error)
        }
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Up(flags) => up::up(flags),
        Command::Init(flags) => init::run(flags),
        Command::Token(flags) => join::make_token(flags),
        Command::Join(flags) => join::join(flags),
        Command::Units(flags) => units::write(flags),
        Command::Down(flags) => down::down(flags),
        Command::Status(flags) => status::status(flags),
        Command::Top(flags) => top::top(flags),
        Command::Ring(command) => ring::run(command),
        Command::Explain(command) => explain::run(command),
        Command::Flow(command) => flow::run(command),
        Command::Network(command) => network::run(command),
        Command::Mount(flags) => mount::mount(flags),
        Command::Umount(flags) => mount::umount(flags),
        Command::Fs(flags) => fs::run(flags),
        Command::Check(flags) => check::run(flags),
        Command::Enrol(flags) => enrol::enrol(flags),
        Command::Metadata(command) => members::run(ServerKind::Metadata, command),
        Command::Data(command) => members::run(ServerKind::Data, command),
        Command::Disk(command) => disk::run(command),
        Command::Recover(command) => recover::run(command),
        Command::Bench(command) => bench::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Completions { shell } => completions::print(*shell),
        Command::Man { directory } => completions::write_pages(directory),
        Command::Daemon(command) => daemon::run(command),
    }
}
