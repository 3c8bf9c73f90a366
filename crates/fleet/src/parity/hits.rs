//! Predicted and reported cached tokens of one endpoint: the window, the hit profile, the state.
//!
//! A comparison is held back for [`HOLD`] before it counts. An engine whose cache was reset says so
//! only with its next request: the answers to that one, and to those beside it, may come before the
//! event does. What was predicted by a picture that is gone by then is dropped.
//!
//! Where an engine has removed as many blocks as the difference has between the choice and the answer's
//! first data, it evicted what was promised before it got to the request: that is nobody's fault, and
//! shows nothing of a profile. Once an endpoint is suspected it is no excuse: else only what agrees
//! would count.
//!
//! The *hit profile*: with EAGLE or MTP vLLM computes the last matching block anew, which no event
//! tells. Where exactly one block less was hit [`STREAK`] times in a row, it is left out of
//! predictions, until the engine's life ends or it is hit that often in a row.

mod state;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

pub(crate) use self::state::{Oracle, State, Totals};

use super::counters::Counters;
use super::report::{Report, bounded};
use super::{Prediction, Stamp, Unjudged};

/// How long a comparison waits for the events of its time.
pub(crate) const HOLD: Duration = Duration::from_secs(1);
/// Comparisons that wait at most; further ones are not made. A window needs 20.
const MAX_HELD: usize = 64;
/// Equal differences in a row that make a hit profile.
const STREAK: u32 = 8;

/// How a prediction and what was reported differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not at all.
    Equal,
    /// By a block at most: evicted between choice and scheduling, or stored meanwhile.
    Within,
    /// More was predicted.
    Over,
    /// More was hit: events are missing or late, or the engine chose among its ranks.
    Under,
}

impl Verdict {
    pub(crate) const ALL: [Self; 4] = [Self::Equal, Self::Within, Self::Over, Self::Under];

    pub(crate) fn of(predicted: u64, reported: u64, tolerance: u64) -> Self {
        if predicted == reported {
            Self::Equal
        } else if predicted > reported.saturating_add(tolerance) {
            Self::Over
        } else if reported > predicted.saturating_add(tolerance) {
            Self::Under
        } else {
            Self::Within
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Within => "within_block",
            Self::Over => "over",
            Self::Under => "under",
        }
    }
}

/// A request of which an engine hit less than was predicted, for the operator to look into. It
/// holds nothing of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitExample {
    /// The client's name for the request; none where it gave none, or where the engine's counters
    /// showed the difference.
    pub request_id: Option<String>,
    /// The API; none where the engine's counters showed the difference.
    pub api: Option<&'static str>,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Cached tokens predicted.
    pub predicted: u64,
    /// Cached tokens reported.
    pub reported: u64,
}

impl HitExample {
    /// For people and other programs.
    #[must_use]
    pub fn shown(&self) -> Value {
        let Self { request_id, api, prompt_tokens, predicted, reported } = self;
        json!({
            "request_id": request_id,
            "api": api,
            "prompt_tokens": prompt_tokens,
            "predicted_cached_tokens": predicted,
            "reported_cached_tokens": reported,
        })
    }
}

/// An endpoint's suspicion began or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) suspected: bool,
    /// The oracle that shows it; `cleared` where the blocks it was about are gone.
    pub(crate) why: &'static str,
    pub(crate) example: Option<HitExample>,
}

/// The moment of a judgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) at: Instant,
    pub(crate) stamp: Stamp,
}

/// One endpoint's parity. What requests read of it takes no lock.
#[derive(Debug)]
pub(crate) struct HitParity {
    /// One more than the picture that over-predicts; 0 for none.
    suspected: AtomicU64,
    /// One more than the life in which the engine drops the last block; 0 for none.
    drops: AtomicU64,
    state: Mutex<State>,
}

impl HitParity {
    pub(crate) fn new() -> Self {
        Self {
            suspected: AtomicU64::new(0),
            drops: AtomicU64::new(0),
            state: Mutex::new(State::default()),
        }
    }

    /// Whether the picture of `stamp` was seen to promise too much.
    pub(crate) fn suspects(&self, stamp: Stamp) -> bool {
        self.suspected.load(Ordering::Relaxed) == stamp.picture.wrapping_add(1)
    }

    /// How many of the last matching blocks the engine does not hit in the life of `stamp`.
    pub(crate) fn dropped_blocks(&self, stamp: Stamp) -> u32 {
        u32::from(self.drops.load(Ordering::Relaxed) == stamp.life.wrapping_add(1))
    }

    /// See [`super::report::Reporting::read`].
    pub(crate) fn reported(
        &self,
        now: Now,
        api: &'static str,
        streamed: bool,
        number: Option<u64>,
    ) -> (Option<u64>, Option<Change>) {
        self.with(now, |state| state.reporting.read(api, streamed, number))
    }

    /// Takes in an answer.
    pub(crate) fn judge(
        &self,
        prediction: Result<Prediction, Unjudged>,
        report: &Report<'_>,
        now: Now,
    ) -> Option<Change> {
        let compared = compared(prediction, report, now.stamp);
        let ((), change) = self.with(now, |state| {
            let held = compared.and_then(|(prediction, reported)| {
                if state.held.len() >= MAX_HELD {
                    return Err(Unjudged::Surplus);
                }
                let id = bounded(report.request_id);
                state.hold_usage(prediction, reported, id, report);
                Ok(())
            });
            if let Err(why) = held {
                state.totals.unjudged[why as usize] += 1;
            }
        });
        change
    }

    /// A request was sent.
    pub(crate) fn sent(&self) {
        self.state.lock().ledger.sent();
    }

    /// A request is counted at the engine by now, as far as is known as `prediction`; `evicted`
    /// blocks were removed since it was chosen.
    pub(crate) fn settled(&self, prediction: Option<Prediction>, evicted: u64) {
        self.state.lock().ledger.settled(prediction, evicted);
    }

    /// See [`super::counters::Ledger::moves`].
    pub(crate) fn moves(&self) -> u64 {
        self.state.lock().ledger.moves()
    }

    /// A metrics page came, or did not; it was asked for at `moves`.
    pub(crate) fn page(&self, moves: u64, counters: Option<Counters>, now: Now) -> Option<Change> {
        let ((), change) = self.with(now, |state| state.page(moves, counters));
        change
    }

    /// Reads the state, for metrics.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.state.lock())
    }

    /// Lets what was held long enough count, does `then`, and tells what changed.
    fn with<R>(&self, now: Now, then: impl FnOnce(&mut State) -> R) -> (R, Option<Change>) {
        let mut state = self.state.lock();
        let before = state.suspects();
        let stamp = state.align(now);
        state.ripen();
        let result = then(&mut state);
        let after = state.suspects();
        let of = |yes: bool, count: u64| if yes { count.wrapping_add(1) } else { 0 };
        self.suspected.store(of(after, stamp.picture), Ordering::Relaxed);
        self.drops.store(of(state.drops_last_block(), stamp.life), Ordering::Relaxed);
        let change = (before != after).then(|| Change {
            suspected: after,
            why: state.why(),
            example: state.example(stamp).filter(|_| after),
        });
        (result, change)
    }
}

/// The prediction and what it is compared with, or why it is not.
fn compared(
    prediction: Result<Prediction, Unjudged>,
    report: &Report<'_>,
    stamp: Stamp,
) -> Result<(Prediction, u64), Unjudged> {
    let prediction = prediction?;
    if !report.clean {
        return Err(Unjudged::Attempt);
    }
    let reported = report.cached_tokens.ok_or(Unjudged::NoReport)?;
    let prompt = report.prompt_tokens.ok_or(Unjudged::NoReport)?;
    if prompt != prediction.prompt {
        return Err(Unjudged::TokenCount);
    }
    if !prediction.on_device {
        return Err(Unjudged::Tier);
    }
    if prediction.stamp != stamp {
        return Err(Unjudged::Moved);
    }
    Ok((prediction, reported))
}

#[cfg(test)]
mod tests;
