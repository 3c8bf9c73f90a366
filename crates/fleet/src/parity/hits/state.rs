//! What is remembered of an endpoint's comparisons.

use std::collections::VecDeque;
use std::time::Instant;

use super::{HOLD, HitExample, Now, STREAK, Verdict};
use crate::parity::counters::{Closed, Counters, Ledger};
use crate::parity::report::{Report, Reporting};
use crate::parity::window::Window;
use crate::parity::{Prediction, Stamp, Unjudged};

/// Behind the lock of [`HitParity`](super::HitParity).
#[derive(Debug, Default)]
pub(crate) struct State {
    /// What everything below was learned in.
    stamp: Stamp,
    /// The latest moment known.
    at: Option<Instant>,
    pub(super) reporting: Reporting,
    pub(super) held: VecDeque<Held>,
    usage: Window,
    counters: Window,
    profile: Profile,
    pub(super) ledger: Ledger,
    pub(crate) totals: Totals,
    /// The last over-prediction in this picture.
    example: Option<HitExample>,
    /// Whether answers report at least twice what was predicted, again and again; and the last of them.
    under: Window,
    under_example: Option<HitExample>,
    why: &'static str,
}

/// Which oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Oracle {
    Usage,
    Counters,
}

/// What one oracle has found since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// By verdict.
    pub(crate) verdicts: [u64; Verdict::ALL.len()],
    pub(crate) predicted: u64,
    pub(crate) reported: u64,
}

/// Counters for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) usage: Found,
    pub(crate) counters: Found,
    /// By reason.
    pub(crate) unjudged: [u64; Unjudged::ALL.len()],
    /// Segments in which others sent requests too.
    pub(crate) foreign: u64,
    /// Segments that could not be compared for other reasons.
    pub(crate) void: u64,
}

/// A comparison that does not count yet.
#[derive(Debug)]
pub(super) struct Held {
    /// When it was made.
    at: Option<Instant>,
    stamp: Stamp,
    oracle: Oracle,
    tolerance: u64,
    /// Tokens per block.
    block: u64,
    /// What the engine was believed to hold, of one prompt, and the size of its blocks.
    held: Option<(u64, u64)>,
    /// Blocks that the engine removed between the choice and the first data.
    evicted: u64,
    case: HitExample,
}

/// Whether the engine drops the last matching block.
#[derive(Clone, Copy, Debug, Default)]
struct Profile {
    drops: bool,
    /// Requests in a row that speak for the contrary of `drops`.
    run: u32,
}

impl Profile {
    fn note(&mut self, held: u64, reported: u64, block: u64) {
        if held < block || block == 0 {
            return;
        }
        let contrary = held.checked_sub(reported) == Some(if self.drops { 0 } else { block });
        self.run = if contrary { self.run + 1 } else { 0 };
        if self.run >= STREAK {
            *self = Self { drops: !self.drops, run: 0 };
        }
    }
}

impl State {
    /// Forgets what was learned of a cache or a life that is gone; what it is about now. Two may
    /// come in the wrong order: time does not go back.
    pub(super) fn align(&mut self, now: Now) -> Stamp {
        let known = self.stamp;
        let stamp = known.later(now.stamp);
        self.stamp = stamp;
        self.at = self.at.max(Some(now.at));
        if stamp.picture != known.picture {
            self.usage = Window::default();
            self.counters = Window::default();
            self.example = None;
            self.under = Window::default();
            self.under_example = None;
            self.why = "cleared";
        }
        if stamp.life != known.life {
            self.profile = Profile::default();
            self.reporting = Reporting::default();
        }
        stamp
    }

    /// Whether the endpoint over-predicts, as far as is known.
    pub(super) fn suspects(&self) -> bool {
        self.usage.mismatch() || self.counters.mismatch()
    }

    pub(crate) fn drops_last_block(&self) -> bool {
        self.profile.drops
    }

    /// The last over-prediction of the picture that `stamp` is of.
    pub(crate) fn example(&self, stamp: Stamp) -> Option<HitExample> {
        self.example.clone().filter(|_| self.stamp.picture == stamp.picture)
    }

    /// An example of steady under-prediction in the picture that `stamp` is of.
    pub(crate) fn under_example(&self, stamp: Stamp) -> Option<HitExample> {
        let is_steady = self.under.mismatch() && self.stamp.picture == stamp.picture;
        self.under_example.clone().filter(|_| is_steady)
    }

    pub(super) fn why(&self) -> &'static str {
        self.why
    }

    pub(crate) fn window(&self, oracle: Oracle) -> Window {
        match oracle {
            Oracle::Usage => self.usage,
            Oracle::Counters => self.counters,
        }
    }

    pub(super) fn hold_usage(
        &mut self,
        prediction: Prediction,
        reported: u64,
        request_id: Option<String>,
        report: &Report<'_>,
    ) {
        let Prediction { tokens, held, block, prompt, .. } = prediction;
        self.held.push_back(Held {
            at: self.at,
            stamp: prediction.stamp,
            oracle: Oracle::Usage,
            tolerance: u64::from(block),
            block: u64::from(block),
            held: Some((u64::from(held), u64::from(block))),
            evicted: report.evicted,
            case: HitExample {
                request_id,
                api: Some(report.api),
                prompt_tokens: prompt,
                predicted: u64::from(tokens),
                reported,
            },
        });
    }

    pub(super) fn page(&mut self, moves: u64, counters: Option<Counters>) {
        match self.ledger.page(moves, counters, self.stamp) {
            None => {}
            Some(Closed::Foreign) => self.totals.foreign += 1,
            Some(Closed::Void) => self.totals.void += 1,
            // One a page: it needs no bound of its own.
            Some(Closed::Ours(sum, hits)) => self.held.push_back(Held {
                at: self.at,
                stamp: self.stamp,
                oracle: Oracle::Counters,
                tolerance: sum.tolerance,
                block: sum.tolerance.checked_div(sum.requests).unwrap_or(0),
                held: None,
                evicted: sum.evicted,
                case: HitExample {
                    request_id: None,
                    api: None,
                    prompt_tokens: sum.prompt,
                    predicted: sum.predicted,
                    reported: hits,
                },
            }),
        }
    }

    /// Lets all count that was held long enough, unless its ground is gone.
    pub(super) fn ripen(&mut self) {
        while let Some(first) = self.held.front()
            && self.at >= first.at.map(|at| at + HOLD)
            && let Some(held) = self.held.pop_front()
        {
            if held.stamp == self.stamp && !self.evicted(&held) {
                self.count(held);
            } else {
                match held.oracle {
                    Oracle::Usage => self.totals.unjudged[Unjudged::Moved as usize] += 1,
                    Oracle::Counters => self.totals.void += 1,
                }
            }
        }
    }

    /// Whether evictions explain that less was hit than predicted.
    fn evicted(&self, held: &Held) -> bool {
        let HitExample { predicted, reported, .. } = held.case;
        let Some(missing) = predicted.checked_sub(reported).filter(|missing| *missing > 0) else {
            return false;
        };
        !self.suspects() && missing <= held.evicted.saturating_mul(held.block)
    }

    fn count(&mut self, held: Held) {
        let Held { oracle, tolerance, held, case, .. } = held;
        let HitExample { predicted, reported, .. } = case;
        let verdict = Verdict::of(predicted, reported, tolerance);
        let found = match oracle {
            Oracle::Usage => &mut self.totals.usage,
            Oracle::Counters => &mut self.totals.counters,
        };
        found.verdicts[verdict as usize] += 1;
        found.predicted = found.predicted.saturating_add(predicted);
        found.reported = found.reported.saturating_add(reported);
        if let Some((held, block)) = held {
            self.profile.note(held, reported, block);
        }
        if oracle == Oracle::Usage {
            let far = verdict == Verdict::Under && reported >= predicted.saturating_mul(2);
            self.under.note(far);
            if far {
                self.under_example = Some(case.clone());
            }
        }
        // Of so little, nothing could have been too much.
        if predicted <= tolerance {
            return;
        }
        let over = verdict == Verdict::Over;
        // A request of its own says more than a span of the counters.
        let better =
            case.api.is_some() || self.example.as_ref().is_none_or(|known| known.api.is_none());
        if over && better {
            self.example = Some(case);
        }
        self.rule(oracle, over);
    }

    /// Answers rule where they speak; the counters where they never did in this picture.
    fn rule(&mut self, oracle: Oracle, over: bool) {
        let changed = match oracle {
            Oracle::Usage => {
                if self.usage.is_unused() && self.counters.mismatch() {
                    self.usage = Window::mismatching();
                }
                self.counters = Window::default();
                self.usage.note(over)
            }
            Oracle::Counters if self.usage.is_unused() => self.counters.note(over),
            Oracle::Counters => false,
        };
        if changed {
            self.why = match oracle {
                Oracle::Usage => "usage",
                Oracle::Counters => "counters",
            };
        }
    }
}
