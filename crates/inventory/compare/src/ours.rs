//! Kvasir's inventory, with blocks known by the engine's hashes.

use std::time::Instant;

use kvasir_inventory::{
    EngineHash, Group, GroupKind, Identity, Inventory, Limits, Slot, StoredBlocks, Tier,
};
use kvasir_kv_hash::{BlockKey, KeySpace, Scope};

use crate::measure::Quantiles;
use crate::workload::{Store, Workload};

pub struct Ours {
    inventory: Inventory,
    slots: Vec<Slot>,
    root: BlockKey,
    block_size: u32,
}

pub struct Event {
    slot: Slot,
    parent: Option<EngineHash>,
    hashes: Vec<EngineHash>,
}

impl Ours {
    pub fn new(endpoints: usize, block_size: usize) -> Self {
        let inventory = Inventory::new(KeySpace::fixed(), Limits::default());
        let slots = (0..endpoints).map(|_| inventory.register().unwrap()).collect();
        let root = inventory.space().root(&Scope::default());
        Self { inventory, slots, root, block_size: block_size as u32 }
    }
}

impl crate::Index for Ours {
    type Event = Event;

    fn event(&self, work: &Workload, store: &Store) -> Event {
        let chain = &work.chains[store.prompt];
        Event {
            slot: self.slots[store.endpoint],
            parent: store.start.checked_sub(1).map(|at| EngineHash(chain[at])),
            hashes: chain[store.start..store.end].iter().copied().map(EngineHash).collect(),
        }
    }

    fn apply(&mut self, events: Vec<Event>) {
        for event in events {
            let blocks = StoredBlocks {
                parent: event.parent,
                root: self.root,
                hashes: &event.hashes,
                tokens: &[],
                block_size: self.block_size,
                extras: &[],
                lookahead: &[],
                identity: Identity::Engine,
                tier: Tier::Device,
                group: Group { index: 0, kind: GroupKind::FullAttention },
            };
            self.inventory.store(event.slot, &blocks);
        }
    }

    fn ask(&self, work: &Workload, count: usize) -> Quantiles {
        let keys: Vec<Vec<BlockKey>> = work
            .chains
            .iter()
            .map(|chain| {
                let hashes: Vec<EngineHash> = chain.iter().copied().map(EngineHash).collect();
                self.inventory.engine_keys(self.root, &hashes)
            })
            .collect();
        let mut times = Quantiles::default();
        for keys in keys.iter().cycle().step_by(7).take(count) {
            let start = Instant::now();
            let overlaps = self.inventory.overlaps(keys, self.block_size);
            times.add(start.elapsed());
            std::hint::black_box(overlaps);
        }
        times
    }
}
