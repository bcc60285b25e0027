//! What the flow server says: for people who ask why, and for programs that place tasks.
//!
//! ```no_run
//! # use bearing_mount::{Mount, MountConfig, session::Session};
//! # fn place(session: &Session) -> Result<(), Box<dyn std::error::Error>> {
//! // Which of two hosts reads this file fastest?
//! let hosts = ["10.0.0.4".parse()?, "10.0.0.9".parse()?];
//! let times = session.rank_readers(b"/shards/17", &hosts)?;
//! let best = hosts.iter().zip(&times).filter_map(|(host, time)| Some((time.as_ref()?, host))).min();
//! # Ok(())
//! # }
//! ```

use super::{OpenMode, Session, at};
use crate::path::PathError;
use bearing_client::{Advice, Answer, Operation};
use bearing_proto::flow::{Explanation, FlowBody, FlowError, Traffic};
use bearing_types::{Code, ServerId};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

/// Why there is no advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAdvice {
    /// There is no flow server, or it does not answer.
    Silent,
    /// It refused.
    Refused(FlowError),
}

impl std::fmt::Display for NoAdvice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoAdvice::Silent => f.write_str("the flow server does not answer, or there is none"),
            NoAdvice::Refused(error) => write!(f, "{error}"),
        }
    }
}

/// From where a part of a file would be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAdvice {
    /// The part: what lies next to each other in one chunk.
    pub range: Range<u64>,
    /// Who has it, in the order in which it is read without advice; empty for a hole, or the end.
    pub servers: Vec<ServerId>,
    /// What the flow server says.
    pub told: Result<Explanation, NoAdvice>,
}

type Told = (Range<u64>, Vec<ServerId>, Result<FlowBody, NoAdvice>);

impl Session {
    /// From where a file would be read at an offset, and why. By this host, if no other is given.
    pub fn explain_read(
        &self,
        path: &[u8],
        offset: u64,
        reader: Option<IpAddr>,
    ) -> Result<ReadAdvice, PathError> {
        let file = self.open(path, OpenMode::Read)?;
        let advice = Advice::Read { file: file.open(), offset, reader };
        let (range, servers, told) = at("explain", path, self.advised(advice))?;
        let told = told.and_then(|told| match told {
            FlowBody::Explained(explanation) => Ok(explanation),
            _ => Err(NoAdvice::Silent),
        });
        Ok(ReadAdvice { range, servers, told })
    }

    /// How long each of these hosts would take to read a file now, by what the flow server knows of the
    /// network; `None` where it cannot say. Of files of more than a thousand chunks only the beginning
    /// counts.
    pub fn rank_readers(&self, path: &[u8], hosts: &[IpAddr]) -> Result<Vec<Option<Duration>>, RankError> {
        let file = self.open(path, OpenMode::Read)?;
        let advice = Advice::Rank { file: file.open(), readers: hosts.to_vec() };
        let (_, _, told) = at("rank readers of", path, self.advised(advice))?;
        match told.map_err(RankError::NoAdvice)? {
            FlowBody::Ranked(times) => {
                Ok(times.into_iter().map(|time| time.map(Duration::from_micros)).collect())
            }
            _ => Err(RankError::NoAdvice(NoAdvice::Silent)),
        }
    }

    /// What flows now, as the flow server believes.
    pub fn traffic(&self) -> Result<Traffic, RankError> {
        match at("ask about", b"/", self.advised(Advice::Traffic))?.2.map_err(RankError::NoAdvice)? {
            FlowBody::Traffic(traffic) => Ok(traffic),
            _ => Err(RankError::NoAdvice(NoAdvice::Silent)),
        }
    }

    fn advised(&self, advice: Advice) -> Result<Told, Code> {
        match self.caller.call(Operation::Advise(advice))? {
            Answer::Advice { range, servers, told } => Ok((
                range,
                servers,
                match told {
                    None => Err(NoAdvice::Silent),
                    Some(Err(error)) => Err(NoAdvice::Refused(error)),
                    Some(Ok(body)) => Ok(body),
                },
            )),
            _ => Err(Code::Io),
        }
    }
}

/// Why hosts could not be ranked.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// The file could not be read.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Nobody says.
    #[error("{0}")]
    NoAdvice(NoAdvice),
}
