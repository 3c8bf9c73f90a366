//! What may come for a request, and nothing else.

use std::io;

use kvasir_testkit::client::RawClient;
use serde_json::{Value, json};

/// One request.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Its id: engines make the id of the answer from it.
    pub(crate) id: String,
    pub(crate) prompt: Vec<u32>,
    pub(crate) tokens: u64,
    pub(crate) stream: bool,
}

/// A proper end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All that was asked for.
    Complete,
    /// An error in place of an answer.
    Error,
    /// An error at the end of a stream that had begun.
    BrokenStream,
}

impl Asked {
    pub(crate) fn body(&self) -> Vec<u8> {
        json!({"model": "tiny", "prompt": self.prompt, "max_tokens": self.tokens, "ignore_eos": true,
            "stream": self.stream, "stream_options": self.stream.then(|| json!({"include_usage": true}))})
        .to_string()
        .into_bytes()
    }

    pub(crate) async fn send(&self, client: &mut RawClient) -> io::Result<()> {
        let headers = [("content-type", "application/json"), ("x-request-id", &*self.id)];
        client.send("POST", "/v1/completions", &headers, &self.body()).await
    }

    /// Reads the answer and sees whether it is one.
    pub(crate) async fn answer(&self, client: &mut RawClient) -> Result<Ended, String> {
        let head = client.head().await.map_err(|error| format!("no head: {error}"))?;
        let is_stream =
            head.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        if head.status == 200 && is_stream {
            return self.events(client).await;
        }
        let body = client.body().await.map_err(|error| format!("{} {error}", head.status))?;
        let body: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("{}: {error}: {:?}", head.status, body))?;
        match head.status {
            200 => self.whole(&body),
            429 | 500 | 502 | 503 | 504 if is_error(&body) => Ok(Ended::Error),
            status => Err(format!("{status}: {body}")),
        }
    }

    fn whole(&self, body: &Value) -> Result<Ended, String> {
        let told = body["usage"]["completion_tokens"].as_u64();
        if self.stream || !self.is_mine(body) || told != Some(self.tokens) {
            return Err(format!("not what was asked for: {body}"));
        }
        Ok(Ended::Complete)
    }

    async fn events(&self, client: &mut RawClient) -> Result<Ended, String> {
        let (mut tokens, mut usage, mut done) = (0, None, false);
        loop {
            let event = client.event().await.map_err(|error| format!("after {tokens}: {error}"))?;
            let Some(event) = event else { break };
            if done {
                return Err(format!("after the end: {event}"));
            }
            if event == "[DONE]" {
                done = true;
                continue;
            }
            let event: Value = serde_json::from_str(&event).map_err(|e| format!("{e}: {event}"))?;
            if is_error(&event) {
                return match client.event().await {
                    Ok(None) => Ok(Ended::BrokenStream),
                    other => Err(format!("after an error: {other:?}")),
                };
            }
            if !self.is_mine(&event) {
                return Err(format!("another's: {event}"));
            }
            tokens += event["choices"].as_array().map_or(0, Vec::len) as u64;
            usage = event["usage"]["completion_tokens"].as_u64().or(usage);
        }
        if !done || usage != Some(self.tokens) || tokens != self.tokens {
            return Err(format!("an end without an end: {tokens} of {}, {usage:?}", self.tokens));
        }
        Ok(Ended::Complete)
    }

    fn is_mine(&self, answer: &Value) -> bool {
        answer["id"].as_str().is_some_and(|id| id.ends_with(&self.id)) && self.stream_form(answer)
    }

    fn stream_form(&self, answer: &Value) -> bool {
        answer["object"] == "text_completion"
    }
}

fn is_error(body: &Value) -> bool {
    body["error"]["message"].as_str().is_some_and(|message| !message.is_empty())
}
