//! The plan that costs least, by the terms of the policy `latency`.
//!
//! With `Estimate` of an endpoint as there, for a prompt of `P` tokens of which a decode endpoint `d`
//! holds or is computing `C`:
//!
//! ```text
//! whole(u)    = latency(u)
//! whole(d)    = latency(d) + 0.6 * own(d)
//! prefill(p)  = pressure(p) * (1.75 * wait(p) + 2.5 * own(p)) + turn(p)
//! transfer(d) = fixed + (P - C) / transfer_rate(d)
//! decode(d)   = pressure(d) * 1.75 * wait(d) + (pressure(d) - 1) * 2.5 * own(d)
//!               + 0.6 * n(d) * 0.1 * P / r(d) + turn(d)
//! split(p, d) = prefill(p) + transfer(d) + decode(d)
//! ```
//!
//! - `whole(d)` bypasses the prefill endpoints. It counts one answer more than are in flight at `d`:
//!   answers come there all the time, and what is computed there delays them. (`ttft`: 0.25 for 0.6.)
//! - In `decode(d)` nothing is computed, and so only reading the context takes from others. Where the
//!   cache is nearly full, room for what is fetched has to be waited for as to compute it.
//! - `turn` goes by the mean of the endpoints of one role: they are not given the same work.
//!
//! Nothing in `split` depends on both, so the least of each side together are the least pair; only where
//! hand-overs are [cut](super::Cut) it is looked for who can fetch from whom. Ties are as there; of two plans with as much to compute the one with fewer legs wins.

use std::borrow::Cow;

use super::{Legs, PairPlan, PairSelect, Paired, Pairing, Sides};
use crate::choice::Reason;
use crate::policies::{Estimate, mean_work, smallest_by, tie_limit};
use crate::query::Query;
use crate::rng::Rng;
use crate::view::Candidate;

/// Sums of the same terms may differ by so much, by the order they are added in.
const EPSILON: f64 = 1e-12;

/// What each endpoint of one side costs, in the order of its places.
#[derive(Clone)]
pub(super) struct Costs<'a> {
    places: Cow<'a, [usize]>,
    seconds: Vec<f64>,
}

/// What the parts of all plans cost.
pub(super) struct Sheet<'a> {
    pub(super) prefill: Costs<'a>,
    pub(super) unified: Costs<'a>,
    /// Decode endpoints that do all of it.
    pub(super) bypass: Costs<'a>,
    /// Decode endpoints that fetch, the transfer included.
    pub(super) decode: Costs<'a>,
}

/// A plan that is within the tie, and what ties are broken by: tokens to compute, legs, requests in
/// flight, work lately.
#[derive(Clone, Copy)]
struct Tied {
    legs: (usize, Option<usize>),
    key: (u64, u8, u32, f64),
}

/// The plan that costs least, with this part of what is taken from answers in flight. `None` where
/// there is no endpoint.
pub(crate) fn cheapest(
    query: &Query<'_>,
    sides: &Sides<'_>,
    pairing: &Pairing,
    crowd: f64,
    rng: &mut Rng,
) -> Option<Paired> {
    let Sheet { prefill, unified, bypass, decode } = Sheet::of(query, sides, pairing, crowd);
    if pairing.legs == Legs::Decode {
        let index = decode.pick(query, sides, tie_limit(decode.least()?), rng)?;
        return Some(paired(sides, PairPlan::Split, (index, None), decode.each().collect()));
    }
    let least_decode = decode.least();
    // The least of those that can fetch from there.
    let least_for = |p: usize| match least_decode {
        Some(least) if sides.cut.is_empty() => least,
        Some(_) => decode.among(&sides.fetching_from(p)).least().unwrap_or(f64::INFINITY),
        None => f64::INFINITY,
    };
    let pairs = prefill.clone().plus(least_for);
    let lowest = [unified.least(), bypass.least(), pairs.least()].into_iter().flatten();
    let limit = tie_limit(lowest.reduce(f64::min)?);
    let mut tied: Vec<Tied> = Vec::new();
    for whole in [&unified, &bypass] {
        let index = whole.pick(query, sides, limit, rng);
        tied.extend(index.map(|index| Tied::of(query, sides, (index, None))));
    }
    if let Some(p) = pairs.pick(query, sides, limit, rng) {
        let to = sides.fetching_from(p);
        let d = decode.among(&to).pick(query, sides, limit - prefill.at(p), rng);
        tied.extend(d.map(|d| Tied::of(query, sides, (d, Some(p)))));
    }
    let best = tied.into_iter().reduce(|one, two| if two.key < one.key { two } else { one })?;
    let plan = match best.legs.1 {
        Some(_) => PairPlan::Split,
        None if sides.unified.contains(&best.legs.0) => PairPlan::Unified,
        None => pairing.alone(!sides.prefill.is_empty()),
    };
    // Of every candidate the cost of the best plan it is part of.
    let least_prefill = prefill.least();
    let least_from = |d: usize| match least_prefill {
        Some(least) if sides.cut.is_empty() => least,
        _ => {
            let feeding = prefill.each().filter(|(p, _)| sides.fetching_from(*p).contains(&d));
            feeding.map(|(_, cost)| cost).fold(f64::INFINITY, f64::min)
        }
    };
    let mut scores: Vec<(usize, f64)> = unified.each().chain(pairs.each()).collect();
    scores.extend(decode.each().map(|(d, cost)| (d, bypass.at(d).min(least_from(d) + cost))));
    Some(paired(sides, plan, best.legs, scores))
}

/// Seconds until a decode endpoint has what it lacks of a prompt that is computed.
#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
pub(super) fn transfer(query: &Query<'_>, candidate: &Candidate, pairing: &Pairing) -> f64 {
    let tokens = candidate.uncached(query.prompt_tokens) as f64;
    pairing.transfer_s + tokens / candidate.transfer_rate.max(1.0)
}

fn paired(
    sides: &Sides<'_>,
    plan: PairPlan,
    (index, prefill): (usize, Option<usize>),
    mut scored: Vec<(usize, f64)>,
) -> Paired {
    scored.sort_unstable_by_key(|(place, _)| *place);
    let computes = &sides.candidates[prefill.unwrap_or(index)];
    let warm = computes.overlap.resident() > 0;
    let reason = if warm { Reason::LeastLatencyWarm } else { Reason::LeastLatencyCold };
    let (considered, scores) = scored.into_iter().unzip();
    let decode_by = (plan == PairPlan::Split).then_some(PairSelect::Cost);
    Paired { plan, index, prefill, decode_by, reason, detail: "", considered, scores }
}

// === impl Sheet ===

impl<'a> Sheet<'a> {
    pub(super) fn of(query: &Query<'_>, sides: &Sides<'a>, pairing: &Pairing, crowd: f64) -> Self {
        let estimate = |place: &usize| Estimate::of(query, &sides.candidates[*place]);
        let of = |places| Costs::of(places, estimate, |e, mean| e.added(crowd) + e.turn(mean));
        let alone: &[usize] = if pairing.decode_computes() { sides.decode } else { &[] };
        let fetching = |e: &Estimate, mean| e.fetching(crowd) + e.fetched().turn(mean);
        Self {
            prefill: Costs::of(sides.prefill, estimate, |e, mean| e.added(0.0) + e.turn(mean)),
            unified: of(sides.unified),
            bypass: of(alone).plus(|place| crowd * estimate(&place).own),
            decode: Costs::of(sides.decode, estimate, fetching)
                .plus(|place| transfer(query, &sides.candidates[place], pairing)),
        }
    }
}

// === impl Costs ===

impl<'a> Costs<'a> {
    /// `cost` is told the mean of the side's recent work.
    fn of(
        places: &'a [usize],
        estimate: impl Fn(&usize) -> Estimate,
        cost: impl Fn(&Estimate, f64) -> f64,
    ) -> Self {
        let estimates: Vec<Estimate> = places.iter().map(estimate).collect();
        let mean = mean_work(&estimates);
        let seconds = estimates.iter().map(|e| cost(e, mean)).collect();
        Self { places: Cow::Borrowed(places), seconds }
    }

    fn plus(mut self, more: impl Fn(usize) -> f64) -> Self {
        for (place, seconds) in self.places.iter().zip(&mut self.seconds) {
            *seconds += more(*place);
        }
        self
    }

    /// Of these alone.
    fn among(&self, places: &[usize]) -> Costs<'_> {
        if places.len() == self.places.len() {
            return Costs { places: Cow::Borrowed(&self.places), seconds: self.seconds.clone() };
        }
        let (places, seconds) = self.each().filter(|(place, _)| places.contains(place)).unzip();
        Costs { places: Cow::Owned(places), seconds }
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (usize, f64)> {
        self.places.iter().copied().zip(self.seconds.iter().copied())
    }

    pub(super) fn least(&self) -> Option<f64> {
        self.seconds.iter().copied().reduce(f64::min)
    }

    /// What the endpoint at this place costs, which is one of them.
    pub(super) fn at(&self, place: usize) -> f64 {
        self.each().find(|(known, _)| *known == place).map_or(f64::INFINITY, |(_, cost)| cost)
    }

    /// One of those that cost no more than `limit`: who has the least to compute, the fewest requests,
    /// the least work lately.
    fn pick(
        &self,
        query: &Query<'_>,
        sides: &Sides<'_>,
        limit: f64,
        rng: &mut Rng,
    ) -> Option<usize> {
        // The least itself is within, whatever the arithmetic made of the last bit.
        let least = self.least()?;
        let slack = EPSILON * least.abs().max(1.0);
        let within = self.each().filter(|(_, cost)| *cost <= limit + slack).map(|(at, _)| at);
        let key = |place: usize| {
            let candidate = &sides.candidates[place];
            let uncached = candidate.uncached(query.prompt_tokens);
            (uncached, candidate.load.in_flight, candidate.load.recent_work)
        };
        smallest_by(within, key, rng)
    }
}

// === impl Tied ===

impl Tied {
    fn of(query: &Query<'_>, sides: &Sides<'_>, legs: (usize, Option<usize>)) -> Self {
        let (index, prefill) = legs;
        let (answers, computes) =
            (&sides.candidates[index], &sides.candidates[prefill.unwrap_or(index)]);
        let uncached = computes.uncached(query.prompt_tokens);
        let mut in_flight = answers.load.in_flight;
        if prefill.is_some() {
            in_flight = in_flight.saturating_add(computes.load.in_flight);
        }
        let key = (uncached, u8::from(prefill.is_some()), in_flight, computes.load.recent_work);
        Self { legs, key }
    }
}
