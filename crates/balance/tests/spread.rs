//! Equals are treated as equals, however noisy what is measured of them.

use std::time::Duration;

use kvasir_balance::{
    Candidate, EndpointId, FleetView, Load, Moment, PolicyKind, PrefillRate, Query, RecentWork,
    Rng, expected_rate, median_rate,
};

struct Endpoint {
    rate: PrefillRate,
    recent: RecentWork,
    requests: u32,
    tokens: u64,
    /// What it really does.
    speed: f64,
}

/// A number between a third and three times one, as often below as above.
fn noise(rng: &mut Rng) -> f64 {
    3.0_f64.powf(rng.below(2_001) as f64 / 1_000.0 - 1.0)
}

/// Requests one after the other, each computed before the next one comes.
fn play(
    kind: PolicyKind,
    speeds: &[f64],
    requests: u32,
    gap: u64,
    slow_first: bool,
) -> Vec<(u32, u64)> {
    let mut fleet: Vec<Endpoint> = speeds
        .iter()
        .map(|speed| Endpoint {
            rate: PrefillRate::default(),
            recent: RecentWork::default(),
            requests: 0,
            tokens: 0,
            speed: *speed,
        })
        .collect();
    let (mut rng, mut chance) = (Rng::new(7), Rng::new(11));
    let mut policy = kind.build();
    for n in 0..requests {
        let now = Duration::from_millis(gap * u64::from(n));
        let prompt_tokens = 200 + chance.below(4_000) as u64;
        let timed = fleet.iter().filter_map(|endpoint| Some((endpoint.rate.get()?, 100)));
        let median = median_rate(timed);
        let candidates: Vec<Candidate> = fleet
            .iter()
            .enumerate()
            .map(|(place, endpoint)| Candidate {
                id: EndpointId(place as u64),
                prefill_rate: endpoint.rate.against(expected_rate(median, 100), now),
                load: Load { recent_work: endpoint.recent.get(now), ..Load::default() },
                ..Candidate::default()
            })
            .collect();
        let query = Query { prompt_tokens, ..Query::default() };
        let view = FleetView { candidates: &candidates };
        let choice = policy.choose(&query, &view, &mut Moment { now, rng: &mut rng });
        let choice = choice.unwrap_or_else(|| panic!("nobody"));
        let chosen = &mut fleet[choice.index];
        chosen.recent.add(prompt_tokens, prompt_tokens, now);
        let mut seconds = prompt_tokens as f64 / chosen.speed * noise(&mut chance);
        if slow_first && choice.index == 0 && chosen.requests < 3 {
            seconds *= 50.0;
        }
        chosen.rate.observe(prompt_tokens, seconds, now);
        chosen.requests += 1;
        chosen.tokens += prompt_tokens;
    }
    fleet.iter().map(|endpoint| (endpoint.requests, endpoint.tokens)).collect()
}

#[test]
fn cold_requests_spread_evenly_over_equals_with_noisy_rates() {
    for kind in [PolicyKind::Latency, PolicyKind::Ttft] {
        let fleet = play(kind, &[9_000.0; 8], 2_000, 500, true);
        let requests = || fleet.iter().map(|(requests, _)| f64::from(*requests));
        let (most, least) = (requests().fold(0.0, f64::max), requests().fold(1e9, f64::min));
        assert!(most < 1.2 * least, "{kind:?}: {fleet:?}");
    }
}

#[test]
fn a_slow_engine_gets_less_to_compute() {
    let fleet = play(PolicyKind::Latency, &[9_000.0, 9_000.0, 9_000.0, 3_000.0], 1_000, 500, false);
    let [fast, .., slow] = &fleet[..] else { panic!("four") };
    assert!(slow.1 * 2 < fast.1 && slow.1 > 0, "{fleet:?}");
}

#[test]
fn a_stall_at_the_start_of_a_quiet_fleet_is_forgiven() {
    for gap in [5_000, 20_000] {
        let fleet = play(PolicyKind::Latency, &[9_000.0; 8], 4_000, gap, true);
        let least = fleet.iter().map(|(requests, _)| *requests).min();
        assert!(least > Some(300), "{gap} ms: {fleet:?}");
    }
}
