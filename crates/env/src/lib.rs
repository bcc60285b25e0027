//! The world outside the machines: real clocks, real randomness, secret files and the network.
//!
//! Invariants: no policy, nothing here decides when to send or whom to trust; unsafe code only in [`endpoint`]'s and the clock's small
//! wrappers of system calls. This crate must not know what is in a packet.

mod clock;
pub mod endpoint;
mod random;
mod secret;

pub use clock::Clock;
pub use endpoint::{
    ConnectionId, Counters, DatagramSender, Destination, Endpoint, EndpointError, Incoming, SendError,
    Transport, Waker,
};
pub use random::{random_bytes, random_u64};
pub use secret::{Secret, SecretError};
