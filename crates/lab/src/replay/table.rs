//! Outcomes as lines of CSV files.

use super::run::{Job, Outcome};
use std::fmt::Write as _;

/// The first line of the table of outcomes.
pub const COLUMNS: &str = "scheme,servers,seed,operations,nodes,changes_per_op,changes_per_op_cached,loc,\
                           balance_last,balance_mean,most_loaded_last,most_loaded_worst,moved_share_mean,\
                           moved_nodes,moved_by_join_share,speedup,hops,client_bytes,server_bytes,switch_entries,\
                           renames,renames_across_share,moved_by_renames";

/// The first line of the table of parts.
pub const PARTS_COLUMNS: &str =
    "scheme,servers,seed,part,begins_s,balance,most_loaded_server,its_load,idle_servers,moved_nodes";

/// A line of the table of outcomes, without its end.
pub fn row(job: &Job, outcome: &Outcome) -> String {
    let operations = outcome.operations.max(1) as f64;
    let per_op = |changes: u64| changes as f64 / operations;
    let parts = &outcome.parts;
    let count = parts.len().max(1) as f64;
    let last = parts.last();
    let worst = parts.iter().map(|part| part.most).fold(0.0, f64::max);
    let moved: u64 = parts.iter().map(|part| part.moved).sum();
    let nodes = outcome.nodes.max(1) as f64;
    let routes = &outcome.routes;
    let entries = routes.switch_entries.map_or(String::new(), |entries| entries.to_string());
    format!(
        "{},{},{},{},{},{:.6},{:.6},{:.6e},{:.6},{:.6},{:.4},{:.4},{:.6},{moved},{:.6},{:.4},{:.4},{:.0},{},{entries},{},{:.6},{}",
        job.candidate.name,
        job.servers,
        job.seed,
        outcome.operations,
        outcome.nodes,
        per_op(outcome.changes),
        per_op(outcome.changes_cached),
        1.0 / outcome.changes as f64,
        last.map_or(0.0, |part| part.balance),
        parts.iter().map(|part| part.balance).sum::<f64>() / count,
        last.map_or(0.0, |part| part.most),
        worst,
        moved as f64 / nodes / count,
        outcome.moved_by_join as f64 / nodes,
        outcome.speedup,
        routes.hops,
        routes.client_bytes,
        routes.server_bytes,
        outcome.renames,
        outcome.renames_across as f64 / outcome.renames.max(1) as f64,
        outcome.moved_by_renames,
    )
}

/// The lines of the table of parts.
pub fn parts_lines(job: &Job, outcome: &Outcome) -> String {
    let mut text = String::new();
    for (index, part) in outcome.parts.iter().enumerate() {
        let _ = writeln!(
            text,
            "{},{},{},{},{:.3},{:.6},{},{:.4},{},{}",
            job.candidate.name,
            job.servers,
            job.seed,
            index + 1,
            part.begins_us as f64 / 1e6,
            part.balance,
            part.most_loaded,
            part.most,
            part.idle,
            part.moved
        );
    }
    text
}
