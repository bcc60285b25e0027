//! What a data server knows: its chunks, and for each what its role needs; beside them its limits and what is
//! under way. What is done with it stands in the files above, one for each kind of request.

mod backup;
mod chunk;
mod copier;
mod core;
mod cut;
mod fetches;
mod flows;
mod listing;
mod primary;
mod reading;
mod scrubber;

pub(crate) use self::core::{Asked, AskedFor, Asker, Core, Cx, Job, Sent};
pub(crate) use backup::{Backup, Recent, Waiting};
pub(crate) use chunk::{Chunk, Chunks, Phase, Role, Writer};
pub(crate) use copier::{Copier, Wanted as CopyWanted};
pub(crate) use cut::{Cut, Stage};
pub(crate) use fetches::{Fetch, Wanted as FetchWanted};
pub(crate) use listing::Listing;
pub(crate) use primary::{Peer, Primary, Round, send_frame};
pub(crate) use reading::{ReadJob, Reader};
pub(crate) use scrubber::Scrubber;
