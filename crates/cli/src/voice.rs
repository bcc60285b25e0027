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
/// level, `BEARING_LOG_FORMAT` lines for people or for programs.
pub fn log_to_stderr() {
    let (level, complaint) = asked("BEARING_LOG", &LEVELS, LevelFilter::INFO);
    let (form, other) = asked("BEARING_LOG_FORMAT", &FORMS, Form::Text);
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // On a full disk the log loses lines. Saying so there would end the process.
        .log_internal_errors(false);
    match form {
        Form::Text => log.with_target(false).init(),
        Form::Json => log.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
    [complaint, other].iter().flatten().for_each(|complaint| tracing::warn!("{complaint}"));
}

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

const FORMS: [(&str, Form); 2] = [("text", Form::Text), ("json", Form::Json)];

/// What a variable of the environment asks for, or the usual and a complaint: a log in the wrong form is
/// better than none.
fn asked<T: Copy>(variable: &str, known: &[(&str, T)], usual: T) -> (T, Option<String>) {
    let asked = std::env::var(variable).unwrap_or_default();
    chosen(variable, &asked, known, usual)
}

fn chosen<T: Copy>(variable: &str, asked: &str, known: &[(&str, T)], usual: T) -> (T, Option<String>) {
    match known.iter().find(|(word, _)| word.eq_ignore_ascii_case(asked)) {
        Some((_, value)) => (*value, None),
        None if asked.is_empty() => (usual, None),
        None => {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            (usual, Some(format!("{variable}={asked} is none of {}: the usual is taken", words.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_forms_are_words_and_a_typing_error_is_complained_about() {
        let level = |asked| chosen("BEARING_LOG", asked, &LEVELS, LevelFilter::INFO);
        assert_eq!(level("Debug"), (LevelFilter::DEBUG, None));
        assert_eq!(level(""), (LevelFilter::INFO, None));
        let (form, complaint) = chosen("BEARING_LOG_FORMAT", "jsn", &FORMS, Form::Text);
        assert_eq!(form, Form::Text);
        assert_eq!(complaint.unwrap(), "BEARING_LOG_FORMAT=jsn is none of text, json: the usual is taken");
    }
}
