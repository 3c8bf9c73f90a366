//! What one event stream shows, without an endpoint to route to: for replays and checks.

use std::sync::Arc;

use kvasir_inventory::{Inventory, Overlap, Overlaps, Slot, Tier, Trust};
use kvasir_kv_events::Update;

use crate::apply::Applier;
use crate::card::EngineCard;
use crate::credit::Credit;
use crate::evidence::{BlockShape, PromptTokens, held};
use crate::hash_contract::HashContract;
use crate::identity::BlockIdentity;
use crate::refill::Refill;

/// One engine's blocks as its events tell them, with the trust and the predictions a gateway that
/// followed them would have: the same code decides.
#[derive(Debug)]
pub struct Picture {
    inventory: Arc<Inventory>,
    slot: Slot,
    applier: Applier,
    credit: Credit,
    identity: BlockIdentity,
    /// Kept where an incomplete picture may become complete by itself.
    refill: Option<Refill>,
}

impl Picture {
    /// A picture of a stream that has said nothing yet, of blocks known by `identity`; `None` if
    /// the inventory is full.
    #[must_use]
    pub fn new(inventory: Arc<Inventory>, identity: BlockIdentity) -> Option<Self> {
        let slot = inventory.register()?;
        let credit = Credit::new();
        let applier = Applier::new(Arc::clone(&inventory), slot, credit.trust);
        let applier = applier.known_by(identity.clone());
        Some(Self { inventory, slot, applier, credit, identity, refill: None })
    }

    /// Takes an incomplete picture for complete once the engine has stored as many blocks as its
    /// card says it has, as a gateway does.
    #[must_use]
    pub fn completed_by_refills(mut self) -> Self {
        self.refill = Some(Refill::default());
        self
    }

    /// Applies one update of the stream. `card` is what the engine says of itself.
    pub fn apply(&mut self, update: &Update, card: &EngineCard) {
        self.credit.before(update);
        if self.applier.apply(update, card) {
            self.credit.emptied();
        }
        self.credit.told_apart = self.applier.tells_apart();
        if let Some(refill) = &mut self.refill {
            refill.note(update);
            if refill.is_full(card.blocks) {
                self.applier.complete();
            }
        }
        self.credit.set_trust(self.applier.trust());
        self.credit.after(update);
    }

    /// A request whose blocks differ by more than tokens (salt, adapter, image) was sent there.
    pub fn carried_extras(&mut self) {
        self.credit.carried_extras = true;
    }

    /// How far the picture can be believed now.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.credit.effective()
    }

    /// Resident blocks, per tier in the order of [`Tier::ALL`].
    #[must_use]
    pub fn blocks(&self) -> [usize; Tier::ALL.len()] {
        self.inventory.stats(self.slot).blocks
    }

    /// Tokens per block, as the events have it.
    #[must_use]
    pub fn block_size(&self) -> Option<u32> {
        self.applier.block_size()
    }

    /// Stored blocks that could not be understood and were left out.
    #[must_use]
    pub fn refused_blocks(&self) -> u64 {
        self.applier.refused_blocks()
    }

    /// What the hashes in the events say of the contract that made them.
    #[must_use]
    pub fn hash_contract(&self) -> &HashContract {
        self.applier.hash_contract()
    }

    /// The part of a request's prompts that the engine is expected to hit, in tokens.
    #[must_use]
    pub fn predict(&self, tokens: &PromptTokens<'_>, card: &EngineCard) -> Overlap {
        if !self.credit.now().credits {
            return Overlap::default();
        }
        let blocks =
            BlockShape { size: self.applier.block_size(), lookahead: self.applier.lookahead() };
        let keying = self.identity.keying(Some(card));
        held(&self.inventory, self.slot, blocks, keying, card, tokens)
    }

    /// This engine's part of a lookup made for all engines of an inventory at once, as far as its
    /// blocks may be credited.
    #[must_use]
    pub fn credited(&self, overlaps: &Overlaps) -> Overlap {
        if self.credit.now().credits { overlaps.get(self.slot) } else { Overlap::default() }
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        self.inventory.unregister(self.slot);
    }
}

#[cfg(test)]
mod tests;
