//! The apply loop: one endpoint's event stream into the inventory.

use std::sync::Arc;

use kvasir_inventory::{
    Identity, Inventory, PartialReason, Slot, StoredBlocks, SuspectReason, Tier, Trust,
};
use kvasir_kv_events::{BlockRemoved, BlockStored, Event, Update};
use kvasir_kv_hash::{BlockExtra, BlockKey, Scope};

use crate::card::EngineCard;
use crate::credit::Extras;

use self::shape::Shape;

mod shape;

/// Applies one stream's updates to one endpoint's part of an inventory, and knows how far the
/// result can be believed.
#[derive(Debug)]
pub struct Applier {
    inventory: Arc<Inventory>,
    slot: Slot,
    /// The stream's own trust, before what was seen in its events.
    stream: Trust,
    /// Whether events say what was hashed besides tokens: engines that never do may store salted
    /// or image blocks that look plain.
    extras: Extras,
    identity: Identity,
    /// What the events seen since the last time everything was forgotten say of the engine.
    shape: Shape,
    /// Blocks left out since the last time everything was forgotten.
    left_out: u64,
    refused_blocks: u64,
}

impl Applier {
    /// Follows a stream that has said nothing yet.
    #[must_use]
    pub fn new(inventory: Arc<Inventory>, slot: Slot, trust: Trust) -> Self {
        Self {
            inventory,
            slot,
            stream: trust,
            extras: Extras::Published,
            identity: Identity::Tokens,
            shape: Shape::default(),
            left_out: 0,
            refused_blocks: 0,
        }
    }

    /// Knows blocks by `identity`. By the engine's own hashes, prompts have to be looked up with
    /// [`Inventory::engine_keys`], under the root of the base model alone: the hashes cover
    /// adapters and salts. Pools do not look up prompts that way yet.
    #[must_use]
    pub fn known_by(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// Applies one update. `card` is what the engine says of itself: its base model and the paths
    /// of its adapters are part of a block's identity.
    pub fn apply(&mut self, update: &Update, card: &EngineCard) {
        match update {
            Update::Forget { trust, .. } => {
                self.forget();
                self.shape = Shape::default();
                self.stream = *trust;
            }
            Update::Trust { trust, .. } => self.stream = *trust,
            Update::Batch { batch, .. } => {
                for event in &batch.events {
                    match event {
                        Event::Stored(stored) => self.store(stored, card),
                        Event::Removed(removed) => self.remove(removed),
                        Event::Cleared => self.forget(),
                    }
                }
            }
        }
    }

    /// Nothing the engine holds can be unknown any more, until the stream says otherwise; whether
    /// that is news.
    pub fn complete(&mut self) -> bool {
        let begun_late = [PartialReason::JoinedLate, PartialReason::LostBatch].map(Trust::Partial);
        let incomplete = begun_late.contains(&self.stream);
        if incomplete {
            self.stream = Trust::Exact;
        }
        incomplete
    }

    /// How far the endpoint's residency can be believed now.
    #[must_use]
    pub fn trust(&self) -> Trust {
        if !self.stream.credits() {
            return self.stream;
        }
        let stats = self.inventory.stats(self.slot);
        if stats.unsupported_group {
            return Trust::Suspect(SuspectReason::UnsupportedGroup);
        }
        if self.shape.lookahead_unclear {
            return Trust::Suspect(SuspectReason::LookaheadHashing);
        }
        if stats.aliased_keys > 0 && self.extras == Extras::Unpublished {
            return Trust::Suspect(SuspectReason::ExtraKeysUnpublished);
        }
        if self.stream == Trust::Exact && stats.given_up > 0 {
            return Trust::Partial(PartialReason::ByteBudget);
        }
        if self.stream == Trust::Exact && stats.orphans > 0 {
            return Trust::Partial(PartialReason::Orphans);
        }
        if self.stream == Trust::Exact && self.left_out > 0 {
            return Trust::Partial(PartialReason::BlocksLeftOut);
        }
        self.stream
    }

    /// Tokens per block, as the events have it.
    #[must_use]
    pub fn block_size(&self) -> Option<u32> {
        self.shape.block_size
    }

    /// How many of the tokens behind a block are part of its identity, as the events have it.
    #[must_use]
    pub fn lookahead(&self) -> u32 {
        self.shape.lookahead.unwrap_or(0)
    }

    /// Stored blocks that could not be understood and were left out.
    #[must_use]
    pub fn refused_blocks(&self) -> u64 {
        self.refused_blocks
    }

    /// Forgets every block of the endpoint.
    pub fn forget(&mut self) {
        self.inventory.clear(self.slot);
        self.shape.forget_groups();
        self.left_out = 0;
    }

    fn store(&mut self, stored: &BlockStored, card: &EngineCard) {
        self.extras = Extras::of(stored).unwrap_or(self.extras);
        // A place nobody knows earns no credit.
        let Some(tier) = stored.medium.tier() else { return self.refuse(stored) };
        let Ok(extras) = stored.extras() else { return self.refuse(stored) };
        if self.shape.see(stored, tier, card.block_size) {
            // A new life: what was known before is forgotten, and counts as left out.
            self.forget();
            self.left_out = 1;
        }
        if self.shape.lookahead_unclear {
            return self.refuse(stored);
        }
        let group = self.shape.group(stored);
        let handles_alone = self.shape.by_handles(group);
        let tokens = if handles_alone { &[][..] } else { &stored.token_ids };
        let ahead = stored.lookahead_token_ids.as_deref().filter(|_| !handles_alone);
        let items: Vec<Vec<BlockExtra<'_>>> = extras
            .items
            .iter()
            .map(|block| {
                block
                    .iter()
                    .map(|item| BlockExtra { identity: item.identity, offset: item.offset })
                    .collect()
            })
            .collect();
        let applied = self.inventory.store(
            self.slot,
            &StoredBlocks {
                parent: stored.parent,
                root: self.root(stored, extras.salt, card),
                hashes: &stored.block_hashes,
                tokens,
                block_size: stored.block_size,
                extras: &items,
                lookahead: ahead.unwrap_or_default(),
                identity: self.identity,
                tier,
                group,
            },
        );
        self.leave_out(applied.refused);
    }

    fn refuse(&mut self, stored: &BlockStored) {
        self.leave_out(stored.block_hashes.len());
    }

    fn leave_out(&mut self, blocks: usize) {
        self.left_out += blocks as u64;
        self.refused_blocks += blocks as u64;
    }

    fn root(&self, stored: &BlockStored, salt: Option<&str>, card: &EngineCard) -> BlockKey {
        if self.identity == Identity::Engine {
            return self.inventory.space().root(&Scope {
                model: card.base(),
                lora: None,
                salt: None,
            });
        }
        // Older engines name adapters by a number of their own. No request can ask for it, so such
        // blocks must not look like anybody's.
        let numbered = stored.lora_id.map(|id| format!("\0{id}"));
        let name = stored.lora_name.as_deref().or(numbered.as_deref());
        let lora = name.map(|name| (name, card.adapter(name).and_then(|a| a.path.as_deref())));
        self.inventory.space().root(&Scope { model: card.base(), lora, salt })
    }

    fn remove(&self, removed: &BlockRemoved) {
        let group = removed.group.map_or(0, |number| u8::try_from(number).unwrap_or(u8::MAX));
        // Whatever left an unknown place may have been the copy credited in any tier.
        let known = removed.medium.tier().map(|tier| [tier]);
        let tiers: &[Tier] = known.as_ref().map_or(&Tier::ALL, |tier| tier);
        for tier in tiers {
            self.inventory.remove(self.slot, &removed.block_hashes, *tier, group);
        }
    }
}

#[cfg(test)]
mod tests;
