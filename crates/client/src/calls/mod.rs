//! Talking with servers: asking, the session, maps, recalls, and what answers say of leased things.

mod ask;
mod map;
mod recall;
mod session;
mod taken;
