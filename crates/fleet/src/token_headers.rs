//! Token ids that clients give in a header: whether a pool takes them, and whether the engines'
//! counts bear them out.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::parity::window::Window;

/// How far a pool believes its clients' token ids. A wrong number of them in 8 of the last 20
/// answers ends the belief; it comes back when 13 of at most 20 further ones agree, for headers are
/// held against the engines' counts all the while.
#[derive(Debug)]
pub struct TokenHeaders {
    allowed: bool,
    recent: Mutex<Recent>,
    agreeing: AtomicU64,
    differing: AtomicU64,
    malformed: AtomicU64,
}

#[derive(Debug, Default)]
struct Recent {
    window: Window,
    /// The first difference was logged.
    told: bool,
}

impl TokenHeaders {
    pub(crate) fn new(allowed: bool) -> Self {
        Self {
            allowed,
            recent: Mutex::default(),
            agreeing: AtomicU64::new(0),
            differing: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
        }
    }

    /// Whether the configuration allows them.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.allowed
    }

    /// Whether they are taken for the prompt's tokens now.
    #[must_use]
    pub fn believed(&self) -> bool {
        self.allowed && !self.recent.lock().window.mismatch()
    }

    /// A header that is no list of token ids came by.
    pub fn note_malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// Holds the number of ids in a header against the engine's `usage.prompt_tokens` for the same
    /// request.
    pub fn judge(&self, model: &str, given: u64, reported: u64) {
        let differs = given != reported;
        let counter = if differs { &self.differing } else { &self.agreeing };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut recent = self.recent.lock();
        let changed = recent.window.note(differs);
        let is_bad = recent.window.mismatch();
        let first = differs && !recent.told;
        recent.told |= differs;
        drop(recent);
        if first {
            tracing::warn!(
                model,
                given,
                reported,
                "token ids in a header are not as many as the engine counts"
            );
        }
        if changed && is_bad {
            tracing::warn!(
                model,
                given,
                reported,
                "token ids in headers are not believed any more: too many differ"
            );
        } else if changed {
            tracing::info!(model, "token ids in headers are believed again");
        }
    }

    /// Headers that were borne out, that were not, and that were no list of ids, in this order.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        [
            ("agrees", self.agreeing.load(Ordering::Relaxed)),
            ("differs", self.differing.load(Ordering::Relaxed)),
            ("malformed", self.malformed.load(Ordering::Relaxed)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn belief_ends_with_eight_differences_and_comes_back() {
        let headers = TokenHeaders::new(true);
        assert!(headers.believed());
        headers.judge("m", 5, 5);
        (0..7).for_each(|_| headers.judge("m", 5, 6));
        assert!(headers.believed());
        headers.judge("m", 7, 6);
        assert!(!headers.believed());
        (0..13).for_each(|_| headers.judge("m", 3, 3));
        assert!(headers.believed());
        headers.note_malformed();
        assert_eq!(headers.counts(), [("agrees", 14), ("differs", 8), ("malformed", 1)]);
        assert!(!TokenHeaders::new(false).believed());
    }
}
