//! A figure as a chart in SVG: a line for each scheme, with what the paper says beside it.
//!
//! Invariants: the same figure gives the same bytes; a scheme looks the same in every figure; everything lies
//! within the view box. No values are a reason to panic: what is not finite leaves a gap in its line. Where
//! lines are many, they are drawn in panels with the same axes, by what stands behind the comma of their
//! names.

mod axis;
mod style;

pub(crate) use axis::number;

use crate::figure::{Figure, Mark, Series};
use axis::{Axis, Zero, is_drawable};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::BTreeMap;
use std::io;
use style::{GREY, Marker, Stroke, Style, base_of, styles};

/// More lines than this in one panel cannot be told apart.
const LINES_MAX: usize = 10;
/// Pixels, as everything below: the picture's width, and the height of a panel, alone or one of several.
const WIDTH: i32 = 720;
const HEIGHT_ALONE: i32 = 400;
const HEIGHT_PANEL: i32 = 300;
/// Above a panel for its name.
const CAPTION: i32 = 26;
/// Left of a panel beside the labels of its ticks, and below it.
const LEFT: i32 = 36;
const BELOW: i32 = 44;
const MARGIN: i32 = 12;
/// The last label of an axis reaches beyond it.
const RIGHT: i32 = 26;
/// Of the legend.
const ROW: i32 = 22;
const SAMPLE: i32 = 40;
/// Fonts are `sans-serif` of whoever looks, so text is measured by a width that most of its letters have.
const FONT: f64 = 15.0;
const LETTER: f64 = 6.9;
/// Half a marker, and half the end of an error bar.
const MARKER: i32 = 4;

/// Lines of more points have small markers.
const DENSE_MIN: usize = 12;
/// What the library is told an axis spans. Its own axes of floating-point numbers never end on some ranges.
const STEPS: i32 = 100_000;

const TEXT: RGBColor = RGBColor(0x1D, 0x27, 0x33);
const AXIS: RGBColor = RGBColor(0x44, 0x54, 0x6A);
const GRID: RGBColor = RGBColor(0xE1, 0xE5, 0xEB);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;
type Pixel = (i32, i32);

/// A longer name of an axis may be cut in the chart: it has to be told in full beside it.
pub(crate) const NAME_LETTERS_MAX: usize = 36;

/// The chart of a figure, in SVG.
pub fn svg(figure: &Figure) -> String {
    let panels = panels(figure);
    let looks = Looks::of(figure, &panels);
    let columns = if panels.len() > 1 { 2 } else { 1 };
    let height = if panels.len() > 1 { HEIGHT_PANEL } else { HEIGHT_ALONE };
    let rows = panels.len().div_ceil(columns as usize).max(1) as i32;
    let legend = Legend::of(&looks, figure);
    let whole = (WIDTH as u32, (rows * height + legend.height()) as u32);
    let mut text = String::new();
    let drawn = draw(&mut text, whole, |root| {
        let axes = Axes::of(figure, WIDTH / columns);
        for (index, panel) in panels.iter().enumerate() {
            let (column, row) = (index as i32 % columns, index as i32 / columns);
            let width = WIDTH / columns;
            let place = Place { left: column * width, top: row * height, width, height };
            draw_panel(root, place, panel, &looks, &axes)?;
        }
        legend.draw(root, rows * height)
    });
    match drawn {
        Ok(()) => text,
        // Writing to a string does not fail; the library's interface has to allow for files.
        Err(_) => String::from("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1 1\"></svg>\n"),
    }
}

fn draw(text: &mut String, size: (u32, u32), within: impl FnOnce(&Area) -> Drawn) -> Drawn {
    let root = SVGBackend::with_string(text, size).into_drawing_area();
    root.fill(&WHITE)?;
    within(&root)?;
    root.present()
}

/// Lines that are drawn over the same axes.
struct Panel<'a> {
    /// Empty if there is but one.
    name: String,
    series: Vec<&'a Series>,
    marks: Vec<&'a Mark>,
}

/// All lines together, or where there are too many by what their names have behind the comma; lines that have
/// none are in each panel, to be compared with.
fn panels(figure: &Figure) -> Vec<Panel<'_>> {
    let mut groups: Vec<(&str, Vec<&Series>)> = Vec::new();
    let is_split = figure.series.len() > LINES_MAX;
    for series in &figure.series {
        let name =
            if is_split { series.scheme.split_once(", ").map_or("", |(_, change)| change) } else { "" };
        match groups.iter_mut().find(|(other, _)| *other == name) {
            Some((_, group)) => group.push(series),
            None => groups.push((name, vec![series])),
        }
    }
    if let Some(at) = groups.iter().position(|(name, _)| name.is_empty()).filter(|_| groups.len() > 1) {
        let (_, common) = groups.remove(at);
        groups.iter_mut().for_each(|(_, group)| drop(group.splice(0..0, common.iter().copied())));
    }
    let parts = groups.iter().flat_map(|(name, group)| {
        group.chunks(LINES_MAX).enumerate().map(move |(index, part)| (*name, index, part))
    });
    let mut panels: Vec<Panel> = parts
        .map(|(name, index, part)| Panel {
            name: if index == 0 { name.to_owned() } else { format!("{name} ({})", index + 1) },
            series: part.to_vec(),
            marks: Vec::new(),
        })
        .collect();
    if panels.is_empty() {
        panels.push(Panel { name: String::new(), series: Vec::new(), marks: Vec::new() });
    }
    for mark in figure.marks() {
        let of =
            |panel: &Panel| panel.series.iter().any(|series| Some(&series.scheme) == mark.scheme.as_ref());
        match panels.iter_mut().find(|panel| of(panel)) {
            Some(panel) => panel.marks.push(mark),
            None => panels.iter_mut().for_each(|panel| panel.marks.push(mark)),
        }
    }
    panels
}

/// How the lines of a figure look.
struct Looks<'a> {
    styles: BTreeMap<&'a str, Style>,
    /// In the order of the lines.
    names: Vec<&'a str>,
    /// Panels have in their own name what is behind the comma.
    by_base: bool,
}

impl<'a> Looks<'a> {
    fn of(figure: &'a Figure, panels: &[Panel]) -> Looks<'a> {
        let by_base = panels.len() > 1;
        let all = figure.series.iter().map(|series| series.scheme.as_str());
        let mut names: Vec<&str> = Vec::new();
        for name in all.map(|name| if by_base { base_of(name) } else { name }) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Looks { styles: styles(names.iter().copied()), names, by_base }
    }

    fn style(&self, scheme: &str) -> Style {
        let name = if self.by_base { base_of(scheme) } else { scheme };
        let unknown = Style { colour: GREY, marker: Marker::Circle, stroke: Stroke::Solid };
        self.styles.get(name).copied().unwrap_or(unknown)
    }
}

fn steps(position: f64) -> i32 {
    (position * f64::from(STEPS)).round() as i32
}

struct Axes {
    x: Axis,
    y: Axis,
    x_name: String,
    y_name: String,
    /// Pixels left of a panel.
    left: i32,
}

impl Axes {
    /// The same for all panels of this width, so that they can be compared.
    fn of(figure: &Figure, width: i32) -> Axes {
        let points = || figure.series.iter().flat_map(|series| series.points.iter().copied());
        let whiskers = figure.series.iter().flat_map(|series| {
            let pairs = series.points.iter().zip(&series.half);
            pairs.flat_map(|(point, half)| [point[1] - half, point[1] + half])
        });
        let marked = || figure.marks().filter_map(|mark| Some([mark.x?, mark.y]));
        let xs = points().chain(marked()).map(|point| point[0]);
        let ys = points().map(|point| point[1]).chain(figure.marks().map(|mark| mark.y));
        // An interval that crosses zero does not take the logarithmic axis from its line: it is cut off.
        let is_positive = points().all(|point| point[1] > 0.0);
        let whiskers = whiskers.filter(|value| *value > 0.0 || !is_positive);
        let unit = if figure.unit.is_empty() { String::new() } else { format!(" ({})", figure.unit) };
        let y = Axis::of(ys.chain(whiskers), Zero::Shown, f64::INFINITY);
        let longest = y.ticks.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
        let left = MARGIN + LEFT + (LETTER * longest as f64) as i32;
        Axes {
            x: Axis::of(xs, Zero::Free, f64::from(width - left - RIGHT) / LETTER),
            y,
            left,
            x_name: figure.x.clone(),
            y_name: format!("{}{unit}", figure.y),
        }
    }
}

#[derive(Clone, Copy)]
struct Place {
    left: i32,
    top: i32,
    width: i32,
    height: i32,
}

fn draw_panel(root: &Area, place: Place, panel: &Panel, looks: &Looks, axes: &Axes) -> Drawn {
    let Place { left, top, width, height } = place;
    let area = root.clone().shrink((left, top), (width, height));
    let text = |colour: &RGBColor| ("sans-serif", FONT).into_font().color(colour);
    let letters = |pixels: i32| (f64::from(pixels) / LETTER) as usize;
    let mut chart = ChartBuilder::on(&area)
        .margin_top(CAPTION)
        .margin_right(RIGHT)
        .margin_left(MARGIN)
        .margin_bottom(MARGIN)
        .x_label_area_size(BELOW)
        .y_label_area_size(axes.left - MARGIN)
        .build_cartesian_2d(
            (0..STEPS).with_key_points(axes.x.ticks.iter().map(|tick| steps(tick.0)).collect()),
            (0..STEPS).with_key_points(axes.y.ticks.iter().map(|tick| steps(tick.0)).collect()),
        )?;
    let label = |axis: &Axis, at: &i32| {
        let tick = axis.ticks.iter().find(|tick| steps(tick.0) == *at);
        tick.map_or_else(String::new, |tick| tick.1.clone())
    };
    chart
        .configure_mesh()
        .max_light_lines(0)
        .bold_line_style(GRID)
        .axis_style(AXIS)
        .label_style(text(&TEXT))
        .axis_desc_style(text(&TEXT))
        .x_label_formatter(&|at| label(&axes.x, at))
        .y_label_formatter(&|at| label(&axes.y, at))
        .x_desc(cut(&axes.x_name, letters(width - axes.left)))
        .y_desc(cut(&axes.y_name, letters(height - CAPTION)))
        .draw()?;
    let middle = left + axes.left + (width - axes.left - RIGHT) / 2;
    let bold = ("sans-serif", FONT, FontStyle::Bold).into_font().color(&TEXT);
    let caption = bold.pos(Pos::new(HPos::Center, VPos::Center));
    root.draw(&Text::new(cut(&panel.name, letters(width)), (middle, top + CAPTION / 2), caption.clone()))?;
    let at = |x: f64, y: f64| {
        (is_drawable(x) && is_drawable(y))
            .then(|| chart.backend_coord(&(steps(axes.x.position(x)), steps(axes.y.position(y)))))
    };
    let ends = chart.plotting_area().get_pixel_range().0;
    let mut is_empty = true;
    for series in &panel.series {
        let style = looks.style(&series.scheme);
        let pixels: Vec<Option<Pixel>> = series.points.iter().map(|[x, y]| at(*x, *y)).collect();
        let is_dense = pixels.len() > DENSE_MIN;
        is_empty &= pixels.iter().all(Option::is_none);
        for run in pixels.split(Option::is_none) {
            draw_line(root, run.iter().flatten().copied().collect(), style)?;
        }
        for ([x, y], half) in series.points.iter().zip(&series.half).filter(|(_, half)| **half > 0.0) {
            if let (Some(low), Some(high)) = (at(*x, y - half), at(*x, y + half)) {
                draw_whisker(root, low, high, style)?;
            }
        }
        for pixel in pixels.into_iter().flatten() {
            draw_marker(root, pixel, style, if is_dense { Fill::Small } else { Fill::Full })?;
        }
    }
    for mark in &panel.marks {
        let style = looks.style(mark.scheme.as_deref().unwrap_or_default());
        if let Some(pixel) = mark.x.and_then(|x| at(x, mark.y)) {
            draw_marker(root, pixel, style, Fill::Hollow)?;
        } else if mark.x.is_none() && is_drawable(mark.y) {
            let (_, y) = chart.backend_coord(&(0, steps(axes.y.position(mark.y))));
            draw_dashes(root, vec![(ends.start, y), (ends.end, y)], style.colour, 3)?;
        }
    }
    if is_empty {
        root.draw(&Text::new("no points", (middle, top + height / 2), caption))?;
    }
    Ok(())
}

/// Whether a marker is ours, or published.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    Full,
    /// Ours, of a line with many points.
    Small,
    Hollow,
}

fn draw_line(root: &Area, pixels: Vec<Pixel>, style: Style) -> Drawn {
    if pixels.len() < 2 {
        return Ok(());
    }
    match style.stroke {
        Stroke::Solid => root.draw(&PathElement::new(pixels, style.colour.stroke_width(2))),
        Stroke::Dashed => draw_dashes(root, pixels, style.colour, 7),
    }
}

fn draw_dashes(root: &Area, pixels: Vec<Pixel>, colour: RGBColor, dash: i32) -> Drawn {
    root.draw(&DashedPathElement::new(pixels, dash, 4, colour.stroke_width(2)))
}

fn draw_whisker(root: &Area, low: Pixel, high: Pixel, style: Style) -> Drawn {
    let line = |from: Pixel, to: Pixel| PathElement::new(vec![from, to], style.colour.stroke_width(1));
    root.draw(&line(low, high))?;
    for (x, y) in [low, high] {
        root.draw(&line((x - MARKER, y), (x + MARKER, y)))?;
    }
    Ok(())
}

fn draw_marker(root: &Area, (x, y): Pixel, style: Style, fill: Fill) -> Drawn {
    // Hollow ones are larger: they have to be seen around ours when the two agree.
    let r = match fill {
        Fill::Full => MARKER,
        Fill::Small => MARKER - 2,
        Fill::Hollow => MARKER + 3,
    };
    let line = style.colour.stroke_width(2);
    let corners = match style.marker {
        Marker::Circle if fill != Fill::Hollow => {
            return root.draw(&Circle::new((x, y), r, style.colour.filled()));
        }
        Marker::Circle => return root.draw(&Circle::new((x, y), r, line)),
        Marker::Square => vec![(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)],
        Marker::Triangle => vec![(x, y - r - 1), (x + r + 1, y + r), (x - r - 1, y + r)],
        Marker::Diamond => vec![(x, y - r - 2), (x + r + 1, y), (x, y + r + 2), (x - r - 1, y)],
        Marker::Cross if fill != Fill::Hollow => {
            root.draw(&PathElement::new(vec![(x - r, y - r), (x + r, y + r)], line))?;
            return root.draw(&PathElement::new(vec![(x - r, y + r), (x + r, y - r)], line));
        }
        // A hollow cross would look as ours: a box that stands on its corner, flat.
        Marker::Cross => vec![(x, y - r + 2), (x + r + 3, y), (x, y + r - 2), (x - r - 3, y)],
    };
    match fill {
        Fill::Full | Fill::Small => root.draw(&Polygon::new(corners, style.colour.filled())),
        Fill::Hollow => {
            let closed = corners.iter().chain(corners.first()).copied().collect::<Vec<_>>();
            root.draw(&PathElement::new(closed, line))
        }
    }
}

/// Below the panels, so that it never lies on a line.
struct Legend<'a> {
    entries: Vec<(&'a str, Option<Style>, Fill)>,
    columns: i32,
}

const PUBLISHED: &str = "hollow or dotted: published, in the colour of its scheme";
const WHISKERS: &str = "bars: 95 % confidence interval over seeds";

impl<'a> Legend<'a> {
    fn of(looks: &Looks<'a>, figure: &Figure) -> Legend<'a> {
        let ours = looks.names.iter().map(|name| (*name, looks.styles.get(name).copied(), Fill::Full));
        let mut entries: Vec<_> = ours.collect();
        if figure.marks().next().is_some() {
            let style = Style { colour: GREY, marker: Marker::Circle, stroke: Stroke::Solid };
            entries.push((PUBLISHED, Some(style), Fill::Hollow));
        }
        if figure.series.iter().any(|series| series.half.iter().any(|half| *half > 0.0)) {
            entries.push((WHISKERS, None, Fill::Full));
        }
        let letters = looks.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let widest = SAMPLE + 24 + (LETTER * letters as f64) as i32;
        Legend { entries, columns: ((WIDTH - 2 * MARGIN) / widest.max(1)).clamp(1, 4) }
    }

    fn width(&self) -> i32 {
        (WIDTH - 2 * MARGIN) / self.columns
    }

    /// Row and column of each entry, and how many rows there are. What is longer than a column has a row.
    fn places(&self) -> (Vec<(i32, i32)>, i32) {
        let (mut row, mut column) = (0, 0);
        let mut places = Vec::new();
        for (name, _, _) in &self.entries {
            let wanted = SAMPLE + (LETTER * name.chars().count() as f64) as i32;
            let columns = (wanted / self.width() + 1).min(self.columns);
            if column + columns > self.columns {
                (row, column) = (row + 1, 0);
            }
            places.push((row, column));
            column += columns;
        }
        (places, row + 1)
    }

    fn height(&self) -> i32 {
        self.places().1 * ROW + MARGIN
    }

    fn draw(&self, root: &Area, top: i32) -> Drawn {
        let text = ("sans-serif", FONT).into_font().color(&TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        for ((name, style, fill), (row, column)) in self.entries.iter().zip(self.places().0) {
            let (x, y) = (2 * MARGIN + column * self.width(), top + row * ROW + ROW / 2);
            if let Some(style) = style {
                if *fill != Fill::Hollow {
                    draw_line(root, vec![(x, y), (x + 26, y)], *style)?;
                }
                draw_marker(root, (x + 13, y), *style, *fill)?;
            }
            let x = if style.is_some() { x + SAMPLE - 6 } else { x };
            let letters = (f64::from(WIDTH - MARGIN - x) / LETTER) as usize;
            root.draw(&Text::new(cut(name, letters), (x, y), text.clone()))?;
        }
        Ok(())
    }
}

/// At most so many letters.
fn cut(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
