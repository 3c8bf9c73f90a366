//! Where the events of a `text/event-stream` end: only whole ones are passed on, so that an error can
//! be told in an event of its own whenever the engine breaks off.
//!
//! Nothing is copied: an incomplete end of a piece is kept as it is until the rest comes.

use std::collections::VecDeque;

use bytes::Bytes;

/// The most that is held back of one event. Longer ones pass as they come.
const MOST_HELD: usize = 64 << 10;

/// Cuts a stream where events end.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// What came and was not passed on, in order.
    queue: VecDeque<Bytes>,
    /// How many of the queue may pass.
    whole: usize,
    /// Bytes of the rest.
    held: usize,
    /// The last two bytes that came, where those that may end an event are, newest first.
    last: [u8; 2],
    /// Some of an event that is not complete has passed.
    amid: bool,
}

impl Events {
    /// Takes the next piece. What is whole then, and does not have to wait behind others, is given
    /// back at once; everything else comes by [`next`](Self::next).
    pub(super) fn push(&mut self, piece: Bytes) -> Option<Bytes> {
        let Some(end) = self.end_of_last(&piece) else {
            self.note(&piece);
            return self.hold(piece);
        };
        self.note(&piece);
        self.amid = false;
        self.held = 0;
        if end == piece.len() && self.queue.is_empty() {
            return Some(piece);
        }
        let mut piece = piece;
        let tail = piece.split_off(end);
        self.queue.push_back(piece);
        self.whole = self.queue.len();
        if !tail.is_empty() {
            self.held = tail.len();
            self.queue.push_back(tail);
        }
        self.next()
    }

    /// The next piece that may pass.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        self.whole = self.whole.checked_sub(1)?;
        self.queue.pop_front()
    }

    /// The stream is over in good order: everything passes.
    pub(super) fn release(&mut self) {
        self.whole = self.queue.len();
        self.held = 0;
    }

    /// The stream broke: what is not whole is dropped. Whether an event of our own can follow what
    /// has passed.
    pub(super) fn cut(&mut self) -> bool {
        self.queue.truncate(self.whole);
        self.held = 0;
        !self.amid
    }

    /// Whether something came of an event that is not complete and did not pass.
    pub(super) fn holds_back(&self) -> bool {
        self.held > 0
    }

    fn hold(&mut self, piece: Bytes) -> Option<Bytes> {
        if self.amid && self.queue.is_empty() {
            return Some(piece);
        }
        self.held += piece.len();
        self.queue.push_back(piece);
        if self.amid || self.held > MOST_HELD {
            self.amid = true;
            self.release();
        }
        self.next()
    }

    /// Where the last event that is complete with this piece ends in it. Looks at the end first:
    /// that is where it usually is.
    fn end_of_last(&self, piece: &[u8]) -> Option<usize> {
        let before = |at: usize, back: usize| {
            let known = at.checked_sub(back).and_then(|at| piece.get(at).copied());
            known.unwrap_or_else(|| self.last.get(back - at - 1).copied().unwrap_or(0))
        };
        let ends = |at: &usize| {
            matches!(
                (piece.get(*at), before(*at, 1), before(*at, 2)),
                (Some(b'\n'), b'\n', _)
                    | (Some(b'\n'), b'\r', b'\n' | b'\r')
                    | (Some(b'\r'), b'\r', _)
            )
        };
        memchr::memrchr2_iter(b'\n', b'\r', piece).find(ends).map(|at| at + 1)
    }

    fn note(&mut self, piece: &[u8]) {
        match piece {
            [] => {}
            [one] => self.last = [*one, self.last[0]],
            [.., second, first] => self.last = [*first, *second],
        }
    }
}

#[cfg(test)]
mod tests;
