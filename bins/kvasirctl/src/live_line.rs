//! One line on standard error that is drawn over again and again, where that is a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

/// Columns of a bar, its brackets left aside.
pub(crate) const BAR: usize = 30;

/// The line; it is gone when this is dropped, so that what is said next begins on a clean one.
#[derive(Debug)]
pub(crate) struct LiveLine {
    terminal: bool,
    /// No two drawings are closer.
    every: Duration,
    next: Option<Instant>,
    shown: bool,
}

impl LiveLine {
    /// Drawn at once, and then no more often than `every` so long.
    pub(crate) fn new(every: Duration) -> Self {
        Self { terminal: stderr().is_terminal(), every, next: None, shown: false }
    }

    /// The same for what may be over before anybody could read it: not drawn before `every`.
    pub(crate) fn late(every: Duration) -> Self {
        Self { next: Instant::now().checked_add(every), ..Self::new(every) }
    }

    /// Whether there is anybody to see it.
    pub(crate) fn is_seen(&self) -> bool {
        self.terminal
    }

    /// Draws, if it is time.
    pub(crate) fn draw(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.terminal && self.next.is_none_or(|next| next <= now) {
            self.next = now.checked_add(self.every);
            self.shown = true;
            write(&format!("\r{}\x1b[K", text()));
        }
    }

    /// Erases it.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            self.next = None;
            write("\r\x1b[K");
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A bar that is full when all is done.
pub(crate) fn bar(done: usize, all: usize) -> String {
    let full = BAR.saturating_mul(done).checked_div(all).unwrap_or(0).min(BAR);
    format!("[{:<BAR$}]", "#".repeat(full))
}

/// A terminal that cannot be written to is no reason to stop.
fn write(text: &str) {
    let mut err = stderr().lock();
    let _ = err.write_all(text.as_bytes());
    let _ = err.flush();
}
