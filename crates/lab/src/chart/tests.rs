use super::*;
use crate::figure::Claim;

fn series(scheme: &str, points: &[[f64; 2]], half: &[f64]) -> Series {
    Series { scheme: scheme.to_owned(), points: points.to_vec(), half: half.to_vec() }
}

fn figure(series: Vec<Series>) -> Figure {
    Figure {
        figure: "test".to_owned(),
        x: "servers".to_owned(),
        y: "operations".to_owned(),
        unit: "1/s".to_owned(),
        series,
        published: Vec::new(),
        ours: Vec::new(),
        seed: 1,
        commit: String::new(),
        costs: None,
    }
}

fn marked(mut figure: Figure, scheme: &str, x: Option<f64>, y: f64) -> Figure {
    let mark = Some(Mark { scheme: Some(scheme.to_owned()), x, y });
    figure.published.push(Claim { claim: "as printed".to_owned(), value: y, mark });
    figure
}

/// Values of an attribute, as numbers. All elements of these charts are on lines of their own.
fn values(svg: &str, attribute: &str) -> Vec<f64> {
    let key = format!(" {attribute}=\"");
    let all = svg.match_indices(&key).map(|(at, key)| &svg[at + key.len()..]);
    let until_quote = all.filter_map(|rest| rest.split('"').next());
    until_quote.flat_map(|text| text.split([' ', ','])).filter_map(|text| text.parse().ok()).collect()
}

/// Tags close in order, and everything is within the view box.
fn check(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "{text}");
        match (tag.strip_prefix('/'), tag.ends_with('/')) {
            (Some(name), _) => assert_eq!(open.pop(), Some(name)),
            (None, true) => {}
            (None, false) => open.extend(tag.split(' ').next()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let view = values(svg, "viewBox");
    let (width, height) = (view[2], view[3]);
    for (attributes, most) in [(["x", "x1", "x2", "cx"], width), (["y", "y1", "y2", "cy"], height)] {
        for attribute in attributes {
            assert!(values(svg, attribute).iter().all(|value| (0.0..=most).contains(value)), "{attribute}");
        }
    }
    let points = values(svg, "points");
    let inside = |pair: &[f64]| (0.0..=width).contains(&pair[0]) && (0.0..=height).contains(&pair[1]);
    assert!(points.chunks(2).all(inside), "{points:?}");
}

#[test]
fn every_line_point_and_name_is_in_the_chart() {
    let one = series("chord", &[[100.0, 1.0], [500.0, 2.0], [2000.0, 3.0]], &[0.1, 0.2, 0.0]);
    let svg = svg(&figure(vec![one, series("hba", &[[100.0, 4.0], [2000.0, 4.5]], &[])]));
    check(&svg);
    for text in ["chord", "hba", "servers", "operations (1/s)", "2,000", WHISKERS] {
        assert!(svg.contains(&format!(">\n{text}\n<")), "{text}");
    }
    // Triangles of chord, one more in the legend; circles of hba, one more there.
    assert_eq!(svg.matches("<polygon").count(), 4);
    assert_eq!(svg.matches("<circle").count(), 3);
    assert!(!svg.contains(PUBLISHED));
}

#[test]
fn what_is_published_stands_hollow_beside_ours() {
    let bare = figure(vec![series("in-network", &[[1.0, 5.0], [2.0, 6.0]], &[])]);
    let point = svg(&marked(bare.clone(), "in-network", Some(2.0), 9.0));
    check(&point);
    assert!(point.contains(PUBLISHED));
    assert_eq!(point.matches("fill=\"none\" stroke=\"#0072B2\"").count(), 1);
    let level = svg(&marked(bare.clone(), "in-network", None, 9.0));
    check(&level);
    assert!(level.matches("<polyline").count() > svg(&bare).matches("<polyline").count() + 20);
    // Of a scheme that is not drawn: grey, as the sample of the legend is.
    let stranger = svg(&marked(bare, "stranger", Some(2.0), 9.0));
    assert_eq!(stranger.matches("fill=\"none\" stroke=\"#7A7A7A\"").count(), 2);
}

#[test]
fn many_lines_are_drawn_in_panels() {
    let names = ["chord", "one-hop", "hash", "in-network", "hba"];
    let ratios = ["ratio 1", "ratio 2", "ratio 100"];
    let all = ratios.iter().flat_map(|ratio| names.iter().map(move |name| format!("{name}, {ratio}")));
    let lines: Vec<Series> = all.map(|name| series(&name, &[[1.0, 1.0], [2.0, 2.0]], &[])).collect();
    let few = svg(&figure(lines[..LINES_MAX].to_vec()));
    check(&few);
    assert!(few.contains("\nchord, ratio 2\n"));
    let many = marked(figure(lines), "hash, ratio 100", Some(1.0), 1.5);
    let many = svg(&many);
    check(&many);
    for text in names.iter().chain(&ratios) {
        assert_eq!(many.matches(&format!(">\n{text}\n<")).count(), 1, "{text}");
    }
}

#[test]
fn what_lines_are_compared_with_is_in_each_panel() {
    let names = (1..=12).map(|number| format!("hash, {} servers, set {}", number, number % 2));
    let mut lines: Vec<Series> = names.map(|name| series(&name, &[[1.0, 1.0]], &[])).collect();
    lines.push(series("ideal", &[[1.0, 2.0]], &[]));
    let figure = figure(lines);
    let panels = panels(&figure);
    assert_eq!(panels.len(), 12);
    assert!(panels.iter().all(|panel| panel.series[0].scheme == "ideal" && panel.series.len() == 2));
}

#[test]
fn poor_values_are_no_reason_to_panic() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE, 0.0, -0.0, -1.0];
    let mut figures = vec![figure(Vec::new()), figure(vec![series("none", &[], &[])])];
    for value in odd {
        figures.push(figure(vec![series("one", &[[value, value]], &[value])]));
        figures.push(figure(vec![series("x", &[[value, 1.0], [2.0, 3.0]], &[value, 1.0, 1.0])]));
        let some = figure(vec![series("y", &[[1.0, 1.0], [2.0, value], [3.0, 5.0]], &[0.5])]);
        figures.push(marked(marked(some, "y", Some(value), value), "y", None, value));
    }
    let long = "a very long name <of> a scheme & \"more\" ".repeat(9);
    let mut named = figure((0..30).map(|_| series(&long, &[[1.0, 1.0]], &[])).collect());
    (named.x, named.y) = (long.clone(), long);
    figures.push(named);
    for figure in &figures {
        check(&svg(figure));
    }
    assert!(svg(&figures[0]).contains("no points"));
}

#[test]
fn a_value_that_is_missing_leaves_a_gap() {
    let points = [[1.0, 1.0], [2.0, 1.0], [3.0, f64::NAN], [4.0, 1.0], [5.0, 1.0]];
    let svg = svg(&figure(vec![series("chord", &points, &[])]));
    check(&svg);
    // Two runs, and the sample of the legend.
    assert_eq!(svg.matches("fill=\"none\" opacity=\"1\" stroke=\"#D55E00\"").count(), 3);
}

#[test]
fn the_same_figure_gives_the_same_bytes() {
    let make =
        || figure(vec![series("new", &[[1.0, 0.1], [10.0, 1e4]], &[0.2, 3.0]), series("drop", &[], &[])]);
    assert_eq!(svg(&make()), svg(&make()));
}
