//! Prefill and decode at different engines: how a pool splits requests, and what is kept of them where
//! their prompts were computed.

use std::time::Duration;

use kvasir_balance::PairSelect;

use crate::kind::EngineKind;

/// How one leg's KV is handed over to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// By the kind of the pool's engines.
    #[default]
    Auto,
    /// vLLM: the prefill leg's answer carries `kv_transfer_params`, which the decode leg gets.
    Nixl,
    /// `SGLang`: both legs at once, meeting in a bootstrap room.
    Sglang,
    /// TensorRT-LLM: `disaggregated_params`, `context_only` and `generation_only`.
    Trtllm,
}

/// How a pool splits requests.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitSettings {
    /// How KV is handed over.
    pub protocol: Protocol,
    /// How pairs are chosen.
    pub select: PairSelect,
    /// How long the prefill leg may take.
    pub prefill_timeout: Duration,
    /// How long the decode leg may take until its first data.
    pub decode_timeout: Duration,
    /// Tokens of KV handed over per second, until measured.
    pub transfer_rate: f64,
    /// What handing over takes however little it is.
    pub transfer_time: Duration,
    /// The port of prefill engines' bootstrap servers (`SGLang`), where an endpoint says nothing else
    /// ([`Endpoint::bootstrap_port`](crate::Endpoint::bootstrap_port)).
    pub bootstrap_port: u16,
    /// How long a prefill engine keeps the blocks of a prompt for the decode leg to fetch.
    pub lease: Duration,
}

/// Whether a pool can split requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitState {
    /// No endpoint has a role.
    NoRoles,
    /// It is switched off: endpoints of all roles serve whole requests.
    Off,
    /// It can.
    Splits,
    /// It has no prefill endpoint: decode endpoints compute prompts.
    NoPrefill,
    /// It has no decode endpoint: only unified ones serve requests.
    NoDecode,
}

impl SplitState {
    /// Of a pool by the roles that its endpoints have, and whether it splits requests at all.
    #[must_use]
    pub fn of(has_prefill: bool, has_decode: bool, splits: bool) -> Self {
        match (has_prefill, has_decode) {
            (false, false) => Self::NoRoles,
            _ if !splits => Self::Off,
            (true, true) => Self::Splits,
            (false, true) => Self::NoPrefill,
            (true, false) => Self::NoDecode,
        }
    }

    /// What to know of a pool with one side only.
    #[must_use]
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Self::NoRoles | Self::Off | Self::Splits => None,
            Self::NoPrefill => {
                Some("no prefill endpoint: decode endpoints compute prompts until one comes")
            }
            Self::NoDecode => {
                Some("no decode endpoint: prefill endpoints get nothing until one comes")
            }
        }
    }

    /// The word used in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoRoles => "no_roles",
            Self::Off => "off",
            Self::Splits => "splits",
            Self::NoPrefill => "no_prefill",
            Self::NoDecode => "no_decode",
        }
    }
}

impl Default for SplitSettings {
    fn default() -> Self {
        Self {
            protocol: Protocol::Auto,
            select: PairSelect::Cost,
            prefill_timeout: Duration::from_secs(30),
            decode_timeout: Duration::from_secs(30),
            transfer_rate: 200_000.0,
            transfer_time: Duration::from_millis(5),
            bootstrap_port: 8998,
            lease: Duration::from_secs(30),
        }
    }
}

impl Protocol {
    /// The word used in configuration and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Nixl => "nixl",
            Self::Sglang => "sglang",
            Self::Trtllm => "trtllm",
        }
    }

    /// What engines of a kind speak; `None` where that is not known.
    #[must_use]
    pub fn of_kind(kind: EngineKind) -> Option<Self> {
        match kind {
            EngineKind::Vllm => Some(Self::Nixl),
            EngineKind::Sglang => Some(Self::Sglang),
            EngineKind::TrtLlm => Some(Self::Trtllm),
            EngineKind::LlamaCpp | EngineKind::Other => None,
        }
    }
}
