//! The dump of one endpoint's blocks.
//!
//! Hashes are bare JSON integers, as in the reference: above 2^53, programs that read numbers as doubles
//! (JavaScript, `jq` before 1.7) lose their last digits.

use std::net::SocketAddr;

use http::StatusCode;
use serde_json::{Value, json};

use crate::answer::{Answer, json_answer};
use crate::exposition::find;
use crate::gateway::Gateway;
use crate::table::Table;

/// The most blocks of one rank that are shown: what the reference keeps.
const MOST: usize = 1_000_000;

/// Answers `?service_id=…&ep_idx=…`.
pub(crate) fn answer(table: &Table, gateway: &dyn Gateway, query: &str) -> Answer {
    match dump(table, gateway, query) {
        Ok(dump) => json_answer(StatusCode::OK, &dump),
        Err((status, error)) => json_answer(status, &json!({ "error": error })),
    }
}

fn dump(table: &Table, gateway: &dyn Gateway, query: &str) -> Result<Value, (StatusCode, String)> {
    let service = number(query, "service_id")?;
    let index = number(query, "ep_idx")?;
    let missing = || (StatusCode::NOT_FOUND, "service or endpoint not found".to_owned());
    let placed = table.by_service(service).ok_or_else(missing)?;
    let (_, endpoint) =
        placed.endpoints().find(|(known, _)| *known == index).ok_or_else(missing)?;
    let at = SocketAddr::new(endpoint.ip, endpoint.target_port);
    let found = gateway.fleet(placed.at()).and_then(|fleet| find(&fleet, at));
    let hashes = found.map(|endpoint| endpoint.engine_hashes(MOST)).unwrap_or_default();
    let block = |(at, hash): (usize, &u64)| json!({ "block_idx": at, "hash_uint64": hash });
    let blocks: Vec<Value> = hashes.iter().enumerate().map(block).collect();
    Ok(json!({
        "service_id": service,
        "ep_idx": index,
        "hash_algo": placed.rule.service.algorithm(),
        "blocks": blocks,
        "total": hashes.len(),
    }))
}

fn number(query: &str, key: &str) -> Result<u32, (StatusCode, String)> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let text = pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).next_back();
    let text = text.unwrap_or_default();
    let invalid = |_| (StatusCode::BAD_REQUEST, format!("invalid {key}: `{text}` is no number"));
    text.parse().map_err(invalid)
}
