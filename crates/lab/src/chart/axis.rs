//! The axis of a chart: which values it spans, on which scale, and where its ticks stand.
//!
//! Invariants: positions are shares of the axis from 0 to 1 and never NaN, whatever the values; ticks are few
//! and within the axis. It must not know pixels.

use std::collections::BTreeSet;

/// Values that span more than this have a logarithmic axis.
const LOG_RATIO: f64 = 100.0;
/// An axis of numbers that are all above this share of their maximum does not begin at zero: lines that lie
/// close together could not be told apart.
const ZERO_SHARE: f64 = 0.8;
/// Left free at the ends, as a share.
const PAD: f64 = 0.04;
/// About so many steps between ticks.
const STEPS: f64 = 6.0;
/// No axis has more ticks.
const TICKS_MAX: usize = 12;
/// Points so few have their own values as ticks, where their labels do not touch.
const OWN_TICKS_MAX: usize = 9;
/// Between two labels side by side, in letters.
const LETTERS_BETWEEN: f64 = 2.0;
/// What is beyond cannot be drawn: spans and steps have to stay finite.
const VALUE_MAX: f64 = 1e300;

/// Whether an axis has to show zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zero {
    /// Where that does not flatten the lines.
    Shown,
    /// It goes from the least to the greatest value, with ticks where the values are.
    Free,
}

/// An axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    is_log: bool,
    low: f64,
    high: f64,
    /// Ticks by position, with their labels.
    pub(super) ticks: Vec<(f64, String)>,
}

/// Whether a value has a place on any axis.
pub(super) fn is_drawable(value: f64) -> bool {
    value.abs() < VALUE_MAX
}

impl Axis {
    /// Over these values; those that are not drawable do not count. Labels stand side by side along an axis
    /// of so many letters; it is infinite if they stand above each other.
    pub(super) fn of(values: impl Iterator<Item = f64>, zero: Zero, letters: f64) -> Axis {
        let values: Vec<f64> = values.filter(|value| is_drawable(*value)).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (least, most) = if values.is_empty() { (0.0, 1.0) } else { (least, most) };
        let is_log = least > 0.0 && most / least > LOG_RATIO;
        let mut axis = Axis { is_log, low: 0.0, high: 1.0, ticks: Vec::new() };
        let (low, high) = (axis.scaled(least), axis.scaled(most));
        let room = (PAD * (high - low)).max(1e-9 * low.abs().max(high.abs())).max(1e-290);
        (axis.low, axis.high) = match zero {
            _ if low == high => (low - (0.1 * low.abs()).max(0.1), high + (0.1 * high.abs()).max(0.1)),
            Zero::Shown if !is_log && least >= 0.0 && least < ZERO_SHARE * most => (0.0, high + room),
            _ => (low - room, high + room),
        };
        let own = if zero == Zero::Free { axis.own_ticks(&values) } else { None };
        axis.ticks = own.filter(|own| fits(own, letters)).unwrap_or_else(|| {
            let all = axis.labelled(if is_log { axis.log_ticks() } else { axis.linear_ticks() });
            // Every second one, every third one ... until they do not touch.
            let mut thinned = (1..=TICKS_MAX).map(|each| all.iter().step_by(each).cloned().collect());
            thinned.find(|ticks: &Vec<_>| fits(ticks, letters)).unwrap_or_default()
        });
        axis
    }

    fn labelled(&self, values: Vec<f64>) -> Vec<(f64, String)> {
        let ticks = values.into_iter().map(|value| (self.position(value), number(value, 6)));
        ticks.take(TICKS_MAX).collect()
    }

    /// Where a value stands; what is beyond an end stands at that end.
    pub(super) fn position(&self, value: f64) -> f64 {
        let share = (self.scaled(value) - self.low) / (self.high - self.low);
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    fn scaled(&self, value: f64) -> f64 {
        if self.is_log { value.max(f64::MIN_POSITIVE).log10() } else { value }
    }

    fn own_ticks(&self, values: &[f64]) -> Option<Vec<(f64, String)>> {
        let mut own = values.to_vec();
        own.sort_by(f64::total_cmp);
        own.dedup();
        (1..=OWN_TICKS_MAX).contains(&own.len()).then(|| self.labelled(own))
    }

    /// Multiples of 1, 2 or 5 times a power of ten.
    fn linear_ticks(&self) -> Vec<f64> {
        let raw = (self.high - self.low) / STEPS;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0].map(|times| times * power).into_iter().find(|step| *step >= raw);
        let step = step.unwrap_or(10.0 * power);
        let first = (self.low / step).ceil();
        let ticks = (0..TICKS_MAX).map(|index| (first + index as f64) * step);
        ticks.take_while(|tick| *tick <= self.high).collect()
    }

    /// Powers of ten, with twice and five times of them where there are few.
    fn log_ticks(&self) -> Vec<f64> {
        let decades = (self.high - self.low).max(1.0);
        let each = (decades / 8.0).ceil() as i32;
        let times: &[f64] = if decades < 3.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (first, last) = (self.low.floor() as i32, self.high.ceil() as i32);
        let powers = (first..=last).filter(|power| power % each == 0);
        let ticks = powers.flat_map(|power| times.iter().map(move |times| times * 10f64.powi(power)));
        let within: BTreeSet<u64> =
            ticks.filter(|tick| (self.low..=self.high).contains(&tick.log10())).map(f64::to_bits).collect();
        within.into_iter().map(f64::from_bits).collect()
    }
}

/// Whether labels of neighbours are apart.
fn fits(ticks: &[(f64, String)], letters: f64) -> bool {
    ticks.windows(2).all(|pair| {
        let both = (pair[0].1.len() + pair[1].1.len()) as f64 / 2.0;
        (pair[1].0 - pair[0].0) * letters >= both + LETTERS_BETWEEN
    })
}

/// A number for people: so many significant digits at most, thousands set apart.
pub(crate) fn number(value: f64, digits: usize) -> String {
    let size = value.abs();
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { format!("{value}") };
    }
    if !(1e-4..1e12).contains(&size) {
        return format!("{:e}", rounded(value, digits));
    }
    let whole = size.log10().floor() as i64 + 1;
    let decimals = usize::try_from(digits as i64 - whole).unwrap_or(0);
    let text = format!("{size:.decimals$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.trim_end_matches('0');
    let sign = if value < 0.0 { "-" } else { "" };
    let point = if part.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{part}", thousands(whole))
}

fn rounded(value: f64, digits: usize) -> f64 {
    let shown = format!("{value:.*e}", digits.saturating_sub(1));
    shown.parse().unwrap_or(value)
}

fn thousands(whole: &str) -> String {
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(values: &[f64], zero: Zero) -> Vec<String> {
        Axis::of(values.iter().copied(), zero, 60.0).ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn numbers_are_as_people_write_them() {
        let written =
            [0.0, 1234567.0, -0.25, 0.1 + 0.2, 2048.0, 1e-7, 1.5e13, f64::NAN].map(|v| number(v, 6));
        assert_eq!(written, ["0", "1,234,567", "-0.25", "0.3", "2,048", "1e-7", "1.5e13", "NaN"]);
        assert_eq!(number(99.99999, 4), "100");
    }

    #[test]
    fn ticks_are_round_numbers_and_few_values_are_their_own() {
        assert_eq!(labels(&[0.3, 11.0], Zero::Shown), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(&[0.001, 0.5, 100.0], Zero::Shown), ["0.001", "0.01", "0.1", "1", "10", "100"]);
        assert_eq!(labels(&[8.0, 16.0, 24.0, 8.0], Zero::Free), ["8", "16", "24"]);
        // Too close for all of them.
        assert_eq!(
            labels(&[1e6, 1.1e6, 4e6], Zero::Free),
            ["1,000,000", "2,000,000", "3,000,000", "4,000,000"]
        );
        assert_eq!(labels(&[0.95, 1.0], Zero::Shown), ["0.95", "0.96", "0.97", "0.98", "0.99", "1"]);
    }

    proptest! {
        #[test]
        fn any_values_have_an_axis(
            values in prop::collection::vec(any::<f64>(), 0..6),
            shown in any::<bool>(),
        ) {
            let zero = if shown { Zero::Shown } else { Zero::Free };
            let axis = Axis::of(values.iter().copied(), zero, f64::INFINITY);
            prop_assert!(axis.ticks.len() <= TICKS_MAX);
            for value in values.iter().copied().chain([f64::NAN, f64::INFINITY]) {
                prop_assert!((0.0..=1.0).contains(&axis.position(value)));
            }
        }
    }
}
