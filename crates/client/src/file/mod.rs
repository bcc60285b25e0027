//! Operations on open files, and what is done for them in the background.

mod access;
mod advice;
mod ahead;
mod chunk;
mod copy;
mod flush;
mod holes;
mod locks;
mod open;
mod read;
mod renew;
mod rights;
mod write;
