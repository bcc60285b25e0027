//! The coordinator of the servers. What it does takes effect at once, but each answer takes it a while, one
//! after the other.

use super::Cluster;
use bearing_meta::Event;
use bearing_proto::coordinator::{Ask, AskCall, TellBody, Told};
use bearing_types::ServerId;
use std::time::Duration;

impl Cluster {
    /// A question came.
    pub(super) fn ask(&mut self, asker: ServerId, ask: Ask) {
        if let Some(slow) = self.unanswered.take(asker, ask.id) {
            return self.events.push_back((asker, Event::Told(slow)));
        }
        let (id, swaps) = (ask.id, matches!(ask.call, AskCall::Swap { .. }));
        self.swaps_asked += u32::from(swaps);
        let told = self.registrar.answer(&mut self.coordinator, asker, ask);
        if swaps && self.swaps_unanswered > 0 {
            self.swaps_unanswered -= 1;
            self.unanswered.answered(asker, id);
        } else if let Some(told) = told {
            self.tell(asker, told);
        }
        if swaps {
            self.tell_news();
        }
    }

    /// Whoever awaits a change hears of it.
    pub(super) fn tell_news(&mut self) {
        let news = self.registrar.news(&mut self.coordinator);
        news.into_iter().for_each(|(asker, told)| self.tell(asker, told));
    }

    fn tell(&mut self, asker: ServerId, told: Told) {
        let last = self.late_told.back().map_or(self.now.mono, |(due, ..)| self.now.mono.max(*due));
        let takes = match told.result {
            Ok(TellBody::Registers(_)) => self.listings_take.max(self.coordinator_takes),
            _ if self.listings_take > Duration::ZERO => {
                self.unanswered.answered(asker, told.id);
                return self.events.push_back((asker, Event::Told(told)));
            }
            _ => self.coordinator_takes,
        };
        self.late_told.push_back((last.after(takes), asker, told));
        self.tell_due();
    }

    /// Gives the answers that took long enough.
    pub(super) fn tell_due(&mut self) {
        while self.late_told.front().is_some_and(|(due, ..)| *due <= self.now.mono) {
            let Some((_, asker, told)) = self.late_told.pop_front() else { return };
            self.unanswered.answered(asker, told.id);
            self.events.push_back((asker, Event::Told(told)));
        }
    }
}
