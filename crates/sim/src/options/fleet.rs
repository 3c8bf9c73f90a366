//! How many replicas of each role a fleet has, and how prompts travel between them.

use std::fmt;
use std::time::Duration;

use kvasir_balance::Role;
use kvasir_fleet::SplitSettings;

use super::{MAX_REPLICAS, Options, OptionsError, count, number};

/// How many replicas of each role there are. Written `8` (all unified), `4:4` (prefill and decode) or
/// `2:2+4` (both, and unified ones).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Those that serve whole requests.
    pub unified: usize,
    /// Those that compute prompts for others.
    pub prefill: usize,
    /// Those that answer.
    pub decode: usize,
}

/// Replicas that serve requests in two legs.
///
/// A prefill leg ends with the first token, and its engine keeps the prompt's blocks until the decode
/// engine has them. What the decode engine lacks of the prompt travels there, several prompts at a time
/// as fast as one; then it computes the prompt's last token, from which the answer begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Prefill replicas.
    pub prefill: usize,
    /// Decode replicas.
    pub decode: usize,
    /// What handing over a prompt takes however little it is.
    pub transfer_time: Duration,
    /// Tokens of a prompt handed over per second.
    pub transfer_rate: f64,
    /// How long a prefill engine keeps a prompt that nobody fetches.
    pub lease: Duration,
    /// Whether gateways are told both times; else they begin with the defaults.
    pub told: bool,
}

impl Default for Split {
    /// None, with the times that gateways take for granted.
    fn default() -> Self {
        let SplitSettings { transfer_rate, transfer_time, lease, .. } = SplitSettings::default();
        Self { prefill: 0, decode: 0, transfer_time, transfer_rate, lease, told: true }
    }
}

impl Split {
    /// Of a prompt's `tokens` that are to be handed over.
    pub(crate) fn takes(&self, tokens: u64) -> Duration {
        let moving = tokens as f64 / self.transfer_rate;
        self.transfer_time.saturating_add(Duration::from_secs_f64(moving.min(1e6)))
    }

    /// What gateways take it for: the fixed time, and tokens a second.
    pub(crate) fn expected(&self) -> (Duration, f64) {
        if self.told {
            return (self.transfer_time, self.transfer_rate);
        }
        let SplitSettings { transfer_rate, transfer_time, .. } = SplitSettings::default();
        (transfer_time, transfer_rate)
    }
}

impl Fleet {
    /// All of them.
    #[must_use]
    pub fn replicas(self) -> usize {
        self.unified.saturating_add(self.prefill).saturating_add(self.decode)
    }

    /// Whether any replica has a role.
    #[must_use]
    pub fn splits(self) -> bool {
        self.prefill > 0 || self.decode > 0
    }
}

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unified, prefill, decode } = self;
        match (self.splits(), unified) {
            (false, _) => write!(f, "{unified}"),
            (true, 0) => write!(f, "{prefill}:{decode}"),
            (true, _) => write!(f, "{prefill}:{decode}+{unified}"),
        }
    }
}

impl Options {
    /// How many replicas of each role there are.
    #[must_use]
    pub fn fleet(&self) -> Fleet {
        let Split { prefill, decode, .. } = self.split;
        Fleet { unified: self.replicas, prefill, decode }
    }

    /// The same with another fleet.
    #[must_use]
    pub fn with_fleet(&self, fleet: Fleet) -> Self {
        let Fleet { unified, prefill, decode } = fleet;
        let split = Split { prefill, decode, ..self.split };
        Self { replicas: unified, split, ..self.clone() }
    }

    pub(crate) fn all_replicas(&self) -> usize {
        self.fleet().replicas()
    }

    /// The role of one replica.
    pub(crate) fn role(&self, replica: usize) -> Role {
        match replica.checked_sub(self.replicas) {
            None => Role::Unified,
            Some(behind) if behind < self.split.prefill => Role::Prefill,
            Some(_) => Role::Decode,
        }
    }

    pub(super) fn validate_fleet(&self) -> Result<(), OptionsError> {
        let fleet = self.fleet();
        count("replicas", fleet.replicas(), 1, MAX_REPLICAS)?;
        if fleet.unified + fleet.decode == 0 {
            return Err(OptionsError::NobodyAnswers(fleet));
        }
        const DAY: f64 = 86_400.0;
        number("transfer-tokens-per-s", self.split.transfer_rate, 1.0, 1e12)?;
        number("transfer time, s", self.split.transfer_time.as_secs_f64(), 0.0, DAY)?;
        number("lease, s", self.split.lease.as_secs_f64(), 1e-3, DAY)
    }
}
