//! The apply loop: one endpoint's event stream into the inventory.

use std::sync::Arc;

use kvasir_inventory::{
    GroupKind, Identity, Inventory, PartialReason, Slot, StoredBlocks, SuspectReason, Tier, Trust,
};
use kvasir_kv_events::{BlockRemoved, BlockStored, Event, ExtraItem, Update};
use kvasir_kv_hash::{BlockExtra, BlockKey, Scope};

use crate::card::EngineCard;
use crate::credit::Extras;
use crate::hash_contract::HashContract;
use crate::identity::BlockIdentity;

use self::evictions::Evictions;
use self::hash_check::HashCheck;
use self::shape::Shape;

mod evictions;
mod hash_check;
mod shape;

pub(crate) use self::evictions::EvictionCounts;

/// Marks a block that looks plain and is not, beside images, whose offsets fit into a prompt.
const NOT_PLAIN: i64 = i64::MIN + 1;

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
    hashes: HashCheck,
    /// What the events seen since the last time everything was forgotten say of the engine.
    shape: Shape,
    /// Blocks left out since the last time everything was forgotten.
    left_out: u64,
    refused_blocks: u64,
    evictions: Evictions,
    /// Everything was forgotten though the update did not say so.
    forgot: bool,
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
            hashes: HashCheck::new(BlockIdentity::Tokens),
            shape: Shape::default(),
            left_out: 0,
            refused_blocks: 0,
            evictions: Evictions::default(),
            forgot: false,
        }
    }

    /// Knows blocks by `identity`. By the engine's own hashes, prompts have to be looked up with
    /// [`Inventory::engine_keys`], under the root of the base model alone: the hashes cover
    /// adapters and salts.
    #[must_use]
    pub(crate) fn known_by(mut self, identity: BlockIdentity) -> Self {
        self.hashes = HashCheck::new(identity);
        self
    }

    /// Applies one update. `card` is what the engine says of itself: its base model and the paths
    /// of its adapters are part of a block's identity.
    ///
    /// Returns whether what was known was forgotten though the update did not say so: the events
    /// showed another block size or lookahead, which is a new life.
    pub fn apply(&mut self, update: &Update, card: &EngineCard) -> bool {
        match update {
            Update::Forget { trust, .. } => {
                self.forget();
                self.hashes.new_life();
                self.shape = Shape::default();
                self.stream = *trust;
            }
            Update::Trust { trust, .. } => self.stream = *trust,
            Update::Batch { batch, .. } => {
                self.hashes.before(&batch.events, card);
                for event in &batch.events {
                    match event {
                        Event::Stored(stored) => self.store(stored, card),
                        Event::Removed(removed) => self.remove(removed),
                        Event::Cleared => self.forget(),
                    }
                }
            }
        }
        std::mem::take(&mut self.forgot)
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
        if self.hashes.contradicts() {
            return Trust::Suspect(SuspectReason::HashMismatch);
        }
        let unclear = self.extras == Extras::Unpublished && !self.hashes.tells_apart();
        if stats.aliased_keys > 0 && unclear {
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

    /// Blocks that left, and whether they were missed.
    pub(crate) fn evictions(&self) -> EvictionCounts {
        self.evictions.counts()
    }

    /// What the hashes in its events say of the contract that made them.
    #[must_use]
    pub fn hash_contract(&self) -> &HashContract {
        self.hashes.found()
    }

    /// Plain blocks whose hash was checked against their tokens, and those of them whose hash was
    /// another.
    #[must_use]
    pub(crate) fn hashes_checked(&self) -> (u64, u64) {
        self.hashes.counts()
    }

    /// Whether every block is told from those that differ by more than tokens, though the engine
    /// may not publish in what: by its hash.
    pub(crate) fn tells_apart(&self) -> bool {
        self.hashes.tells_apart()
    }

    /// Whether applying these events may take a search for the engine's contract.
    pub(crate) fn may_search(&self, events: &[Event]) -> bool {
        self.hashes.may_search(events)
    }

    /// Whether each block is checked that is stored without extra keys, which takes longer.
    pub(crate) fn checks_every(&self) -> bool {
        self.hashes.checks_every()
    }

    /// Forgets every block of the endpoint.
    pub fn forget(&mut self) {
        self.inventory.clear(self.slot);
        self.hashes.cleared();
        self.evictions.cleared();
        self.shape.forget_groups();
        self.left_out = 0;
    }

    fn store(&mut self, stored: &BlockStored, card: &EngineCard) {
        self.extras = Extras::of(stored).unwrap_or(self.extras);
        // A place nobody knows earns no credit.
        let Some(tier) = stored.medium.tier() else { return self.refuse(stored) };
        if tier == Tier::Device {
            self.evictions.stored(&stored.block_hashes);
        }
        let by_hash = self.hashes.by_engine_hashes();
        let extras = match stored.extras() {
            Ok(extras) => extras,
            // The engine's hash covers what is not understood.
            Err(_) if by_hash => kvasir_kv_events::Extras::default(),
            Err(_) => return self.refuse(stored),
        };
        if self.shape.see(stored, tier, by_hash, card.block_size) {
            // A new life: what was known before is forgotten, and counts as left out.
            self.forget();
            self.forgot = true;
            self.left_out = 1;
        }
        if self.shape.lookahead_unclear {
            return self.refuse(stored);
        }
        let group = self.shape.group(stored, by_hash);
        let handles_alone = self.shape.by_handles(group);
        let tokens = if handles_alone { &[][..] } else { &stored.token_ids };
        let ahead = stored.lookahead_token_ids.as_deref().filter(|_| !handles_alone);
        // A handle that stands for several blocks is not the hash of its tokens alone, and blocks of
        // a group nobody understands are not stored.
        let unread = handles_alone || group.kind == GroupKind::Unsupported;
        let not_plain = if unread { Vec::new() } else { self.hashes.check(stored) };
        // Each by a name of its own, which no request has.
        let others: Vec<(usize, [u8; 8])> = not_plain
            .into_iter()
            .filter_map(|at| Some((at, stored.block_hashes.get(at)?.0.to_be_bytes())))
            .collect();
        let items = block_extras(&extras.items, &others, stored.block_hashes.len());
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
                identity: if by_hash { Identity::Engine } else { Identity::Tokens },
                tier,
                group,
            },
        );
        self.leave_out(applied.refused + others.len());
    }

    fn refuse(&mut self, stored: &BlockStored) {
        self.leave_out(stored.block_hashes.len());
    }

    fn leave_out(&mut self, blocks: usize) {
        self.left_out += blocks as u64;
        self.refused_blocks += blocks as u64;
    }

    fn root(&self, stored: &BlockStored, salt: Option<&str>, card: &EngineCard) -> BlockKey {
        if self.hashes.by_engine_hashes() {
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

    fn remove(&mut self, removed: &BlockRemoved) {
        let group = removed.group.map_or(0, |number| u8::try_from(number).unwrap_or(u8::MAX));
        // Whatever left an unknown place may have been the copy credited in any tier.
        let known = removed.medium.tier().map(|tier| [tier]);
        let tiers: &[Tier] = known.as_ref().map_or(&Tier::ALL, |tier| tier);
        if tiers.contains(&Tier::Device) {
            self.hashes.removed(&removed.block_hashes);
            self.evictions.evicted(&removed.block_hashes);
        }
        for tier in tiers {
            self.inventory.remove(self.slot, &removed.block_hashes, *tier, group);
        }
    }
}

/// What identifies each of `blocks` besides its tokens: the images in it, and its own name where it is
/// one of `others`. Empty where no block has anything.
fn block_extras<'a>(
    images: &'a [Vec<ExtraItem<'a>>],
    others: &'a [(usize, [u8; 8])],
    blocks: usize,
) -> Vec<Vec<BlockExtra<'a>>> {
    let extra =
        |item: &'a ExtraItem<'a>| BlockExtra { identity: item.identity, offset: item.offset };
    let mut items: Vec<Vec<BlockExtra<'a>>> =
        images.iter().map(|block| block.iter().map(extra).collect()).collect();
    if !others.is_empty() {
        items.resize_with(blocks, Vec::new);
    }
    for (at, name) in others {
        if let Some(items) = items.get_mut(*at) {
            items.push(BlockExtra { identity: name, offset: NOT_PLAIN });
        }
    }
    items
}

#[cfg(test)]
mod tests;
