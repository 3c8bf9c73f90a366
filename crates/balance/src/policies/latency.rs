//! `latency`: the least latency added to this request, to those in flight and to the next one. The
//! default. And `ttft`, which leaves out those in flight.
//!
//! For a candidate with `C` tokens of a prompt of `P` in its cache or pending, `S` of them in slower
//! tiers, with prefill rate `r`, fetch rate `f`, `Q` queued prefill tokens, `n` requests in flight, `W`
//! seconds of work given to it lately (`w` those of the mean candidate), in seconds:
//!
//! ```text
//! own      = (P - C) / r + S / f
//! wait     = Q / r
//! share    = own + 0.1 * P / r
//! pressure = 1 + clamp((kv_usage - 0.9) / 0.1, 0, 1)
//! turn     = clamp(4 * (W - w) / (w + 2 s), -1, 4) * share + min(0.05 * max(0, W - w), 2.5 * P / r)
//! latency  = pressure * (1.75 * wait + 2.5 * own) + 0.6 * n * share + turn
//! ttft     = pressure * (1.75 * wait + 2.5 * own) + 0.25 * n * share + turn
//! ```
//!
//! - `own` counts for this request and for those that come there next: computing what is cached
//!   elsewhere takes time from them, too. `wait` counts more than once because a queue is known roughly, and engines serve answers meanwhile.
//! - `n * share` is what this request takes from the answers in flight there, as far as they do not
//!   end before: engines compute prompts and answers in the same steps, and read its context in each
//!   step of its answer. Where the first
//!   token counts, what is left of that is a sign of how crowded an engine is.
//! - What is pending costs this request nothing of its own: it waits until that is computed, and
//!   that is part of `Q`.
//! - In an engine whose cache is in use nearly whole a request waits for others to end.
//! - `turn` spreads the work where little else tells candidates apart: who was given more than the
//!   others lately is dearer, and who was given less cheaper. Its second part copies a prefix that
//!   many requests share to one more endpoint, sooner or later, however little each of them has to
//!   compute. Whoever is new is taken to have had the mean before.
//!
//! Costs within the larger of 5 % and 5 ms of the lowest tie: the fewest tokens to compute win, then
//! the fewest in flight, then the least work lately, then a seeded random one. Nothing here is a
//! weight for a user to tune; the numbers were found by simulation (`docs/simulation.md`).

use super::smallest_by;
use crate::choice::{Choice, Reason};
use crate::estimate::READING;
use crate::pair::{self, Paired, Pairing, Sides};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::rng::Rng;
use crate::view::{Candidate, FleetView, Load};

/// Relative and absolute (seconds) width of a tie.
const TIE_RATIO: f64 = 0.05;
const TIE_SECONDS: f64 = 0.005;
/// A prefill counts for this request and for the next ones.
const OWN: f64 = 2.5;
/// A second of waiting is worth so many.
const WAIT: f64 = 1.75;
/// Use of a cache from which on requests wait for others to end.
const PRESSED_FROM: f64 = 0.9;
/// How much of what a request takes from each answer in flight counts: some end before.
const ANSWERS: f64 = 0.6;
/// And for `ttft`.
const CROWD: f64 = 0.25;
/// How many shares twice the mean work makes a request dearer by.
const TURN: f64 = 4.0;
/// Differences of work within so many seconds are no unfairness yet.
const TURN_SECONDS: f64 = 2.0;
/// Least and most of it.
const TURN_RANGE: (f64, f64) = (-1.0, 4.0);
/// What a second of more work than the mean costs whatever the request, and how many times computing
/// the whole prompt at most: enough to compute it elsewhere.
const AHEAD: f64 = 0.05;
const COPY: f64 = 2.5;

/// Takes the candidate with the least added latency.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency;

/// `ttft`: as [`Latency`] for those who want time to first token alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ttft;

impl Policy for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn fork(&self, _: &Query<'_>) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        cheapest(query, view.candidates, moment.rng, ANSWERS)
    }

    fn pair(
        &mut self,
        query: &Query<'_>,
        sides: &Sides<'_>,
        pairing: &Pairing,
        moment: &mut Moment<'_>,
    ) -> Option<Paired> {
        pair::cheapest(query, sides, pairing, ANSWERS, moment.rng)
    }
}

impl Policy for Ttft {
    fn name(&self) -> &'static str {
        "ttft"
    }

    fn fork(&self, _: &Query<'_>) -> Box<dyn Policy> {
        Box::new(*self)
    }

    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        cheapest(query, view.candidates, moment.rng, CROWD)
    }

    fn pair(
        &mut self,
        query: &Query<'_>,
        sides: &Sides<'_>,
        pairing: &Pairing,
        moment: &mut Moment<'_>,
    ) -> Option<Paired> {
        pair::cheapest(query, sides, pairing, CROWD, moment.rng)
    }
}

/// The least cost, with this part of what is taken from answers in flight.
fn cheapest(
    query: &Query<'_>,
    candidates: &[Candidate],
    rng: &mut Rng,
    crowd: f64,
) -> Option<Choice> {
    let estimates: Vec<Estimate> = candidates.iter().map(|c| Estimate::of(query, c)).collect();
    let mean = mean_work(&estimates);
    let cost = |e: &Estimate| e.added(crowd) + e.turn(mean);
    let scores: Vec<f64> = estimates.iter().map(cost).collect();
    let lowest = scores.iter().copied().reduce(f64::min)?;
    let limit = tie_limit(lowest);
    let tied = (0..candidates.len()).filter(|place| scores[*place] <= limit);
    let key = |place: usize| {
        let candidate = &candidates[place];
        let Load { in_flight, recent_work, .. } = candidate.load;
        // Tokens, not seconds: what rates differ by among equals may be chance.
        (candidate.uncached(query.prompt_tokens), in_flight, recent_work)
    };
    let index = smallest_by(tied, key, rng)?;
    let warm = candidates[index].overlap.resident() > 0;
    let reason = if warm { Reason::LeastLatencyWarm } else { Reason::LeastLatencyCold };
    Some(Choice { index, reason, scores, detail: "" })
}

/// What part of what is taken from answers in flight counts under a policy; `None` where it has no costs.
pub(crate) fn crowd_of(policy: &str) -> Option<f64> {
    match policy {
        "latency" => Some(ANSWERS),
        "ttft" => Some(CROWD),
        _ => None,
    }
}

/// Costs up to this tie with the lowest.
pub(crate) fn tie_limit(lowest: f64) -> f64 {
    lowest + (lowest * TIE_RATIO).max(TIE_SECONDS)
}

/// The mean of the work given to them lately.
#[expect(clippy::cast_precision_loss, reason = "fleets are far smaller than 2^52")]
pub(crate) fn mean_work(estimates: &[Estimate]) -> f64 {
    estimates.iter().map(|estimate| estimate.work).sum::<f64>() / estimates.len().max(1) as f64
}

/// What one candidate would do with a request, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Estimate {
    /// Until what was sent there before is computed.
    pub(crate) wait: f64,
    /// It computes and fetches for the request.
    pub(crate) own: f64,
    /// What it takes from others: its prefill, and reading its context.
    pub(crate) share: f64,
    /// Computing the whole prompt.
    whole: f64,
    pub(crate) in_flight: f64,
    pub(crate) pressure: f64,
    /// Work it was given lately.
    work: f64,
}

impl Estimate {
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub(crate) fn of(query: &Query<'_>, candidate: &Candidate) -> Self {
        let Candidate { load, .. } = candidate;
        let rate = candidate.prefill_rate.max(1.0);
        let fetch = f64::from(candidate.fetched()) / candidate.fetch_rate.max(1.0);
        let own = candidate.uncached(query.prompt_tokens) as f64 / rate + fetch;
        let whole = query.prompt_tokens as f64 / rate;
        let used = load.kv_usage.unwrap_or(0.0);
        let over = (used - PRESSED_FROM) / (1.0 - PRESSED_FROM);
        Self {
            wait: load.queued_prefill_tokens as f64 / rate,
            own,
            share: own + READING * whole,
            whole,
            in_flight: f64::from(load.in_flight),
            pressure: 1.0 + over.clamp(0.0, 1.0),
            work: load.recent_work / rate,
        }
    }

    /// The same of a request whose prompt is computed elsewhere.
    pub(crate) fn fetched(self) -> Self {
        Self { own: 0.0, share: READING * self.whole, ..self }
    }

    /// What such a request adds, but for the transfer: see [`crate::pair`].
    pub(crate) fn fetching(&self, crowd: f64) -> f64 {
        self.fetched().added(crowd) + self.room()
    }

    /// What it waits for room for what it fetches.
    pub(crate) fn room(&self) -> f64 {
        (self.pressure - 1.0) * OWN * self.own
    }

    /// What the request adds, with this part of what is taken from answers in flight.
    pub(crate) fn added(&self, crowd: f64) -> f64 {
        self.pressure * (WAIT * self.wait + OWN * self.own) + crowd * self.in_flight * self.share
    }

    /// What its having been given more or less work than the mean of its like makes of that.
    pub(crate) fn turn(&self, mean: f64) -> f64 {
        let (ahead, (least, most)) = (self.work - mean, TURN_RANGE);
        let shares = (TURN * ahead / (mean + TURN_SECONDS)).clamp(least, most);
        shares * self.share + (AHEAD * ahead.max(0.0)).min(COPY * self.whole)
    }
}

/// Seconds until the first token, as far as is known.
pub(crate) fn expected_ttft(query: &Query<'_>, candidate: &Candidate) -> f64 {
    let estimate = Estimate::of(query, candidate);
    estimate.wait + estimate.own
}

/// Seconds added to this request, to those in flight and to the next one, fairness left aside.
pub(crate) fn latency_cost(query: &Query<'_>, candidate: &Candidate) -> f64 {
    Estimate::of(query, candidate).added(ANSWERS)
}
