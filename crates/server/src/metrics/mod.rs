//! What a daemon shows of itself: metrics for Prometheus, and whether it serves.
//!
//! Machines count; what only a shell sees (how long a request took, who asks most) is noted here in plain
//! arrays on the loop's own thread, without locks. Nothing is put into words before somebody asks: the page's
//! thread then wakes the loop, and the loop fills one page within its turn. So a daemon that nobody looks at
//! pays for the counting alone, and a page is never older than its answer.

mod beside;
mod catalog;
mod histogram;
mod hottest;
pub(crate) mod of_data;
pub(crate) mod of_metadata;
mod page;
mod publisher;
mod requests;

pub use catalog::{CATALOG, Kind, Metric, Source};
pub use page::Page;
pub use publisher::Publisher;

pub(crate) use catalog::*;
pub(crate) use histogram::Histogram;
pub(crate) use hottest::Hottest;
pub(crate) use requests::{Requests, number_of};
