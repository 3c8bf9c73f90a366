//! Writes a recording of an engine that was never there.

use kvasir_engine_sim::{Event, EventFormat, HashForm, Version};
use serde_json::{Value, json};

/// When the made-up recordings begin, in seconds since the epoch.
const STARTED: f64 = 1_800_000_000.0;

/// A recording being made.
pub(crate) struct Recorder {
    lines: Vec<Value>,
    format: EventFormat,
    step: String,
    seq: u64,
    clock: f64,
}

impl Recorder {
    /// Of one vLLM `version` with blocks of `block_size` tokens; `about` tells people what it is.
    pub(crate) fn new(version: &str, block_size: u32, about: &str) -> Self {
        let model = json!({"id": "synthetic", "object": "model", "owned_by": "vllm",
            "root": "synthetic", "parent": null, "max_model_len": 2048});
        let meta = json!({"kind": "meta", "synthetic": about, "version": version,
            "block_size": block_size.to_string(), "started": STARTED,
            "server_version": {"version": version}, "models": {"object": "list", "data": [model]},
            "cache_config_info": {"block_size": block_size.to_string()}});
        let release: Version = version.parse().unwrap();
        let format = EventFormat::new(release, HashForm::Int);
        let step = String::new();
        Self { lines: vec![meta], format, step, seq: 0, clock: STARTED }
    }

    /// Begins a step.
    pub(crate) fn step(&mut self, name: &str) {
        name.clone_into(&mut self.step);
        self.clock += 1.0;
    }

    /// A request of one prompt in a step of its own, with what the engine reports.
    pub(crate) fn request(&mut self, step: &str, prompt: &[u32], cached: usize, more: &Value) {
        self.step(step);
        let mut body = json!({"model": "synthetic", "prompt": prompt, "max_tokens": 1,
            "return_token_ids": true});
        let fields = body.as_object_mut().unwrap();
        fields.extend(more.as_object().cloned().unwrap_or_default());
        let usage = json!({"prompt_tokens": prompt.len(), "completion_tokens": 1,
            "total_tokens": prompt.len() + 1, "prompt_tokens_details": {"cached_tokens": cached}});
        let response = json!({"object": "text_completion", "model": "synthetic",
            "choices": [{"index": 0, "finish_reason": "length", "prompt_token_ids": prompt}],
            "usage": usage});
        self.lines.push(json!({"kind": "request", "step": step, "method": "POST",
            "path": "/v1/completions", "body": body, "status": 200, "response": response}));
    }

    /// `POST /reset_prefix_cache`, done.
    pub(crate) fn reset(&mut self, step: &str) {
        self.step(step);
        self.lines.push(json!({"kind": "request", "step": step, "method": "POST",
            "path": "/reset_prefix_cache", "body": null, "status": 200,
            "response": {"success": true}}));
    }

    /// One batch of events in the step under way.
    pub(crate) fn batch(&mut self, events: &[Event]) {
        self.clock += 0.25;
        let payload = self.format.encode(self.clock, events, Some(0));
        let frames = [String::new(), hex(&self.seq.to_be_bytes()), hex(&payload)];
        self.lines.push(json!({"kind": "frames", "step": self.step, "socket": "pub",
            "t": self.clock, "frames_hex": frames}));
        self.seq += 1;
    }

    /// The file's text.
    pub(crate) fn finish(self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
