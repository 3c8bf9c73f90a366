//! Which engine's protocol a server speaks, and its part in prefill/decode disaggregation.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The engine whose request protocol is served.
///
/// Bodies other than the fields of disaggregation, and events, are vLLM's for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// vLLM: `kv_transfer_params` (`NixlConnector`, recorded for 0.32.0).
    #[default]
    Vllm,
    /// SGLang: `bootstrap_host`, `bootstrap_port`, `bootstrap_room`.
    Sglang,
    /// TensorRT-LLM: `disaggregated_params`.
    TrtLlm,
}

impl EngineKind {
    /// What `/v1/models` says in `owned_by`.
    pub(in crate::server) fn owner(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TrtLlm => "tensorrt_llm",
        }
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "vllm" => Ok(Self::Vllm),
            "sglang" => Ok(Self::Sglang),
            "trtllm" => Ok(Self::TrtLlm),
            _ => Err(format!("unknown kind `{text}`, expected vllm, sglang or trtllm")),
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TrtLlm => "trtllm",
        })
    }
}

/// Which legs a server takes.
///
/// vLLM and TensorRT-LLM take both whatever their role (seen with `kv_producer`, `kv_consumer` and
/// `kv_both` on vLLM 0.32.0); SGLang has servers of one role only, and they take nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PdRole {
    /// Computes prompts.
    Prefill,
    /// Generates.
    Decode,
    /// Either; not for SGLang.
    Both,
}

impl FromStr for PdRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "prefill" => Ok(Self::Prefill),
            "decode" => Ok(Self::Decode),
            "both" => Ok(Self::Both),
            _ => Err(format!("unknown role `{text}`, expected prefill, decode or both")),
        }
    }
}

/// What becomes of a request whose prompt could not be fetched (`kv_load_failure_policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransferFailure {
    /// It fails with status 500, or with an error in its stream.
    #[default]
    Fail,
    /// Its prompt is computed here. SGLang cannot.
    Recompute,
}

impl FromStr for TransferFailure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fail" => Ok(Self::Fail),
            "recompute" => Ok(Self::Recompute),
            _ => Err(format!("unknown policy `{text}`, expected fail or recompute")),
        }
    }
}

/// A server's part in prefill/decode disaggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct PdConfig {
    /// `None`: there is no connector; vLLM and SGLang then ignore the fields, TensorRT-LLM refuses
    /// them.
    pub role: Option<PdRole>,
    /// How long a computed prompt is kept (vLLM's `kv_lease_duration`).
    pub lease: Duration,
    /// What every fetch takes besides `transfer_rate`; that of the side that fetches counts.
    pub transfer_time: Duration,
    /// Tokens a second.
    pub transfer_rate: f64,
    /// What a failed fetch leads to.
    pub on_failure: TransferFailure,
    /// How long after a failure that comes; a vLLM 0.32.0 took 5.7 s to give up a dead host.
    pub failure_delay: Duration,
    /// How long a leg waits for its partner (SGLang), and for the connection to another server.
    pub rendezvous: Duration,
}

impl Default for PdConfig {
    /// No connector; leases of 30 s as vLLM's, transfers of 5 ms and 200,000 tokens a second.
    fn default() -> Self {
        Self {
            role: None,
            lease: Duration::from_secs(30),
            transfer_time: Duration::from_millis(5),
            transfer_rate: 200_000.0,
            on_failure: TransferFailure::Fail,
            failure_delay: Duration::ZERO,
            rendezvous: Duration::from_secs(30),
        }
    }
}

impl PdConfig {
    /// The first thing that cannot be.
    pub(in crate::server) fn check(&self, kind: EngineKind) -> Result<(), String> {
        if kind == EngineKind::Sglang && self.role == Some(PdRole::Both) {
            return Err("a SGLang server either prefills or decodes".to_owned());
        }
        if !(self.transfer_rate.is_finite() && self.transfer_rate > 0.0) {
            return Err(format!("a transfer rate of {} is none", self.transfer_rate));
        }
        const DAY: Duration = Duration::from_secs(86_400);
        let times = [self.lease, self.transfer_time, self.failure_delay, self.rendezvous];
        match times.iter().find(|time| **time > DAY) {
            Some(time) => Err(format!("{time:?} is longer than a day")),
            None => Ok(()),
        }
    }
}
