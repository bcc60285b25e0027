//! The report: one page of HTML with what was found first, then figure by figure.
//!
//! Invariants: the page needs no network and no script; every figure says what is measured, what simulated
//! and what assumed; text is escaped, wherever it comes from; the same input gives the same bytes. It does
//! not write files: who does puts each figure's values beside the page, by [`csv_name`] and [`json_name`].

mod csv;

pub use csv::csv_of;

use crate::chart;
use crate::figure::{Claim, Figure, Seen};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// What it is about.
    pub title: String,
    /// What was found, in plain words, the weightiest first.
    pub conclusions: Vec<String>,
    /// The rest, in this order.
    pub sections: Vec<Section>,
}

/// A part of a report: mostly a figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// What its numbers stand on.
    pub basis: Basis,
    /// Its figure, with claims and links to its values.
    pub figure: Option<Figure>,
    /// Tables after it.
    pub tables: Vec<Table>,
}

/// What numbers stand on, in sentences. What is empty is shown as nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Basis {
    /// On real machines or from real traces.
    pub measured: String,
    /// By running our code in virtual time, or a model.
    pub simulated: String,
    /// Taken from a paper, or chosen.
    pub assumed: String,
}

/// A table of text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Names of its columns.
    pub header: Vec<String>,
    /// Its rows. Cells that are numbers stand to the right.
    pub rows: Vec<Vec<String>>,
}

/// Digits of numbers in tables.
const DIGITS: usize = 4;

/// The file beside the page that has the points of a figure.
pub fn csv_name(figure: &Figure) -> String {
    format!("{}.csv", stem(figure))
}

/// The file beside the page that has all of a figure.
pub fn json_name(figure: &Figure) -> String {
    format!("{}.json", stem(figure))
}

/// A figure's name as that of a file, and of an anchor: nothing in it leads out of the page's directory.
fn stem(figure: &Figure) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    figure.figure.chars().map(plain).collect()
}

impl Page {
    /// The page, as HTML.
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(include_str!("page.css"))) }
                }
                body {
                    main {
                        h1 { (self.title) }
                        @if !self.conclusions.is_empty() {
                            section.conclusions {
                                h2 { "Conclusions" }
                                ul { @for conclusion in &self.conclusions { li { (conclusion) } } }
                            }
                        }
                        @if self.sections.len() > 2 { (self.contents()) }
                        @for (index, section) in self.sections.iter().enumerate() { (section.markup(index)) }
                    }
                }
            }
        };
        let mut text = page.into_string();
        text.push('\n');
        text
    }

    fn contents(&self) -> Markup {
        html! {
            nav {
                h2 { "Contents" }
                ol {
                    @for (index, section) in self.sections.iter().enumerate() {
                        li { a href={ "#section-" (index + 1) } { (section.heading) } }
                    }
                }
            }
        }
    }
}

impl Section {
    fn markup(&self, index: usize) -> Markup {
        html! {
            section id={ "section-" (index + 1) } {
                h2 { (self.heading) }
                @if let Some(figure) = &self.figure { (chart_of(figure)) }
                (self.basis.markup())
                @if let Some(figure) = &self.figure { (claims_of(figure)) (sources_of(figure)) }
                @for table in &self.tables { (table.markup()) }
            }
        }
    }
}

impl Basis {
    fn markup(&self) -> Markup {
        let parts =
            [("Measured", &self.measured), ("Simulated", &self.simulated), ("Assumed", &self.assumed)];
        html! {
            dl.basis {
                @for (name, text) in parts {
                    dt { (name) }
                    dd { @if text.is_empty() { "nothing" } @else { (text) } }
                }
            }
        }
    }
}

impl Table {
    fn is_of_numbers(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.clone().next().is_some() && cells.all(|cell| is_number(cell))
    }

    fn markup(&self) -> Markup {
        html! {
            div.wide {
                table {
                    @if !self.caption.is_empty() { caption { (self.caption) } }
                    thead {
                        tr {
                            @for (index, name) in self.header.iter().enumerate() {
                                th.number[self.is_of_numbers(index)] scope="col" { (name) }
                            }
                        }
                    }
                    tbody { @for row in &self.rows { tr { @for cell in row { (cell_of(cell)) } } } }
                }
            }
        }
    }
}

fn cell_of(text: &str) -> Markup {
    html! { td.number[is_number(text)] { (text) } }
}

fn is_number(text: &str) -> bool {
    text.starts_with(|letter: char| letter == '-' || letter.is_ascii_digit())
        && text.chars().all(|letter| letter.is_ascii_digit() || "+-.,e% ".contains(letter))
}

fn chart_of(figure: &Figure) -> Markup {
    let lines: Vec<&str> = figure.series.iter().map(|series| series.scheme.as_str()).collect();
    let label = format!("{}: {} over {}, of {}", figure.figure, figure.y, figure.x, lines.join("; "));
    html! {
        div.wide { div.chart role="img" aria-label=(label) { (PreEscaped(chart::svg(figure))) } }
        @if figure.x.chars().count() > chart::NAME_LETTERS_MAX { p.sources { "Below the chart: " (figure.x) "." } }
    }
}

/// Columns of claims, and which hold numbers.
const COLUMNS: [(&str, bool); 5] =
    [("claim", false), ("published", true), ("here", true), ("holds", false), ("why", false)];

/// What the paper says beside what was seen here; then what was seen beyond the paper.
fn claims_of(figure: &Figure) -> Markup {
    let count = figure.published.len().max(figure.ours.len());
    if count == 0 {
        return html! {};
    }
    let rows = (0..count).map(|index| (figure.published.get(index), figure.ours.get(index)));
    html! {
        div.wide {
            table.claims {
                caption { "What is published, and what was seen here" }
                thead {
                    tr { @for (name, is_number) in COLUMNS { th.number[is_number] scope="col" { (name) } } }
                }
                tbody { @for (published, ours) in rows { (claim_of(published, ours)) } }
            }
        }
    }
}

fn claim_of(published: Option<&Claim>, ours: Option<&Seen>) -> Markup {
    let claim = published.map(|claim| &claim.claim).or(ours.map(|seen| &seen.claim));
    let written = |value: Option<f64>| value.map_or("–".to_owned(), |value| chart::number(value, DIGITS));
    let (holds, class) = match (published, ours) {
        (_, None) => ("not looked at", "open"),
        // Nothing is claimed that could fail, unless what was seen says itself that it does.
        (None, Some(seen)) if seen.holds && !seen.must => ("–", "open"),
        (_, Some(seen)) if seen.holds => ("yes", "yes"),
        (_, Some(_)) => ("no", "no"),
    };
    html! {
        tr {
            td { @if let Some(claim) = claim { (claim) } }
            td.number { (written(published.map(|claim| claim.value))) }
            td.number { (written(ours.map(|seen| seen.value))) }
            td class=(class) { (holds) }
            td { @if let Some(seen) = ours { (seen.why) } }
        }
    }
}

fn sources_of(figure: &Figure) -> Markup {
    html! {
        p.sources {
            "Values of " (figure.figure) ": "
            a href=(csv_name(figure)) { "CSV" } ", "
            a href=(json_name(figure)) { "JSON" }
            ". Seed " (figure.seed)
            @if !figure.commit.is_empty() { ", commit " code { (figure.commit) } }
            "."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Series;

    fn figure(name: &str) -> Figure {
        let claim = Claim { claim: "twice as fast".to_owned(), value: 2.0, mark: None };
        let seen = |claim: &str, value, holds| Seen {
            claim: claim.to_owned(),
            value,
            holds,
            why: "fewer <hops>".to_owned(),
            must: false,
        };
        Figure {
            figure: name.to_owned(),
            x: "servers".to_owned(),
            y: "time".to_owned(),
            unit: "s".to_owned(),
            series: vec![Series { scheme: name.to_owned(), points: vec![[1.0, 2.0]], half: vec![0.1] }],
            published: vec![claim],
            ours: vec![seen("twice as fast", 1.234567, false), seen("further", 3.0, true)],
            seed: 7,
            commit: "abc".to_owned(),
            costs: None,
        }
    }

    fn page(name: &str) -> Page {
        let table = Table {
            caption: name.to_owned(),
            header: vec![name.to_owned(), "share".to_owned()],
            rows: vec![vec![name.to_owned(), "40 %".to_owned()]],
        };
        let basis = Basis { simulated: name.to_owned(), ..Basis::default() };
        let section =
            Section { heading: name.to_owned(), basis, figure: Some(figure(name)), tables: vec![table] };
        Page { title: name.to_owned(), conclusions: vec![name.to_owned()], sections: vec![section; 3] }
    }

    #[test]
    fn conclusions_come_first_and_every_figure_has_its_basis_claims_and_sources() {
        let html = page("mayflower-3").html();
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text} in {html}"));
        assert!(at("Conclusions") < at("Contents") && at("Contents") < at("<svg"));
        for part in
            ["Measured", "Simulated", "Assumed", "href=\"mayflower-3.csv\"", "href=\"mayflower-3.json\""]
        {
            assert_eq!(html.matches(part).count(), 3, "{part}");
        }
        assert!(html.contains("<td class=\"number\">1.235</td><td class=\"no\">no</td>"));
        assert!(html.contains("<td class=\"number\">40 %</td>"));
        assert!(html.contains("<dd>nothing</dd>"));
    }

    #[test]
    fn names_are_text_whatever_is_in_them() {
        let html = page("../<script>alert('x')</script>&\"").html();
        assert!(!html.contains("<script") && !html.contains("../<"));
        assert!(html.contains("&lt;script&gt;"));
        assert!(html.contains("href=\"----script-alert--x----script---.csv\""));
    }

    #[test]
    fn a_page_asks_for_nothing_from_elsewhere() {
        let html = page("one").html();
        let urls: Vec<&str> = html.match_indices("http").map(|(at, _)| &html[at..at + 26]).collect();
        assert!(urls.iter().all(|url| *url == "http://www.w3.org/2000/svg"), "{urls:?}");
        assert!(!html.contains("src=") && !html.contains("url(") && !html.contains("@import"));
    }

    #[test]
    fn the_same_page_has_the_same_bytes_and_an_empty_one_is_a_page() {
        assert_eq!(page("one").html(), page("one").html());
        assert!(Page::default().html().ends_with("</main></body></html>\n"));
    }
}
