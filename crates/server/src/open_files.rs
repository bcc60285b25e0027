//! How many files this process may have open.

/// Each session may have streams, and a disk's files must not lack descriptors because of them: the limit
/// that most systems begin with, 1,024, is raised as far as it may be.
pub(crate) fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is of a struct that lives until the call is over.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    if known && limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: as above.
        let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
        if !raised {
            let error = std::io::Error::last_os_error();
            tracing::warn!("the limit of open files stays as it is: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_as_high_as_it_may_be() {
        raise_limit();
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is of a struct that lives until the call is over.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
        assert_eq!(limit.rlim_cur, limit.rlim_max);
    }
}
