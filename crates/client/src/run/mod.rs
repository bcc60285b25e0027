//! What the machine runs on: tasks that wait, times, chance, and what every part of it may use.

mod io;
mod random;
mod task;
mod timer;

pub(crate) use io::Io;
pub(crate) use random::Random;
pub(crate) use task::{Awaited, Gate, Promise, Task, Tasks, promise};
pub(crate) use timer::Timer;
