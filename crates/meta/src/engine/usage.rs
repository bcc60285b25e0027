//! What is used of quotas is noted and told (see `decide/rules/quotas.rs`).

use crate::decide::JobWork;
use crate::engine::machine::MetaServer;
use crate::record::{Key, Record};
use bearing_proto::client::Handle;
use bearing_types::{Now, Position};

impl MetaServer {
    /// Notes what a log entry says of quotas.
    pub(crate) fn note_usage<'a>(
        &mut self,
        start: Position,
        records: impl Iterator<Item = (&'a Key, &'a Option<Record>)>,
    ) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for (key, record) in records {
            match (key, record) {
                (Key::Usage(directory), Some(Record::Usage(used))) => {
                    tablet.quotas.note(*directory, Some(*used))
                }
                (Key::Usage(directory), None) => tablet.quotas.note(*directory, None),
                _ => {}
            }
        }
    }

    /// Tells the homes of quotas what is used here.
    pub(crate) fn watch_quotas(&mut self, now: Now, start: Position) {
        let Some(tablet) = self.tablets.get_mut(&start) else { return };
        for quota in tablet.quotas.due_reports(now.mono, &self.config) {
            self.new_job(start, JobWork::ReportUsage(quota), now);
        }
    }

    /// A report was put off: it is made again.
    pub(crate) fn report_again(&mut self, start: Position, quota: Handle) {
        if let Some(tablet) = self.tablets.get_mut(&start) {
            tablet.quotas.forget_told(quota.node);
        }
    }
}
