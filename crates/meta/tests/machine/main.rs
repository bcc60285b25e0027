//! The metadata server's machine from outside, in a cluster of machines. All in one program: what the tests
//! have in common is compiled and linked once.

mod acls;
mod ahead;
mod changed;
mod checkpoints;
mod chunks;
mod claims;
mod cluster;
mod compaction;
mod compares;
mod copies;
mod delegation;
mod drains;
mod files;
mod full_disk;
mod garbage;
mod hold_ups;
mod large;
mod locks;
mod maintenance;
mod namespace;
mod older_registers;
mod opens;
mod outages;
mod own_disk;
mod parked;
mod quotas;
mod refusals;
mod relays;
mod ring;
mod sessions;
mod times;
mod trust;
mod turns;
mod xattrs;
