//! How many bytes a second.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// A rate in bytes a second: finite and not negative, since it is made of whole numbers and of sums, shares
/// and differences that end at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// Nothing.
    pub const ZERO: Rate = Rate(0.0);
    /// More than any link carries: what somebody wants who takes whatever there is.
    pub const UNBOUNDED: Rate = Rate(f64::MAX);

    /// So many bits a second, as links are sold.
    pub fn bits(bits: u64) -> Rate {
        Rate(bits as f64 / 8.0)
    }

    /// So many bytes in so many nanoseconds; zero nanoseconds give zero.
    pub fn measured(bytes: u64, nanoseconds: u64) -> Rate {
        if nanoseconds == 0 { Rate::ZERO } else { Rate(bytes as f64 * 1e9 / nanoseconds as f64) }
    }

    /// Bytes a second. What is negative or no number is zero.
    pub fn of(bytes: f64) -> Rate {
        Rate(if bytes > 0.0 { bytes.min(f64::MAX) } else { 0.0 })
    }

    /// Bytes a second.
    pub fn bytes(self) -> f64 {
        self.0
    }

    /// The part of it that is one of `parts`. At least one part.
    pub fn shared(self, parts: f64) -> Rate {
        Rate(self.0 / parts.max(1.0))
    }

    /// The smaller of two.
    pub fn min(self, other: Rate) -> Rate {
        Rate(self.0.min(other.0))
    }

    /// The larger of two.
    pub fn max(self, other: Rate) -> Rate {
        Rate(self.0.max(other.0))
    }

    /// Seconds for so many bytes; for ever at rate zero.
    pub fn seconds_for(self, bytes: f64) -> f64 {
        if bytes <= 0.0 { 0.0 } else { bytes / self.0 }
    }
}

impl Add for Rate {
    type Output = Rate;
    fn add(self, other: Rate) -> Rate {
        Rate((self.0 + other.0).min(f64::MAX))
    }
}

impl AddAssign for Rate {
    fn add_assign(&mut self, other: Rate) {
        *self = *self + other;
    }
}

impl Sub for Rate {
    type Output = Rate;
    /// Never below zero.
    fn sub(self, other: Rate) -> Rate {
        Rate((self.0 - other.0).max(0.0))
    }
}

impl Sum for Rate {
    fn sum<I: Iterator<Item = Rate>>(rates: I) -> Rate {
        rates.fold(Rate::ZERO, Add::add)
    }
}

impl fmt::Display for Rate {
    /// In bits, as links are sold: `1 Gb/s`, `12.5 Mb/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 * 8.0;
        let (value, unit) = match bits {
            bits if bits >= 1e9 => (bits / 1e9, "Gb/s"),
            bits if bits >= 1e6 => (bits / 1e6, "Mb/s"),
            bits if bits >= 1e3 => (bits / 1e3, "kb/s"),
            bits => (bits, "b/s"),
        };
        write!(f, "{} {unit}", (value * 100.0).round() / 100.0)
    }
}
