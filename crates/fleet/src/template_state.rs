//! Whether a model's chat template renders chats, as a state with a name: so that a template that fails is
//! seen as that, and not only in the reasons of single requests.

use std::time::{Duration, Instant};

use kvasir_prompt::{Renderer, Unrouted};
use parking_lot::Mutex;

/// A conversation may be one that no template takes: only so many in a row are the template's fault.
const FAILURES: u32 = 3;
/// Time between two changes that the log tells of.
const QUIET: Duration = Duration::from_secs(60);

/// What chats of one model have shown of its template.
#[derive(Debug, Default)]
pub(crate) struct TemplateState(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    rendered: bool,
    /// In a row, up to now.
    failures: u32,
    /// Whether the log has said that it fails.
    told: bool,
    last_told: Option<Instant>,
    /// Changes the log has not told of since.
    untold: u32,
}

impl Seen {
    fn is_failing(&self) -> bool {
        self.failures >= FAILURES
    }

    /// Whether a change may be told now; else it is counted.
    fn may_tell(&mut self, now: Instant) -> bool {
        let may = self.last_told.is_none_or(|last| now.duration_since(last) >= QUIET);
        if may {
            self.last_told = Some(now);
        } else {
            self.untold += 1;
        }
        may
    }
}

impl TemplateState {
    /// A chat was rendered, or could not be.
    pub(crate) fn note(&self, model: &str, rendered: bool) {
        let mut seen = self.0.lock();
        if rendered {
            seen.rendered = true;
            let was_failing = std::mem::take(&mut seen.failures) >= FAILURES;
            // What began untold ends untold.
            if was_failing && std::mem::take(&mut seen.told) {
                let untold = std::mem::take(&mut seen.untold);
                tracing::info!(
                    model,
                    untold,
                    "chats are routed by their tokens again: the chat template renders them"
                );
            }
            return;
        }
        seen.failures = seen.failures.saturating_add(1);
        if seen.failures == FAILURES && seen.may_tell(Instant::now()) {
            seen.told = true;
            tracing::warn!(
                model,
                in_a_row = FAILURES,
                "chats are routed by load: the chat template fails on them; `level: debug` shows its messages"
            );
        }
    }

    /// Another template is in use: of it nothing is known.
    pub(crate) fn begin_anew(&self) {
        *self.0.lock() = Seen::default();
    }

    /// State and reason, as they are in metrics.
    pub(crate) fn words(&self, renderer: &Renderer) -> (&'static str, &'static str) {
        match renderer.chat_state() {
            Err(Unrouted::NoTemplate) => return ("missing", ""),
            Err(_) => return ("failing", "does_not_compile"),
            Ok(()) => {}
        }
        let seen = self.0.lock();
        match (seen.is_failing(), seen.rendered) {
            (true, _) => ("failing", "fails_on_chats"),
            (false, true) => ("ok", ""),
            (false, false) => ("untried", ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_chat_that_cannot_be_rendered_says_nothing_of_the_template_several_do() {
        let state = TemplateState::default();
        let failing = || state.0.lock().is_failing();
        for rendered in [false, false, true, false, false] {
            state.note("m", rendered);
            assert!(!failing());
        }
        state.note("m", false);
        assert!(failing());
        state.note("m", true);
        assert!(!failing());
        (0..FAILURES).for_each(|_| state.note("m", false));
        state.begin_anew();
        assert!(!failing());
    }

    #[test]
    fn the_log_tells_of_few_changes() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        assert!(seen.may_tell(now));
        assert!(!seen.may_tell(now + QUIET / 2));
        assert!(seen.may_tell(now + QUIET));
        assert_eq!(seen.untold, 1);
    }
}
