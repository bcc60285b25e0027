//! What lies inside the engines' directories, by format and version. An engine does not understand what it
//! keeps, so a server tells it: its `FORMAT` file names these too, and a program that does not know one of
//! them is refused at opening, not at the first record that it cannot read.

use bearing_engines_local::Format;
use bearing_meta::{LOG_VERSION, RECORD_VERSION};
use bearing_proto::frame;

const RECORDS: Format = Format { name: "bearing-records", version: RECORD_VERSION as u32 };
const LOG_ENTRIES: Format = Format { name: "bearing-log-entries", version: LOG_VERSION as u32 };

/// In the entry store of a metadata server.
pub const STORE_CONTENTS: [Format; 1] = [RECORDS];
/// In its tablet log: entries, and in these, records.
pub const LOG_CONTENTS: [Format; 2] = [LOG_ENTRIES, RECORDS];
/// In the chunks of a data server.
pub const CHUNK_CONTENTS: [Format; 1] = [Format { name: "bearing-frames", version: frame::VERSION as u32 }];
