//! A progress bar on standard error, where that is a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};

const WIDTH: usize = 30;

/// The bar.
#[derive(Debug)]
pub(super) struct Bar {
    terminal: bool,
}

impl Bar {
    pub(super) fn new() -> Self {
        Self { terminal: stderr().is_terminal() }
    }

    pub(super) fn draw(&mut self, what: &str, done: usize, all: usize) {
        if self.terminal {
            let full = (WIDTH * done).checked_div(all).unwrap_or(0).min(WIDTH);
            write(&format!("\r{what:<12}[{:<WIDTH$}] {done}/{all}\x1b[K", "#".repeat(full)));
        }
    }

    pub(super) fn clear(&mut self) {
        if self.terminal {
            write("\r\x1b[K");
        }
    }
}

/// Where an error ends it, what is said next begins on a clean line.
impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A terminal that cannot be written to is no reason to stop.
fn write(text: &str) {
    let mut err = stderr().lock();
    let _ = err.write_all(text.as_bytes());
    let _ = err.flush();
}
