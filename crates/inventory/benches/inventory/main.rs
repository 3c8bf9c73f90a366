//! Speed and size of the inventory: `cargo bench -p kvasir-inventory [-- ENDPOINTS BLOCK_SIZE]`.
//!
//! Every line comes from a process of its own, so that its memory can be read off. Times are wall
//! times unless they say CPU.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::print_stdout)]
#![allow(clippy::panic, reason = "a benchmark may stop at once")]

mod measure;
mod workload;

use std::process::Command;
use std::time::Instant;

use kvasir_inventory::{
    EngineHash, Group, GroupKind, Identity, Inventory, Limits, Slot, StoredBlocks, Tier,
};
use kvasir_kv_hash::{BlockKey, KeySpace, Scope};

use self::measure::{Quantiles, cpu_seconds, resident_bytes};
use self::workload::{Store, Workload, mix};

/// Blocks told in one event.
const PER_EVENT: usize = 16;

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    if let [endpoints, block_size] = numbers[..] {
        return one(endpoints, block_size);
    }
    for block_size in [16, 64] {
        for endpoints in [8, 64, 256] {
            let numbers = [endpoints.to_string(), block_size.to_string()];
            let done = Command::new(std::env::current_exe().unwrap()).args(numbers).status();
            assert!(done.unwrap().success());
        }
    }
}

struct Fleet {
    inventory: Inventory,
    slots: Vec<Slot>,
    root: BlockKey,
}

impl Fleet {
    fn new(endpoints: usize) -> Self {
        let inventory = Inventory::new(KeySpace::fixed(), Limits::default());
        let slots = (0..endpoints).map(|_| inventory.register().unwrap()).collect();
        let root = inventory.space().root(&Scope { model: "m", ..Scope::default() });
        Self { inventory, slots, root }
    }

    fn store(&self, store: &Store, hashes: &[EngineHash], tokens: &[u32], block_size: usize) {
        let identity = if tokens.is_empty() { Identity::Engine } else { Identity::Tokens };
        let chain = &hashes[store.start..store.end];
        let applied = self.inventory.store(
            self.slots[store.endpoint],
            &StoredBlocks {
                parent: store.start.checked_sub(1).map(|at| hashes[at]),
                root: self.root,
                hashes: chain,
                tokens,
                block_size: block_size as u32,
                extras: &[],
                lookahead: &[],
                identity,
                tier: Tier::Device,
                group: Group { index: 0, kind: GroupKind::FullAttention },
            },
        );
        assert_eq!(applied.stored, chain.len());
    }
}

fn one(endpoints: usize, block_size: usize) {
    let work = Workload::new(block_size, endpoints, PER_EVENT);
    let hashes = engine_hashes(&work);
    print!("{endpoints:>4} endpoints, blocks of {block_size:>2}, {:>8} pairs: ", work.pairs);
    let before = resident_bytes();
    let fleet = Fleet::new(endpoints);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    for store in &work.stores {
        fleet.store(store, &hashes[store.prompt], &[], block_size);
    }
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let pairs = work.pairs as f64;
    print!("{:.1} bytes a pair, ", (resident_bytes() - before) as f64 / pairs);
    print!("{:.1} counted; ", fleet.inventory.bytes() as f64 / pairs);
    println!("{:.2} M blocks/s, {:.2} M per CPU s", pairs / wall / 1e6, pairs / cpu / 1e6);
    from_tokens(&work, &hashes, endpoints, block_size);
    let keys: Vec<Vec<BlockKey>> =
        hashes.iter().map(|hashes| fleet.inventory.engine_keys(fleet.root, hashes)).collect();
    println!("  queries: {}", queries(&fleet, &keys, block_size, 60_000));
    under_load(&fleet, &work, &hashes, &keys, block_size);
    removal(&fleet);
}

fn engine_hashes(work: &Workload) -> Vec<Vec<EngineHash>> {
    let hashes = |chain: &Vec<u64>| chain.iter().map(|n| EngineHash(mix(*n, 5))).collect();
    work.chains.iter().map(hashes).collect()
}

fn from_tokens(work: &Workload, hashes: &[Vec<EngineHash>], endpoints: usize, block_size: usize) {
    let fleet = Fleet::new(endpoints);
    let (mut wall, mut blocks) = (0.0, 0);
    for stores in work.stores.chunks(1_000).take(200) {
        let tokens: Vec<Vec<u32>> =
            stores.iter().map(|s| work.tokens(s.prompt, s.start..s.end, block_size)).collect();
        let start = Instant::now();
        for (store, tokens) in stores.iter().zip(&tokens) {
            fleet.store(store, &hashes[store.prompt], tokens, block_size);
            blocks += store.end - store.start;
        }
        wall += start.elapsed().as_secs_f64();
    }
    println!("  from tokens: {:.2} M blocks/s", blocks as f64 / wall / 1e6);
}

fn queries(fleet: &Fleet, keys: &[Vec<BlockKey>], block_size: usize, count: usize) -> Quantiles {
    let mut times = Quantiles::default();
    for keys in keys.iter().cycle().step_by(7).take(count) {
        let start = Instant::now();
        let overlaps = fleet.inventory.overlaps(keys, block_size as u32);
        times.add(start.elapsed());
        std::hint::black_box(overlaps);
    }
    times
}

/// One thread removes and stores again, as fast as it can, while another asks.
fn under_load(
    fleet: &Fleet,
    work: &Workload,
    hashes: &[Vec<EngineHash>],
    keys: &[Vec<BlockKey>],
    block_size: usize,
) {
    let done = std::sync::atomic::AtomicBool::new(false);
    let done = &done;
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let (start, mut blocks) = (Instant::now(), 0);
            'all: loop {
                for store in work.stores.iter().rev() {
                    if done.load(std::sync::atomic::Ordering::Relaxed) {
                        break 'all;
                    }
                    let hashes = &hashes[store.prompt];
                    let chain = &hashes[store.start..store.end];
                    let slot = fleet.slots[store.endpoint];
                    for hash in chain.iter().rev() {
                        fleet.inventory.remove(slot, &[*hash], Tier::Device, 0);
                    }
                    fleet.store(store, hashes, &[], block_size);
                    blocks += 2 * chain.len();
                }
            }
            blocks as f64 / start.elapsed().as_secs_f64()
        });
        let times = queries(fleet, keys, block_size, 60_000);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let rate = writer.join().unwrap();
        println!("  queries under {:.2} M updates/s: {times}", rate / 1e6);
    });
}

fn removal(fleet: &Fleet) {
    let slot = fleet.slots[0];
    let blocks: usize = fleet.inventory.stats(slot).blocks.iter().sum();
    let start = Instant::now();
    fleet.inventory.unregister(slot);
    let seconds = start.elapsed().as_secs_f64();
    println!("  removal of one endpoint: {blocks} blocks in {:.1} ms", seconds * 1e3);
}
