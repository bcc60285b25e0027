//! Tests of the machine: one server with exact commands, then three servers in a bad world.

mod append;
mod backup;
mod bench;
mod copy;
mod fetch;
mod read;
mod scan;
mod scrub;
mod seal;
mod sync;
mod tries;
mod world;
