//! Arguments of a simulated engine's part in prefill/decode disaggregation.

use std::time::Duration;

use kvasir_engine_sim::server::{EngineKind, PdConfig, PdRole, TransferFailure};

/// Which engine's protocol, which legs, and how prompts travel.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SimPdArgs {
    /// The engine to speak like where engines differ in disaggregation, `owned_by` and metrics:
    /// vllm, sglang or trtllm. All else is vLLM's.
    #[arg(long, value_name = "KIND", default_value_t = EngineKind::Vllm)]
    pub(crate) kind: EngineKind,
    /// Take part in prefill/decode disaggregation: prefill, decode or both (SGLang: one of the
    /// first two). Transfers use the HTTP port.
    #[arg(long, value_name = "ROLE")]
    pub(crate) pd_role: Option<PdRole>,
    /// How long a computed prompt is kept for whoever decodes, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 30_000, value_parser = milliseconds(),
          requires = "pd_role")]
    pub(crate) pd_lease_ms: u64,
    /// What every transfer takes, in milliseconds, whatever its size.
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = milliseconds(),
          requires = "pd_role")]
    pub(crate) pd_transfer_ms: u64,
    /// How many tokens a second are transferred.
    #[arg(long, value_name = "N", default_value_t = 200_000,
          value_parser = clap::value_parser!(u32).range(1..), requires = "pd_role")]
    pub(crate) pd_transfer_tokens_per_s: u32,
    /// What becomes of a request whose prompt cannot be fetched: fail or recompute
    /// (`kv_load_failure_policy`).
    #[arg(long, value_name = "POLICY", default_value = "fail", requires = "pd_role")]
    pub(crate) pd_on_failure: TransferFailure,
    /// How long after the failure that comes, in milliseconds (a vLLM 0.32.0 took 5700 to give up
    /// a dead host).
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = milliseconds(),
          requires = "pd_role")]
    pub(crate) pd_failure_delay_ms: u64,
    /// How long a leg waits for its partner, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 30_000, value_parser = milliseconds(),
          requires = "pd_role")]
    pub(crate) pd_rendezvous_ms: u64,
}

impl SimPdArgs {
    /// As the server takes it.
    pub(crate) fn config(&self) -> PdConfig {
        PdConfig {
            role: self.pd_role,
            lease: Duration::from_millis(self.pd_lease_ms),
            transfer_time: Duration::from_millis(self.pd_transfer_ms),
            transfer_rate: f64::from(self.pd_transfer_tokens_per_s),
            on_failure: self.pd_on_failure,
            failure_delay: Duration::from_millis(self.pd_failure_delay_ms),
            rendezvous: Duration::from_millis(self.pd_rendezvous_ms),
        }
    }
}

/// Up to a day.
fn milliseconds() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(..=86_400_000)
}
