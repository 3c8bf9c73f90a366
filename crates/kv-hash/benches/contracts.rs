//! What each contract costs per block of 16 tokens, against the raw digest of the same bytes in the
//! same run: `cargo bench -p kvasir-kv-hash`.
//!
//! Rounds of all subjects alternate and the best round of each counts, so that a busy machine
//! disturbs them alike; run it on an idle one. A ratio beyond its target is marked `OVER`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a program for the terminal"
)]

use std::hint::black_box;
use std::time::Instant;

use kvasir_kv_hash::{BlockKey, KeySpace, Scope, loxilb, sglang, trtllm, vllm};
use sha2::{Digest as _, Sha256};
use twox_hash::{XxHash3_64, XxHash3_128};

const BLOCK: usize = 16;
/// More than a branch predictor can learn by heart.
const BLOCKS: usize = 4096;
const ROUNDS: usize = 200;

/// Something that hashes `BLOCKS` blocks, and the best time per block so far.
struct Subject<'a> {
    name: String,
    run: Box<dyn FnMut() + 'a>,
    best: f64,
}

impl<'a> Subject<'a> {
    fn new(name: &str, run: impl FnMut() + 'a) -> Self {
        Self { name: name.to_owned(), run: Box::new(run), best: f64::INFINITY }
    }
}

/// Nanoseconds per block of each subject, in order.
fn measure(subjects: &mut [Subject<'_>]) {
    for _ in 0..ROUNDS {
        for subject in &mut *subjects {
            let start = Instant::now();
            (subject.run)();
            let nanos = start.elapsed().as_nanos() as f64 / BLOCKS as f64;
            subject.best = subject.best.min(nanos);
        }
    }
}

#[derive(Default)]
struct Report {
    over: usize,
}

impl Report {
    fn line(&mut self, name: &str, nanos: f64, against: (&str, f64), target: Option<f64>) {
        let ratio = nanos / against.1;
        let verdict = match target {
            Some(target) if ratio > target => {
                self.over += 1;
                format!("OVER {target}")
            }
            Some(target) => format!("<= {target}"),
            None => String::new(),
        };
        let mega = BLOCK as f64 * 1e3 / nanos;
        println!(
            "{name:<34} {nanos:8.1} ns/block {mega:8.1} Mtoken/s  {ratio:5.2} x {:<26} {verdict}",
            against.0
        );
    }
}

/// Numbers from 0 to 1 that look random, the same in every run.
fn random() -> impl Iterator<Item = f64> {
    let mut state = 88_172_645_463_325_252_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    })
}

/// Token ids as text has them: most are small.
fn text_tokens() -> Vec<u32> {
    random().map(|x| (x.powi(6) * 128_256.0) as u32).take(BLOCK * BLOCKS).collect()
}

/// Ids spread evenly over a vocabulary of 128,256: half take more than 16 bits, as no text does.
fn even_tokens() -> Vec<u32> {
    random().map(|x| (x * 128_256.0) as u32).take(BLOCK * BLOCKS).collect()
}

fn contract(algorithm: vllm::Algorithm) -> vllm::Contract {
    let version = match algorithm {
        vllm::Algorithm::Sha256Cbor64Bit => vllm::Version::release(0, 10, 0),
        _ => vllm::Version::release(0, 33, 0),
    };
    vllm::Contract::new(version, algorithm, Some("0")).unwrap()
}

fn preimages(algorithm: vllm::Algorithm, tokens: &[u32]) -> Vec<Vec<u8>> {
    let mut chain = contract(algorithm).chain(BLOCK).unwrap();
    let blocks = tokens.chunks(BLOCK).map(|block| {
        chain.append(block);
        chain.preimage().unwrap().to_vec()
    });
    blocks.collect()
}

fn raw_sha256(messages: &[Vec<u8>]) {
    messages.iter().for_each(|message| {
        black_box(Sha256::digest(black_box(message)));
    });
}

/// Each message holds the digest of the one before it: what no chain can go below by calling the
/// hash function.
fn raw_sha256_chained(messages: &[Vec<u8>]) {
    let (mut digest, mut message) = ([0; 32], Vec::new());
    for next in messages {
        message.clear();
        message.extend_from_slice(next);
        message[3..35].copy_from_slice(&digest);
        digest = Sha256::digest(black_box(&message)).into();
    }
    black_box(digest);
}

fn raw_xxh3(messages: &[Vec<u8>]) {
    for message in messages {
        black_box(XxHash3_128::oneshot(black_box(message)));
    }
}

fn vllm(report: &mut Report, tokens: &[u32]) {
    use vllm::Algorithm::{Sha256, Sha256Cbor, Sha256Cbor64Bit, Xxhash, XxhashCbor};
    let algorithms = [Sha256Cbor, Sha256, Sha256Cbor64Bit, XxhashCbor, Xxhash];
    let messages: Vec<_> = algorithms.iter().map(|&a| preimages(a, tokens)).collect();
    let mut subjects = Vec::new();
    for (&algorithm, messages) in algorithms.iter().zip(&messages) {
        let empty = contract(algorithm).chain(BLOCK).unwrap();
        subjects.push(Subject::new(algorithm.as_str(), move || {
            let mut chain = empty.clone();
            black_box(chain.append(black_box(tokens)));
        }));
        let xxh3 = matches!(algorithm, Xxhash | XxhashCbor);
        let raw = if xxh3 { raw_xxh3 } else { raw_sha256 };
        let name = if xxh3 { "raw XXH3-128" } else { "raw SHA-256" };
        subjects.push(Subject::new(name, move || raw(messages)));
    }
    let cbor = &messages[0];
    subjects.push(Subject::new("SHA-256, one after the other", || raw_sha256_chained(cbor)));
    measure(&mut subjects);
    for (algorithm, pair) in algorithms.iter().zip(subjects.chunks_exact(2)) {
        let target = (*algorithm == Sha256Cbor).then_some(1.15);
        let name = format!("vLLM {}", pair[0].name);
        report.line(&name, pair[0].best, (&pair[1].name, pair[1].best), target);
    }
    let best = |i: usize| subjects[2 * i].best;
    let bytes = |i: usize| messages[i].iter().map(Vec::len).sum::<usize>() as f64 / BLOCKS as f64;
    let blocks = |i: usize| {
        let blocks = messages[i].iter().map(|m| (m.len() + 9).div_ceil(64)).sum::<usize>();
        blocks as f64 / BLOCKS as f64
    };
    let chained = &subjects[2 * algorithms.len()];
    let against = (chained.name.as_str(), chained.best);
    report.line("vLLM sha256_cbor", best(0), against, None);
    report.line("vLLM sha256 (pickle)", best(1), ("sha256_cbor", best(0)), Some(1.3));
    report.line("vLLM xxhash (pickle)", best(4), ("xxhash_cbor", best(3)), Some(1.3));
    println!(
        "  bytes per block: CBOR {:.1}, pickle {:.1}; SHA-256 compressions: {:.2}, {:.2} ({:.2} x)",
        bytes(0),
        bytes(1),
        blocks(0),
        blocks(1),
        blocks(1) / blocks(0)
    );
}

fn own(report: &mut Report, tokens: &[u32]) {
    let space = KeySpace::fixed();
    let root = space.root(&Scope { model: "m", ..Scope::default() });
    let messages = word_messages(16, tokens);
    let mut keys: Vec<BlockKey> = Vec::with_capacity(BLOCKS);
    let mut subjects = [
        Subject::new("own BlockKey, chain", || {
            black_box(space.chain(root, black_box(tokens), BLOCK));
        }),
        Subject::new("own BlockKey, next_with", || {
            let mut scratch = Vec::new();
            let mut parent = root;
            keys.clear();
            for block in black_box(tokens).chunks_exact(BLOCK) {
                parent = space.next_with(&mut scratch, parent, block, &[]);
                keys.push(parent);
            }
            black_box(&keys);
        }),
        Subject::new("raw XXH3-64", || {
            for message in &messages {
                black_box(XxHash3_64::oneshot(black_box(message)));
            }
        }),
    ];
    measure(&mut subjects);
    let [chain, next, raw] = &subjects;
    for subject in [chain, next] {
        report.line(&subject.name, subject.best, (&raw.name, raw.best), Some(2.5));
    }
}

/// The messages of chains that put a parent in front of the tokens' words.
fn word_messages(parent_len: usize, tokens: &[u32]) -> Vec<Vec<u8>> {
    let message = |block: &[u32]| {
        let mut bytes = vec![7; parent_len];
        bytes.extend(block.iter().flat_map(|token| token.to_le_bytes()));
        bytes
    };
    tokens.chunks(BLOCK).map(message).collect()
}

fn others(report: &mut Report, tokens: &[u32]) {
    use trtllm::{Algorithm, Manager};
    let words = word_messages(32, tokens);
    let cbor = preimages(vllm::Algorithm::Sha256Cbor, tokens);
    let xxh3_cbor = preimages(vllm::Algorithm::XxhashCbor, tokens);
    let mut subjects = vec![
        Subject::new("raw SHA-256", || raw_sha256(&words)),
        Subject::new("raw SHA-256", || raw_sha256(&cbor)),
        Subject::new("raw XXH3-128", || raw_xxh3(&xxh3_cbor)),
    ];
    // What each is compared with.
    let mut against = vec![0, 1, 2];
    for (name, version) in [("SGLang 0.5.6+", "0.5.23"), ("SGLang 0.5.1 to 0.5.5", "0.5.5")] {
        let format = sglang::EventFormat::Default;
        let contract = sglang::Contract::new(version.parse().unwrap(), format).unwrap();
        let empty = contract.chain(BLOCK).unwrap();
        let run = move || {
            black_box(empty.clone().append(black_box(tokens)));
        };
        subjects.push(Subject::new(name, run));
        against.push(0);
    }
    for (manager, algorithm) in [
        (Manager::V1, Algorithm::V1BlockKey),
        (Manager::V2, Algorithm::V1BlockKey),
        (Manager::V2, Algorithm::V2Sha256),
        (Manager::V2, Algorithm::V2Sha256First64),
    ] {
        let empty = trtllm::Contract::new(algorithm, manager).unwrap().chain(BLOCK).unwrap();
        let run = move || {
            black_box(empty.clone().append(black_box(tokens)));
        };
        subjects.push(Subject::new(&format!("TensorRT-LLM {algorithm}, {manager}"), run));
        against.push(0);
    }
    for algorithm in loxilb::Algorithm::ALL {
        let empty = loxilb::Contract::new(algorithm, Some("0")).chain(BLOCK).unwrap();
        let run = move || {
            for prompt in black_box(tokens).chunks(loxilb::Chain::MAX_TOKENS) {
                black_box(empty.clone().append(prompt));
            }
        };
        subjects.push(Subject::new(&format!("LoxiLB {algorithm}"), run));
        against.push(match algorithm {
            loxilb::Algorithm::Sha256Cbor => 1,
            loxilb::Algorithm::XxhashCbor => 2,
            _ => 0,
        });
    }
    measure(&mut subjects);
    for (subject, against) in subjects.iter().zip(against).skip(3) {
        let raw = &subjects[against];
        report.line(&subject.name, subject.best, (&raw.name, raw.best), None);
    }
}

/// A block after a prompt of 100,000 tokens, against a block of a new prompt.
fn appending(report: &mut Report, tokens: &[u32]) {
    let contract = contract(vllm::Algorithm::Sha256Cbor);
    let empty = contract.chain(BLOCK).unwrap();
    let mut long = empty.clone();
    while long.token_count() < 100_000 {
        long.append(tokens);
    }
    let one_by_one = |mut chain: vllm::Chain| {
        for block in black_box(tokens).chunks_exact(BLOCK) {
            black_box(chain.append(block));
        }
    };
    let (short_ready, long_ready) = (empty, long);
    // Copying the long chain is no part of it.
    let (mut short_best, mut long_best) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        for (ready, best) in [(&short_ready, &mut short_best), (&long_ready, &mut long_best)] {
            let mut chain = ready.clone();
            // The copy has no spare room: let it grow once, as a prompt does rarely.
            chain.append(&tokens[..BLOCK]);
            let start = Instant::now();
            one_by_one(chain);
            *best = best.min(start.elapsed().as_nanos() as f64 / BLOCKS as f64);
        }
    }
    let against = ("block of a new prompt", short_best);
    report.line("sha256_cbor, block after 100k", long_best, against, Some(1.5));
}

fn main() {
    let mut report = Report::default();
    for (name, tokens) in [("text", text_tokens()), ("even", even_tokens())] {
        let short = tokens.iter().filter(|token| **token <= 0xffff).count();
        println!("\n{name} tokens ({} % take at most 16 bits)", 100 * short / tokens.len());
        vllm(&mut report, &tokens);
        own(&mut report, &tokens);
        others(&mut report, &tokens);
        appending(&mut report, &tokens);
    }
    println!("\n{} ratios beyond their targets", report.over);
}
