//! What the stages from a body to token ids take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time spent by the stages of [`crate::Renderer::prompts`], all requests together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work {
    /// Prompts tokenized.
    pub prompts: u64,
    /// Reading bodies of chats.
    pub parse: Duration,
    /// Messages to text: the engine's view of them, and the template.
    pub render: Duration,
    /// Text to token ids.
    pub tokenize: Duration,
}

/// [`Work`] as it is counted.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    pub(crate) parse: Clock,
    pub(crate) render: Clock,
    pub(crate) tokenize: Clock,
}

impl Clocks {
    pub(crate) fn read(&self) -> Work {
        Work {
            prompts: self.tokenize.runs.load(Ordering::Relaxed),
            parse: self.parse.total(),
            render: self.render.total(),
            tokenize: self.tokenize.total(),
        }
    }
}

/// The time of one stage.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    runs: AtomicU64,
    nanos: AtomicU64,
}

impl Clock {
    /// Does something and adds the time it takes.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = work();
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.runs.fetch_add(1, Ordering::Relaxed);
        out
    }

    fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}
