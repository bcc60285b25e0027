//! The one table from our codes to the kernel's error numbers.

use bearing_types::Code;
use fuser::Errno;

/// The error number of a code.
pub fn number(code: Code) -> i32 {
    match code {
        Code::NotFound => libc::ENOENT,
        Code::Exists => libc::EEXIST,
        Code::NotDirectory => libc::ENOTDIR,
        Code::IsDirectory => libc::EISDIR,
        Code::NotEmpty => libc::ENOTEMPTY,
        Code::Access => libc::EACCES,
        Code::NotPermitted => libc::EPERM,
        Code::NameTooLong => libc::ENAMETOOLONG,
        Code::InvalidArgument => libc::EINVAL,
        Code::Stale => libc::ESTALE,
        Code::NoSpace => libc::ENOSPC,
        Code::TooManyLinks => libc::EMLINK,
        Code::CrossDevice => libc::EXDEV,
        Code::TooLarge => libc::EFBIG,
        Code::Unsupported => libc::EOPNOTSUPP,
        Code::Unreachable => libc::ETIMEDOUT,
        // A program can do nothing about a session that ended or a signature that does not fit: to it the
        // disk is broken.
        Code::Io | Code::SessionEnded | Code::Unauthenticated => libc::EIO,
        Code::Interrupted => libc::EINTR,
        Code::NoData => libc::ENODATA,
        Code::Locked => libc::EAGAIN,
        Code::Deadlock => libc::EDEADLK,
        Code::NoLocks => libc::ENOLCK,
        Code::QuotaExceeded => libc::EDQUOT,
    }
}

/// The same as the type that replies take.
pub(crate) fn errno(code: Code) -> Errno {
    Errno::from_i32(number(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const ALL: [Code; 25] = [
        Code::NotFound,
        Code::Exists,
        Code::NotDirectory,
        Code::IsDirectory,
        Code::NotEmpty,
        Code::Access,
        Code::NotPermitted,
        Code::NameTooLong,
        Code::InvalidArgument,
        Code::Stale,
        Code::NoSpace,
        Code::TooManyLinks,
        Code::CrossDevice,
        Code::TooLarge,
        Code::Unsupported,
        Code::Io,
        Code::Unreachable,
        Code::SessionEnded,
        Code::Unauthenticated,
        Code::Interrupted,
        Code::NoData,
        Code::Locked,
        Code::Deadlock,
        Code::NoLocks,
        Code::QuotaExceeded,
    ];

    #[test]
    fn every_code_has_an_error_number_and_only_broken_states_share_one() {
        let numbers: BTreeSet<i32> = ALL.iter().map(|code| number(*code)).collect();
        assert_eq!(ALL.iter().collect::<BTreeSet<_>>().len(), ALL.len(), "no code is listed twice");
        assert_eq!(numbers.len(), ALL.len() - 2, "EIO stands for three codes, every other number for one");
        assert!(ALL.iter().all(|code| errno(*code).code() == number(*code)));
    }

    #[test]
    fn no_code_tells_the_kernel_that_a_request_is_unknown() {
        // ENOSYS makes the kernel never send that request again.
        assert!(ALL.iter().all(|code| number(*code) != libc::ENOSYS));
    }
}
