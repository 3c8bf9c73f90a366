//! Tokens that come in pieces of any size, cut into a chain's blocks.

/// Cuts windows of `step` tokens and `ahead` more, each `step` after the one before it.
///
/// Windows that lie in one piece are not copied. They are the caller's, who hashes some in bulk:
/// between [`fill`](Self::fill) and [`keep`](Self::keep), a window is
/// [`first_of`](Self::first_of) the rest and `step` tokens are used up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows<T> {
    step: usize,
    ahead: usize,
    /// Tokens from the next window's beginning on: fewer than a window.
    tail: Vec<T>,
}

impl<T> Windows<T> {
    /// `step` is at least 1.
    pub(crate) fn new(step: usize, ahead: usize) -> Self {
        Self { step, ahead, tail: Vec::new() }
    }

    /// The tokens of a window that is not yet full.
    pub(crate) fn tail(&self) -> &[T] {
        &self.tail
    }

    /// The window that lies at the beginning of `tokens`, if it is full.
    #[inline]
    pub(crate) fn first_of<'a, U>(&self, tokens: &'a [U]) -> Option<&'a [U]> {
        tokens.get(..self.len())
    }

    fn len(&self) -> usize {
        self.step.saturating_add(self.ahead)
    }

    /// Gives `each` the windows that begin among the tokens kept from earlier pieces. What it
    /// leaves of this one begins with a window of its own.
    pub(crate) fn fill<'a, U: Copy + Into<T>>(
        &mut self,
        piece: &'a [U],
        mut each: impl FnMut(&[T]),
    ) -> &'a [U] {
        let mut rest = piece;
        while !self.tail.is_empty() {
            let kept = self.tail.len();
            let Some((head, after)) = rest.split_at_checked(self.len() - kept) else {
                self.keep(rest);
                return &[];
            };
            self.keep(head);
            each(&self.tail);
            match self.step.checked_sub(kept) {
                // The next window begins in `rest`: go on without copying.
                Some(used) => {
                    self.tail.clear();
                    rest = &rest[used..];
                }
                None => {
                    self.tail.drain(..self.step);
                    rest = after;
                }
            }
        }
        rest
    }

    /// Keeps the tokens of a window that is not yet full.
    pub(crate) fn keep<U: Copy + Into<T>>(&mut self, tokens: &[U]) {
        self.tail.extend(tokens.iter().map(|&token| token.into()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Windows;

    proptest! {
        #[test]
        fn the_windows_of_all_pieces_joined(
            step in 1usize..9,
            ahead in 0usize..20,
            pieces in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..30), 0..12),
        ) {
            let mut windows: Windows<u64> = Windows::new(step, ahead);
            let mut found: Vec<Vec<u64>> = Vec::new();
            for piece in &pieces {
                let mut rest = windows.fill(piece, |window| found.push(window.to_vec()));
                while let Some(window) = windows.first_of(rest) {
                    found.push(window.iter().map(|&token| token.into()).collect());
                    rest = &rest[step..];
                }
                windows.keep(rest);
            }
            let joined: Vec<u64> = pieces.concat().into_iter().map(u64::from).collect();
            let expected: Vec<_> =
                joined.windows(step + ahead).step_by(step).map(<[u64]>::to_vec).collect();
            prop_assert_eq!(windows.tail(), &joined[found.len() * step..]);
            prop_assert_eq!(found, expected);
        }
    }
}
