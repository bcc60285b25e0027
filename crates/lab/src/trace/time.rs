//! Times as recordings write them.

/// Days since 1970 of a date of the Gregorian calendar.
pub(super) fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(0..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that the day that leap years have more is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(before + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

/// Seconds, perhaps with a fraction.
pub(super) fn microseconds(seconds: &str) -> Option<i64> {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    whole.parse::<i64>().ok()?.checked_mul(1_000_000)?.checked_add(digits.parse().ok()?)
}
