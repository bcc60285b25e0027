//! The promises of [`DiskLabel`].

use super::{Stop, Subject};
use crate::DiskLabel;
use bearing_types::DiskId;

/// Holds an engine to the promises of its disk id. `make` gives a fresh, empty one each time.
pub fn disk_label<E: DiskLabel>(mut make: impl FnMut() -> Subject<E>) {
    let mut subject = make();
    assert_eq!(subject.engine().disk(), Ok(None), "an engine on an empty disk has no id");
    assert_eq!(subject.restart(Stop::Crash).disk(), Ok(None), "and gets none by being opened");
    for disk in [DiskId(1), DiskId(u128::MAX), DiskId(2)] {
        subject.engine().set_disk(disk).unwrap();
        assert_eq!(subject.engine().disk(), Ok(Some(disk)));
        for stop in [Stop::Crash, Stop::Clean] {
            assert_eq!(subject.restart(stop).disk(), Ok(Some(disk)), "an id that was given is stable");
        }
    }
}
