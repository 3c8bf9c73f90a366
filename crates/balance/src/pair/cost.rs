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
//! Nothing in `split` depends on both, so the least of each side together are the least pair. Ties are
//! as there; of two plans with as much to compute the one with fewer legs wins.

use super::{Legs, PairPlan, Paired, Pairing, Sides};
use crate::choice::Reason;
use crate::policies::{Estimate, mean_work, smallest_by, tie_limit};
use crate::query::Query;
use crate::rng::Rng;
use crate::view::Candidate;

/// Sums of the same terms may differ by so much, by the order they are added in.
const EPSILON: f64 = 1e-12;

/// What each endpoint of one side costs, in the order of its places.
struct Costs<'a> {
    places: &'a [usize],
    seconds: Vec<f64>,
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
    let estimate = |place: &usize| Estimate::of(query, &sides.candidates[*place]);
    let of = |places| Costs::of(places, estimate, |e, mean| e.added(crowd) + e.turn(mean));
    let prefill = Costs::of(sides.prefill, estimate, |e, mean| e.added(0.0) + e.turn(mean));
    let unified = of(sides.unified);
    let alone: &[usize] = if pairing.decode_computes() { sides.decode } else { &[] };
    let bypass = of(alone).plus(|place| crowd * estimate(&place).own());
    let fetching = |e: &Estimate, mean| e.fetching(crowd) + e.fetched().turn(mean);
    let decode = Costs::of(sides.decode, estimate, fetching)
        .plus(|place| transfer(query, &sides.candidates[place], pairing));
    if pairing.legs == Legs::Decode {
        let index = decode.pick(query, sides, tie_limit(decode.least()?), rng)?;
        return Some(paired(sides, PairPlan::Split, (index, None), decode.each().collect()));
    }
    let split = prefill.least().zip(decode.least()).map(|(p, d)| p + d);
    let lowest = [unified.least(), bypass.least(), split].into_iter().flatten();
    let limit = tie_limit(lowest.reduce(f64::min)?);
    let mut tied: Vec<Tied> = Vec::new();
    for whole in [&unified, &bypass] {
        let index = whole.pick(query, sides, limit, rng);
        tied.extend(index.map(|index| Tied::of(query, sides, (index, None))));
    }
    if let Some(least) = decode.least()
        && let Some(p) = prefill.pick(query, sides, limit - least, rng)
        && let Some(d) = decode.pick(query, sides, limit - prefill.at(p), rng)
    {
        tied.push(Tied::of(query, sides, (d, Some(p))));
    }
    let best = tied.into_iter().reduce(|one, two| if two.key < one.key { two } else { one })?;
    let plan = match best.legs.1 {
        Some(_) => PairPlan::Split,
        None if sides.unified.contains(&best.legs.0) => PairPlan::Unified,
        None if sides.prefill.is_empty() => PairPlan::NoPrefill,
        None => PairPlan::DecodeHolds,
    };
    // Of every candidate the cost of the best plan it is part of.
    let (p, d) = (prefill.least(), decode.least());
    let mut scores: Vec<(usize, f64)> = unified.each().collect();
    scores.extend(prefill.each().map(|(at, cost)| (at, cost + d.unwrap_or(0.0))));
    scores.extend(decode.each().map(|(at, cost)| {
        let alone = bypass.at(at);
        (at, p.map_or(alone, |p| alone.min(p + cost)))
    }));
    Some(paired(sides, plan, best.legs, scores))
}

/// Seconds until a decode endpoint has what it lacks of a prompt that is computed.
#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn transfer(query: &Query<'_>, candidate: &Candidate, pairing: &Pairing) -> f64 {
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
    Paired { plan, index, prefill, reason, detail: "", considered, scores }
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
        Self { places, seconds: estimates.iter().map(|e| cost(e, mean)).collect() }
    }

    fn plus(mut self, more: impl Fn(usize) -> f64) -> Self {
        for (place, seconds) in self.places.iter().zip(&mut self.seconds) {
            *seconds += more(*place);
        }
        self
    }

    fn each(&self) -> impl Iterator<Item = (usize, f64)> {
        self.places.iter().copied().zip(self.seconds.iter().copied())
    }

    fn least(&self) -> Option<f64> {
        self.seconds.iter().copied().reduce(f64::min)
    }

    /// What the endpoint at this place costs, which is one of them.
    fn at(&self, place: usize) -> f64 {
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
