//! What pending prefixes cost a decision.

use std::io::Write as _;

use super::*;

/// What one decision costs: `cargo test --release -p kvasir-fleet -- --ignored --nocapture
/// pending::tests::cost`.
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
            let seen = all.find(&[Some(&keys)], start);
            let looked = Instant::now();
            let claim = slots[n % slots.len()].begin(&keys);
            let begun = Instant::now();
            drop(claims.pop_front());
            let dropped = Instant::now();
            claims.push_back(claim);
            assert_eq!(seen[0][0].keys(&slots[0]), shared as usize);
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

/// What a decision costs at worst: a batch of 16 prompts, each parting from others at 256 places
/// that all endpoints hold, for two ways of keying it.
#[test]
#[ignore = "a measurement"]
fn worst() {
    for endpoints in [8_usize, 256] {
        let all = Arc::<PendingPrefixes>::default();
        let slots: Vec<PendingSlot> = (0..endpoints).map(|_| all.slot()).collect();
        let whole = [0, 1].map(|way: u32| {
            let start = |prompt| 1_000_000 * (16 * way + prompt + 1);
            let text = |prompt| (start(prompt)..start(prompt) + 257).collect();
            prompts(&(0..16).map(text).collect::<Vec<Vec<u32>>>())
        });
        let batch = |way: usize, blocks: usize| beginnings(&whole[way], blocks);
        // The longest first: whoever joins parts the first segment, and few steps are taken.
        let mut claims = Vec::new();
        for way in 0..2 {
            for slot in &slots {
                claims.push(slot.begin(&batch(way, 257)));
            }
            for n in (1..=256).rev() {
                claims.push(slots[n % endpoints].begin(&batch(way, n)));
            }
        }
        assert!(claims.iter().all(Option::is_some));
        let ways = [batch(0, 257), batch(1, 257)];
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..200 {
            let start = Instant::now();
            let seen = all.find(&ways.each_ref().map(|keys| Some(&**keys)), start);
            times.push(start.elapsed());
            assert_eq!(seen.len(), 2);
        }
        times.sort_unstable();
        let millis = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e3;
        let _ = writeln!(
            std::io::stdout(),
            "{endpoints} endpoints, 2 x 16 prompts of 257 segments: find p50 / p99 ms: {:.3} / {:.3}",
            millis(50),
            millis(99)
        );
    }
}
