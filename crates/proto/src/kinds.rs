//! What kinds of requests there are, by name: to count them apart, in metrics and for people. A name is that
//! of the call in small letters, for ever: somebody's board shows it.

use crate::client::Call;
use crate::coordinator::AskCall;
use crate::data::DataCall;
use crate::flow::FlowCall;

macro_rules! kinds {
    ($(#[$doc:meta])* $kind:ident of $call:ident { $($variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "what they are is said where the calls are")]
        pub enum $kind { $($variant,)* }

        impl $kind {
            /// All of them, in the order of their numbers.
            pub const ALL: &[$kind] = &[$($kind::$variant,)*];

            /// The name.
            pub fn name(self) -> &'static str {
                match self { $($kind::$variant => $name,)* }
            }
        }

        impl $call {
            /// Its kind.
            pub fn kind(&self) -> $kind {
                match self { $($call::$variant { .. } => $kind::$variant,)* }
            }
        }
    };
}

kinds! {
    /// A kind of [`Call`].
    CallKind of Call {
        OpenSession = "open_session",
        RenewSession = "renew_session",
        CloseSession = "close_session",
        Map = "map",
        Root = "root",
        Directory = "directory",
        Lookup = "lookup",
        List = "list",
        Create = "create",
        MakeDirectory = "make_directory",
        Unlink = "unlink",
        RemoveDirectory = "remove_directory",
        Link = "link",
        Rename = "rename",
        Attributes = "attributes",
        SetAttributes = "set_attributes",
        ReadLink = "read_link",
        Open = "open",
        Extents = "extents",
        Commit = "commit",
        Release = "release",
        OpenChunk = "open_chunk",
        Chunk = "chunk",
        SealChunk = "seal_chunk",
        Statfs = "statfs",
        Delegate = "delegate",
        Delegated = "delegated",
        MakeHole = "make_hole",
        Xattr = "xattr",
        Xattrs = "xattrs",
        SetXattr = "set_xattr",
        Lock = "lock",
        Unlock = "unlock",
        TestLock = "test_lock",
        StopWaiting = "stop_waiting",
        Place = "place",
        Chunks = "chunks",
        SetQuota = "set_quota",
        Quota = "quota",
        Prefetch = "prefetch",
        FinishChunk = "finish_chunk",
        Describe = "describe",
        Accessed = "accessed",
    }
}

kinds! {
    /// A kind of [`DataCall`].
    DataKind of DataCall {
        Append = "append",
        Replicate = "replicate",
        Sync = "sync",
        SyncReplica = "sync_replica",
        Read = "read",
        Fence = "fence",
        Seal = "seal",
        Remove = "remove",
        Ping = "ping",
        Frames = "frames",
        Copy = "copy",
        Fetch = "fetch",
        Verify = "verify",
        Gather = "gather",
        AppendFrom = "append_from",
        Holds = "holds",
        Counters = "counters",
    }
}

kinds! {
    /// A kind of [`AskCall`].
    AskKind of AskCall {
        Read = "read",
        Changes = "changes",
        Swap = "swap",
        Sessions = "sessions",
        Tablets = "tablets",
        Compare = "compare",
        Await = "await",
        Metrics = "metrics",
        Holders = "holders",
        Checkpoint = "checkpoint",
    }
}

kinds! {
    /// A kind of [`FlowCall`].
    FlowKind of FlowCall {
        Plan = "plan",
        Ended = "ended",
        Explain = "explain",
        Rank = "rank",
        Traffic = "traffic",
    }
}
