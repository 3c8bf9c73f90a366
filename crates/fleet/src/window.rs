//! Whether the latest comparisons went wrong too often.

/// How many comparisons count, the latest.
const LENGTH: u32 = 20;
/// So many wrong ones among them are too many.
const TOO_MANY: u32 = 8;

/// The latest comparisons, newest in the lowest bit; set where one went wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window(u32);

impl Window {
    /// Adds a comparison.
    pub(crate) fn push(&mut self, wrong: bool) {
        self.0 = ((self.0 << 1) | u32::from(wrong)) & ((1 << LENGTH) - 1);
    }

    /// Whether too many of the latest went wrong.
    pub(crate) fn is_bad(self) -> bool {
        self.0.count_ones() >= TOO_MANY
    }

    /// Whether none of the latest went wrong.
    pub(crate) fn is_clean(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_of_the_last_twenty_are_too_many_and_are_forgotten_again() {
        let mut window = Window::default();
        for round in 0..3 {
            for _ in 0..7 {
                window.push(true);
                assert!(!window.is_bad(), "{round}");
            }
            window.push(true);
            assert!(window.is_bad());
            // Twelve others fit beside the eight.
            for _ in 0..12 {
                window.push(false);
                assert!(window.is_bad());
            }
            window.push(false);
            assert!(!window.is_bad() && !window.is_clean());
            (0..7).for_each(|_| window.push(false));
            assert!(window.is_clean());
        }
    }
}
