//! What a weight controller advises of an engine. It is written by whoever follows the controller, and
//! read with every choice; it never takes more than the configuration gives.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::endpoint::Endpoint;
use crate::exclusion::Exclusion;

/// Advice about one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The share of its configured weight that counts, in percent: 1 to 100.
    pub percent: u8,
    /// Whether requests should go there.
    pub state: AdvisedState,
}

/// Whether requests should go to an engine. Where there is no other, they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdvisedState {
    /// They should.
    #[default]
    Active,
    /// Only those of conversations that are pinned there.
    Draining,
    /// None.
    Disabled,
}

impl Advice {
    /// As if nothing were advised.
    pub const NEUTRAL: Self = Self { percent: 100, state: AdvisedState::Active };

    /// A configured weight, as it counts by this advice; at least 1.
    #[must_use]
    pub fn weigh(self, configured: u32) -> u32 {
        if self.percent >= 100 {
            return configured;
        }
        let scaled = u64::from(configured) * u64::from(self.percent);
        u32::try_from((scaled + 50) / 100).unwrap_or(u32::MAX).max(1)
    }
}

impl AdvisedState {
    /// The word used in metrics, logs and views.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Disabled => "disabled",
        }
    }

    /// What speaks against an endpoint in this state.
    pub(crate) fn exclusion(self) -> Option<Exclusion> {
        match self {
            Self::Active => None,
            Self::Draining => Some(Exclusion::AdvisedDraining),
            Self::Disabled => Some(Exclusion::AdvisedDisabled),
        }
    }
}

/// The advice about one engine now.
#[derive(Debug)]
pub(crate) struct Advised(AtomicU32);

impl Default for Advised {
    fn default() -> Self {
        Self(AtomicU32::new(bits(Advice::NEUTRAL)))
    }
}

impl Advised {
    pub(crate) fn get(&self) -> Advice {
        let [percent, state, ..] = self.0.load(Ordering::Relaxed).to_le_bytes();
        let state = match state {
            0 => AdvisedState::Active,
            1 => AdvisedState::Draining,
            _ => AdvisedState::Disabled,
        };
        Advice { percent, state }
    }

    pub(crate) fn set(&self, advice: Advice) {
        let advice = Advice { percent: advice.percent.clamp(1, 100), ..advice };
        self.0.store(bits(advice), Ordering::Relaxed);
    }
}

fn bits(advice: Advice) -> u32 {
    u32::from_le_bytes([advice.percent, advice.state as u8, 0, 0])
}

impl Endpoint {
    /// What is advised of its engine.
    #[must_use]
    pub fn advice(&self) -> Advice {
        self.engine().advised().get()
    }

    /// Takes up advice about its engine: at once, in all pools, for all its ranks.
    pub fn advise(&self, advice: Advice) {
        self.engine().advised().set(advice);
    }

    /// Whether this gateway finds nothing wrong with its engine: whatever is advised then, it goes by that.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.has_answered() && self.engine().own_exclusion().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_a_weight_is_rounded_and_at_least_one() {
        let weigh = |percent, weight| Advice { percent, ..Advice::NEUTRAL }.weigh(weight);
        assert_eq!([weigh(100, 0), weigh(100, 250), weigh(25, 100)], [0, 250, 25]);
        assert_eq!([weigh(25, 10), weigh(1, 10), weigh(50, 0), weigh(99, 10_000)], [3, 1, 1, 9900]);
    }

    #[test]
    fn advice_is_read_as_it_was_written_within_bounds() {
        let advised = Advised::default();
        assert_eq!(advised.get(), Advice::NEUTRAL);
        for state in [AdvisedState::Active, AdvisedState::Draining, AdvisedState::Disabled] {
            advised.set(Advice { percent: 0, state });
            assert_eq!(advised.get(), Advice { percent: 1, state });
        }
    }
}
