//! Prefill and decode at different engines: who computes a prompt, and who answers.
//!
//! A pool whose members have [`Role`]s may split a request into two legs: a prefill endpoint computes
//! the prompt, and a decode endpoint fetches its KV and generates. Which endpoints take part, and
//! whether there are two at all, is one decision.
//!
//! Policies that have costs compare all plans ([`cheapest`]). Of the others the policy chooses among
//! prefill and unified endpoints as it would anywhere; where that is a prefill endpoint, the decode
//! endpoint with the least load answers.

mod cost;
mod cut;
mod load;
mod sides;
mod terms;

use serde::{Deserialize, Serialize};

pub(crate) use self::cost::cheapest;
pub use self::cut::Cut;
pub(crate) use self::load::{least_loaded, load_score};
pub use self::sides::Sides;
pub(crate) use self::sides::SidesLeft;
pub use self::terms::{DecodeTerms, PairTerms, PlanCost, PrefillTerms, TransferTerms};
use crate::choice::Reason;

/// Tokens of KV handed over per second, assumed until something was measured: 25 GB/s of a model that
/// keeps 128 KiB a token.
pub const DEFAULT_TRANSFER_RATE: f64 = 200_000.0;

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
    /// A decode endpoint does all of it: the request is one that is not split.
    NotSplit,
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

/// How the requests of a pool are split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pairing {
    /// How the decode endpoint is chosen.
    #[serde(default)]
    pub select: PairSelect,
    /// What handing over KV takes however little it is, in seconds.
    pub transfer_s: f64,
    /// What is asked for.
    #[serde(default)]
    pub legs: Legs,
    /// Whether decode endpoints compute no prompts (`SGLang`'s do not): then a request that may be split is
    /// never theirs alone.
    #[serde(default)]
    pub fetch_only: bool,
}

impl Pairing {
    /// Whether a decode endpoint may serve a whole request.
    pub(crate) fn decode_computes(&self) -> bool {
        !(self.fetch_only && self.legs == Legs::Any)
    }

    /// The plan by which a decode endpoint does all of it.
    pub(crate) fn alone(&self, has_prefill: bool) -> PairPlan {
        match self.legs {
            Legs::Whole => PairPlan::NotSplit,
            _ if has_prefill => PairPlan::DecodeHolds,
            _ => PairPlan::NoPrefill,
        }
    }

    /// How the endpoint that answers for another is chosen, under policies that have no costs.
    pub(crate) fn by_load(&self) -> PairSelect {
        match self.select {
            PairSelect::E4 => PairSelect::E4,
            PairSelect::Cost | PairSelect::LeastLoad => PairSelect::LeastLoad,
        }
    }
}

/// What is asked for of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Legs {
    /// Whoever serves it, in two legs or in one.
    #[default]
    Any,
    /// One endpoint that serves all of it.
    Whole,
    /// A decode endpoint, for a prompt that is computed already.
    Decode,
}

/// The endpoints that serve a request, and how it came to that. Numbers are places in the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// What is done.
    pub plan: PairPlan,
    /// Who answers.
    pub index: usize,
    /// Who computes the prompt, where that is another.
    pub prefill: Option<usize>,
    /// How the one that answers was chosen, where it only answers.
    pub decode_by: Option<PairSelect>,
    /// Why.
    pub reason: Reason,
    /// What was special about it, in the policy's own words; empty for nothing.
    pub detail: &'static str,
    /// Whom was chosen among.
    pub considered: Vec<usize>,
    /// What the best plan with each of them costs, in the policy's own unit; empty where nothing was
    /// compared.
    pub scores: Vec<f64>,
}

impl Paired {
    /// Who computes the prompt.
    #[must_use]
    pub fn computes(&self) -> usize {
        self.prefill.unwrap_or(self.index)
    }

    /// The best of the others.
    pub(crate) fn runner_up(&self) -> Option<usize> {
        let others = self.considered.iter().zip(&self.scores);
        let others = others.filter(|(at, _)| **at != self.index && Some(**at) != self.prefill);
        others.min_by(|a, b| a.1.total_cmp(b.1)).map(|(at, _)| *at)
    }
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

impl PairSelect {
    /// The word used in configuration, headers and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::LeastLoad => "least_load",
            Self::E4 => "e4",
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
            Self::NotSplit => "not_split",
        }
    }
}
