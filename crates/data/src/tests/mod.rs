//! Tests of the machine: one server with exact commands, then three servers in a bad world.

mod append;
mod bench;
mod follow;
mod read;
mod scan;
mod seal;
mod sync;
mod world;
