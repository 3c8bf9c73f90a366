//! Prefill and decode at different engines: what part an engine has, and how a pool splits requests.

use std::time::Duration;

use kvasir_balance::PairSelect;
use serde::{Deserialize, Serialize};

use crate::bounds::{HOUR_MS, Wrong, within};

/// More than any link hands over: a thousandth of a microsecond a token.
const MOST_RATE: u64 = 1_000_000_000;
/// The longest name of a host.
const MOST_HOST_BYTES: usize = 253;

/// The part of an engine in a pool that splits requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointRole {
    /// It serves whole requests.
    #[default]
    Unified,
    /// It computes prompts for decode endpoints.
    Prefill,
    /// It answers prompts that prefill endpoints computed.
    Decode,
}

/// How KV is handed over from one engine to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferProtocol {
    /// By the kind of the pool's engines.
    #[default]
    Auto,
    /// vLLM's `kv_transfer_params`.
    Nixl,
    /// `SGLang`'s bootstrap rooms.
    Sglang,
    /// TensorRT-LLM's `disaggregated_params`.
    Trtllm,
}

/// How a pool splits requests among prefill and decode endpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DisaggregationConfig {
    /// Whether it does. Default true; where not, endpoints of all roles serve whole requests.
    pub enabled: bool,
    /// How KV is handed over. Default `auto`.
    pub protocol: TransferProtocol,
    /// How the endpoints of a request are chosen. Default `cost`.
    pub select: PairSelect,
    /// How long the prefill leg may take, in milliseconds. Default 30000.
    pub prefill_timeout_ms: u64,
    /// How long the decode leg may take until its first data, in milliseconds. Default 30000.
    pub decode_timeout_ms: u64,
    /// Tokens of KV handed over per second, until measured. Default 200000.
    pub transfer_tokens_per_s: u64,
    /// What handing over takes however little it is, in milliseconds. Default 5.
    pub transfer_ms: u64,
    /// The port of prefill engines' bootstrap servers (`SGLang`). Default 8998.
    pub bootstrap_port: u16,
    /// How long a prefill engine keeps the blocks of a prompt for the decode leg, in milliseconds.
    /// Default 30000.
    pub lease_ms: u64,
}

impl Default for DisaggregationConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            protocol: TransferProtocol::default(),
            select: PairSelect::default(),
            prefill_timeout_ms: 30_000,
            decode_timeout_ms: 30_000,
            transfer_tokens_per_s: 200_000,
            transfer_ms: 5,
            bootstrap_port: 8998,
            lease_ms: 30_000,
        }
    }
}

impl DisaggregationConfig {
    /// How long the prefill leg may take.
    #[must_use]
    pub fn prefill_timeout(&self) -> Duration {
        Duration::from_millis(self.prefill_timeout_ms)
    }

    /// How long the decode leg may take until its first data.
    #[must_use]
    pub fn decode_timeout(&self) -> Duration {
        Duration::from_millis(self.decode_timeout_ms)
    }

    /// What handing over takes however little it is.
    #[must_use]
    pub fn transfer(&self) -> Duration {
        Duration::from_millis(self.transfer_ms)
    }

    /// How long a prefill engine keeps the blocks of a prompt.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    pub(crate) fn check(&self) -> Result<(), Wrong> {
        within("prefill_timeout_ms", &self.prefill_timeout_ms, &1, &HOUR_MS)?;
        within("decode_timeout_ms", &self.decode_timeout_ms, &1, &HOUR_MS)?;
        within("transfer_tokens_per_s", &self.transfer_tokens_per_s, &1, &MOST_RATE)?;
        within("transfer_ms", &self.transfer_ms, &0, &HOUR_MS)?;
        within("bootstrap_port", &self.bootstrap_port, &1, &u16::MAX)?;
        within("lease_ms", &self.lease_ms, &1, &HOUR_MS)
    }
}

/// Whether it is the name or address of a host, without a port.
pub(crate) fn check_host(host: &str) -> Result<(), &'static str> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_address = inner.parse::<std::net::IpAddr>().is_ok();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_name = !host.is_empty() && host.len() <= MOST_HOST_BYTES && host.bytes().all(allowed);
    if is_address || is_name {
        Ok(())
    } else {
        Err("must be a host's name or address, without a port")
    }
}
