//! Whether a model's chat template renders chats, as a state with a name: so that a template that fails is
//! seen as that, and not only in the reasons of single requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kvasir_prompt::{Renderer, Unrouted};
use parking_lot::Mutex;

/// A conversation may be one that no template takes: only so many in a row are the template's fault.
const FAILURES: u32 = 3;
/// Time between two changes that the log tells of.
const QUIET: Duration = Duration::from_secs(60);

/// What chats of one model have shown of its template.
#[derive(Debug, Default)]
pub(crate) struct TemplateState {
    seen: Mutex<Seen>,
    /// The last chat was rendered and nothing is left to be told: another that is changes nothing.
    /// Written under the lock.
    is_sound: AtomicBool,
}

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

    /// Whether the log was silent for long enough, or said nothing yet.
    fn is_quiet(&self, now: Instant) -> bool {
        self.last_told.is_none_or(|last| now.duration_since(last) >= QUIET)
    }

    /// A chat was rendered at `now`, or could not be.
    fn see(&mut self, rendered: bool, now: Instant) -> Tells {
        if rendered {
            self.rendered = true;
            let was_failing = std::mem::take(&mut self.failures) >= FAILURES;
            if std::mem::take(&mut self.told) {
                self.last_told = Some(now);
                return Tells::RendersAgain { untold: std::mem::take(&mut self.untold) };
            }
            // What began untold ends untold.
            self.untold += u32::from(was_failing);
            return Tells::Nothing;
        }
        self.failures = self.failures.saturating_add(1);
        // Where it was too early for it, one of the failures that follow is told.
        if self.is_failing() && !self.told && self.is_quiet(now) {
            self.told = true;
            self.last_told = Some(now);
            return Tells::Fails { in_a_row: self.failures };
        }
        Tells::Nothing
    }
}

/// What is news of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tells {
    Nothing,
    Fails { in_a_row: u32 },
    RendersAgain { untold: u32 },
}

impl TemplateState {
    /// A chat was rendered, or could not be.
    pub(crate) fn note(&self, model: &str, rendered: bool) {
        // Every chat comes by here: the usual one takes no lock.
        if rendered && self.is_sound.load(Ordering::Relaxed) {
            return;
        }
        match self.note_at(rendered, Instant::now()) {
            Tells::Nothing => {}
            Tells::Fails { in_a_row } => tracing::warn!(
                model,
                in_a_row,
                "chats are routed by load: the chat template fails on them; `level: debug` shows its messages"
            ),
            Tells::RendersAgain { untold } => tracing::info!(
                model,
                untold,
                "chats are routed by their tokens again: the chat template renders them"
            ),
        }
    }

    fn note_at(&self, rendered: bool, now: Instant) -> Tells {
        let mut seen = self.seen.lock();
        let tells = seen.see(rendered, now);
        self.is_sound.store(rendered, Ordering::Relaxed);
        tells
    }

    /// Another template is in use: of it nothing is known.
    pub(crate) fn begin_anew(&self) {
        let mut seen = self.seen.lock();
        *seen = Seen::default();
        self.is_sound.store(false, Ordering::Relaxed);
    }

    /// State and reason, as they are in metrics.
    pub(crate) fn words(&self, renderer: &Renderer) -> (&'static str, &'static str) {
        match renderer.chat_state() {
            Err(Unrouted::NoTemplate) => return ("missing", ""),
            Err(_) => return ("failing", "does_not_compile"),
            Ok(()) => {}
        }
        let seen = self.seen.lock();
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
        let failing = || state.seen.lock().is_failing();
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
    fn the_log_tells_of_few_changes_and_its_last_word_is_true() {
        let (state, start) = (TemplateState::default(), Instant::now());
        let at = |rendered, s| state.note_at(rendered, start + Duration::from_secs(s));
        let failures = |times: u32, s| {
            let told: Vec<_> = (0..times).map(|_| at(false, s)).collect();
            told.into_iter().filter(|tells| *tells != Tells::Nothing).collect::<Vec<_>>()
        };
        assert_eq!(failures(4, 0), [Tells::Fails { in_a_row: 3 }]);
        assert_eq!(at(true, 1), Tells::RendersAgain { untold: 0 });
        // Too soon, and over again before it can be told.
        assert_eq!(failures(3, 2), []);
        assert_eq!(at(true, 3), Tells::Nothing);
        // It fails for good: told as soon as the log was quiet, and once.
        assert_eq!(failures(5, 4), []);
        assert_eq!(failures(1, 60), []);
        assert_eq!(failures(2, 61), [Tells::Fails { in_a_row: 7 }]);
        assert_eq!(at(true, 62), Tells::RendersAgain { untold: 1 });
        assert_eq!(at(true, 63), Tells::Nothing);
    }

    #[test]
    fn chats_that_are_rendered_one_after_another_take_no_lock() {
        let state = TemplateState::default();
        state.note("m", true);
        let held = state.seen.lock();
        state.note("m", true);
        drop(held);
        state.note("m", false);
        assert!(!state.is_sound.load(Ordering::Relaxed));
        state.note("m", true);
        assert_eq!(state.seen.lock().failures, 0);
        state.begin_anew();
        assert!(!state.is_sound.load(Ordering::Relaxed), "what is seen of another is noted");
    }
}
