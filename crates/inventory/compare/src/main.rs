//! The same work through Kvasir's inventory and through the indexes of dynamo-kv-router 1.6.1:
//! `cargo run --release [-- ROUNDS]` in this directory, `KVASIR_TRACE` as for `cargo bench`.
//!
//! Every index gets a process of its own, in turns, round after round; of each figure the best
//! round counts, so that the same disturbances hit all of them. Hashes are given: no index
//! computes any from tokens.

mod dynamo;
#[path = "../../benches/inventory/measure.rs"]
#[allow(dead_code, unreachable_pub)]
mod measure;
mod ours;
#[path = "../../benches/inventory/workload.rs"]
#[allow(dead_code, unreachable_pub)]
mod workload;

use std::io::{Write, stdout};
use std::process::{Command, Stdio};
use std::time::Instant;

use measure::{Quantiles, cpu_seconds, resident_bytes};
use workload::{Store, Workload};

/// Blocks told in one event.
const PER_EVENT: usize = 16;
/// Events made before the clock starts.
const CHUNK: usize = 1_000;
const QUERIES: usize = 40_000;
const KINDS: [&str; 3] = ["kvasir", "radix tree", "compressed tree"];

/// What an index has to do.
trait Index {
    type Event;
    fn event(&self, work: &Workload, store: &Store) -> Self::Event;
    fn apply(&mut self, events: Vec<Self::Event>);
    /// Asks with the blocks of each prompt.
    fn ask(&self, work: &Workload, count: usize) -> Quantiles;
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, endpoints, block_size] = &args[..] {
        return one(kind, endpoints.parse().unwrap(), block_size.parse().unwrap());
    }
    let rounds: usize = args.first().and_then(|n| n.parse().ok()).unwrap_or(3);
    for block_size in ["16", "64"] {
        for endpoints in ["8", "64", "256"] {
            compare(endpoints, block_size, rounds);
        }
    }
}

fn compare(endpoints: &str, block_size: &str, rounds: usize) {
    let mut best: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        for (kind, best) in KINDS.iter().zip(&mut best) {
            let exe = std::env::current_exe().unwrap();
            let mut child = Command::new(exe);
            child.args([kind, endpoints, block_size]).stderr(Stdio::inherit());
            let text = String::from_utf8(child.output().unwrap().stdout).unwrap();
            let figures = text.split_whitespace().map(|n| n.parse::<f64>().unwrap());
            // Rates are given as their inverses: the least is the best of all figures.
            let figures: Vec<f64> = figures.collect();
            let known = std::mem::replace(best, figures.clone());
            best.iter_mut().zip(known).for_each(|(new, old)| *new = new.min(old));
        }
    }
    writeln!(stdout(), "{endpoints} endpoints, blocks of {block_size}, {} pairs", best[0][5])
        .unwrap();
    for (kind, f) in KINDS.iter().zip(&best) {
        writeln!(stdout(), "  {kind:>16}: {:6.2} M blocks/s, {:6.2} M per CPU s, {:6.1} bytes a pair, p50 {:7.2} µs, p99 {:7.2} µs",
            1e-6 / f[0], 1e-6 / f[1], f[2], f[3], f[4]).unwrap();
    }
    let peer = |at: usize| best[1][at].min(best[2][at]);
    writeln!(stdout(), "  against the better of the two: apply ×{:.2}, per CPU s ×{:.2}, bytes ×{:.2}, p50 ×{:.2}, p99 ×{:.2}",
        peer(0) / best[0][0],
        peer(1) / best[0][1],
        best[0][2] / peer(2),
        best[0][3] / peer(3),
        best[0][4] / peer(4)).unwrap();
}

fn one(kind: &str, endpoints: usize, block_size: usize) {
    let work = Workload::new(block_size, endpoints, PER_EVENT);
    match kind {
        "kvasir" => run(&work, || ours::Ours::new(endpoints, block_size)),
        "radix tree" => run(&work, dynamo::Radix::default),
        "compressed tree" => run(&work, dynamo::Compressed::new),
        _ => panic!("no index {kind}"),
    }
}

fn run<I: Index>(work: &Workload, new: impl FnOnce() -> I) {
    let before = resident_bytes();
    let mut index = new();
    let (mut wall, mut cpu) = (0.0, 0.0);
    for stores in work.stores.chunks(CHUNK) {
        let events: Vec<I::Event> = stores.iter().map(|store| index.event(work, store)).collect();
        let (start, used) = (Instant::now(), cpu_seconds());
        index.apply(events);
        wall += start.elapsed().as_secs_f64();
        cpu += cpu_seconds() - used;
    }
    let pairs = work.pairs as f64;
    let bytes = (resident_bytes() - before) as f64 / pairs;
    let times = index.ask(work, QUERIES);
    let (p50, p99) = (times.at(0.5), times.at(0.99));
    writeln!(stdout(), "{} {} {bytes} {p50} {p99} {pairs}", wall / pairs, cpu / pairs).unwrap();
}
