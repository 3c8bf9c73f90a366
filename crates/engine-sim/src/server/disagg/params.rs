//! What a request's body says about its part in prefill/decode disaggregation.

use serde_json::Value;

use super::config::{EngineKind, PdRole};
use super::rooms::Side;
use crate::server::generate::ask::Fields;
use crate::server::refusal::Refusal;
use crate::server::state::State;

/// A request's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) enum Leg {
    /// It is no part of anything.
    Whole,
    Prefill(Prefill),
    Decode(Decode),
}

/// A leg that computes a prompt for somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Prefill {
    /// vLLM's.
    Lease,
    /// SGLang's.
    Room(u64),
    /// TensorRT-LLM's, with the client's id of the request.
    Context(Option<u64>),
}

/// A leg whose prompt has been, or is being, computed elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) struct Decode {
    /// `host:port` of whoever has it.
    pub(super) at: String,
    pub(super) source: Source,
    /// The token after the prompt, where the client knows it.
    pub(super) first: Option<u64>,
}

/// Where a prompt is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) enum Source {
    /// Under a lease of this name, by this engine if it has said which it is.
    Lease {
        name: String,
        engine: Option<String>,
    },
    Room(u64),
}

const KV: &str = "kv_transfer_params";
const DISAGG: &str = "disaggregated_params";

/// Which leg a body is, judged by little.
pub(in crate::server) fn side(state: &State, body: &Value) -> Option<Side> {
    let fields = Fields(body);
    let role = state.config.pd.role?;
    match state.config.kind {
        EngineKind::Vllm => {
            let params = fields.get(KV)?;
            let asks = |name: &str| params.get(name).and_then(Value::as_bool) == Some(true);
            match (asks("do_remote_prefill"), asks("do_remote_decode")) {
                (true, _) => Some(Side::Decode),
                (false, true) => Some(Side::Prefill),
                (false, false) => None,
            }
        }
        EngineKind::Sglang => fields.get("bootstrap_room").map(|_| match role {
            PdRole::Decode => Side::Decode,
            PdRole::Prefill | PdRole::Both => Side::Prefill,
        }),
        EngineKind::TrtLlm => match fields.get(DISAGG)?.get("request_type")?.as_str()? {
            "context_only" => Some(Side::Prefill),
            "generation_only" => Some(Side::Decode),
            _ => None,
        },
    }
}

impl Leg {
    /// Reads a body with so many prompts and answers each.
    pub(in crate::server) fn read(
        state: &State,
        fields: &Fields<'_>,
        prompts: usize,
        n: usize,
    ) -> Result<Self, Refusal> {
        let kind = state.config.kind;
        if state.config.pd.role.is_none() {
            return match fields.get(DISAGG) {
                Some(_) if kind == EngineKind::TrtLlm => {
                    Err(bad(DISAGG, "this server has no cache transceiver (no P/D role)"))
                }
                _ => Ok(Self::Whole),
            };
        }
        let Some(side) = side(state, fields.0) else { return Self::whole(kind, fields) };
        let param = match kind {
            EngineKind::Vllm => KV,
            EngineKind::Sglang => "bootstrap_room",
            EngineKind::TrtLlm => DISAGG,
        };
        if prompts > 1 {
            return Err(bad(param, &format!("{prompts} prompts cannot share one transfer")));
        }
        if n > 1 && side == Side::Prefill {
            return Err(bad(param, &format!("a prefill leg has one answer, not {n}")));
        }
        match (kind, side) {
            (EngineKind::Vllm, Side::Prefill) => Ok(Self::Prefill(Prefill::Lease)),
            (EngineKind::Vllm, Side::Decode) => leased(fields).map(Self::Decode),
            (EngineKind::Sglang, Side::Prefill) => Ok(Self::Prefill(Prefill::Room(room(fields)?))),
            (EngineKind::Sglang, Side::Decode) => Ok(Self::Decode(Decode {
                at: host_port(fields.0, "bootstrap_host", "bootstrap_port", "bootstrap_host")?,
                source: Source::Room(room(fields)?),
                first: None,
            })),
            (EngineKind::TrtLlm, Side::Prefill) => {
                let id = fields.get(DISAGG).and_then(|params| params["disagg_request_id"].as_u64());
                Ok(Self::Prefill(Prefill::Context(id)))
            }
            (EngineKind::TrtLlm, Side::Decode) => generation(fields).map(Self::Decode),
        }
    }

    /// A request that names no leg.
    fn whole(kind: EngineKind, fields: &Fields<'_>) -> Result<Self, Refusal> {
        match kind {
            EngineKind::Sglang => Err(bad(
                "bootstrap_room",
                "a server of one role takes no request without a bootstrap room",
            )),
            EngineKind::TrtLlm => match fields.get(DISAGG).map(|params| &params["request_type"]) {
                None => Ok(Self::Whole),
                Some(kind) if kind == "context_and_generation" => Ok(Self::Whole),
                Some(kind) => Err(bad(DISAGG, &format!("unknown request_type {kind}"))),
            },
            EngineKind::Vllm => Ok(Self::Whole),
        }
    }
}

/// vLLM would go on without a transfer whose parameters are incomplete; here it is an error.
fn leased(fields: &Fields<'_>) -> Result<Decode, Refusal> {
    let params = fields.get(KV).unwrap_or(&Value::Null);
    let text = |name: &str| match params[name].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(bad(KV, &format!("`{name}` must be a string"))),
    };
    if !params["remote_block_ids"].is_array() {
        return Err(bad(KV, "`remote_block_ids` must be a list"));
    }
    let (name, engine) = (text("remote_request_id")?, Some(text("remote_engine_id")?));
    let at = host_port(params, "remote_host", "remote_port", KV)?;
    Ok(Decode { at, source: Source::Lease { name, engine }, first: None })
}

fn generation(fields: &Fields<'_>) -> Result<Decode, Refusal> {
    let params = fields.get(DISAGG).unwrap_or(&Value::Null);
    let missing = |name: &str| bad(DISAGG, &format!("`{name}` is missing or none"));
    let id = params["ctx_request_id"].as_u64().ok_or_else(|| missing("ctx_request_id"))?;
    let first = params["first_gen_tokens"].as_array().and_then(|tokens| tokens.first()?.as_u64());
    let first = first.ok_or_else(|| missing("first_gen_tokens"))?;
    let state = params["encoded_opaque_state"].as_str().and_then(from_opaque);
    let at = state.ok_or_else(|| missing("encoded_opaque_state"))?;
    let source = Source::Lease { name: id.to_string(), engine: None };
    Ok(Decode { at, source, first: Some(first) })
}

fn room(fields: &Fields<'_>) -> Result<u64, Refusal> {
    let room = fields.get("bootstrap_room").and_then(Value::as_u64);
    room.filter(|room| *room < 1 << 63)
        .ok_or_else(|| bad("bootstrap_room", "it must be a number of 63 bits"))
}

fn host_port(
    object: &Value,
    host: &str,
    port: &str,
    param: &'static str,
) -> Result<String, Refusal> {
    let name = object[host].as_str().filter(|host| !host.is_empty());
    let number = object[port].as_u64().filter(|port| (1..=65_535).contains(port));
    match (name, number) {
        (Some(host), Some(port)) if host.contains(':') && !host.starts_with('[') => {
            Ok(format!("[{host}]:{port}"))
        }
        (Some(host), Some(port)) => Ok(format!("{host}:{port}")),
        _ => Err(bad(param, &format!("`{host}` and `{port}` must be a host and its port"))),
    }
}

fn bad(param: &'static str, why: &str) -> Refusal {
    Refusal::bad(format!("{param}: {why}.")).of(param)
}

/// An address in a form that nobody but a server like this one reads.
pub(super) fn to_opaque(at: &str) -> String {
    at.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn from_opaque(text: &str) -> Option<String> {
    if text.len() > 1_024 || text.len() % 2 == 1 {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    String::from_utf8((0..text.len()).step_by(2).map(byte).collect::<Option<_>>()?).ok()
}
