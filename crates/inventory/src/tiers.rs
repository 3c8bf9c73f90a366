//! Sets of tiers.

use crate::terms::Tier;

/// A set of tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TierSet(pub(crate) u8);

impl TierSet {
    pub(crate) const ALL: Self = Self(0xf);

    pub(crate) fn of(tier: Tier) -> Self {
        Self(1 << tier as u8)
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, tier: Tier) -> Self {
        Self(self.0 & !Self::of(tier).0)
    }

    pub(crate) fn contains(self, tier: Tier) -> bool {
        self.0 & Self::of(tier).0 != 0
    }

    pub(crate) fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn fastest(self) -> Option<Tier> {
        Tier::ALL.get(self.0.trailing_zeros() as usize).copied()
    }
}
