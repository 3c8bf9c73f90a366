//! How long the gateway's own stages of a request take, as one histogram with a series for each.

use std::sync::LazyLock;
use std::time::Instant;

use metrics::Histogram;

/// A stage of a request, up to its being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The fields a gateway acts on, out of a body's bytes.
    Parse,
    /// From a body to token ids.
    Tokenise,
    /// From token ids to keys of blocks.
    Hash,
    /// From keys to what each endpoint holds.
    Overlap,
    /// The choice and its commitment, with the wait for the pool's lock.
    Choose,
}

/// Registered once: with the recorder that is installed when the first request comes.
static SECONDS: LazyLock<[Histogram; 5]> = LazyLock::new(|| {
    let of = |stage: Stage| metrics::histogram!("kvasir_stage_seconds", "stage" => stage.as_str());
    [Stage::Parse, Stage::Tokenise, Stage::Hash, Stage::Overlap, Stage::Choose].map(of)
});

impl Stage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Tokenise => "tokenise",
            Self::Hash => "hash",
            Self::Overlap => "overlap",
            Self::Choose => "choose",
        }
    }

    /// Counts one that took so many seconds.
    pub fn took(self, seconds: f64) {
        SECONDS[self as usize].record(seconds);
    }

    /// Counts one that began at `start` and is over; the time of its end.
    pub fn since(self, start: Instant) -> Instant {
        let end = Instant::now();
        self.took(end.duration_since(start).as_secs_f64());
        end
    }
}
