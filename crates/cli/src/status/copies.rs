//! Tablets and their copies, for people. As long as all are well, a line for each group of tablets that one
//! server owns; of those that are not, a line each.

use crate::names::time_text;
use crate::tablets::{Phase, RestoringState, TabletState, Tablets, ranges};
use bearing_types::Wall;
use comfy_table::{Table, presets};
use indicatif::{BinaryBytes, HumanDuration};
use std::collections::BTreeMap;
use std::time::Duration;

/// Takeovers shown, the newest.
const TAKEOVERS_SHOWN_MAX: usize = 8;

/// What is printed of tablets. With `each`, every one has its line.
pub fn lines(tablets: &Tablets, each: bool) -> Vec<String> {
    let (well, other): (Vec<&TabletState>, Vec<&TabletState>) =
        tablets.tablets.iter().partition(|tablet| tablets.is_well(tablet) && !each);
    let mut lines = vec![headline(tablets)];
    lines.extend((!well.is_empty()).then(|| grouped(&well)));
    lines.extend((!other.is_empty()).then(|| one_by_one(tablets, &other)));
    lines.extend(tablets.restoring().map(|restoring| restoring_words(&restoring)));
    let takeovers = takeovers(tablets);
    lines.extend((!takeovers.is_empty()).then(|| takeovers.join("\n")));
    let silent: Vec<String> = tablets
        .servers
        .iter()
        .filter_map(|server| {
            let why = server.told.as_ref().err()?;
            Some(format!("metadata-{} is silent: {why}", server.number))
        })
        .collect();
    lines.extend((!silent.is_empty()).then(|| silent.join("\n")));
    lines
}

fn headline(tablets: &Tablets) -> String {
    let (count, copies) = (tablets.tablets.len(), tablets.copies_wanted);
    let unwell = tablets.tablets.iter().filter(|tablet| !tablets.is_well(tablet)).count();
    let how = match unwell {
        0 => "all well".to_owned(),
        unwell => format!("{unwell} not well"),
    };
    let copies = if copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") };
    format!("{count} tablets with {copies} each: {how}")
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

/// By owner and members.
fn grouped(tablets: &[&TabletState]) -> String {
    let mut groups: BTreeMap<(u32, &[u32]), Vec<&TabletState>> = BTreeMap::new();
    for tablet in tablets {
        groups.entry((tablet.owner, &tablet.members)).or_default().push(tablet);
    }
    let mut table = table(["OWNER", "TABLETS", "EPOCHS", "MEMBERS", "LAG", "LEASE"]);
    for ((owner, members), tablets) in groups {
        let lag = tablets.iter().flat_map(|tablet| &tablet.copies).map(|copy| copy.lag_entries).max();
        table.add_row([
            format!("metadata-{owner}"),
            tablets.len().to_string(),
            ranges(tablets.iter().map(|tablet| tablet.epoch)),
            numbers(members),
            lag.unwrap_or(0).to_string(),
            "held".to_owned(),
        ]);
    }
    table.to_string()
}

fn one_by_one(tablets: &Tablets, shown: &[&TabletState]) -> String {
    let mut table = table(["TABLET", "EPOCH", "OWNER", "MEMBERS", "LAG", "LEASE", "LEARNER"]);
    for tablet in shown {
        table.add_row([
            tablet.block.clone(),
            tablet.epoch.to_string(),
            format!("{}{}", tablet.owner, phase_words(tablet.phase)),
            members_of(tablets, tablet),
            lag_words(tablet),
            lease_words(tablet),
            learner_words(tablet),
        ]);
    }
    table.to_string()
}

fn numbers(members: &[u32]) -> String {
    members.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

fn members_of(tablets: &Tablets, tablet: &TabletState) -> String {
    let member = |number: &u32| match tablets.answers(*number) {
        true => number.to_string(),
        false => format!("{number}?"),
    };
    tablet.members.iter().map(member).collect::<Vec<_>>().join(" ")
}

fn phase_words(phase: Phase) -> &'static str {
    match phase {
        Phase::Serving => "",
        Phase::Adopting => " (begins)",
        Phase::Leaving => " (leaves it)",
        Phase::OwnerSilent => " (silent)",
        Phase::NotTaken => " (not yet)",
    }
}

fn is_known(tablet: &TabletState) -> bool {
    !matches!(tablet.phase, Phase::OwnerSilent | Phase::NotTaken)
}

/// In entries, and of those who lack any, their bytes.
fn lag_words(tablet: &TabletState) -> String {
    if !is_known(tablet) {
        return "-".to_owned();
    }
    let lacking = tablet.copies.iter().filter(|copy| copy.lag_entries > 0);
    let words: Vec<String> = lacking
        .map(|copy| format!("{}: {} ({})", copy.server, copy.lag_entries, short(copy.lag_bytes)))
        .collect();
    if words.is_empty() { "0".to_owned() } else { words.join(", ") }
}

fn short(bytes: u64) -> String {
    match bytes.div_ceil(1 << 10) {
        kib @ 0..10_000 => format!("{kib} KiB"),
        kib => format!("{} MiB", kib >> 10),
    }
}

fn lease_words(tablet: &TabletState) -> String {
    if !is_known(tablet) {
        return "-".to_owned();
    }
    let missing: Vec<u32> =
        tablet.copies.iter().filter(|copy| !copy.relies).map(|copy| copy.server).collect();
    if missing.is_empty() { "held".to_owned() } else { format!("not by {}", numbers(&missing)) }
}

fn learner_words(tablet: &TabletState) -> String {
    match &tablet.learner {
        None => "-".to_owned(),
        Some(learner) if learner.has_snapshot => {
            format!("{}: {} entries behind", learner.server, learner.entries_kept)
        }
        Some(learner) => format!("{}: {} sent", learner.server, BinaryBytes(learner.sent_bytes)),
    }
}

fn restoring_words(restoring: &RestoringState) -> String {
    let RestoringState { tablets, learnt, sent_bytes, left_bytes, left_seconds } = *restoring;
    let left = match (left_bytes, left_seconds) {
        (Some(bytes), Some(seconds)) if learnt > 0 => {
            format!("about {} left, {}", BinaryBytes(bytes), HumanDuration(Duration::from_secs(seconds)))
        }
        (Some(bytes), _) => format!("about {} left", BinaryBytes(bytes)),
        (None, _) => "how much is left is known when one of them is done".to_owned(),
    };
    let doing = match learnt {
        0 => "no server that answers can take one now".to_owned(),
        1 => "1 of them is learnt now".to_owned(),
        learnt => format!("{learnt} of them are learnt now"),
    };
    let lack = if tablets == 1 { "tablet lacks" } else { "tablets lack" };
    format!("{tablets} {lack} copies: {doing}; {} sent, {left}", BinaryBytes(sent_bytes))
}

/// What was taken over by one server of another at about the same time is one line.
fn takeovers(tablets: &Tablets) -> Vec<String> {
    const SECOND_NS: i64 = 1_000_000_000;
    let mut groups: BTreeMap<(i64, u32, u32), (usize, u64)> = BTreeMap::new();
    for tablet in &tablets.tablets {
        let Some(taken) = tablet.taken_over else { continue };
        let second = taken.at_ns.div_euclid(SECOND_NS);
        let group = groups.entry((second, tablet.owner, taken.from)).or_default();
        *group = (group.0 + 1, group.1.max(taken.after_us));
    }
    let newest = groups.into_iter().rev().take(TAKEOVERS_SHOWN_MAX);
    let words = newest.map(|((second, owner, from), (count, after_us))| {
        let at = time_text(Wall(second.saturating_mul(SECOND_NS)));
        let noun = if count == 1 { "tablet" } else { "tablets" };
        let after = after_us.div_ceil(1000);
        format!("metadata-{owner} took {count} {noun} over from metadata-{from}, served from {at} on, {after} ms after the claim")
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tablets::{CopyState, LearnerState, Server, TakenOver};
    use bearing_proto::tablets::TabletsView;
    use bearing_types::Block;

    fn tablet(owner: u32, members: &[u32]) -> TabletState {
        let copy = |server| CopyState { server, lag_entries: 0, lag_bytes: 0, relies: true };
        TabletState {
            place: Block::RING,
            block: Block::RING.to_string(),
            serial: 1,
            epoch: 5,
            owner,
            members: members.to_vec(),
            phase: Phase::Serving,
            copies: members.iter().filter(|member| **member != owner).map(|member| copy(*member)).collect(),
            learner: None,
            taken_over: None,
        }
    }

    fn tablets(tablets: Vec<TabletState>) -> Tablets {
        let server = |number| Server {
            number,
            address: "127.0.0.1:1".parse().unwrap(),
            told: Ok(TabletsView::default()),
        };
        let servers = (1..=5).map(server).collect();
        Tablets { servers, map_version: Some(1), tablets, copies_wanted: 3 }
    }

    #[test]
    fn tablets_that_are_well_share_a_line_and_others_have_one_each() {
        let well = vec![tablet(1, &[1, 2, 3]); 40];
        let all = lines(&tablets(well.clone()), false);
        assert_eq!((all.len(), &all[0][..]), (2, "40 tablets with 3 copies each: all well"));
        assert_eq!(all[1].lines().count(), 2, "{}", all[1]);
        assert_eq!(lines(&tablets(well.clone()), true)[1].lines().count(), 41);
        let mut some = well;
        some[7].copies[0].relies = false;
        some[7].copies[1].lag_entries = 3_000_000;
        some[7].copies[1].lag_bytes = 400 << 20;
        some[8].members.pop();
        some[8].copies.pop();
        let sent_bytes = 60 << 20;
        some[8].learner =
            Some(LearnerState { server: 4, parts: 3, sent_bytes, has_snapshot: false, entries_kept: 0 });
        some[9].taken_over = Some(TakenOver { from: 5, at_ns: 1_795_219_199_000_000_000, after_us: 30_100 });
        some[10].phase = Phase::OwnerSilent;
        let mut told = tablets(some);
        told.servers[2].told = Err("does not answer".into());
        let text = lines(&told, false).join("\n");
        for part in [
            "3 not well",
            "not by 2",
            "3: 3000000 (400 MiB)",
            "4: 60.00 MiB sent",
            "1 tablet lacks copies: 1 of them is learnt now",
            "metadata-1 took 1 tablet over from metadata-5",
            "31 ms after the claim",
            "metadata-3 is silent: does not answer",
            "1 2 3?",
            " 1 (silent) ",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let tables = lines(&told, false);
        let width = tables[..3].iter().flat_map(|table| table.lines()).map(str::len).max().unwrap();
        assert!(width <= 100, "{width}:\n{text}");
    }
}
