//! What the machine runs on: tasks that wait, times, chance, and what every part of it may use.

pub(crate) mod io;
pub(crate) mod random;
pub(crate) mod task;
pub(crate) mod timer;
