//! One endpoint's hold on the index while a batch of its events is applied.

use kvasir_kv_hash::BlockKey;
use parking_lot::{RwLock, RwLockWriteGuard};

use crate::index::{Change, Holder, Index, TierSet};
use crate::residency::Slot;
use crate::terms::Tier;

/// Updates after which waiting readers get their turn.
const STEPS: u32 = 64;

/// Writes residency of one endpoint. Readers can look in between any two of its updates.
pub(crate) struct Writer<'a> {
    index: RwLockWriteGuard<'a, Index>,
    slot: Slot,
    steps: u32,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(index: &'a RwLock<Index>, slot: Slot) -> Self {
        Self { index: index.write(), slot, steps: 0 }
    }

    pub(crate) fn require(&mut self, groups: u16) {
        self.index.require(self.slot, groups);
    }

    pub(crate) fn add(&mut self, key: BlockKey, group: u8, tiers: TierSet) -> Change {
        self.step();
        self.index.add(key, Holder::new(self.slot, group, tiers))
    }

    pub(crate) fn remove(&mut self, key: BlockKey, group: u8, tier: Tier) -> Change {
        self.step();
        self.index.remove(key, self.slot, group, tier)
    }

    pub(crate) fn evict(&mut self, key: BlockKey) -> Change {
        self.step();
        self.index.evict(key, self.slot)
    }

    fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS) {
            RwLockWriteGuard::bump(&mut self.index);
        }
    }
}
