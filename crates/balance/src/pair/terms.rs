//! What the plans of one request cost, term by term: for whoever wants to know why a pair was chosen.

use serde::Serialize;

use super::cost::{Costs, Sheet, transfer};
use super::{Legs, PairPlan, PairSelect, Pairing, Sides};
use crate::policies::{Estimate, crowd_of, mean_work};
use crate::query::Query;
use crate::view::Candidate;

/// So many endpoints of each side are told of, the cheapest ones.
const MOST: usize = 16;

/// The terms of both sides, and the best of each kind of plan. Seconds, as in
/// [`crate::Latency`]'s costs; endpoints are places in the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PairTerms {
    /// Those who may compute the prompt for another, the cheapest first.
    pub prefill: Vec<PrefillTerms>,
    /// Those who may answer, the cheapest first.
    pub decode: Vec<DecodeTerms>,
    /// The least of each kind, the cheapest first.
    pub plans: Vec<PlanCost>,
    /// Endpoints of either side beyond those told of.
    pub untold: usize,
}

/// What computing the prompt costs at one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PrefillTerms {
    /// The endpoint.
    pub place: usize,
    /// Prompts before it.
    pub wait_s: f64,
    /// The prompt itself, less what is cached.
    pub own_s: f64,
    /// What the use of its cache makes of both, from 1 to 2.
    pub pressure: f64,
    /// Its having been given more or less work than the others.
    pub turn_s: f64,
    /// Tokens of the prompt that are resident or pending there.
    pub overlap: u64,
    /// All together.
    pub cost_s: f64,
}

/// What answering costs at one endpoint, whose prompt is computed elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DecodeTerms {
    /// The endpoint.
    pub place: usize,
    /// Answers in flight there.
    pub in_flight: u32,
    /// What the request takes from them.
    pub load_s: f64,
    /// Prompts before it.
    pub wait_s: f64,
    /// What the use of its cache makes of that, from 1 to 2.
    pub pressure: f64,
    /// Waiting for room for what is fetched.
    pub room_s: f64,
    /// Its having been given more or less work than the others.
    pub turn_s: f64,
    /// Tokens of the prompt that are resident or pending there, and not fetched.
    pub overlap: u64,
    /// Handing over the rest.
    pub transfer: TransferTerms,
    /// All together, the transfer included.
    pub cost_s: f64,
    /// What it costs where it computes the prompt, too; `None` where it does not.
    pub whole_s: Option<f64>,
}

/// What handing over KV costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TransferTerms {
    /// Tokens to hand over.
    pub tokens: u64,
    /// What it takes however few these are.
    pub fixed_s: f64,
    /// Tokens a second.
    pub rate: f64,
    /// All together.
    pub cost_s: f64,
}

/// The best plan of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlanCost {
    /// Its kind ([`PairPlan`]).
    pub plan: &'static str,
    /// Who answers.
    pub place: usize,
    /// Who computes the prompt, where that is another.
    pub prefill: Option<usize>,
    /// What it costs.
    pub cost_s: f64,
}

impl PairTerms {
    /// The terms of a request under a policy that has costs; `None` where pairs are not compared by
    /// cost.
    #[must_use]
    pub fn of(
        policy: &str,
        query: &Query<'_>,
        sides: &Sides<'_>,
        pairing: &Pairing,
    ) -> Option<Self> {
        let crowd = crowd_of(policy).filter(|_| pairing.select == PairSelect::Cost)?;
        let sheet = Sheet::of(query, sides, pairing, crowd);
        let estimates = |places: &[usize]| -> Vec<Estimate> {
            places.iter().map(|place| Estimate::of(query, &sides.candidates[*place])).collect()
        };
        let mean = mean_work(&estimates(sides.prefill));
        let prefill = |(place, cost_s): (usize, f64)| {
            let candidate = &sides.candidates[place];
            let estimate = Estimate::of(query, candidate);
            let Estimate { wait: wait_s, own: own_s, pressure, .. } = estimate;
            let (turn_s, overlap) = (estimate.turn(mean), held(query, candidate));
            PrefillTerms { place, wait_s, own_s, pressure, turn_s, overlap, cost_s }
        };
        let mean = mean_work(&estimates(sides.decode));
        let decode = |(place, cost_s): (usize, f64)| {
            let candidate = &sides.candidates[place];
            let estimate = Estimate::of(query, candidate);
            let fetched = estimate.fetched();
            DecodeTerms {
                place,
                in_flight: candidate.load.in_flight,
                load_s: crowd * fetched.in_flight * fetched.share,
                wait_s: estimate.wait,
                pressure: estimate.pressure,
                room_s: estimate.room(),
                turn_s: fetched.turn(mean),
                overlap: held(query, candidate),
                transfer: TransferTerms {
                    tokens: candidate.uncached(query.prompt_tokens),
                    fixed_s: pairing.transfer_s,
                    rate: candidate.transfer_rate,
                    cost_s: transfer(query, candidate, pairing),
                },
                cost_s,
                whole_s: Some(sheet.bypass.at(place)).filter(|cost| cost.is_finite()),
            }
        };
        let prefill: Vec<PrefillTerms> = if pairing.legs == Legs::Any {
            sheet.prefill.each().map(prefill).collect()
        } else {
            Vec::new()
        };
        let decode: Vec<DecodeTerms> = sheet.decode.each().map(decode).collect();
        let mut all = Self { prefill, decode, plans: plans(&sheet, sides, pairing), untold: 0 };
        all.prefill.sort_by(|a, b| a.cost_s.total_cmp(&b.cost_s));
        all.decode.sort_by(|a, b| a.cost_s.total_cmp(&b.cost_s));
        let over = |count: usize| count.saturating_sub(MOST);
        all.untold = over(all.prefill.len()) + over(all.decode.len());
        all.prefill.truncate(MOST);
        all.decode.truncate(MOST);
        Some(all)
    }
}

/// Tokens of the prompt that it will not have to compute or to fetch.
fn held(query: &Query<'_>, candidate: &Candidate) -> u64 {
    query.prompt_tokens.saturating_sub(candidate.uncached(query.prompt_tokens))
}

/// The least of each kind.
fn plans(sheet: &Sheet<'_>, sides: &Sides<'_>, pairing: &Pairing) -> Vec<PlanCost> {
    let least = |costs: &Costs<'_>| costs.each().min_by(|a, b| a.1.total_cmp(&b.1));
    let mut plans = Vec::new();
    let mut add = |plan: PairPlan, prefill, found: Option<(usize, f64)>| {
        let plan = plan.as_str();
        plans.extend(found.map(|(place, cost_s)| PlanCost { plan, place, prefill, cost_s }));
    };
    if pairing.legs == Legs::Decode {
        add(PairPlan::Split, None, least(&sheet.decode));
        return plans;
    }
    add(PairPlan::Unified, None, least(&sheet.unified));
    add(pairing.alone(!sides.prefill.is_empty()), None, least(&sheet.bypass));
    let pairs = sheet.prefill.each().filter_map(|(p, cost)| {
        let to = sides.fetching_from(p);
        let of_it = sheet.decode.each().filter(|(d, _)| to.contains(d));
        let (d, more) = of_it.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((p, d, cost + more))
    });
    if let Some((p, d, cost)) = pairs.min_by(|a, b| a.2.total_cmp(&b.2)) {
        add(PairPlan::Split, Some(p), Some((d, cost)));
    }
    plans.sort_by(|a, b| a.cost_s.total_cmp(&b.cost_s));
    plans
}
