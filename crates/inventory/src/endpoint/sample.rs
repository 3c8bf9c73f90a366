//! Looks at an endpoint's blocks as they are: a few for people, and where one is.

use super::{Endpoint, Shared};
use crate::residency::BlockSample;
use crate::terms::{EngineHash, Tier};

/// Handles that are looked at for each block that is wanted: those of blocks that went away are passed
/// over.
const LOOKED_AT: usize = 16;

impl Endpoint {
    /// Whether a block is resident in a tier other than the engine's own memory.
    pub(crate) fn is_offloaded(&self, hash: EngineHash, shared: Shared<'_>) -> bool {
        let known = self.handles.get(hash).filter(|known| known.live);
        known.is_some_and(|known| {
            !shared.index.tiers(known.at, shared.slot).without(Tier::Device).is_empty()
        })
    }

    /// Some of its resident blocks, those nearest to the starts of prompts first.
    pub(crate) fn sample(&self, limit: usize, shared: Shared<'_>) -> Vec<BlockSample> {
        let handles = self.handles.iter().take(limit.saturating_mul(LOOKED_AT));
        let resident = handles.filter(|(_, _, depth)| depth.is_some()).filter_map(|(_, at, _)| {
            let tiers = shared.index.tiers(at, shared.slot);
            let (key, depth) = shared.index.block(at)?;
            let tiers: Vec<Tier> =
                Tier::ALL.into_iter().filter(|tier| tiers.contains(*tier)).collect();
            (!tiers.is_empty()).then_some(BlockSample { key, depth, tiers })
        });
        let mut found: Vec<BlockSample> = resident.collect();
        found.sort_by_key(|sample| (sample.depth, sample.key.0));
        found.dedup_by_key(|sample| sample.key.0);
        found.truncate(limit);
        found
    }

    /// The handles of its resident blocks, at most so many.
    pub(crate) fn hashes(&self, limit: usize, shared: Shared<'_>) -> Vec<EngineHash> {
        let is_held = |at| {
            let tiers = shared.index.tiers(at, shared.slot);
            Tier::ALL.into_iter().any(|tier| tiers.contains(tier))
        };
        let live = self.handles.iter().filter(|(_, at, depth)| depth.is_some() && is_held(*at));
        let mut hashes: Vec<EngineHash> =
            live.map(|(key, _, _)| self.handles.hash(key)).take(limit).collect();
        hashes.sort_unstable();
        hashes
    }
}
