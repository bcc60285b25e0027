//! What a log entry says of requests: read by `docs/formats/records.md` and `protocol.md`, not by the code
//! that wrote it. A field that production forgets both ways, or reads as it should not, nobody else misses.
//!
//! Of most records only the tag is looked at.

use bearing_proto::peer::ItemId;
use bearing_types::{LogIndex, NodeId, Sequence, SessionId, TabletSerial};
use bearing_workload::RequestId;

const ENTRY_VERSION: u8 = 4;
const RECORD_VERSION: u8 = 5;

/// One thing that an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// A request has an answer, which speaks of this node.
    Answered(RequestId, Option<NodeId>),
    /// A step of a delegated directory was taken, and made this node.
    Stepped(RequestId, Option<NodeId>),
    /// A node shall lose a name, in another tablet.
    Queued(ItemId),
    /// This was done that another tablet had queued.
    Done(ItemId),
    /// A session is over.
    Ended(SessionId),
}

/// Why bytes are not as documented.
pub type Nonsense = String;

/// Everything that the payload of a frame says of requests, in its order.
pub fn read(entry: &[u8]) -> Result<Vec<Said>, Nonsense> {
    let mut bytes = Bytes(entry);
    if bytes.byte()? != ENTRY_VERSION {
        return Err("the entry has another version".to_owned());
    }
    let _kind = bytes.byte()?;
    let (mut said, mut key) = (Vec::new(), Vec::new());
    for _ in 0..bytes.number()? {
        let shared = bytes.number()? as usize;
        if shared > key.len() {
            return Err(format!("a key shares {shared} bytes with one of {}", key.len()));
        }
        key.truncate(shared);
        key.extend(bytes.counted()?);
        match bytes.byte()? {
            0 => {}
            1 => read_record(Bytes(&key), Bytes(bytes.counted()?), &mut said)?,
            other => return Err(format!("a value is there or not, but not {other}")),
        }
    }
    bytes.ended()?;
    Ok(said)
}

fn read_record(mut key: Bytes<'_>, mut value: Bytes<'_>, said: &mut Vec<Said>) -> Result<(), Nonsense> {
    let key_tag = key.byte()?;
    let record_tag = match key_tag {
        9 => 11,
        11 => 9,
        26 => 7,
        27 => 8,
        _ => return Ok(()),
    };
    if (value.byte()?, value.byte()?) != (RECORD_VERSION, record_tag) {
        return Err(format!("a record with a key of tag {key_tag} has another version, or is another one"));
    }
    match key_tag {
        9 => said.push(Said::Ended(SessionId(key.fixed()?))),
        11 => {
            let (session, sequence) = (SessionId(key.fixed()?), Sequence(key.fixed()?));
            read_answer(session, sequence, value, said)?;
        }
        26 => {
            let item = ItemId {
                tablet: TabletSerial(key.fixed()?),
                index: LogIndex(key.fixed()?),
                place: key.byte()?,
            };
            let _to = value.number()?;
            // Deferred: DropLink.
            if value.byte()? == 1 {
                said.push(Said::Queued(item));
            }
        }
        _ => {
            let tablet = TabletSerial(key.fixed()?);
            if value.byte()? == 1 {
                let (_index, _place) = (value.number()?, value.byte()?);
            }
            for _ in 0..value.number()? {
                let (index, place) = (LogIndex(value.number()?), value.byte()?);
                said.push(Said::Done(ItemId { tablet, index, place }));
            }
            value.ended()?;
        }
    }
    key.ended()
}

/// ReplyRecord, from its position on.
fn read_answer(
    session: SessionId,
    sequence: Sequence,
    mut value: Bytes<'_>,
    said: &mut Vec<Said>,
) -> Result<(), Nonsense> {
    let _position = value.number()?;
    let request = |sequence| RequestId { session, sequence };
    match value.byte()? {
        // Entry: its first field is the node.
        4 => said.push(Said::Answered(request(sequence), Some(NodeId(value.number()?)))),
        // Steps.
        13 => {
            for _ in 0..value.number()? {
                let step = Sequence(value.number()?);
                let made = value.option(|value| Ok(NodeId(value.number()?)))?;
                said.push(Said::Stepped(request(step), made));
                // OpenToken: node, session, rights, mac.
                value.option(|value| {
                    let (_node, _session, _rights) = (value.number()?, value.number()?, value.byte()?);
                    value.take(16)
                })?;
            }
        }
        _ => said.push(Said::Answered(request(sequence), None)),
    }
    Ok(())
}

/// What is left to be read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Nonsense> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Nonsense> {
        Ok(self.take(1)?[0])
    }

    /// Eight bytes of a key.
    fn fixed(&mut self) -> Result<u64, Nonsense> {
        Ok(self.take(8)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A varint.
    fn number(&mut self) -> Result<u64, Nonsense> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number is too long".to_owned())
    }

    fn counted(&mut self) -> Result<&'a [u8], Nonsense> {
        let count = self.number()?;
        self.take(usize::try_from(count).map_err(|_| "it is too long".to_owned())?)
    }

    fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Nonsense>,
    ) -> Result<Option<T>, Nonsense> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            other => Err(format!("an option is 0 or 1, not {other}")),
        }
    }

    fn ended(&self) -> Result<(), Nonsense> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("{} bytes are left over", self.0.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, from the documents.
    #[test]
    fn an_entry_is_read_as_it_is_documented() {
        let session = [0, 0, 0, 0, 0, 0, 0, 7];
        let mut entry = vec![4, 0, 5];
        // A reply to request 258: Entry of node 300 with home 5 ...
        entry.extend([0, 17, 11].iter().chain(&session).chain(&[0, 0, 0, 0, 0, 0, 1, 2]));
        entry.extend([1, 8, 5, 9, 6, 4, 0xac, 2, 5, 0]);
        // ... an item that drops a link ...
        entry.extend(
            [0, 18, 26].iter().chain(&[0, 0, 0, 1, 0, 0, 0, 0]).chain(&[0, 0, 0, 0, 0, 0, 0, 9]).chain(&[2]),
        );
        entry.extend([1, 7, 5, 7, 5, 1, 0xac, 2, 5]);
        // ... an inbox in which everything below 4.1 is done, and 6.0 ...
        entry.extend([0, 9, 27].iter().chain(&[0, 0, 0, 1, 0, 0, 0, 3]));
        entry.extend([1, 8, 5, 8, 1, 4, 1, 1, 6, 0]);
        // ... a session that is over, and the same key that is deleted.
        entry.extend([0, 9, 9].iter().chain(&session).chain(&[1, 3, 5, 11, 0]));
        entry.extend([9, 0, 0]);
        let request = RequestId { session: SessionId(7), sequence: Sequence(258) };
        let item =
            |tablet, index, place| ItemId { tablet: TabletSerial(tablet), index: LogIndex(index), place };
        let wanted = [
            Said::Answered(request, Some(NodeId(300))),
            Said::Queued(item(1 << 32, 9, 2)),
            Said::Done(item((1 << 32) + 3, 6, 0)),
            Said::Ended(SessionId(7)),
        ];
        assert_eq!(read(&entry).expect("as documented"), wanted);
        for short in 0..entry.len() {
            read(&entry[..short]).expect_err("nothing is cut off unseen");
        }
    }

    #[test]
    fn steps_are_read_with_what_they_made() {
        let mut entry = vec![4, 0, 1, 0, 17, 11];
        entry.extend([0; 16]);
        let token: Vec<u8> = [1, 9, 8, 2].into_iter().chain([0xee; 16]).collect();
        let mut record = vec![5, 9, 6, 13, 2, 40, 1, 9];
        record.extend(&token);
        record.extend([41, 0, 0, 100, 0]);
        entry.extend([1, record.len() as u8]);
        entry.extend(&record);
        let request = |sequence| RequestId { session: SessionId(0), sequence: Sequence(sequence) };
        let wanted = [Said::Stepped(request(40), Some(NodeId(9))), Said::Stepped(request(41), None)];
        assert_eq!(read(&entry).expect("as documented"), wanted);
    }
}
