//! What is said to people: on standard output and standard error, where perhaps nobody reads any more.
//!
//! Most commands end by SIGPIPE when their reader goes, as other programs do. Those that have something to
//! put in order first (`up`, `mount`, the daemons) ignore that signal, so for them a lost reader is an error
//! like others: never a panic, and never one that is complained about.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use tracing::level_filters::LevelFilter;

/// So many of something: "1 file", "2 files".
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Says a line on standard output.
pub fn say_line(line: Arguments) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Says a line on standard error. If nobody reads it, it is lost.
pub fn complain_line(line: Arguments) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Says a formatted line on standard error, and goes on whether or not anybody reads it.
macro_rules! complain {
    ($($part:tt)*) => { $crate::voice::complain_line(format_args!($($part)*)) };
}
pub(crate) use complain;

/// Says a formatted line on standard output; an error when nobody reads it.
macro_rules! say {
    ($($part:tt)*) => { $crate::voice::say_line(format_args!($($part)*)) };
}
pub(crate) use say;

/// `bearing status | head` ends when head does, as other programs do, instead of complaining about the pipe.
pub fn end_with_the_reader() {
    // SAFETY: the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Whether something was not done because nobody reads what this program says.
pub fn is_reader_gone(error: &anyhow::Error) -> bool {
    let is_pipe = |cause: &io::Error| cause.kind() == ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(is_pipe)
}

/// Ends this process as one that wrote into a pipe without a reader.
pub fn end_by_broken_pipe() -> ! {
    end_with_the_reader();
    // SAFETY: raise takes a plain number.
    unsafe { libc::raise(libc::SIGPIPE) };
    std::process::exit(128 + libc::SIGPIPE)
}

/// Reports go to standard error, which the supervisor leads into the daemon's log. `BEARING_LOG` chooses the
/// level.
pub fn log_to_stderr() {
    let asked = std::env::var("BEARING_LOG").ok();
    let level = asked.as_deref().and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::INFO);
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // On a full disk the log loses lines. Saying so there would end the process.
        .log_internal_errors(false)
        .init();
}
