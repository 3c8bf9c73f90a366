//! Which prefixes each endpoint has likely seen: the inventory, fed with what was answered instead of
//! with events.
//!
//! Two inventories, a young and an old one. Prompts are learned into the young one; when that knows
//! as many chunks as half of the bytes are good for, the old one is dropped and the young one grows
//! old. A prefix in use is learned again with every answer, so that what goes is nearly the longest
//! unused. Chunks are counted, not bytes: bytes depend on each inventory's random hashing, and a log
//! of decisions could not be replayed.

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
    /// Chunks it has learned, those of each endpoint by themselves.
    chunks: usize,
    slots: HashMap<EndpointId, Slot>,
}

/// Tokens that one known chunk of a prompt has at least: finer ones cost memory and tell little.
const CHUNK: u32 = 64;

/// What a generation is counted for: bytes of an empty one, of each endpoint, and of each chunk of
/// each endpoint, measured where its tables have just grown and take the most. In small tables the
/// places at their ends weigh more.
const BASE_BYTES: usize = 100 << 10;
const ENDPOINT_BYTES: usize = 4 << 10;
const CHUNK_BYTES: usize = 56;
const EARLY_CHUNK_BYTES: usize = 80;
const EARLY_CHUNKS: usize = 1 << 16;

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
        let (mut chunks, size) = chunks_of(query);
        // Beyond that the inventory itself would choose what to give up.
        let room = self.bytes - self.bytes / 8;
        chunks.truncate(room.saturating_sub(cost(1, 0)) / EARLY_CHUNK_BYTES);
        if chunks.is_empty() {
            return;
        }
        if self.young.cost_with(endpoint, chunks.len()) > room {
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
        Self { inventory: Inventory::new(space, limits), chunks: 0, slots: HashMap::new() }
    }

    /// What it is counted for when it has learned so many chunks more.
    fn cost_with(&self, endpoint: EndpointId, chunks: usize) -> usize {
        let is_new = usize::from(!self.slots.contains_key(&endpoint));
        cost(self.slots.len() + is_new, self.chunks.saturating_add(chunks))
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
        let known = |inventory: &Inventory| inventory.stats(slot).blocks.iter().sum::<usize>();
        let before = known(&self.inventory);
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
        let new = known(&self.inventory).saturating_sub(before);
        self.chunks = self.chunks.saturating_add(new);
    }
}

fn cost(endpoints: usize, chunks: usize) -> usize {
    let early = chunks.min(EARLY_CHUNKS) * (EARLY_CHUNK_BYTES - CHUNK_BYTES);
    BASE_BYTES
        .saturating_add(endpoints.saturating_mul(ENDPOINT_BYTES))
        .saturating_add(early)
        .saturating_add(chunks.saturating_mul(CHUNK_BYTES))
}

/// The prompt's chunks and the tokens in each: every so many keys one.
fn chunks_of(query: &Query<'_>) -> (Vec<EngineHash>, u32) {
    let per_key = query.prefix.tokens_per_key.max(1);
    let stride = CHUNK.div_ceil(per_key).max(1);
    let step = usize::try_from(stride).unwrap_or(usize::MAX);
    let last_of_each = query.prefix.keys.iter().skip(step - 1).step_by(step);
    (last_of_each.map(|key| EngineHash(key.0)).collect(), per_key.saturating_mul(stride))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Prefix;

    fn chunks(of: u64) -> Vec<EngineHash> {
        let key = |at: u64| (of << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..16).map(key).map(EngineHash).collect()
    }

    #[test]
    fn a_generation_takes_no_more_than_it_is_counted_for() {
        for (endpoints, shared) in
            [(1, false), (8, false), (8, true), (64, false), (64, true), (1000, false)]
        {
            let mut generation = Generation::new(1 << 30);
            for n in 0..12_000 {
                let of = if shared { n / endpoints } else { n };
                generation.store(EndpointId(n % endpoints), &chunks(of), CHUNK);
                let counted = cost(generation.slots.len(), generation.chunks);
                let taken = generation.inventory.bytes();
                assert!(taken <= counted, "{taken} of {counted} for {endpoints} endpoints, {n}");
            }
        }
    }

    #[test]
    fn two_inventories_remember_the_same_after_many_generations() {
        let keys = |of: u64| -> Vec<BlockKey> {
            chunks(of).into_iter().map(|chunk| BlockKey(chunk.0)).collect()
        };
        let candidates: Vec<Candidate> =
            (0..4).map(|id| Candidate { id: EndpointId(id), ..Candidate::default() }).collect();
        let mut both = [Seen::new(1 << 20), Seen::new(1 << 20)];
        let (mut generations, mut forgotten) = (0, 0);
        for n in 0..3_000 {
            // One in three is asked again, long after it was learned.
            let keys = keys(if n % 3 == 0 { n / 9 } else { n });
            let prefix = Prefix { keys: &keys, tokens_per_key: CHUNK, ..Prefix::default() };
            let query = Query { prefix, ..Query::default() };
            let known = both.each_ref().map(|seen| seen.tokens(&query, &candidates));
            assert_eq!(known[0], known[1], "prompt {n}");
            forgotten += u32::from(n % 3 == 0 && known[0].iter().all(|tokens| *tokens == 0));
            let before = both[0].young.chunks;
            both.iter_mut().for_each(|seen| seen.learn(&query, EndpointId(n % 4)));
            generations += u32::from(both[0].young.chunks < before);
            assert_eq!(both[0].young.chunks, both[1].young.chunks);
        }
        assert!(generations > 4 && forgotten > 100, "{generations}, {forgotten}");
    }
}
