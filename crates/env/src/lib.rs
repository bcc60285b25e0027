//! The world outside the machines: real clocks, real randomness, secret files and the network.
//!
//! Invariants: no policy, nothing here decides when to send; unsafe code only in the small wrappers of system
//! calls of [`endpoint`], the clock, the addresses and the allocator. The network must not know what is in a
//! packet, the handshake not how it travels.

mod addresses;
mod clock;
pub mod endpoint;
pub mod handshake;
mod memory;
mod random;
mod secret;

pub use addresses::{carried_by, interface_of, own_addresses, reserve};
pub use clock::Clock;
pub use endpoint::{
    ConnectionId, Counters, DatagramSender, Destination, Endpoint, EndpointError, Incoming, Peer, SendError,
    Transport, Waker,
};
pub use memory::reuse_freed_buffers;
pub use random::{random_bytes, random_u64};
pub use secret::{Secret, SecretError, read_enrolment, write_private};
