//! `lab report`: all figures, as one page. Those that are drawn already are not drawn again.

use super::calibrate;
use super::output::put;
use super::replay::program;
use crate::bench::commit;
use crate::voice::say;
use anyhow::{Context, Result};
use bearing_lab::figure::Figure;
use bearing_lab::queues::calibration::Calibration;
use bearing_lab::report::{Page, Section, csv_name, csv_of, json_name};
use bearing_lab::{CALIBRATED, FIGURES, Known, calibrated, calibrated_basis};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  bearing lab report --out figures --quick
  bearing lab report --out figures
  bearing lab calibrate && bearing lab report --out figures --calibration calibration.json

A report that was stopped goes on when it is given again: figures of the same program, seed and effort that lie
in the directory are taken from there.";

/// `lab report`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReportFlags {
    /// Where the page goes: DIR/index.html, and each figure's numbers beside it
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Fewer seeds and less of everything, for a look
    #[arg(long)]
    pub quick: bool,
    /// Draws begin from here
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What work costs, as `bearing lab calibrate` measured it: one figure more, of clusters of
    /// such servers
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs `lab report`.
pub fn run(flags: &ReportFlags) -> Result<()> {
    // What is wrong with it is to be said now, not after an hour.
    let calibration = flags.calibration.as_deref().map(calibrate::read).transpose()?;
    std::fs::create_dir_all(&flags.out).with_context(|| format!("create {}", flags.out.display()))?;
    let bar = ProgressBar::new(FIGURES.len() as u64 + u64::from(calibration.is_some()));
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} figures, {elapsed}  {msg}")?);
    let mark = flags.out.join("program");
    let program = program()?;
    let is_own = std::fs::read_to_string(&mark).is_ok_and(|text| text == program);
    if !is_own {
        // Before the mark says otherwise, so that a report that is stopped takes none of another program's.
        for name in FIGURES.iter().map(|known| known.name).chain([CALIBRATED]) {
            let _ = std::fs::remove_file(flags.out.join(format!("{name}.json")));
        }
        put(&mark, &program)?;
    }
    let mut drawn = Vec::new();
    for known in FIGURES {
        bar.set_message(known.name);
        bar.tick();
        drawn.push((known, figure(flags, known, is_own)?));
        bar.inc(1);
    }
    bar.set_message(CALIBRATED);
    let own = calibration.as_ref().map(|found| own_figure(flags, found)).transpose()?;
    bar.finish_and_clear();
    let mut conclusions = conclusions(&drawn);
    conclusions.extend(calibration.as_ref().map(calibrate::error_of));
    let path = flags.out.join("index.html");
    if flags.json {
        let figures: Vec<&Figure> = drawn.iter().map(|(_, figure)| figure).chain(&own).collect();
        let json = serde_json::json!({"conclusions": conclusions, "figures": figures});
        say!("{}", serde_json::to_string_pretty(&json)?)?;
    } else {
        for sentence in &conclusions {
            say!("{sentence}")?;
        }
        say!("\n{}", path.display())?;
    }
    let sections = drawn.into_iter().map(|(known, figure)| Section {
        heading: format!("{}: {}", known.name, known.about),
        basis: known.basis(),
        figure: Some(figure),
        tables: Vec::new(),
    });
    let own = own.zip(calibration).map(|(figure, found)| Section {
        heading: format!("{CALIBRATED}: beyond the papers, clusters of servers as they were calibrated"),
        basis: calibrated_basis(&found),
        figure: Some(figure),
        tables: Vec::new(),
    });
    let sections = sections.chain(own);
    let page =
        Page { title: "Figures of the papers, drawn anew".into(), conclusions, sections: sections.collect() };
    put(&path, &page.html())
}

/// The one figure whose costs were measured.
fn own_figure(flags: &ReportFlags, found: &Calibration) -> Result<Figure> {
    let mut figure = calibrated(found, flags.seed, flags.quick)?;
    figure.commit = label(flags.quick);
    put(&flags.out.join(csv_name(&figure)), &csv_of(&figure))?;
    put(&flags.out.join(json_name(&figure)), &serde_json::to_string_pretty(&figure)?)?;
    Ok(figure)
}

/// What a quick figure's commit ends with: it is another figure than a whole one.
const QUICK: &str = " (quick)";

fn label(is_quick: bool) -> String {
    format!("{}{}", commit(), if is_quick { QUICK } else { "" })
}

/// From the directory, if it is there and of the same effort; or drawn, and kept there.
fn figure(flags: &ReportFlags, known: &Known, is_own: bool) -> Result<Figure> {
    let kept = std::fs::read_to_string(flags.out.join(format!("{}.json", known.name))).ok();
    if let Some(kept) = kept.and_then(|text| serde_json::from_str::<Figure>(&text).ok())
        && is_own
        && kept.commit.ends_with(QUICK) == flags.quick
        && kept.seed == flags.seed
    {
        return Ok(kept);
    }
    let mut figure = known.draw(flags.seed, flags.quick);
    figure.commit = label(flags.quick);
    put(&flags.out.join(csv_name(&figure)), &csv_of(&figure))?;
    put(&flags.out.join(json_name(&figure)), &serde_json::to_string_pretty(&figure)?)?;
    Ok(figure)
}

/// Claims that hold and those that do not, these each with its reason.
fn conclusions(drawn: &[(&Known, Figure)]) -> Vec<String> {
    let mut sentences = Vec::new();
    let (mut published, mut holding) = (0, 0);
    for (known, figure) in drawn {
        for (index, seen) in figure.ours.iter().enumerate() {
            let claim = figure.published.get(index);
            published += usize::from(claim.is_some());
            holding += usize::from(claim.is_some() && seen.holds);
            if seen.holds {
                continue;
            }
            let said = claim.map_or(String::new(), |claim| format!(", published {:.3}", claim.value));
            let why = if seen.why.is_empty() { String::new() } else { format!(" ({})", seen.why) };
            sentences
                .push(format!("{}: {} does not hold: {:.3}{said}{why}", known.name, seen.claim, seen.value));
        }
    }
    sentences.insert(0, format!("{holding} of {published} published claims hold."));
    sentences
}
