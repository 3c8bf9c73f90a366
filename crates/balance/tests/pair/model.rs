//! The costs, pair by pair, as the documentation has them.

use kvasir_balance::{Candidate, Cut, Exclusion, Load, Pairing, Role};
use proptest::prelude::*;

use super::{COST, Overlap, Pool, Tier, Trust};

/// (wait, own, whole, pressure, work) in seconds.
fn terms(c: &Candidate) -> (f64, f64, f64, f64, f64) {
    let cached = f64::from(c.overlap.resident() + c.pending).min(8_000.0);
    let own = (8_000.0 - cached) / c.prefill_rate;
    let over = (c.load.kv_usage.unwrap_or(0.0) - 0.9) / 0.1;
    let wait = c.load.queued_prefill_tokens as f64 / c.prefill_rate;
    let work = c.load.recent_work / c.prefill_rate;
    (wait, own, 8_000.0 / c.prefill_rate, 1.0 + over.clamp(0.0, 1.0), work)
}

fn turn(c: &Candidate, share: f64, mean: f64) -> f64 {
    let (_, _, whole, _, work) = terms(c);
    let shares = (4.0 * (work - mean) / (mean + 2.0)).clamp(-1.0, 4.0) * share;
    shares + (0.05 * (work - mean).max(0.0)).min(2.5 * whole)
}

fn whole(c: &Candidate, mean: f64) -> f64 {
    let (wait, own, whole, pressure, _) = terms(c);
    let (share, n) = (own + 0.1 * whole, f64::from(c.load.in_flight));
    let bypass = if c.role == Role::Decode { 0.6 * own } else { 0.0 };
    pressure * (1.75 * wait + 2.5 * own) + 0.6 * n * share + turn(c, share, mean) + bypass
}

fn split(p: &Candidate, d: &Candidate, means: (f64, f64), pairing: &Pairing) -> f64 {
    let (wait, own, whole, pressure, _) = terms(p);
    let prefill = pressure * (1.75 * wait + 2.5 * own) + turn(p, own + 0.1 * whole, means.0);
    let (wait, own, whole, pressure, _) = terms(d);
    let lacks = own * d.prefill_rate;
    let transfer = pairing.transfer_s + lacks / d.transfer_rate;
    let (share, n) = (0.1 * whole, f64::from(d.load.in_flight));
    let room = (pressure - 1.0) * 2.5 * own;
    prefill + transfer + pressure * 1.75 * wait + room + 0.6 * n * share + turn(d, share, means.1)
}

/// What every plan costs: who answers, and who computes the prompt for it.
pub(super) fn plans(
    rows: &[Candidate],
    exclusions: &[Option<Exclusion>],
) -> Vec<(f64, usize, Option<usize>)> {
    let of = |role| -> Vec<usize> {
        (0..rows.len()).filter(|at| rows[*at].role == role && exclusions[*at].is_none()).collect()
    };
    let mean = |side: &[usize]| {
        side.iter().map(|at| terms(&rows[*at]).4).sum::<f64>() / side.len().max(1) as f64
    };
    let (prefill, decode, unified) = (of(Role::Prefill), of(Role::Decode), of(Role::Unified));
    let means = (mean(&prefill), mean(&decode));
    let mut plans = Vec::new();
    plans.extend(decode.iter().map(|d| (whole(&rows[*d], means.1), *d, None)));
    plans.extend(unified.iter().map(|u| (whole(&rows[*u], mean(&unified)), *u, None)));
    for p in &prefill {
        let cost = |d: usize| split(&rows[*p], &rows[d], means, &COST);
        plans.extend(decode.iter().map(|d| (cost(*d), *d, Some(*p))));
    }
    plans
}

prop_compose! {
    fn endpoint()(
        role in prop::sample::select(&Role::ALL[..]),
        (resident, pending) in (0_u32..8_000, 0_u32..2_000),
        (in_flight, queued) in (0_u32..40, 0_u64..30_000),
        (recent_work, kv_usage) in (0.0..200_000.0, prop::option::of(0.0..1.0)),
        prefill_rate in 2_000.0..20_000.0,
        transfer_rate in 5_000.0..400_000.0,
    ) -> Candidate {
        let mut overlap = Overlap::default();
        overlap.add(Tier::Device, resident);
        let queued_prefill_tokens = queued;
        let load = Load { in_flight, queued_prefill_tokens, recent_work, waiting: None, kv_usage };
        let trust = Trust::Exact;
        Candidate {
            role, overlap, pending, trust, load, prefill_rate, transfer_rate,
            ..Candidate::default()
        }
    }
}

proptest! {
    #[test]
    fn the_choice_is_the_least_of_all_plans(
        rows in prop::collection::vec(endpoint(), 0..9),
        out in prop::collection::vec(prop::bool::weighted(0.2), 9),
        cut in prop::collection::vec((0_usize..9, 0_usize..9), 0..12),
    ) {
        let exclusions: Vec<Option<Exclusion>> =
            out.iter().map(|out| out.then_some(Exclusion::Disabled)).collect();
        let cut: Vec<Cut> =
            cut.into_iter().map(|(prefill, decode)| Cut::Link { prefill, decode }).collect();
        let pool = Pool { cut: cut.clone(), ..Pool::without(&exclusions) };
        let found = pool.decide(&rows);
        let is_cut = |prefill, decode| cut.contains(&Cut::Link { prefill, decode });
        // Who can hand over to nobody is not there.
        let feeds = |prefill: usize| {
            (0..rows.len()).any(|decode| {
                let is_there = exclusions[decode].is_none();
                is_there && rows[decode].role == Role::Decode && !is_cut(prefill, decode)
            })
        };
        let mut present = exclusions.clone();
        for place in (0..rows.len()).filter(|p| rows[*p].role == Role::Prefill && !feeds(*p)) {
            present[place] = Some(Exclusion::Disabled);
        }
        let mut plans = plans(&rows, &present);
        plans.retain(|plan| plan.2.is_none_or(|prefill| !is_cut(prefill, plan.1)));
        let least = plans.iter().map(|plan| plan.0).fold(f64::INFINITY, f64::min);
        let Some(found) = found else {
            prop_assert!(plans.is_empty());
            return Ok(());
        };
        let limit = least + (0.05 * least).max(0.005) + 1e-9;
        let tied: Vec<_> = plans.iter().filter(|plan| plan.0 <= limit).collect();
        let is_it = |plan: &&&(f64, usize, Option<usize>)| {
            (plan.1, plan.2) == (found.index, found.prefill)
        };
        prop_assert!(tied.iter().any(|plan| is_it(&plan)), "{found:?} of {plans:?}");
        // What stands beside an endpoint is the best plan it is part of.
        for (place, score) in found.considered.iter().zip(&found.scores) {
            let part = plans.iter().filter(|plan| plan.1 == *place || plan.2 == Some(*place));
            let best = part.map(|plan| plan.0).fold(f64::INFINITY, f64::min);
            prop_assert!((best - score).abs() < 1e-6, "{place}: {score}, {best}");
        }
    }
}
