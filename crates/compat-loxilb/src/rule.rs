//! The document of a rule, field by field, with the reference's defaults.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The body of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rule {
    #[serde(rename = "serviceArguments")]
    pub(crate) service: Service,
    #[serde(default)]
    pub(crate) endpoints: Vec<Endpoint>,
    #[serde(default, rename = "secondaryIPs")]
    pub(crate) secondary: Vec<Value>,
}

/// `serviceArguments`. Fields for inference that have no value are left out of listings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Service {
    #[serde(rename = "externalIP")]
    pub(crate) external_ip: IpAddr,
    pub(crate) port: u16,
    #[serde(default)]
    pub(crate) port_max: u16,
    #[serde(default)]
    pub(crate) protocol: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) mode: u32,
    #[serde(default)]
    pub(crate) sel: u32,
    /// 0 create, 1 attach, 2 detach: an order, no property.
    #[serde(default, skip_serializing)]
    pub(crate) oper: u32,
    #[serde(default)]
    pub(crate) security: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) host: String,
    #[serde(default, rename = "path_prefix", skip_serializing_if = "String::is_empty")]
    pub(crate) path_prefix: String,
    #[serde(default, rename = "model_name", skip_serializing_if = "String::is_empty")]
    pub(crate) model_name: String,
    #[serde(default, rename = "sse_mode", skip_serializing_if = "is_false")]
    pub(crate) sse_mode: bool,
    #[serde(default, rename = "max_stream_duration_sec", skip_serializing_if = "is_zero")]
    pub(crate) max_stream_duration_sec: u64,
    #[serde(default, rename = "session_header_name", skip_serializing_if = "String::is_empty")]
    pub(crate) session_header_name: String,
    #[serde(default, rename = "timeoutMemberConnect", skip_serializing_if = "is_zero")]
    pub(crate) connect_ms: u64,
    #[serde(default, rename = "pd_disagg_mode", skip_serializing_if = "is_false")]
    pub(crate) pd: bool,
    #[serde(default, rename = "pd_cache_aware_mode", skip_serializing_if = "is_false")]
    pub(crate) pd_cache_aware: bool,
    #[serde(default, rename = "pd_session_ttl_sec", skip_serializing_if = "is_zero")]
    pub(crate) pd_session_ttl_sec: u64,
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub(crate) kv_exact_mode: u32,
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub(crate) kv_block_size: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) kv_hash_algo: String,
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub(crate) kv_zmq_port: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kv_warmup_sec: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) kv_engine_type: String,
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub(crate) kv_dp_rank_count: u32,
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub(crate) pd_bootstrap_port: u32,
    /// Everything else.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// One of `endpoints`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endpoint {
    #[serde(rename = "endpointIP")]
    pub(crate) ip: IpAddr,
    pub(crate) target_port: u16,
    #[serde(default)]
    pub(crate) weight: u32,
    /// 0 normal, 1 prefill, 2 decode.
    #[serde(default, rename = "ep_role", skip_serializing_if = "is_zero_u32")]
    pub(crate) role: u32,
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// The engines of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Vllm,
    Sglang,
    Trtllm,
}

impl Engine {
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "" | "vllm" => Some(Self::Vllm),
            "sglang" => Some(Self::Sglang),
            "trtllm" => Some(Self::Trtllm),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Trtllm => "trtllm",
        }
    }

    /// The algorithm of blocks' hashes where a rule names none.
    pub(crate) fn algorithm(self) -> &'static str {
        match self {
            Self::Vllm => "sha256_cbor",
            Self::Sglang => "sha256_sglang",
            Self::Trtllm => "blockhash_trtllm",
        }
    }
}

impl Service {
    /// Its engines; of a rule that was checked.
    pub(crate) fn engine(&self) -> Engine {
        Engine::of(&self.kv_engine_type).unwrap_or(Engine::Vllm)
    }

    /// The algorithm its inventory is said to be of.
    pub(crate) fn algorithm(&self) -> &str {
        match self.kv_hash_algo.as_str() {
            "" => self.engine().algorithm(),
            named => named,
        }
    }

    /// Seconds after which the rule does not warm up any more, whatever its streams say.
    pub(crate) fn warmup_s(&self) -> u64 {
        self.kv_warmup_sec.unwrap_or(30)
    }
}

impl Rule {
    /// Whether requests are split: said, or implied by the roles of its endpoints.
    pub(crate) fn splits(&self) -> bool {
        let has = |role| self.endpoints.iter().any(|endpoint| endpoint.role == role);
        self.service.pd || (self.service.kv_exact_mode != 3 && has(1) && has(2))
    }
}

/// Whether a value says nothing: null, false, zero, empty.
pub(crate) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero_u32(value: &u32) -> bool {
    *value == 0
}
