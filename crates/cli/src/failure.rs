//! How a command ends when it does not end well: what is printed, and the exit code that scripts see.

use bearing_mount::session::{PathError, Reason};
use bearing_types::Code;
use std::fmt;
use std::process::ExitCode;

/// The command line or a flag's value makes no sense (exit code 2).
#[derive(Debug)]
pub struct Usage(pub String);

/// The cluster, or a part of it, cannot be reached (exit code 3).
#[derive(Debug)]
pub struct Unreachable(pub String);

/// A daemon cannot run, and starting it again would not help: the supervisor leaves it (exit code 4, seen by
/// the supervisor only).
#[derive(Debug)]
pub struct Hopeless(pub String);

macro_rules! plain_error {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::error::Error for $name {}
    )*};
}

plain_error!(Usage, Unreachable, Hopeless);

/// The exit code of a daemon that should not be started again.
pub const HOPELESS: u8 = 4;

/// The exit code of an error, by what the caller can do about it.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(code_of(error))
}

fn code_of(error: &anyhow::Error) -> u8 {
    let has = |wanted: fn(&(dyn std::error::Error + 'static)) -> bool| error.chain().any(wanted);
    if has(|cause| cause.is::<Hopeless>()) {
        HOPELESS
    } else if has(|cause| cause.is::<Usage>()) {
        2
    } else if has(is_unreachable) {
        3
    } else {
        1
    }
}

fn is_unreachable(cause: &(dyn std::error::Error + 'static)) -> bool {
    let refused_path = cause
        .downcast_ref::<PathError>()
        .is_some_and(|error| error.reason == Reason::Refused(Code::Unreachable));
    refused_path || cause.is::<Unreachable>() || cause.downcast_ref() == Some(&Code::Unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn the_exit_code_follows_from_the_cause_whatever_is_said_around_it() {
        let wrapped = |error: anyhow::Error| code_of(&Err::<(), _>(error).context("list /").unwrap_err());
        assert_eq!(wrapped(Code::NotFound.into()), 1);
        assert_eq!(wrapped(Usage("no".into()).into()), 2);
        assert_eq!(wrapped(Code::Unreachable.into()), 3);
        assert_eq!(wrapped(Unreachable("no".into()).into()), 3);
        let path = |code| PathError { action: "stat", path: b"/a".to_vec(), reason: Reason::Refused(code) };
        assert_eq!(wrapped(path(Code::NotFound).into()), 1);
        assert_eq!(wrapped(path(Code::Unreachable).into()), 3);
        assert_eq!(wrapped(Hopeless("no".into()).into()), HOPELESS);
    }
}
