//! dynamo-kv-router's radix trees.

use std::time::Instant;

use dynamo_kv_router::indexer::{KvIndexerInterface, SyncIndexer, ThreadPoolIndexer};
use dynamo_kv_router::protocols::*;
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, RadixTree};

use crate::measure::Quantiles;
use crate::workload::{Store, Workload};

#[derive(Default)]
pub struct Radix(RadixTree);

pub struct Compressed {
    index: ThreadPoolIndexer<ConcurrentRadixTreeCompressed>,
    runtime: tokio::runtime::Runtime,
}

impl Compressed {
    pub fn new() -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        Self { index: ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 1, 16), runtime }
    }
}

/// What a block is in its place is its content; its chained identity is the engine's hash.
fn event(work: &Workload, store: &Store) -> RouterEvent {
    let (prompt, chain) = (&work.prompts[store.prompt], &work.chains[store.prompt]);
    let block = |at: usize| KvCacheStoredBlockData {
        block_hash: ExternalSequenceBlockHash(chain[at]),
        tokens_hash: LocalBlockHash(prompt[at]),
        mm_extra_info: None,
    };
    let data = KvCacheEventData::Stored(KvCacheStoreData {
        parent_hash: store.start.checked_sub(1).map(|at| ExternalSequenceBlockHash(chain[at])),
        start_position: Some(store.start as u32),
        blocks: (store.start..store.end).map(block).collect(),
    });
    RouterEvent::new(store.endpoint as u64, KvCacheEvent { event_id: 0, dp_rank: 0, data })
}

fn prompts(work: &Workload) -> Vec<Vec<LocalBlockHash>> {
    let hashes = |prompt: &Vec<u64>| prompt.iter().copied().map(LocalBlockHash).collect();
    work.prompts.iter().map(hashes).collect()
}

impl crate::Index for Radix {
    type Event = RouterEvent;

    fn event(&self, work: &Workload, store: &Store) -> RouterEvent {
        event(work, store)
    }

    fn apply(&mut self, events: Vec<RouterEvent>) {
        for event in events {
            self.0.apply_event(event).unwrap();
        }
    }

    fn ask(&self, work: &Workload, count: usize) -> Quantiles {
        let prompts = prompts(work);
        let mut times = Quantiles::default();
        for prompt in prompts.iter().cycle().step_by(7).take(count) {
            // Taken by value: the copy is not part of the time.
            let prompt = prompt.clone();
            let start = Instant::now();
            let found = self.0.find_matches(prompt, false);
            times.add(start.elapsed());
            std::hint::black_box(found);
        }
        times
    }
}

impl crate::Index for Compressed {
    type Event = RouterEvent;

    fn event(&self, work: &Workload, store: &Store) -> RouterEvent {
        event(work, store)
    }

    fn apply(&mut self, events: Vec<RouterEvent>) {
        self.runtime.block_on(async {
            for event in events {
                self.index.apply_event(event).await;
            }
            self.index.flush_and_wait().await.unwrap();
        });
    }

    fn ask(&self, work: &Workload, count: usize) -> Quantiles {
        let prompts = prompts(work);
        let mut times = Quantiles::default();
        for prompt in prompts.iter().cycle().step_by(7).take(count) {
            let start = Instant::now();
            let found = self.index.backend().find_matches(prompt, false);
            times.add(start.elapsed());
            std::hint::black_box(found);
        }
        times
    }
}
