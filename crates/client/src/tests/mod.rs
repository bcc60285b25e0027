//! Tests of the whole machine: exact commands against a script, and whole runs against small servers that
//! lose messages.

mod accesses;
mod again;
mod appends;
mod changed;
mod chunks;
mod copies;
mod decided;
mod delegation;
mod files;
mod follows;
mod lapses;
mod leases;
mod locks;
mod names;
mod open_state_queries;
mod prefetch;
mod renewals;
mod requests;
mod rights;
mod servers;
mod suspended;
mod syncs;
mod thinned;
pub(crate) mod world;
