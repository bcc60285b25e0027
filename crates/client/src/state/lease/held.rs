//! A lease taken.

use bearing_types::Mono;

/// A lease taken, or none. Caches hold hundreds of thousands, so it is one word: until when, rounded down to
/// two nanoseconds, and whether it is served.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held(u64);

const SERVED: u64 = 1;

impl Held {
    /// No lease.
    pub const NONE: Held = Held(0);

    /// A lease until then.
    pub fn until(end: Mono) -> Held {
        Held(end.0 & !SERVED | SERVED)
    }

    /// When it ends, if it is served now.
    pub fn live(self, now: Mono) -> Option<Mono> {
        (self.0 & SERVED != 0 && now < self.end()).then_some(self.end())
    }

    /// This lease, or the other if that is served and lasts longer.
    pub fn longer(self, other: Held, now: Mono) -> Held {
        match other.live(now) {
            Some(until) if until > self.end() => other,
            _ => self,
        }
    }

    /// Whether the kernel may go by it.
    pub fn kernel_may_have(self, now: Mono) -> bool {
        now < self.end()
    }

    /// A change of our own may have ended it: only the kernel's copy matters still.
    pub fn serve_no_more(&mut self) {
        self.0 &= !SERVED;
    }

    /// When it ends.
    pub fn end(self) -> Mono {
        Mono(self.0 & !SERVED)
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let served = if self.0 & SERVED == 0 { ", not served" } else { "" };
        write!(f, "until {}{served}", self.end().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_served_until_it_ends_and_the_kernel_may_have_it_so_long_at_most() {
        let (before, end) = (Mono(99), Mono(101));
        let mut held = Held::until(end);
        assert!(held.live(before).is_some_and(|until| before < until && until <= end));
        assert!(held.kernel_may_have(before));
        assert_eq!((held.live(end), held.kernel_may_have(end)), (None, false));
        assert!(held.longer(Held::until(Mono(105)), before) == Held::until(Mono(105)));
        assert!(held.longer(Held::until(before), Mono(90)) == held);
        let mut longer = Held::until(Mono(105));
        longer.serve_no_more();
        assert!(held.longer(longer, before) == held, "what is not served any more is not served again");
        held.serve_no_more();
        assert_eq!((held.live(before), held.kernel_may_have(before)), (None, true));
        assert_eq!((Held::NONE.live(Mono::ZERO), Held::NONE.kernel_may_have(Mono::ZERO)), (None, false));
    }
}
