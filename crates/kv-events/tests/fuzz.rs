//! Decoders against hostile bytes: golden payloads of every engine, cut, flipped, spliced and grown,
//! and bytes of no origin. A few thousand inputs each time; with `KVASIR_FUZZ_SECONDS` for as long as
//! that says (ten minutes is the long run), from another seed each time, or from `KVASIR_FUZZ_SEED`.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kvasir_kv_events::fuzz_one;
use serde_json::Value;

/// Inputs of the short run.
const INPUTS: u64 = 20_000;
/// Longest input made.
const LONGEST: usize = 64 << 10;
/// No input may take longer: all are small.
const PATIENCE: Duration = Duration::from_secs(5);

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// Every string of hexadecimal digits in a file of vectors.
fn collect(value: &Value, into: &mut Vec<Vec<u8>>) {
    match value {
        Value::String(text) => {
            let is_hex = text.len() > 16
                && text.len().is_multiple_of(2)
                && text.bytes().all(|b| b.is_ascii_hexdigit());
            if is_hex {
                into.push(unhex(text));
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
        Value::Object(pairs) => pairs.values().for_each(|value| collect(value, into)),
        _ => {}
    }
}

/// What engines really send, of vLLM and SGLang, and TensorRT-LLM's JSON.
fn seeds() -> Vec<Vec<u8>> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden");
    let mut seeds = Vec::new();
    for dir in ["vllm-events", "sglang"] {
        for entry in std::fs::read_dir(golden.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let text = std::fs::read_to_string(&path).unwrap();
                collect(&serde_json::from_str(&text).unwrap(), &mut seeds);
            }
        }
    }
    seeds.push(include_bytes!("fuzz/polled.json").to_vec());
    seeds.push(b"tcp://[::ffff:127.0.0.1]:5557".to_vec());
    assert!(seeds.len() > 100);
    seeds
}

fn mutate(dice: &mut Dice, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut input = seeds[dice.below(seeds.len())].clone();
    for _ in 0..=dice.below(8) {
        let at = dice.below(input.len());
        match dice.below(9) {
            0 => input.truncate(at),
            1 if !input.is_empty() => input[at] = dice.next().to_le_bytes()[0],
            2 if !input.is_empty() => input[at] ^= 1 << dice.below(8),
            3 => input.insert(at, dice.next().to_le_bytes()[0]),
            4 if !input.is_empty() => drop(input.remove(at)),
            5 => {
                // Lengths and numbers at their limits.
                const EDGES: [&[u8]; 8] = [
                    &[0xdd, 0xff, 0xff, 0xff, 0xff],
                    &[0xdf, 0xff, 0xff, 0xff, 0xff],
                    &[0xc6, 0x7f, 0xff, 0xff, 0xff],
                    &[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
                    &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0],
                    b"18446744073709551616",
                    b"-9223372036854775809",
                    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                ];
                let edge = EDGES[dice.below(EDGES.len())];
                input.splice(at..at, edge.iter().copied());
            }
            6 => {
                let other = &seeds[dice.below(seeds.len())];
                let from = dice.below(other.len());
                input.splice(at.., other[from..].iter().copied());
            }
            7 => {
                let end = at + dice.below(input.len() - at);
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            _ => {
                let length = dice.below(64);
                let noise: Vec<u8> = (0..length).map(|_| dice.next().to_le_bytes()[0]).collect();
                input.splice(at..at, noise);
            }
        }
    }
    input.truncate(LONGEST);
    input
}

#[test]
fn hostile_bytes_are_read_to_the_end_and_in_time() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = number("KVASIR_FUZZ_SECONDS").map(Duration::from_secs);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // The short run is the same each time.
    let first = number("KVASIR_FUZZ_SEED").unwrap_or(if seconds.is_some() { now } else { 1 });
    let seeds = seeds();
    for seed in &seeds {
        fuzz_one(seed);
    }
    let (began, mut inputs) = (Instant::now(), 0_u64);
    while seconds.map_or(inputs < INPUTS, |seconds| began.elapsed() < seconds) {
        // Any input can be made again from its own number.
        let number = first.wrapping_mul(1 << 32).wrapping_add(inputs);
        let input = mutate(&mut Dice(number), &seeds);
        let start = Instant::now();
        let outcome = std::panic::catch_unwind(|| fuzz_one(&input));
        assert!(outcome.is_ok(), "seed {first}, input {inputs}: {input:02x?}");
        assert!(start.elapsed() < PATIENCE, "seed {first}, input {inputs}: {input:02x?}");
        inputs += 1;
    }
    println!("{inputs} inputs from seed {first} in {:?}", began.elapsed());
}
