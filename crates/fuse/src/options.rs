//! How to mount: options as values, and as the text of `-o` in mount(8) and fstab(5).

use fuser::{Config, MountOption, SessionACL};
use std::fmt;

/// Threads that take requests from the kernel, at most.
pub const THREADS_MAX: usize = 128;

/// Days for which removed files are kept, at most.
pub const TRASH_DAYS_MAX: u32 = 3650;

/// Whether the mount may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// Yes (`rw`).
    Allowed,
    /// No (`ro`).
    Refused,
}

/// Which users of this machine may use the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// All, as their permissions say (`allow_other`).
    Everyone,
    /// Only the one who mounted.
    Owner,
}

/// What becomes of flock(2) and fcntl(2) locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// They hold among all mounts (`locks=shared`).
    Shared,
    /// EOPNOTSUPP (`locks=refused`).
    Refused,
    /// Locks hold among the processes of this machine only (`locks=local`).
    Local,
}

/// What to do when the directory to mount on has entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupied {
    /// Refuse, because they would be hidden.
    Refuse,
    /// Hide them (`nonempty`).
    Hide,
}

/// Whether set-user-id programs and device nodes in the filesystem have their effect on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// Yes (`suid`, `dev`).
    Yes,
    /// No.
    No,
}

/// How to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether it may be written to.
    pub writing: Writing,
    /// Who may use it.
    pub users: Users,
    /// Locks.
    pub locks: Locks,
    /// A directory with entries.
    pub occupied: Occupied,
    /// Set-user-id programs.
    pub set_user_id: Trusted,
    /// Device nodes.
    pub devices: Trusted,
    /// Whether to ask for directories that only this mount changes, and decide in them without asking.
    pub delegates: bool,
    /// Whether every read sees what was stored before it began, also of what others are writing.
    pub linearizable: bool,
    /// Whether reads are noted as times of access (`relatime`).
    pub access_times: bool,
    /// What is removed through the mount is kept for so many days in `/.bearing-trash`; `None`: it is gone.
    pub trash_days: Option<u32>,
    /// Threads that take requests from the kernel: so many operations are under way at the same time.
    pub threads: usize,
    /// What stands as the source in the table of mounts.
    pub source: String,
}

/// An option that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Nobody knows it.
    #[error(
        "mount option `{0}` is not known; there are: rw, ro, allow_other, owner_only, locks=shared, locks=local, locks=refused, nonempty, suid, \
         nosuid, dev, nodev, delegate, nodelegate, consistency=close-to-open, consistency=linearizable, relatime, noatime, trash=DAYS, notrash, threads=N, fsname=NAME"
    )]
    Unknown(String),
    /// Its value makes no sense.
    #[error("mount option `threads={0}`: give a number from 1 to {THREADS_MAX}")]
    Threads(String),
    /// The same.
    #[error("mount option `fsname=`: give a name, such as fsname=scratch")]
    NoName,
    /// The same.
    #[error("mount option `trash={0}`: give a number of days from 1 to {TRASH_DAYS_MAX}, or `notrash`")]
    Trash(String),
}

impl Options {
    /// What is right for most: everybody may use what root mounts, locks hold everywhere, nothing is hidden.
    pub fn new() -> Options {
        // SAFETY: geteuid takes nothing and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            writing: Writing::Allowed,
            users: if is_root { Users::Everyone } else { Users::Owner },
            locks: Locks::Shared,
            occupied: Occupied::Refuse,
            set_user_id: Trusted::No,
            devices: Trusted::No,
            delegates: true,
            linearizable: false,
            access_times: true,
            trash_days: None,
            // A thread waits while its operation is under way, so there are more than cores.
            threads: (4 * cores).clamp(8, 32),
            source: SOURCE.to_owned(),
        }
    }

    /// Changes options by text, like `ro,threads=4`. A later option overrules an earlier one.
    pub fn apply(mut self, text: &str) -> Result<Options, OptionError> {
        for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            self.apply_one(option)?;
        }
        Ok(self)
    }

    fn apply_one(&mut self, option: &str) -> Result<(), OptionError> {
        match option {
            "rw" => self.writing = Writing::Allowed,
            "ro" => self.writing = Writing::Refused,
            "allow_other" => self.users = Users::Everyone,
            "owner_only" => self.users = Users::Owner,
            "locks=shared" => self.locks = Locks::Shared,
            "locks=refused" => self.locks = Locks::Refused,
            "locks=local" => self.locks = Locks::Local,
            "nonempty" => self.occupied = Occupied::Hide,
            "suid" => self.set_user_id = Trusted::Yes,
            "nosuid" => self.set_user_id = Trusted::No,
            "dev" => self.devices = Trusted::Yes,
            "nodev" => self.devices = Trusted::No,
            "delegate" => self.delegates = true,
            "nodelegate" => self.delegates = false,
            "consistency=close-to-open" => self.linearizable = false,
            "consistency=linearizable" => self.linearizable = true,
            "relatime" => self.access_times = true,
            "noatime" => self.access_times = false,
            "notrash" => self.trash_days = None,
            other => match other.split_once('=') {
                Some(("threads", threads)) => self.threads = parse_threads(threads)?,
                Some(("trash", days)) => self.trash_days = Some(parse_days(days)?),
                Some(("fsname", "")) => return Err(OptionError::NoName),
                Some(("fsname", name)) => self.source = name.to_owned(),
                _ => return Err(OptionError::Unknown(other.to_owned())),
            },
        }
        Ok(())
    }

    /// The same for the library.
    pub(crate) fn config(&self) -> Config {
        let mut options = vec![
            MountOption::FSName(self.source.clone()),
            MountOption::DefaultPermissions,
            if self.writing == Writing::Refused { MountOption::RO } else { MountOption::RW },
            if self.set_user_id == Trusted::Yes { MountOption::Suid } else { MountOption::NoSuid },
            if self.devices == Trusted::Yes { MountOption::Dev } else { MountOption::NoDev },
        ];
        // No `auto_unmount`: its helper wakes when this process is killed, and unmounts whatever is mounted
        // there by then, also a new mount. A dead mount is seen and taken away by the next one instead. By
        // this way also when the library mounts without the helper: then it passes on only options that it
        // does not know.
        options.push(MountOption::CUSTOM(format!("subtype={SOURCE}")));
        let mut config = Config::default();
        config.mount_options = options;
        config.acl = if self.users == Users::Everyone { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(self.threads);
        config.clone_fd = true;
        config
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let either = |condition, yes, no| if condition { yes } else { no };
        let words = [
            either(self.writing == Writing::Allowed, "rw", "ro"),
            either(self.users == Users::Everyone, "allow_other", "owner_only"),
            match self.locks {
                Locks::Shared => "locks=shared",
                Locks::Refused => "locks=refused",
                Locks::Local => "locks=local",
            },
            either(self.set_user_id == Trusted::Yes, "suid", "nosuid"),
            either(self.devices == Trusted::Yes, "dev", "nodev"),
            either(self.delegates, "delegate", "nodelegate"),
            either(self.access_times, "relatime", "noatime"),
        ];
        let hides = either(self.occupied == Occupied::Hide, ",nonempty", "");
        let consistency = either(self.linearizable, ",consistency=linearizable", "");
        let trash = self.trash_days.map(|days| format!(",trash={days}")).unwrap_or_default();
        let source = if self.source == SOURCE { String::new() } else { format!(",fsname={}", self.source) };
        write!(f, "{}{consistency}{hides}{trash},threads={}{source}", words.join(","), self.threads)
    }
}

/// What stands as subtype, and unless another name is given as source, in the table of mounts: how our mounts
/// are known.
pub(crate) const SOURCE: &str = "bearing";

fn parse_days(text: &str) -> Result<u32, OptionError> {
    let days = text.parse().ok().filter(|days| (1..=TRASH_DAYS_MAX).contains(days));
    days.ok_or_else(|| OptionError::Trash(text.to_owned()))
}

fn parse_threads(text: &str) -> Result<usize, OptionError> {
    let threads = text.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
    threads.ok_or_else(|| OptionError::Threads(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_change_what_they_name_and_the_last_one_counts() {
        let options = Options::new().apply("ro,threads=3, locks=local ,,rw,suid").unwrap();
        assert_eq!((options.writing, options.threads), (Writing::Allowed, 3));
        assert_eq!((options.locks, options.set_user_id), (Locks::Local, Trusted::Yes));
        assert_eq!(Options::new().apply("").unwrap(), Options::new());
    }

    #[test]
    fn an_unknown_option_is_named_and_the_known_ones_are_told() {
        let message = Options::new().apply("rw,big_writes").unwrap_err().to_string();
        assert!(message.contains("`big_writes`") && message.contains("allow_other"), "{message}");
        for threads in ["0", "129", "many", ""] {
            let refused = Options::new().apply(&format!("threads={threads}"));
            assert_eq!(refused, Err(OptionError::Threads(threads.to_owned())));
        }
        for days in ["0", "3651", "week"] {
            let refused = Options::new().apply(&format!("trash={days}"));
            assert_eq!(refused, Err(OptionError::Trash(days.to_owned())));
        }
    }

    #[test]
    fn the_kernel_checks_permissions_and_nobody_trusts_the_content_unasked() {
        let config = Options::new().config();
        for option in [MountOption::DefaultPermissions, MountOption::NoSuid, MountOption::NoDev] {
            assert!(config.mount_options.contains(&option), "{option:?}");
        }
        assert!(!config.mount_options.contains(&MountOption::AutoUnmount), "it could unmount another mount");
    }

    proptest! {
        #[test]
        fn options_survive_being_written_and_read(
            words in proptest::collection::vec(
                prop::sample::select(vec!["ro", "owner_only", "allow_other", "locks=local", "locks=refused", "locks=shared", "nonempty", "suid", "dev", "noatime", "trash=7", "notrash", "threads=9", "fsname=a"]),
                0..6,
            )
        ) {
            let options = Options::new().apply(&words.join(",")).unwrap();
            prop_assert_eq!(Options::new().apply(&options.to_string()).unwrap(), options);
        }
    }
}
