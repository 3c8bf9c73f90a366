//! OpenAI-shaped bodies, field for field as vLLM gives them (recorded for 0.20.2 and 0.32.0).

use std::collections::VecDeque;

use bytes::Bytes;
use kvasir_prompt::Api;
use serde_json::{Map, Value, json};

use super::ask::Ask;
use crate::FinishReason;
use crate::server::disagg::legs::Left;
use crate::server::disagg::params::Leg;
use crate::server::text::word;

/// What the engine has made of one request so far.
#[derive(Debug)]
pub(in crate::server) struct Answer {
    ask: Ask,
    head: Head,
    choices: Vec<Choice>,
    /// Of the first result, which streams report.
    first_cached: Option<usize>,
    unfinished: usize,
    left: Left,
}

/// What all bodies of one answer share.
#[derive(Clone, Debug)]
pub(in crate::server) struct Head {
    /// Without the prefix that tells the interface.
    pub(in crate::server) id: String,
    pub(in crate::server) created: u64,
    pub(in crate::server) fingerprint: String,
    pub(in crate::server) block_size: usize,
    pub(in crate::server) report_cached_tokens: bool,
    /// 0.32 and newer.
    pub(in crate::server) modern: bool,
}

#[derive(Clone, Debug, Default)]
struct Choice {
    tokens: Vec<u32>,
    finished: Option<FinishReason>,
    cached_tokens: usize,
}

impl Answer {
    pub(in crate::server) fn new(ask: Ask, head: Head) -> Self {
        let unfinished = ask.choices();
        Self {
            head,
            choices: vec![Choice::default(); unfinished],
            first_cached: None,
            unfinished,
            left: Left::Nothing,
            ask,
        }
    }

    /// The prompt has been left for another engine.
    pub(in crate::server) fn leaves(&mut self, left: Left) {
        self.left = left;
    }

    /// vLLM's name for the first prompt of the request, less its random end.
    pub(in crate::server) fn internal_id(&self) -> String {
        match self.ask.api {
            Api::Chat => format!("chatcmpl-{}", self.head.id),
            _ => format!("cmpl-{}-0", self.head.id),
        }
    }

    /// The word for why a choice ends.
    fn reason(&self, finished: Option<FinishReason>) -> Option<&'static str> {
        finished.map(|reason| match reason {
            // TensorRT-LLM's.
            FinishReason::Length if self.ask.goes_on => "not_finished",
            reason => reason.as_str(),
        })
    }

    /// Whether every choice has ended.
    pub(in crate::server) fn is_finished(&self) -> bool {
        self.unfinished == 0
    }

    /// Takes in a token; streams its events.
    pub(in crate::server) fn token(
        &mut self,
        index: usize,
        token: u32,
        finished: Option<FinishReason>,
        cached_tokens: usize,
        events: Option<&mut VecDeque<Bytes>>,
    ) {
        self.first_cached.get_or_insert(cached_tokens);
        let Some(choice) = self.choices.get_mut(index) else { return };
        choice.tokens.push(token);
        choice.finished = finished;
        choice.cached_tokens = cached_tokens;
        self.unfinished -= usize::from(finished.is_some());
        if let Some(events) = events {
            self.stream(index, token, finished, events);
        }
    }

    fn stream(
        &self,
        index: usize,
        token: u32,
        finished: Option<FinishReason>,
        events: &mut VecDeque<Bytes>,
    ) {
        let first = self.choices.get(index).is_some_and(|choice| choice.tokens.len() == 1);
        if first && self.ask.api == Api::Chat {
            events.push_back(self.role(index));
        }
        let ids = |tokens: &[u32]| self.ask.return_token_ids.then(|| tokens.to_vec());
        let prompt_ids = if first { ids(self.ask.prompt(index)) } else { None };
        let mut choice = json!({"index": index});
        let reason = self.reason(finished);
        match self.ask.api {
            Api::Chat => {
                choice["delta"] = json!({"content": word(token)});
                choice["logprobs"] = Value::Null;
                choice["finish_reason"] = json!(reason);
                if finished.is_some() {
                    choice["stop_reason"] = Value::Null;
                }
            }
            _ => {
                choice["text"] = json!(word(token));
                choice["logprobs"] = Value::Null;
                choice["finish_reason"] = json!(reason);
                choice["stop_reason"] = Value::Null;
                choice["prompt_token_ids"] = json!(prompt_ids);
            }
        }
        choice["token_ids"] = json!(ids(&[token]));
        let mut chunk = self.envelope("chat.completion.chunk", json!([choice]));
        // It rides on the last chunk, which is that of the usage if there is one.
        if finished.is_some() && !self.ask.include_usage && self.head.modern {
            chunk.insert("system_fingerprint".to_owned(), json!(self.head.fingerprint));
        }
        self.add_running_usage(&mut chunk, index);
        events.push_back(event(&Value::Object(chunk)));
        if self.is_finished() {
            if self.ask.include_usage {
                events.push_back(self.usage_event());
            }
            events.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        }
    }

    /// The chunk that begins a chat choice.
    fn role(&self, index: usize) -> Bytes {
        let delta = json!({"role": "assistant", "content": ""});
        let choice = json!({"index": index, "delta": delta, "logprobs": null,
            "finish_reason": null});
        let mut chunk = self.envelope("chat.completion.chunk", json!([choice]));
        let ids = self.ask.return_token_ids.then(|| self.ask.prompt(index));
        chunk.insert("prompt_token_ids".to_owned(), json!(ids));
        if self.head.modern {
            chunk.insert("prompt_text".to_owned(), Value::Null);
        }
        if self.ask.continuous_usage {
            let prompt = self.ask.prompt(index).len();
            chunk.insert("usage".to_owned(), usage(prompt, 0));
        }
        event(&Value::Object(chunk))
    }

    fn add_running_usage(&self, chunk: &mut Map<String, Value>, index: usize) {
        if self.ask.continuous_usage {
            let generated = self.choices.get(index).map_or(0, |choice| choice.tokens.len());
            chunk.insert("usage".to_owned(), usage(self.ask.prompt(index).len(), generated));
        }
    }

    fn usage_event(&self) -> Bytes {
        let mut total = usage(self.ask.prompt_tokens(), self.generated());
        let cached = self.first_cached.filter(|_| self.head.report_cached_tokens);
        if let Some(cached) = cached.filter(|cached| self.head.modern || *cached > 0) {
            // Nulls are left out here.
            total["prompt_tokens_details"] = json!({"cached_tokens": cached});
        }
        let mut chunk = self.envelope("chat.completion.chunk", json!([]));
        chunk.insert("usage".to_owned(), total);
        if self.head.modern {
            chunk.insert("system_fingerprint".to_owned(), json!(self.head.fingerprint));
        }
        event(&Value::Object(chunk))
    }

    /// The body of an answer that is not streamed.
    pub(in crate::server) fn whole(&self) -> Value {
        let choices: Vec<Value> = self
            .choices
            .iter()
            .enumerate()
            .map(|(index, choice)| self.choice(index, choice))
            .collect();
        let mut body = self.envelope("chat.completion", Value::Array(choices));
        let mut add = |name: &str, value: Value| body.insert(name.to_owned(), value);
        add("service_tier", Value::Null);
        add("system_fingerprint", json!(self.head.modern.then_some(&self.head.fingerprint)));
        add("usage", self.whole_usage());
        if self.ask.api == Api::Chat {
            let ids = self.ask.return_token_ids.then(|| self.ask.prompt(0));
            add("prompt_logprobs", Value::Null);
            add("prompt_token_ids", json!(ids));
            if self.head.modern {
                add("prompt_text", Value::Null);
            }
        }
        add(
            "kv_transfer_params",
            match &self.left {
                Left::Body(params) => params.clone(),
                _ => Value::Null,
            },
        );
        if self.head.modern {
            add("ec_transfer_params", Value::Null);
            add("metrics", Value::Null);
        }
        Value::Object(body)
    }

    fn choice(&self, index: usize, choice: &Choice) -> Value {
        let text: String = choice.tokens.iter().copied().map(word).collect();
        let ids = |tokens: &[u32]| json!(self.ask.return_token_ids.then_some(tokens));
        let mut body = Map::new();
        let mut add = |name: &str, value: Value| body.insert(name.to_owned(), value);
        add("index", json!(index));
        if self.ask.api == Api::Chat {
            let mut message = json!({"role": "assistant", "content": text, "refusal": null,
                "annotations": null, "audio": null, "function_call": null});
            if !self.head.modern {
                message["tool_calls"] = json!([]);
            }
            message["reasoning"] = Value::Null;
            add("message", message);
        } else {
            add("text", json!(text));
        }
        add("logprobs", Value::Null);
        add("finish_reason", json!(self.reason(choice.finished)));
        add("stop_reason", Value::Null);
        add("token_ids", ids(&choice.tokens));
        if self.ask.api != Api::Chat {
            add("prompt_logprobs", Value::Null);
            add("prompt_token_ids", ids(self.ask.prompt(index)));
        }
        if self.head.modern {
            add("routed_experts", Value::Null);
        }
        if let Left::Choice(params) = &self.left {
            add("disaggregated_params", params.clone());
        }
        Value::Object(body)
    }

    /// Of several prompts, the last one's cached tokens are reported.
    fn whole_usage(&self) -> Value {
        let mut total = usage(self.ask.prompt_tokens(), self.generated());
        let cached = self.choices.last().map_or(0, |choice| choice.cached_tokens);
        let reported = self.head.report_cached_tokens;
        total["prompt_tokens_details"] = if reported && self.head.modern {
            let block = self.head.block_size;
            let computed_here = !matches!(self.ask.leg, Leg::Decode(_));
            let filled = if computed_here { self.ask.prompt(0).len() / block * block } else { 0 };
            let created = filled.saturating_sub(cached);
            let created = (self.ask.api == Api::Chat).then_some(created);
            json!({"cached_tokens": cached, "created_cache_tokens": created,
                "multimodal_tokens": null})
        } else if reported && cached > 0 {
            json!({"cached_tokens": cached})
        } else {
            Value::Null
        };
        if self.head.modern {
            total["completion_tokens_details"] = Value::Null;
        }
        total
    }

    fn generated(&self) -> usize {
        self.choices.iter().map(|choice| choice.tokens.len()).sum()
    }

    fn envelope(&self, chat_object: &str, choices: Value) -> Map<String, Value> {
        let (prefix, object) = match self.ask.api {
            Api::Chat => ("chatcmpl", chat_object),
            _ => ("cmpl", "text_completion"),
        };
        let mut body = Map::new();
        let mut add = |name: &str, value: Value| body.insert(name.to_owned(), value);
        add("id", json!(format!("{prefix}-{}", self.head.id)));
        add("object", json!(object));
        add("created", json!(self.head.created));
        add("model", json!(self.ask.model));
        add("choices", choices);
        body
    }
}

fn usage(prompt: usize, generated: usize) -> Value {
    json!({"prompt_tokens": prompt, "total_tokens": prompt + generated,
        "completion_tokens": generated})
}

/// A server-sent event.
pub(in crate::server) fn event(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}
