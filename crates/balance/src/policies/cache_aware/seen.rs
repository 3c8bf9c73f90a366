//! Which prefixes each endpoint has likely seen: the inventory, fed with what was answered instead of
//! with events.
//!
//! Two inventories, a young and an old one. Prompts are learned into the young one; when that has
//! taken half of the bytes, the old one is dropped and the young one grows old. A prefix in use is
//! learned again with every answer, so that what goes is nearly the longest unused.

use std::collections::HashMap;

use kvasir_inventory::{
    EngineHash, Group, GroupKind, Identity, Inventory, Limits, Slot, StoredBlocks, Tier,
};
use kvasir_kv_hash::{BlockKey, KeySpace};

use crate::query::Query;
use crate::view::{Candidate, EndpointId};

#[derive(Debug)]
pub(super) struct Seen {
    bytes: usize,
    young: Generation,
    old: Generation,
}

#[derive(Debug)]
struct Generation {
    inventory: Inventory,
    slots: HashMap<EndpointId, Slot>,
}

/// Tokens that one known chunk of a prompt has at least: finer ones cost memory and tell little.
const CHUNK: u32 = 64;

/// The keys of chunks are chained already: they are only carried along.
const ROOT: BlockKey = BlockKey(0);

// === impl Seen ===

impl Seen {
    pub(super) fn new(bytes: usize) -> Self {
        let half = bytes / 2;
        Self { bytes: half, young: Generation::new(half), old: Generation::new(half) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.young.inventory.bytes() + self.old.inventory.bytes()
    }

    /// Tokens of the prompt that each candidate has likely seen.
    pub(super) fn tokens(&self, query: &Query<'_>, candidates: &[Candidate]) -> Vec<u64> {
        let (chunks, size) = chunks_of(query);
        let mut most = vec![0; candidates.len()];
        if chunks.is_empty() {
            return most;
        }
        let keys = self.young.inventory.engine_keys(ROOT, &chunks);
        for generation in [&self.young, &self.old] {
            let overlaps = generation.inventory.overlaps(&keys, size);
            for (candidate, most) in candidates.iter().zip(&mut most) {
                if let Some(slot) = generation.slots.get(&candidate.id) {
                    *most = u64::from(overlaps.get(*slot).resident()).max(*most);
                }
            }
        }
        most
    }

    /// An endpoint has answered a prompt.
    pub(super) fn learn(&mut self, query: &Query<'_>, endpoint: EndpointId) {
        let (chunks, size) = chunks_of(query);
        if chunks.is_empty() {
            return;
        }
        if self.young.inventory.bytes() > self.bytes - self.bytes / 8 {
            let young = Generation::new(self.bytes);
            self.old = std::mem::replace(&mut self.young, young);
        }
        self.young.store(endpoint, &chunks, size);
    }

    pub(super) fn forget(&mut self, endpoint: EndpointId) {
        for generation in [&mut self.young, &mut self.old] {
            if let Some(slot) = generation.slots.remove(&endpoint) {
                generation.inventory.unregister(slot);
            }
        }
    }
}

// === impl Generation ===

impl Generation {
    fn new(bytes: usize) -> Self {
        let limits = Limits { bytes, ..Limits::default() };
        // Whoever knew the secret could make prompts look alike; the keys carried here are made
        // with one already.
        let space = KeySpace::new([0; KeySpace::SECRET_LEN]);
        Self { inventory: Inventory::new(space, limits), slots: HashMap::new() }
    }

    fn store(&mut self, endpoint: EndpointId, chunks: &[EngineHash], block_size: u32) {
        let slot = match self.slots.get(&endpoint) {
            Some(slot) => *slot,
            None => {
                let Some(slot) = self.inventory.register() else { return };
                self.slots.insert(endpoint, slot);
                slot
            }
        };
        self.inventory.store(
            slot,
            &StoredBlocks {
                parent: None,
                root: ROOT,
                hashes: chunks,
                tokens: &[],
                block_size,
                extras: &[],
                lookahead: &[],
                identity: Identity::Engine,
                tier: Tier::Device,
                group: Group { index: 0, kind: GroupKind::FullAttention },
            },
        );
    }
}

/// The prompt's chunks and the tokens in each: every so many keys one.
fn chunks_of(query: &Query<'_>) -> (Vec<EngineHash>, u32) {
    let per_key = query.prefix.tokens_per_key.max(1);
    let stride = CHUNK.div_ceil(per_key).max(1);
    let step = usize::try_from(stride).unwrap_or(usize::MAX);
    let last_of_each = query.prefix.keys.iter().skip(step - 1).step_by(step);
    (last_of_each.map(|key| EngineHash(key.0)).collect(), per_key.saturating_mul(stride))
}
