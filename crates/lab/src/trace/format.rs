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

    /// The format of a trace that begins with these lines: what a header says, or what most of them are.
    pub(super) fn of(lines: &[&str]) -> Option<Format> {
        if lines.iter().find(|line| !line.starts_with('#')).is_some_and(|line| Format::Plain.is_line(line)) {
            return Some(Format::Plain);
        }
        let of = |format: &Format| lines.iter().filter(|line| format.is_line(line)).count();
        let counted = Format::ALL.map(|format| (of(&format), format));
        let most = counted.iter().map(|(count, _)| *count).max().filter(|count| *count > 0)?;
        counted.into_iter().find(|(count, _)| *count == most).map(|(_, format)| format)
    }

    /// Whether a line can only be of this format.
    pub(super) fn is_line(self, line: &str) -> bool {
        match self {
            Format::Plain => line.trim_end() == plain::HEADER,
            Format::Microsoft => line.trim() == "BeginHeader",
            Format::Berkeley | Format::HdfsAudit | Format::Ellard | Format::JuiceFs => {
                matches!(self.parser().line(line), Parsed::Event(..) | Parsed::Other(_))
            }
        }
    }
}
