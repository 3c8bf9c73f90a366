//! Prefill and decode at different engines: who computes a prompt, and who answers.
//!
//! A pool whose members have [`Role`]s may split a request into two legs: a prefill endpoint computes
//! the prompt, and a decode endpoint fetches its KV and generates. Which endpoints take part, and
//! whether there are two at all, is one decision.

use serde::{Deserialize, Serialize};

/// The part of an endpoint in disaggregated serving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It serves whole requests.
    #[default]
    Unified,
    /// It computes prompts for others to answer.
    Prefill,
    /// It answers prompts computed elsewhere; those it holds, or has to, it computes itself.
    Decode,
}

/// How a request of a pool that splits is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairPlan {
    /// A prefill endpoint computes the prompt, a decode endpoint answers.
    Split,
    /// A decode endpoint does all of it, as that costs less: it holds enough of the prompt.
    DecodeHolds,
    /// A unified endpoint does all of it.
    Unified,
    /// A decode endpoint computes the prompt: no prefill endpoint can.
    NoPrefill,
}

/// How the decode endpoint of a pair is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairSelect {
    /// Both together, by what the pair costs; policies that have no costs as `least_load`.
    #[default]
    Cost,
    /// The fewest requests in flight and waiting.
    LeastLoad,
    /// The least load score of `ExaMLOps` E4.
    E4,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Unified, Self::Prefill, Self::Decode];

    /// The word used in configuration, metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unified => "unified",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

impl PairPlan {
    /// The word used in headers, metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::DecodeHolds => "decode_holds",
            Self::Unified => "unified",
            Self::NoPrefill => "no_prefill",
        }
    }
}
