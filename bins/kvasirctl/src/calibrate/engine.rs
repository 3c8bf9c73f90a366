//! What an engine says of itself that times depend on.

use anyhow::{Context as _, Result, bail};
use http::StatusCode;
use serde_json::Value;

use super::client::EngineClient;
use crate::args::LimitArgs;

/// Taken for the token budget of a step where nobody tells it: vLLM's smallest default.
const BUDGET: u32 = 2_048;
/// Taken for the number of running requests: vLLM's smallest default for servers.
const SEQUENCES: u32 = 128;
/// vLLM's default on GPUs.
const BLOCK_SIZE: u32 = 16;
/// Taken for the cache where nobody tells its size: nothing that is sent here fills it.
const CACHE_TOKENS: u32 = 2_048_000;

/// The engine's limits, each told by an option, by the engine, or assumed.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) max_model_len: u32,
    pub(super) max_num_batched_tokens: u32,
    pub(super) max_num_seqs: u32,
    pub(super) block_size: u32,
    pub(super) cache_tokens: u32,
    /// Names of those that are assumed.
    pub(super) assumed: Vec<&'static str>,
}

/// The engine's answers to what it serves.
pub(super) async fn ask(client: &EngineClient, model: &str, given: &LimitArgs) -> Result<Limits> {
    let told_len = served(client, model).await?;
    let metrics = match client.get("/metrics").await {
        Ok((StatusCode::OK, page)) => page,
        _ => String::new(),
    };
    let busy =
        value(&metrics, "vllm:num_requests_running") + value(&metrics, "vllm:num_requests_waiting");
    if busy > 0.0 {
        bail!("the engine has {busy} requests under way: only an idle one can be measured");
    }
    let info = match client.get("/server_info?config_format=json").await {
        Ok((StatusCode::OK, page)) => serde_json::from_str(&page).unwrap_or(Value::Null),
        _ => Value::Null,
    };
    let cache = metrics.lines().find(|line| line.starts_with("vllm:cache_config_info{"));
    let of_cache = |name: &str| cache.and_then(|line| label(line, name)?.parse::<u32>().ok());
    let block_size = given.block_size.or_else(|| of_cache("block_size"));
    let cache_tokens = given.cache_tokens.or_else(|| {
        // One block, the null block, holds nothing.
        of_cache("num_gpu_blocks")?.saturating_sub(1).checked_mul(block_size?)
    });
    let mut assumed = Vec::new();
    let mut or = |name, told: Option<u32>, default| {
        told.filter(|value| *value > 0).unwrap_or_else(|| {
            assumed.push(name);
            default
        })
    };
    Ok(Limits {
        max_num_batched_tokens: or(
            "max_num_batched_tokens",
            given.max_num_batched_tokens.or_else(|| number(&info, "max_num_batched_tokens")),
            BUDGET,
        ),
        max_num_seqs: or(
            "max_num_seqs",
            given.max_num_seqs.or_else(|| number(&info, "max_num_seqs")),
            SEQUENCES,
        ),
        block_size: or("block_size", block_size, BLOCK_SIZE),
        cache_tokens: or("cache_tokens", cache_tokens, CACHE_TOKENS),
        max_model_len: given.max_model_len.or(told_len).with_context(|| {
            format!("the engine does not say max_model_len of {model}: give --max-model-len")
        })?,
        assumed,
    })
}

/// The model's context length, as far as the engine says; the model must be served.
async fn served(client: &EngineClient, model: &str) -> Result<Option<u32>> {
    let (status, page) = client.get("/v1/models").await?;
    if status != StatusCode::OK {
        bail!("/v1/models: status {}", status.as_u16());
    }
    let answer: Value = serde_json::from_str(&page).context("/v1/models")?;
    let models = answer.get("data").and_then(Value::as_array).context("/v1/models: no `data`")?;
    let name = |entry: &Value| entry.get("id").and_then(Value::as_str).map(str::to_owned);
    match models.iter().find(|entry| name(entry).as_deref() == Some(model)) {
        Some(entry) => Ok(number(entry, "max_model_len")),
        None => {
            let names: Vec<String> = models.iter().filter_map(name).collect();
            bail!("the engine does not serve {model}; it serves {}", names.join(", "));
        }
    }
}

/// The sum of a metric's samples.
fn value(metrics: &str, name: &str) -> f64 {
    let samples = metrics
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// A label of a sample.
fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let parts = line.split(['{', ',']);
    parts
        .filter_map(|part| part.split_once("=\""))
        .find(|(known, _)| *known == name)
        .and_then(|(_, rest)| rest.split_once('"').map(|(value, _)| value))
}

/// A number of this name, wherever in the value it is.
fn number(value: &Value, name: &str) -> Option<u32> {
    match value {
        Value::Object(fields) => {
            let own = fields.get(name).and_then(Value::as_u64);
            own.and_then(|number| u32::try_from(number).ok())
                .or_else(|| fields.values().find_map(|inner| number(inner, name)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_values_of_a_metrics_page() {
        let page = "# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine=\"0\"} 2.0\n\
            vllm:num_requests_running{engine=\"1\"} 1.0\nvllm:num_requests_running_total 9\n";
        assert!((value(page, "vllm:num_requests_running") - 3.0).abs() < 1e-9);
        let line = "vllm:cache_config_info{effective_attention_block_size=\"64\",block_size=\"32\",\
            num_gpu_blocks=\"100\"} 1.0";
        assert_eq!(
            (label(line, "block_size"), label(line, "num_gpu_blocks")),
            (Some("32"), Some("100"))
        );
        assert_eq!(label(line, "hash_block_size"), None);
    }

    #[test]
    fn numbers_are_found_inside() {
        let info = serde_json::json!({"vllm_config": {"scheduler_config": {"max_num_seqs": 64}}});
        assert_eq!(number(&info, "max_num_seqs"), Some(64));
        assert_eq!(number(&info, "max_num_batched_tokens"), None);
    }
}
