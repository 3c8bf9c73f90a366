//! A bounded queue between pools and the thread that writes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Entry;

/// How much may wait for the disk, of all pools together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) entries: usize,
    pub(super) bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { entries: 65_536, bytes: 64 << 20 }
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    bounds: Bounds,
    state: Mutex<State>,
    /// Something is there, or nothing will come any more.
    filled: Condvar,
    /// The writer has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Entry>,
    bytes: usize,
    closed: bool,
    ended: bool,
}

/// What the writer got.
#[derive(Debug)]
pub(super) enum Taken {
    Entries(VecDeque<Entry>),
    /// Nothing came in time.
    Nothing,
    /// Nothing will come any more.
    Closed,
}

impl Queue {
    pub(super) fn new(bounds: Bounds) -> Self {
        let state = Mutex::default();
        Self { bounds, state, filled: Condvar::new(), ended: Condvar::new() }
    }

    /// `false` where there is no room, or nobody to take it.
    pub(super) fn push(&self, entry: Entry) -> bool {
        let cost = entry.cost();
        let mut state = self.state.lock();
        let full = state.entries.len() >= self.bounds.entries
            || state.bytes.saturating_add(cost) > self.bounds.bytes;
        if full || state.closed {
            return false;
        }
        state.bytes += cost;
        state.entries.push_back(entry);
        let was_empty = state.entries.len() == 1;
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
        true
    }

    /// Everything that is there; waits until `deadline` for something.
    pub(super) fn take(&self, deadline: Option<Instant>) -> Taken {
        let mut state = self.state.lock();
        while state.entries.is_empty() && !state.closed {
            match deadline {
                None => self.filled.wait(&mut state),
                Some(deadline) => {
                    if self.filled.wait_until(&mut state, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        if state.entries.is_empty() {
            return if state.closed { Taken::Closed } else { Taken::Nothing };
        }
        state.bytes = 0;
        Taken::Entries(std::mem::take(&mut state.entries))
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_all();
    }

    /// The writer has written what it could.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        (state.closed, state.ended) = (true, true);
        drop(state);
        self.ended.notify_all();
    }

    /// `false` if the writer has not ended by then.
    pub(super) fn wait_for_end(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let mut state = self.state.lock();
        while !state.ended {
            if self.ended.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.ended
    }
}
