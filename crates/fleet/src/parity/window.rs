//! The rule of every oracle: 8 of the last 20 that disagree are a mismatch, not fewer.

/// How many of the last comparable ones count.
pub(crate) const WINDOW: u32 = 20;
/// So many that disagree are a mismatch.
pub(crate) const LIMIT: u32 = 8;

/// The last comparable ones, and whether they amount to a mismatch.
///
/// Every change of that begins a new window, so that the same ones never count twice. A mismatch
/// ends as soon as so many agree that the other side cannot reach [`LIMIT`] within [`WINDOW`] any
/// more: between the two there is no flapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// One bit each, the newest lowest; 1 disagrees.
    bits: u32,
    len: u32,
    mismatch: bool,
    /// Whether anything was ever taken in.
    used: bool,
}

impl Window {
    /// A mismatch that others have shown.
    pub(crate) fn mismatching() -> Self {
        Self { mismatch: true, used: true, ..Self::default() }
    }

    /// Takes in the next; whether it begins or ends a mismatch.
    pub(crate) fn note(&mut self, disagrees: bool) -> bool {
        self.bits = (self.bits << 1 | u32::from(disagrees)) & ((1 << WINDOW) - 1);
        self.len = (self.len + 1).min(WINDOW);
        self.used = true;
        let off = self.off();
        let mismatch = if self.mismatch { self.len - off <= WINDOW - LIMIT } else { off >= LIMIT };
        let changed = mismatch != self.mismatch;
        if changed {
            *self = Self { mismatch, used: true, ..Self::default() };
        }
        changed
    }

    pub(crate) fn mismatch(&self) -> bool {
        self.mismatch
    }

    /// Whether nothing was ever taken in.
    pub(crate) fn is_unused(&self) -> bool {
        !self.used
    }

    /// How many are in the window.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// How many of them disagree.
    pub(crate) fn off(&self) -> u32 {
        self.bits.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn eight_of_twenty_are_a_mismatch_and_seven_are_none() {
        let mut window = Window::default();
        // Seven of every twenty, for ever.
        for n in 0..1000 {
            assert!(!window.note(n % 20 < 7), "{n}");
        }
        let mut window = Window::default();
        let noted: Vec<bool> = (0..20).map(|n| window.note(n >= 12)).collect();
        assert_eq!(noted.iter().position(|changed| *changed), Some(19));
        assert!(window.mismatch());
        let mut window = Window::default();
        assert_eq!((0..20).position(|_| window.note(true)), Some(7));
    }

    fn demote(window: &mut Window) {
        for n in 0..8 {
            assert_eq!(window.note(true), n == 7);
        }
    }

    #[test]
    fn a_mismatch_ends_when_thirteen_agree() {
        let mut window = Window::default();
        demote(&mut window);
        assert_eq!((0..20).position(|_| window.note(false)), Some(12));
        assert!(!window.mismatch() && window.len() == 0);
        demote(&mut window);
        // Eight of every twenty: it lasts.
        for n in 0..1000 {
            assert!(!window.note(n % 20 < 8), "{n}");
        }
    }

    proptest! {
        #[test]
        fn it_equals_a_naive_model(all in proptest::collection::vec(any::<bool>(), 0..200)) {
            let mut window = Window::default();
            let (mut last, mut mismatch) = (VecDeque::new(), false);
            for disagrees in all {
                last.push_back(disagrees);
                if last.len() > 20 {
                    last.pop_front();
                }
                let off = last.iter().filter(|off| **off).count();
                let agree = last.len() - off;
                let now = if mismatch { agree < 13 } else { off >= 8 };
                prop_assert_eq!(window.note(disagrees), now != mismatch);
                if now != mismatch {
                    last.clear();
                }
                mismatch = now;
                prop_assert_eq!(window.mismatch(), mismatch);
                prop_assert_eq!(window.len() as usize, last.len());
            }
        }
    }
}
