//! How traces are recorded: a parser for each way.

use super::event::{Parsed, Parser};
use super::{berkeley, ellard, hdfs, juicefs, microsoft, plain};

/// How a trace was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Ours: `docs/formats/trace.md`.
    Plain,
    /// Berkeley's RES, INS and WEB traces as text (Roselli, Lorch and Anderson, USENIX 2000).
    Berkeley,
    /// Microsoft's production servers, ETW as CSV (SNIA IOTTA set 158).
    Microsoft,
    /// The audit log of an HDFS NameNode.
    HdfsAudit,
    /// NFS packets as text (Ellard and others, FAST 2003).
    Ellard,
    /// The access log of a JuiceFS mount (`.accesslog`).
    JuiceFs,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] = [
        Format::Plain,
        Format::Berkeley,
        Format::Microsoft,
        Format::HdfsAudit,
        Format::Ellard,
        Format::JuiceFs,
    ];

    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            Format::Plain => "plain",
            Format::Berkeley => "berkeley",
            Format::Microsoft => "microsoft",
            Format::HdfsAudit => "hdfs-audit",
            Format::Ellard => "ellard",
            Format::JuiceFs => "juicefs",
        }
    }

    /// The format of a name.
    pub fn named(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    pub(super) fn parser(self) -> Box<dyn Parser> {
        match self {
            Format::Plain => Box::new(plain::Plain::default()),
            Format::Berkeley => Box::new(berkeley::Berkeley),
            Format::Microsoft => Box::new(microsoft::Microsoft::default()),
            Format::HdfsAudit => Box::new(hdfs::HdfsAudit),
            Format::Ellard => Box::new(ellard::Ellard::default()),
            Format::JuiceFs => Box::new(juicefs::JuiceFs::default()),
        }
    }

    /// Whether a line can only be of this format.
    pub(super) fn is_line(self, line: &str) -> bool {
        match self {
            Format::Plain => line == plain::HEADER,
            Format::Microsoft => line.trim() == "BeginHeader",
            Format::Berkeley | Format::HdfsAudit | Format::Ellard | Format::JuiceFs => {
                matches!(self.parser().line(line), Parsed::Event(..) | Parsed::Other(_))
            }
        }
    }
}
