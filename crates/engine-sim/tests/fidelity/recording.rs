//! Recordings of real vLLM servers (`testdata/captures`), as far as a model of the engine needs
//! them: what was asked, what came out, and which batches were published on the way.

use std::path::{Path, PathBuf};

use kvasir_engine_sim::{EngineConfig, EventFormat, HashForm, Hashing, Lora, Version};
use serde_json::Value;

/// A recording.
pub(crate) fn captures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures").join(name)
}

/// One recorded server.
pub(crate) struct Recording {
    pub(crate) config: EngineConfig,
    pub(crate) format: EventFormat,
    pub(crate) steps: Vec<Step>,
    /// `prefix_cache_queries_total` and `prefix_cache_hits_total` at the end.
    pub(crate) prefix_totals: (u64, u64),
}

/// One HTTP request and what it made the server publish.
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) reset: bool,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) lora: Option<Lora>,
    pub(crate) salt: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) max_tokens: usize,
    /// `cached_tokens` of the usage; the server counts only the last prompt.
    pub(crate) cached_tokens: usize,
    pub(crate) batches: Vec<Vec<u8>>,
}

pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    pub(crate) output: Vec<u32>,
}

impl Recording {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of_kind = |kind: &str| lines.iter().find(|line| line["kind"] == kind).unwrap();
        let meta = of_kind("meta");
        let metrics = &of_kind("end")["metrics"];
        let total = |name: &str| -> u64 {
            metrics[name].as_str().unwrap().parse::<f64>().unwrap().round() as u64
        };
        let (config, format) = read_meta(meta);
        let mut steps: Vec<Step> = Vec::new();
        for line in &lines {
            match line["kind"].as_str().unwrap() {
                "request" => steps.push(read_request(line, &meta["models"]["data"])),
                "frames" => {
                    let step = steps.last_mut().unwrap();
                    assert_eq!(line["step"], step.name.as_str());
                    step.batches.push(hex(line["frames_hex"][2].as_str().unwrap()));
                }
                _ => {}
            }
        }
        let prefix_totals =
            (total("vllm:prefix_cache_queries_total"), total("vllm:prefix_cache_hits_total"));
        Self { config, format, steps, prefix_totals }
    }
}

fn read_meta(meta: &Value) -> (EngineConfig, EventFormat) {
    let info = &meta["cache_config_info"];
    let number = |value: &Value| -> usize { value.as_str().unwrap().parse().unwrap() };
    let version: Version = meta["version"].as_str().unwrap().parse().unwrap();
    let algorithm = meta["algo"].as_str().unwrap();
    let seed = meta["pythonhashseed"].as_str().filter(|&seed| seed != "unset");
    let config = EngineConfig {
        version,
        block_size: number(&info["block_size"]),
        num_blocks: number(&info["num_gpu_blocks"]),
        max_model_len: meta["models"]["data"][0]["max_model_len"].as_u64().unwrap() as usize,
        hashing: Hashing::of_engine(version, algorithm.parse().unwrap(), seed).unwrap(),
        ..EngineConfig::default()
    };
    let digest = if algorithm.starts_with("xxhash") { 16 } else { 32 };
    let form = match meta["int_hashes"].as_str().unwrap() {
        "1" => HashForm::Int,
        _ => HashForm::Bytes(digest),
    };
    (config, EventFormat::new(version, form))
}

fn read_request(line: &Value, models: &Value) -> Step {
    let (body, response) = (&line["body"], &line["response"]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let prompts = response["choices"].as_array().into_iter().flatten().map(|choice| {
        // Chat answers have the prompt beside the choices.
        let prompt = [&choice["prompt_token_ids"], &response["prompt_token_ids"]];
        let prompt = prompt.into_iter().find(|ids| ids.is_array()).unwrap();
        Prompt { tokens: ids(prompt), output: ids(&choice["token_ids"]) }
    });
    let adapters = models.as_array().unwrap().iter().filter(|model| !model["parent"].is_null());
    let lora = adapters.enumerate().find(|(_, model)| model["id"] == body["model"]);
    let usage = &response["usage"]["prompt_tokens_details"]["cached_tokens"];
    Step {
        name: text(&line["step"]).unwrap(),
        reset: line["path"] == "/reset_prefix_cache",
        prompts: prompts.collect(),
        lora: lora.map(|(index, model)| Lora {
            name: text(&model["id"]).unwrap(),
            path: text(&model["root"]),
            int_id: Some(index as u64 + 1),
        }),
        salt: text(&body["cache_salt"]),
        session: text(&body["session_id"]),
        max_tokens: body["max_tokens"].as_u64().unwrap_or_default() as usize,
        cached_tokens: usage.as_u64().unwrap_or_default() as usize,
        batches: Vec::new(),
    }
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}
