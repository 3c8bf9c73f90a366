//! What pending prefixes cost a decision.

use std::io::Write as _;

use super::tests::prompts;
use super::*;

/// What one decision costs: `cargo test --release -p kvasir-fleet -- --ignored --nocapture
/// pending::cost`.
#[test]
#[ignore = "a measurement"]
fn cost() {
    for (endpoints, in_flight, shared, own) in [
        (8, 16, 125, 13),
        (8, 64, 125, 13),
        (64, 64, 125, 13),
        (256, 64, 125, 13),
        (8, 16, 8_000, 192),
        (256, 2, 8_000, 192),
    ] {
        let all = Arc::<PendingPrefixes>::default();
        let slots: Vec<PendingSlot> = (0..endpoints).map(|_| all.slot()).collect();
        let mut unique = 1_000_000;
        let mut prompt = || {
            let mut tokens: Vec<u32> = (0..shared).collect();
            unique += own;
            tokens.extend(unique..unique + own);
            prompts(&[tokens])
        };
        let mut claims = VecDeque::new();
        for n in 0..endpoints * in_flight {
            claims.push_back(slots[n % slots.len()].begin(&prompt()));
        }
        let mut times: [Vec<Duration>; 3] = Default::default();
        for n in 0..2_000 {
            let keys = prompt();
            let start = Instant::now();
            let seen = all.find(&keys, start);
            let looked = Instant::now();
            let claim = slots[n % slots.len()].begin(&keys);
            let begun = Instant::now();
            drop(claims.pop_front());
            let dropped = Instant::now();
            claims.push_back(claim);
            assert_eq!(seen[0].keys(&slots[0]), shared as usize);
            times[0].push(looked - start);
            times[1].push(begun - looked);
            times[2].push(dropped - begun);
        }
        let line = times.map(|mut times| {
            times.sort_unstable();
            let micros = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e6;
            format!("{:.1} / {:.1}", micros(50), micros(99))
        });
        let _ = writeln!(
            std::io::stdout(),
            "{endpoints} endpoints, {in_flight} each, {} + {} blocks: find, begin, end p50 / p99 µs: {line:?}",
            shared,
            own
        );
    }
}
