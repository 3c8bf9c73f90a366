//! Streamed completions of one engine, timed token by token.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use kvasir_config::EngineUrl;
use kvasir_demo::http_client;
use serde_json::{Value, json};

/// What is read of answers that are no streams: metrics pages are the longest.
const MAX_PAGE: usize = 16 << 20;
/// No line of a stream is longer.
const MAX_LINE: usize = 1 << 20;

/// A client of one engine.
#[derive(Clone, Debug)]
pub(super) struct EngineClient {
    client: Client<HttpConnector, Full<Bytes>>,
    base: EngineUrl,
    model: String,
    headers: HeaderMap,
    patience: Duration,
}

/// A complete answer.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    /// When its request was sent.
    pub(super) sent: Instant,
    /// When pieces of it came, and how many tokens had come by then; never empty.
    pub(super) marks: Vec<(Instant, u32)>,
    /// `usage.prompt_tokens_details.cached_tokens`, where it is told.
    pub(super) cached: Option<u64>,
}

impl Timed {
    /// Seconds from sending to the first token.
    pub(super) fn ttft(&self) -> f64 {
        self.after(self.marks.first())
    }

    /// Seconds from sending to the last token.
    pub(super) fn e2e(&self) -> f64 {
        self.after(self.marks.last())
    }

    fn after(&self, mark: Option<&(Instant, u32)>) -> f64 {
        mark.map_or(0.0, |(at, _)| at.saturating_duration_since(self.sent).as_secs_f64())
    }
}

impl EngineClient {
    pub(super) fn new(
        base: EngineUrl,
        model: String,
        headers: HeaderMap,
        patience: Duration,
    ) -> Self {
        Self { client: http_client(), base, model, headers, patience }
    }

    /// A page, and its status.
    pub(super) async fn get(&self, path: &str) -> Result<(StatusCode, String)> {
        let request = self.request(Request::get(format!("{}{path}", self.base)), Bytes::new())?;
        let page = async {
            let response = self.client.request(request).await.map_err(|e| chain(&e))?;
            let status = response.status();
            Ok::<_, anyhow::Error>((status, read(response.into_body()).await?))
        };
        self.in_time(page).await.with_context(|| format!("{}{path}", self.base))
    }

    /// A completion of exactly `answer` tokens, read to its end.
    pub(super) async fn complete(&self, prompt: &[u32], answer: u32) -> Result<Timed> {
        const PATH: &str = "/v1/completions";
        let body = json!({
            "model": self.model, "prompt": prompt, "max_tokens": answer, "temperature": 0,
            "ignore_eos": true, "stream": true,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        });
        let builder = Request::post(format!("{}{PATH}", self.base))
            .header(header::CONTENT_TYPE, "application/json");
        let request = self.request(builder, Bytes::from(body.to_string()))?;
        let mut reading = Reading::new();
        let answered = async {
            let response = self.client.request(request).await.map_err(|e| chain(&e))?;
            let (head, body) = response.into_parts();
            if head.status != StatusCode::OK {
                bail!("status {}: {}", head.status.as_u16(), beginning(&read(body).await?));
            }
            let kind = head.headers.get(header::CONTENT_TYPE);
            let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("none");
            if !kind.starts_with("text/event-stream") {
                bail!("asked for a stream, the answer is {kind}: only streams can be timed");
            }
            reading.read(body).await
        };
        self.in_time(answered).await.with_context(|| format!("{}{PATH}", self.base))?;
        reading.finish(prompt.len(), answer).with_context(|| format!("{}{PATH}", self.base))
    }

    fn request(
        &self,
        builder: http::request::Builder,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>> {
        let mut request = builder.body(Full::new(body))?;
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        Ok(request)
    }

    async fn in_time<T>(&self, doing: impl Future<Output = Result<T>>) -> Result<T> {
        match tokio::time::timeout(self.patience, doing).await {
            Ok(done) => done,
            Err(_) => Err(anyhow!("no complete answer within {} s", self.patience.as_secs())),
        }
    }
}

/// An answer while it comes.
#[derive(Debug)]
struct Reading {
    sent: Instant,
    buffer: Vec<u8>,
    marks: Vec<(Instant, u32)>,
    usage: Option<Value>,
    done: bool,
}

impl Reading {
    fn new() -> Self {
        Self {
            sent: Instant::now(),
            buffer: Vec::new(),
            marks: Vec::new(),
            usage: None,
            done: false,
        }
    }

    async fn read(&mut self, mut body: Incoming) -> Result<()> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| chain(&e))?;
            let now = Instant::now();
            let Some(data) = frame.data_ref() else { continue };
            if self.buffer.len() + data.len() > MAX_LINE {
                bail!("in the stream: a line of more than {MAX_LINE} bytes");
            }
            self.buffer.extend_from_slice(data);
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                if let Some(data) = line.trim_ascii().strip_prefix(b"data:") {
                    self.take(data.trim_ascii(), now)?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, data: &[u8], now: Instant) -> Result<()> {
        if data == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_slice(data).with_context(|| {
            format!("in the stream: {}", beginning(&String::from_utf8_lossy(data)))
        })?;
        if let Some(error) = chunk.get("error") {
            bail!("in the stream: {}", beginning(&error.to_string()));
        }
        let usage = chunk.get("usage").filter(|usage| usage.is_object());
        let told = usage.and_then(|usage| usage.get("completion_tokens")).and_then(Value::as_u64);
        let choices = chunk.get("choices").and_then(Value::as_array).is_some_and(|c| !c.is_empty());
        if choices {
            let before = self.marks.last().map_or(0, |(_, tokens)| *tokens);
            // An engine that does not count as it goes sends one token a piece.
            let count = told.and_then(|n| u32::try_from(n).ok()).unwrap_or(before + 1);
            if count > before {
                self.marks.push((now, count));
            }
        }
        if let Some(usage) = usage {
            self.usage = Some(usage.clone());
        }
        Ok(())
    }

    fn finish(self, prompt: usize, answer: u32) -> Result<Timed> {
        if !self.done {
            bail!("the stream ended without [DONE]");
        }
        let usage = self.usage.context("the stream ended without usage")?;
        let of = |name: &str| usage.get(name).and_then(Value::as_u64);
        if of("prompt_tokens") != Some(prompt as u64) {
            let told = usage.get("prompt_tokens").unwrap_or(&Value::Null);
            bail!("the engine counts {told} tokens in a prompt of {prompt} token ids");
        }
        if of("completion_tokens") != Some(u64::from(answer)) {
            let told = usage.get("completion_tokens").unwrap_or(&Value::Null);
            bail!("asked for {answer} tokens with ignore_eos, got {told}");
        }
        if self.marks.is_empty() || (answer > 3 && self.marks.len() < 3) {
            bail!(
                "{answer} tokens came in {} pieces: something collects the stream, and steps \
                 cannot be timed",
                self.marks.len()
            );
        }
        let cached = usage.pointer("/prompt_tokens_details/cached_tokens").and_then(Value::as_u64);
        Ok(Timed { sent: self.sent, marks: self.marks, cached })
    }
}

async fn read(body: Incoming) -> Result<String> {
    let page = Limited::new(body, MAX_PAGE).collect().await;
    let bytes = page.map_err(|e| anyhow!("unreadable: {e}"))?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn beginning(text: &str) -> String {
    text.trim().chars().take(300).collect()
}

/// An error with what caused it: hyper's own messages name the stage only.
fn chain(error: &dyn std::error::Error) -> anyhow::Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    anyhow!(text)
}
