//! Figures 6 to 13 and table 5 of G-HBA.
//!
//! Measured: which level answers a query, whom it misled, messages, replicas that move, bytes of filters, all
//! of the machines of `bearing_lookup::bloom`. Assumed: times and popularity (`assumed.rs`), which the
//! paper does not print. Scaled: a server has as many files as a run has queries, not 1.6 million.

mod assumed;
mod cluster;
mod files;
mod latency;
mod memory;
mod moves;
mod sizes;
mod where_found;

pub use latency::{figure_8, figure_9, figure_10};
pub use memory::table_5;
pub use moves::{figure_11, figure_12};
pub use sizes::{figure_6, figure_7};
pub use where_found::figure_13;
