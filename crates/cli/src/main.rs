//! `bearing`, the one binary: clusters, daemons, mounts and files.
//!
//! Commands parse, call, print. What they say goes to standard output, complaints to standard error, and the exit code says what a
//! script can do about it (see `failure`).

mod args;
mod ask;
mod bench;
mod check;
mod connect;
mod daemon;
mod down;
mod failure;
mod fs;
mod guard;
mod mount;
mod mounts;
mod names;
mod process;
mod report;
mod status;
mod supervise;
mod up;

use anyhow::Result;
use args::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let serves = matches!(arguments.command, Command::Daemon(_) | Command::Mount(_) | Command::Up(_));
    if !serves {
        end_quietly_with_the_reader();
    }
    match run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bearing: {error:#}");
            failure::exit_code(&error)
        }
    }
}

/// `bearing status | head` ends when head does, as other programs do, instead of complaining about the pipe.
fn end_quietly_with_the_reader() {
    // SAFETY: no thread runs yet, and the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Up(flags) => up::up(flags),
        Command::Down(flags) => down::down(flags),
        Command::Status(flags) => status::status(flags),
        Command::Mount(flags) => mount::mount(flags),
        Command::Umount(flags) => mount::umount(flags),
        Command::Fs(flags) => fs::run(flags),
        Command::Check(flags) => check::run(flags),
        Command::Bench(command) => bench::run(command),
        Command::Daemon(command) => daemon::run(command),
    }
}
