//! Who is in, and who of a group holds what (G-HBA sections 3.1 and 3.2).
//!
//! ```text
//! join, leave, silent ->  steward  -- Layout -->  all         the steward is the server that came first
//! Layout              ->  elder    -- Shares -->  its group   an elder came first of a group
//! Shares              ->  members  -- Handed -->  each other
//! ```
//!
//! Members of a group watch each other by heart-beats; elders and the steward watch each other. Whatever is
//! lost is said again: a heart-beat says which layout and which shares its sender knows of, and who knows
//! newer ones sends them. So no message of this file is needed to arrive.

use crate::bloom::group::Group;
use crate::bloom::holders::Holders;
use crate::bloom::layout::{Birth, Layout, LayoutVersion, Shares};
use crate::bloom::message::{BloomMessage, Edition};
use crate::bloom::server::{BloomServer, Standing};
use crate::machine::Command;
use bearing_types::{Mono, ServerId};
use std::collections::BTreeSet;
use std::sync::Arc;

impl BloomServer {
    pub(super) fn join(&mut self, now: Mono, through: Option<ServerId>, out: &mut Vec<Command>) {
        self.birth = Birth(now.0);
        self.next_beat = Some(now.after(self.options.beat));
        match through.filter(|through| *through != self.id) {
            Some(through) => {
                self.standing = Standing::Joining(through);
                self.send(through, BloomMessage::Join(self.id, self.birth), out);
            }
            None => match Layout::first(self.id, self.birth, self.options.group_most) {
                Ok(layout) => self.adopt(now, Arc::new(layout), out),
                // Options were checked when the machine was made.
                Err(_) => self.standing = Standing::Out,
            },
        }
    }

    /// Whom to ask when that one did not let it in: it may be gone. One who never saw a layout knows no
    /// other but those that it was told of.
    fn sponsor_after(&self, through: ServerId) -> ServerId {
        let mut known = self.layout.as_ref().map(|layout| layout.everybody()).unwrap_or_default();
        known.extend(&self.listed);
        let mut others = known.iter().copied().filter(|server| *server != self.id);
        others.clone().find(|server| *server > through).or(others.next()).unwrap_or(through)
    }

    /// Whom else it may ask to be let in: who is in a list that others than its peers keep.
    pub fn list(&mut self, servers: impl IntoIterator<Item = ServerId>) {
        self.listed = servers.into_iter().collect();
    }

    /// Says to a server that is not in, as far as it knows, what it knows of: perhaps that one is in another
    /// cluster, which began while they could not reach each other. The higher layout wins.
    pub fn look(&self, stranger: ServerId, out: &mut Vec<Command>) {
        if matches!(self.standing, Standing::In) {
            self.send(stranger, self.heart_beat(true), out);
        }
    }

    pub(super) fn leave(&mut self, now: Mono, out: &mut Vec<Command>) {
        if self.standing != Standing::In {
            self.standing = Standing::Out;
            return;
        }
        self.standing = Standing::Leaving;
        self.ask_to_leave(now, out);
    }

    fn ask_to_leave(&mut self, now: Mono, out: &mut Vec<Command>) {
        match self.steward() {
            Some(steward) if steward != self.id => self.send(steward, BloomMessage::Leave, out),
            _ => self.on_leave(now, self.id, out),
        }
    }

    /// Whom this server takes for the steward; perhaps itself.
    fn steward(&self) -> Option<ServerId> {
        self.layout.as_ref()?.steward(&self.silent)
    }

    /// The steward and, if those that came before it are silent, as many of those that would follow it: they
    /// may be gone too, and waiting for one after the other would leave half of a cut network without a
    /// steward for long.
    fn heirs<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = ServerId> + 'a {
        let silent = |server: &ServerId| self.silent.contains(server);
        let gone = layout.division().servers().take_while(silent).count();
        layout.division().servers().filter(move |server| !silent(server)).take(1 + gone)
    }

    fn layout_as_steward(&self) -> Option<Arc<Layout>> {
        self.layout.clone().filter(|_| self.steward() == Some(self.id))
    }

    pub(super) fn on_join(
        &mut self,
        now: Mono,
        from: ServerId,
        server: ServerId,
        birth: Birth,
        out: &mut Vec<Command>,
    ) {
        let earlier = self.layout.as_ref().and_then(|layout| layout.birth(server));
        if server != self.id && earlier.is_some_and(|earlier| earlier != birth) {
            // It started again, so who was in is not there any more: perhaps that was the steward.
            self.renewed.insert(server);
            self.silent.insert(server);
            self.heard.insert(server, Mono::ZERO);
        }
        if let Some(layout) = self.layout_as_steward() {
            if layout.birth(server) != Some(birth) {
                self.decide(now, layout.with(self.id, server, birth), out);
            } else {
                self.send(server, BloomMessage::Layout(layout), out);
            }
        } else if from == server
            && let Some(steward) = self.steward()
        {
            self.send(steward, BloomMessage::Join(server, birth), out);
        }
    }

    pub(super) fn on_leave(&mut self, now: Mono, from: ServerId, out: &mut Vec<Command>) {
        if let Some(layout) = self.layout_as_steward()
            && layout.birth(from).is_some()
        {
            let next = layout.without(self.id, &BTreeSet::from([from]));
            self.send(from, BloomMessage::Layout(Arc::new(next.clone())), out);
            self.decide(now, next, out);
        }
    }

    /// Somebody misses a server. The steward believes it unless it hears that server itself; who is not the
    /// steward looks for itself, for perhaps it is that one's turn to be the steward and it does not know.
    pub(super) fn on_silent(&mut self, now: Mono, server: ServerId, birth: Birth, out: &mut Vec<Command>) {
        if server == self.id || self.layout.as_ref().and_then(|layout| layout.birth(server)) != Some(birth) {
            return;
        }
        let heard = self.heard.contains_key(&server) && !self.silent.contains(&server);
        match self.layout_as_steward() {
            Some(layout) if !heard => {
                self.decide(now, layout.without_failed(self.id, &BTreeSet::from([server])), out);
            }
            Some(_) => {}
            None => {
                self.doubted.insert(server);
                self.watch(now);
            }
        }
    }

    /// The steward says who is in from now on.
    fn decide(&mut self, now: Mono, layout: Layout, out: &mut Vec<Command>) {
        let layout = Arc::new(layout);
        for server in layout.division().servers().filter(|server| *server != self.id) {
            self.send(server, BloomMessage::Layout(Arc::clone(&layout)), out);
        }
        self.adopt(now, layout, out);
    }

    pub(super) fn on_layout(
        &mut self,
        now: Mono,
        from: ServerId,
        layout: Arc<Layout>,
        out: &mut Vec<Command>,
    ) {
        match &self.layout {
            Some(known) if known.version() > layout.version() => {
                self.send(from, BloomMessage::Layout(Arc::clone(known)), out);
            }
            // Perhaps the sender only wants to know whether it is known here.
            Some(known) if known.version() == layout.version() => {
                self.send(from, self.heart_beat(false), out);
            }
            Some(_) | None => self.adopt(now, layout, out),
        }
    }

    fn adopt(&mut self, now: Mono, layout: Arc<Layout>, out: &mut Vec<Command>) {
        let was_in = self.layout.as_ref().is_some_and(|old| old.birth(self.id) == Some(self.birth));
        let old = self.layout.replace(Arc::clone(&layout));
        self.note_strays(now, old.as_deref(), &layout);
        if layout.birth(self.id) != Some(self.birth) {
            return self.cast_out(now, was_in, &layout, out);
        }
        let all = layout.division().all();
        self.replicas.retain(|of, _| all.contains(of));
        self.unaware.retain(|server| all.contains(server));
        self.away.clear();
        let known =
            |server: &ServerId| old.as_ref().is_some_and(|old| old.birth(*server) == layout.birth(*server));
        let newcomers: Vec<ServerId> = all.iter().filter(|server| !known(server)).copied().collect();
        if let (Some(recent), Some(old)) = (&mut self.recent, &old) {
            old.division()
                .servers()
                .filter(|server| !all.contains(server))
                .for_each(|went| recent.forget(went));
        }
        for server in &newcomers {
            // What was heard, or not heard, of an earlier stay says nothing of this one.
            self.heard.remove(server);
            self.silent.remove(server);
            self.doubted.remove(server);
            self.renewed.remove(server);
        }
        self.renewed.retain(|server| all.contains(server));
        self.watch(now);
        if was_in {
            // They wait until everybody knows of them.
            let newcomers = newcomers.iter().filter(|server| **server != self.id);
            newcomers.for_each(|server| self.send(*server, self.heart_beat(false), out));
        } else {
            self.come_in(&layout, &all, out);
        }
        self.ask_newcomers_of_all_rounds(&layout.everybody(), out);
        self.share_as_elder(now, &layout, &all, out);
        let early = self.early.take();
        early.into_iter().for_each(|shares| self.on_shares(now, shares, out));
    }

    fn note_strays(&mut self, now: Mono, old: Option<&Layout>, layout: &Layout) {
        let named = layout.everybody();
        let until = now.after(self.options.beat * self.options.silent_beats);
        let before = old.map(Layout::everybody).unwrap_or_default();
        self.strays.extend(before.into_iter().map(|server| (server, until)));
        self.strays.retain(|server, _| *server != self.id && !named.contains(server));
    }

    fn come_in(&mut self, layout: &Layout, all: &BTreeSet<ServerId>, out: &mut Vec<Command>) {
        if self.standing != Standing::Leaving {
            self.standing = Standing::In;
        }
        self.unaware = all.iter().copied().filter(|server| *server != self.id).collect();
        self.edition = Edition::before_first(layout.version().count);
        self.publish(out);
    }

    /// This server is not in: it left, is not in yet, or somebody took it for failed.
    fn cast_out(&mut self, now: Mono, was_in: bool, layout: &Layout, out: &mut Vec<Command>) {
        self.shares = None;
        // It follows the share-outs from nothing again: counted twice, ids would never go out of it.
        self.holders = Holders::default();
        self.replicas.clear();
        self.heard.clear();
        self.silent.clear();
        self.unaware.clear();
        self.doubted.clear();
        self.renewed.clear();
        match self.standing {
            Standing::Leaving => {
                self.standing = Standing::Out;
                self.strays.clear();
                self.next_beat = None;
            }
            Standing::In if was_in => {
                let through = layout.division().servers().find(|server| *server != self.id);
                self.join(now, through, out);
            }
            Standing::In | Standing::Out | Standing::Joining(_) => {}
        }
    }

    /// The elder of a group shares out the replicas anew, once for each layout.
    fn share_as_elder(
        &mut self,
        now: Mono,
        layout: &Layout,
        all: &BTreeSet<ServerId>,
        out: &mut Vec<Command>,
    ) {
        let Some(group) = layout.division().group_of(self.id) else { return };
        let members = layout.division().members(group);
        if members.first() != Some(&self.id) {
            return;
        }
        let mut shared = self.shares().cloned().unwrap_or_default();
        let moves = shared.settle(members, all);
        let shares = Arc::new(Shares { version: layout.version(), group, shared: Arc::new(shared), moves });
        for member in shares.shared.members().iter().filter(|member| **member != self.id) {
            self.send(*member, BloomMessage::Shares(Arc::clone(&shares)), out);
        }
        self.on_shares(now, shares, out);
    }

    pub(super) fn on_shares(&mut self, _now: Mono, shares: Arc<Shares>, out: &mut Vec<Command>) {
        if self.layout.as_ref().is_none_or(|layout| layout.version() < shares.version) {
            self.early = Some(shares);
            return;
        }
        let current = self.layout.as_ref().is_some_and(|layout| {
            layout.version() == shares.version
                && layout.birth(self.id) == Some(self.birth)
                && layout.division().group_of(self.id) == Some(shares.group)
        });
        if !current || self.shares.as_ref().is_some_and(|known| known.version >= shares.version) {
            return;
        }
        let before = self.shares.replace(Arc::clone(&shares));
        let nothing = Group::default();
        let before = before.as_ref().map_or(&nothing, |before| &before.shared);
        self.holders.follow(before, &shares.shared);
        for moved in &shares.moves {
            if moved.from == Some(self.id)
                && let Some(replica) = self.replicas.get(&moved.of)
            {
                self.counts.migrated += 1;
                self.send(moved.to, BloomMessage::Handed(replica.clone()), out);
            }
            // What no member gives up its server must send; what one does is asked for with the next
            // heart-beat, should it not come.
            if moved.to == self.id && moved.from.is_none() {
                self.send(moved.of, BloomMessage::Want(Edition(0)), out);
            }
        }
        self.replicas.retain(|of, _| shares.shared.holder(*of) == Some(self.id));
    }

    /// Whom this server must hear: its group; the elders if it is the steward; the steward if it is an elder,
    /// or has somebody to report.
    fn watched(&self) -> BTreeSet<ServerId> {
        let Some(layout) = &self.layout else { return BTreeSet::new() };
        let groups = layout.division().groups();
        let elders = groups.values().filter_map(|members| members.first().copied());
        let mine = layout.division().group_of(self.id).and_then(|group| groups.get(&group));
        let mut watched: BTreeSet<ServerId> = mine.into_iter().flatten().copied().collect();
        if self.steward() == Some(self.id) {
            watched.extend(elders);
        } else if mine.and_then(|members| members.first()) == Some(&self.id) || !self.silent.is_empty() {
            watched.extend(self.heirs(layout));
        }
        // Who is silent stays watched until it is out: it may be heard again.
        watched.extend(self.silent.union(&self.doubted));
        watched.retain(|server| *server != self.id && layout.birth(*server).is_some());
        watched
    }

    pub(super) fn watch(&mut self, now: Mono) {
        let watched = self.watched();
        self.heard.retain(|server, _| watched.contains(server));
        self.silent.retain(|server| watched.contains(server));
        self.doubted.retain(|server| watched.contains(server));
        for server in watched {
            self.heard.entry(server).or_insert(now);
        }
    }

    /// Any message is as good as a heart-beat, of one that is in.
    pub(super) fn hear(&mut self, now: Mono, from: ServerId) {
        self.away.remove(&from);
        if self.renewed.contains(&from) {
            return;
        }
        self.silent.remove(&from);
        self.doubted.remove(&from);
        if let Some(heard) = self.heard.get_mut(&from) {
            *heard = now;
        }
    }

    fn heart_beat(&self, answer: bool) -> BloomMessage {
        let shares = self.shares.as_ref().map(|shares| shares.version);
        BloomMessage::Beat { layout: self.layout.as_ref().map(|layout| layout.version()), shares, answer }
    }

    pub(super) fn on_beat(
        &mut self,
        now: Mono,
        from: ServerId,
        theirs: Option<LayoutVersion>,
        shares: Option<LayoutVersion>,
        answer: bool,
        out: &mut Vec<Command>,
    ) {
        let Some(layout) = self.layout.clone() else { return };
        if theirs == Some(layout.version()) && shares == theirs && self.renewed.remove(&from) {
            // Only who is in has shares. The request to be let in was an old one that came late; one that is
            // meant is said again.
            self.hear(now, from);
        }
        if theirs >= Some(layout.version()) {
            self.unaware.remove(&from);
            self.strays.remove(&from);
        } else {
            self.send(from, BloomMessage::Layout(Arc::clone(&layout)), out);
        }
        if theirs == Some(layout.version()) && shares == theirs && layout.birth(from).is_none() {
            // Who has shares is in, so there are two layouts of this version: whoever made the other one
            // started again since then, alone, and came to the same number. The next one decides.
            if let Some(mine) = self.layout_as_steward() {
                return self.decide(now, mine.without(self.id, &BTreeSet::new()), out);
            }
        }
        // An answer to a heart-beat that knows more: ask for it.
        if answer || theirs > Some(layout.version()) {
            self.send(from, self.heart_beat(!answer), out);
        }
        let elder = |mine: &&Arc<Shares>| mine.shared.members().first() == Some(&self.id);
        if let Some(mine) = self.shares.as_ref().filter(elder)
            && theirs == Some(mine.version)
            && shares < theirs
            && mine.shared.members().contains(&from)
        {
            self.send(from, BloomMessage::Shares(Arc::clone(mine)), out);
        }
    }

    /// What is done with every heart-beat, if it is time.
    pub(super) fn beat_due(&mut self, now: Mono, out: &mut Vec<Command>) {
        if self.next_beat.is_none_or(|due| due > now) {
            return;
        }
        self.next_beat = Some(now.after(self.options.beat));
        match self.standing {
            Standing::Out => self.next_beat = None,
            Standing::Joining(through) => {
                let through = self.sponsor_after(through);
                self.standing = Standing::Joining(through);
                self.send(through, BloomMessage::Join(self.id, self.birth), out);
            }
            Standing::In | Standing::Leaving => {
                self.away.clear();
                self.watch(now);
                self.note_silence(now, out);
                self.heard.keys().for_each(|server| self.send(*server, self.heart_beat(true), out));
                if let Some(layout) = self.layout_as_steward() {
                    // Perhaps one was not gone but cut off, and has a cluster of its own by now: the higher
                    // layout wins.
                    layout.gone().iter().for_each(|gone| self.send(*gone, self.heart_beat(true), out));
                }
                self.strays.retain(|_, until| *until > now);
                self.strays.keys().for_each(|stray| self.send(*stray, self.heart_beat(true), out));
                let layout = self.layout.clone();
                for server in &self.unaware {
                    let said = layout.clone().map(BloomMessage::Layout);
                    said.into_iter().for_each(|message| self.send(*server, message, out));
                }
                self.want(out);
                if self.standing == Standing::Leaving {
                    self.ask_to_leave(now, out);
                }
            }
        }
    }

    fn note_silence(&mut self, now: Mono, out: &mut Vec<Command>) {
        let limit = self.options.beat * self.options.silent_beats;
        let late = self.heard.iter().filter(|(_, heard)| now.since(**heard) > limit);
        self.silent = late.map(|(server, _)| *server).chain(self.renewed.iter().copied()).collect();
        if self.silent.is_empty() {
            return;
        }
        match (self.layout_as_steward(), self.steward()) {
            (Some(layout), _) => self.decide(now, layout.without_failed(self.id, &self.silent.clone()), out),
            (None, Some(steward)) => {
                for server in &self.silent {
                    let birth = self.layout.as_ref().and_then(|layout| layout.birth(*server));
                    let said = birth.map(|birth| BloomMessage::Silent(*server, birth));
                    said.into_iter().for_each(|message| self.send(steward, message, out));
                }
            }
            (None, None) => {}
        }
    }
}
