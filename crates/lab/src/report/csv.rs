//! A figure as comma-separated values (RFC 4180, with line feeds alone).
//!
//! Invariant: numbers are the shortest that read back as the same ones.

use crate::figure::Figure;
use std::borrow::Cow;
use std::fmt::Write;

/// The points of a figure, a line each: `figure,scheme,x,y,half`. `half` is empty where there is none.
pub fn csv_of(figure: &Figure) -> String {
    let mut text = String::from("figure,scheme,x,y,half\n");
    let name = quoted(&figure.figure);
    for series in &figure.series {
        let scheme = quoted(&series.scheme);
        for (index, [x, y]) in series.points.iter().enumerate() {
            let half = series.half.get(index).map_or_else(String::new, f64::to_string);
            let _ = writeln!(text, "{name},{scheme},{x},{y},{half}");
        }
    }
    text
}

fn quoted(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        return Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")));
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Series;
    use proptest::prelude::*;

    /// Fields of the whole text, by the grammar of the RFC.
    fn fields(text: &str) -> Vec<Vec<String>> {
        let (mut lines, mut line, mut field) = (Vec::new(), Vec::new(), String::new());
        let (mut within, mut letters) = (false, text.chars().peekable());
        while let Some(letter) = letters.next() {
            match letter {
                '"' if within && letters.peek() == Some(&'"') => field.extend(letters.next()),
                '"' => within = !within,
                ',' if !within => line.push(std::mem::take(&mut field)),
                '\n' if !within => {
                    line.push(std::mem::take(&mut field));
                    lines.push(std::mem::take(&mut line));
                }
                letter => field.push(letter),
            }
        }
        lines
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            name in any::<String>(),
            scheme in any::<String>(),
            points in prop::collection::vec(any::<[f64; 2]>(), 0..5),
            half in prop::collection::vec(any::<f64>(), 0..5),
        ) {
            let series = vec![Series { scheme, points, half }];
            let figure = Figure {
                figure: name,
                x: String::new(),
                y: String::new(),
                unit: String::new(),
                series,
                published: Vec::new(),
                ours: Vec::new(),
                seed: 0,
                commit: String::new(),
                costs: None,
            };
            let read = fields(&csv_of(&figure));
            prop_assert_eq!(read[0].join(","), "figure,scheme,x,y,half");
            prop_assert_eq!(read.len(), 1 + figure.series[0].points.len());
            for (index, line) in read[1..].iter().enumerate() {
                let series = &figure.series[0];
                prop_assert_eq!((&line[0], &line[1]), (&figure.figure, &series.scheme));
                let number = |text: &str| text.parse::<f64>().ok();
                prop_assert_eq!(number(&line[2]), Some(series.points[index][0]));
                prop_assert_eq!(number(&line[3]), Some(series.points[index][1]));
                prop_assert_eq!(number(&line[4]), series.half.get(index).copied());
            }
        }
    }
}
