//! What the kernel bridge and the path-level session need of a mount: operations in, answers out.
//!
//! Invariant: the machine answers every kind of operation with its own kind of answer; another one is a bug
//! and asserts. This module must not know how operations reach a server, so that users of it can be tested on
//! a caller of their own.

use bearing_client::{Answer, Found, Listed, OpenFile, Operation};
use bearing_proto::client::{Handle, QuotaView, StatfsView};
use bearing_types::{Lock, Outcome};

/// Runs operations and waits for their answers. Shared by all threads.
pub trait Caller: Send + Sync {
    /// Runs one operation.
    fn call(&self, operation: Operation) -> Outcome<Answer>;

    /// Runs several independent operations at the same time; the answers are in the order of the operations.
    /// Requests to one server share datagrams.
    fn call_all(&self, operations: Vec<Operation>) -> Vec<Outcome<Answer>>;

    /// Runs an operation that may wait for a lock. It is asked now and then whether the answer is still
    /// wanted; once it is not, the wait ends with `Interrupted`, unless it has come to an end already.
    fn call_while(&self, operation: Operation, is_wanted: &mut dyn FnMut() -> bool) -> Outcome<Answer>;

    /// Runs an operation that answers with nothing.
    fn done(&self, operation: Operation) -> Outcome<()> {
        match self.call(operation)? {
            Answer::Done => Ok(()),
            other => unexpected("nothing", &other),
        }
    }

    /// Runs an operation that answers with a node.
    fn found(&self, operation: Operation) -> Outcome<Found> {
        self.call(operation).map(into_found)
    }

    /// Runs an operation that answers with an open file.
    fn opened(&self, operation: Operation) -> Outcome<(OpenFile, Found)> {
        match self.call(operation)? {
            Answer::Opened(file, found) => Ok((file, found)),
            other => unexpected("an open file", &other),
        }
    }

    /// Runs an operation that answers with bytes: the content of a file, the target of a link, or what is
    /// said of extended attributes.
    fn bytes(&self, operation: Operation) -> Outcome<Vec<u8>> {
        match self.call(operation)? {
            Answer::Bytes(bytes) | Answer::Target(bytes) | Answer::Xattr(bytes) => Ok(bytes),
            other => unexpected("bytes", &other),
        }
    }

    /// Runs an operation that answers with a count of written bytes.
    fn written(&self, operation: Operation) -> Outcome<u32> {
        match self.call(operation)? {
            Answer::Written(count) => Ok(count),
            other => unexpected("a count of written bytes", &other),
        }
    }

    /// Runs an operation that answers with a place in a file.
    fn place(&self, operation: Operation) -> Outcome<Option<u64>> {
        match self.call(operation)? {
            Answer::Place(place) => Ok(place),
            other => unexpected("a place in a file", &other),
        }
    }

    /// Runs an operation that answers with entries.
    fn listed(&self, operation: Operation) -> Outcome<Vec<Listed>> {
        match self.call(operation)? {
            Answer::Listed(entries) => Ok(entries),
            other => unexpected("entries", &other),
        }
    }

    /// Runs an operation that answers with a lock that stands in the way.
    fn lock_in_the_way(&self, operation: Operation) -> Outcome<Option<Lock>> {
        match self.call(operation)? {
            Answer::Lock(lock) => Ok(lock),
            other => unexpected("a lock", &other),
        }
    }

    /// Asks for the quota that counts a node.
    fn quota(&self, node: Handle) -> Outcome<Option<QuotaView>> {
        match self.call(Operation::Quota { node })? {
            Answer::Quota(quota) => Ok(quota),
            other => unexpected("a quota", &other),
        }
    }

    /// Runs an operation that answers with a directory's parent and its name there.
    fn named(&self, operation: Operation) -> Outcome<(Handle, Vec<u8>)> {
        match self.call(operation)? {
            Answer::Named(parent, name) => Ok((parent, name)),
            other => unexpected("a name", &other),
        }
    }

    /// Asks for space and entries.
    fn statfs(&self) -> Outcome<StatfsView> {
        match self.call(Operation::Statfs)? {
            Answer::Statfs(view) => Ok(view),
            other => unexpected("space", &other),
        }
    }
}

/// The node that an answer gives.
///
/// # Panics
/// If the answer gives none, which is a bug of the machine.
pub fn into_found(answer: Answer) -> Found {
    match answer {
        Answer::Found(found) | Answer::Opened(_, found) => found,
        other => unexpected("a node", &other),
    }
}

fn unexpected(wanted: &str, answer: &Answer) -> ! {
    panic!("the client machine answered with {answer:?} where {wanted} was due")
}
