//! How much of one prompt each endpoint holds.

use crate::Slot;
use crate::terms::Tier;

/// The contiguous resident prefix of one prompt on one endpoint, in tokens, split by the fastest
/// tier that holds each block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    tokens: [u32; 4],
}

impl Overlap {
    /// Adds `tokens` held in `tier` at best.
    pub fn add(&mut self, tier: Tier, tokens: u32) {
        let at = &mut self.tokens[tier as usize];
        *at = at.saturating_add(tokens);
    }

    /// Tokens of the prefix whose fastest copy is in `tier`.
    #[must_use]
    pub fn in_tier(&self, tier: Tier) -> u32 {
        self.tokens[tier as usize]
    }

    /// Tokens of the prefix in any tier.
    #[must_use]
    pub fn resident(&self) -> u32 {
        self.tokens.iter().fold(0, |sum, tokens| sum.saturating_add(*tokens))
    }
}

/// The overlaps of one prompt with every endpoint of an inventory.
#[derive(Clone, Debug, Default)]
pub struct Overlaps {
    by_slot: Vec<Overlap>,
}

impl Overlaps {
    /// What `slot` holds; nothing for a slot that is not there.
    #[must_use]
    pub fn get(&self, slot: Slot) -> Overlap {
        self.by_slot.get(slot.index()).copied().unwrap_or_default()
    }

    /// None of so many endpoints holds anything yet.
    pub(crate) fn with_slots(slots: usize) -> Self {
        Self { by_slot: vec![Overlap::default(); slots] }
    }

    /// What `slot` holds, to be added to.
    pub(crate) fn entry(&mut self, slot: Slot) -> &mut Overlap {
        if self.by_slot.len() <= slot.index() {
            self.by_slot.resize(slot.index() + 1, Overlap::default());
        }
        &mut self.by_slot[slot.index()]
    }
}
