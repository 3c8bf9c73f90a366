//! `latency`: the least latency added to this request and to those in flight. The default.
//!
//! For a candidate with credited tokens `C`, resident and pending, of a prompt of `P`, prefill rate `r`, queued
//! prefill tokens `Q` and `n` requests in flight, in seconds:
//!
//! ```text
//! own  = (P - C) / r
//! wait = Q / r
//! cost = wait + own + own * (1 + n / 4)
//! ```
//!
//! What is pending costs this request nothing of its own: it waits until that is computed, and that
//! is part of `Q`.
//!
//! The last term is the delay this choice imposes on whoever is already there and on whoever comes
//! next. Costs within the larger of 5 % and 5 ms of the lowest tie: the least own work wins, then
//! the fewest in flight, then a seeded random one. Nothing here is a weight for a user to tune.
//!
//! Not yet in this formula: what it costs to reload blocks from slower tiers (they count like
//! device blocks), and cache pressure.

use super::smallest_by;
use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::rng::Rng;
use crate::view::{Candidate, FleetView};

/// Relative and absolute (seconds) width of a tie.
const TIE_RATIO: f64 = 0.05;
const TIE_SECONDS: f64 = 0.005;
/// In-flight requests that double the delay a prefill imposes.
const CROWD: f64 = 4.0;

/// Takes the candidate with the least added latency.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency;

/// `ttft`: as [`Latency`] without its last term, for those who want time to first token alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ttft;

impl Policy for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        cheapest(query, view.candidates, moment.rng, latency_cost)
    }
}

impl Policy for Ttft {
    fn name(&self) -> &'static str {
        "ttft"
    }

    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        cheapest(query, view.candidates, moment.rng, ttft_cost)
    }
}

fn cheapest(
    query: &Query<'_>,
    candidates: &[Candidate],
    rng: &mut Rng,
    cost: impl Fn(&Query<'_>, &Candidate) -> f64,
) -> Option<Choice> {
    let scores: Vec<f64> = candidates.iter().map(|c| cost(query, c)).collect();
    let lowest = scores.iter().copied().reduce(f64::min)?;
    let limit = lowest + (lowest * TIE_RATIO).max(TIE_SECONDS);
    let tied = (0..candidates.len()).filter(|place| scores[*place] <= limit);
    let key = |place: usize| {
        let candidate = &candidates[place];
        (candidate.uncached(query.prompt_tokens), candidate.load.in_flight)
    };
    let index = smallest_by(tied, key, rng)?;
    let warm = candidates[index].overlap.resident() > 0;
    let reason = if warm { Reason::LeastLatencyWarm } else { Reason::LeastLatencyCold };
    Some(Choice { index, reason, scores, detail: "" })
}

/// Seconds until the candidate has computed what it has in hand, and until it has then computed
/// this prompt.
#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn wait_and_own(query: &Query<'_>, candidate: &Candidate) -> (f64, f64) {
    let rate = candidate.prefill_rate.max(1.0);
    let own = candidate.uncached(query.prompt_tokens) as f64 / rate;
    (candidate.load.queued_prefill_tokens as f64 / rate, own)
}

/// Seconds until the first token.
pub(crate) fn ttft_cost(query: &Query<'_>, candidate: &Candidate) -> f64 {
    let (wait, own) = wait_and_own(query, candidate);
    wait + own
}

/// Seconds added to this request and to the others there.
pub(crate) fn latency_cost(query: &Query<'_>, candidate: &Candidate) -> f64 {
    let (wait, own) = wait_and_own(query, candidate);
    wait + own + own * (1.0 + f64::from(candidate.load.in_flight) / CROWD)
}
