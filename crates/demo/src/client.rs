//! One streamed chat completion over HTTP, timed.

mod sse;

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::{Deserialize, Serialize};

use self::sse::{Event, Lines};

/// Below the 5 s after which vLLM's HTTP server closes idle connections.
const IDLE: Duration = Duration::from_secs(4);
/// No answer of the demonstration takes longer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What is read of the body of a refusal.
const MAX_REFUSAL: usize = 64 << 10;

/// One message of a conversation.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Message {
    pub(crate) role: &'static str,
    pub(crate) content: String,
}

/// What is asked.
#[derive(Debug, Serialize)]
pub(crate) struct Chat<'a> {
    pub(crate) model: &'a str,
    pub(crate) messages: &'a [Message],
    pub(crate) max_tokens: u32,
    temperature: f32,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Debug, Serialize)]
struct StreamOptions {
    include_usage: bool,
}

impl<'a> Chat<'a> {
    pub(crate) fn new(model: &'a str, messages: &'a [Message], max_tokens: u32) -> Self {
        let stream_options = StreamOptions { include_usage: true };
        Self { model, messages, max_tokens, temperature: 0.0, stream: true, stream_options }
    }
}

/// A complete answer and what was measured of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The generated text.
    pub text: String,
    /// From sending the request to the first text of the answer.
    pub ttft: Duration,
    /// From sending the request to the end of the answer.
    pub e2e: Duration,
    /// `usage.prompt_tokens`.
    pub prompt_tokens: u64,
    /// `usage.prompt_tokens_details.cached_tokens`; none reported counts as 0, as vLLM means it.
    pub cached_tokens: u64,
    /// `overlap` of `x-kvasir-reason`: the cached tokens the gateway expected.
    pub predicted_tokens: Option<u64>,
    /// `x-kvasir-endpoint`.
    pub endpoint: Option<String>,
}

/// Why there is no complete answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The request could not be made or sent, or its connection broke.
    #[error("{0}")]
    Http(String),
    /// An answer other than 200.
    #[error("status {status}: {body}")]
    Status {
        /// The status code.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// The stream says that the engine failed, or is no stream of chat chunks.
    #[error("in the stream: {0}")]
    Stream(String),
    /// The stream ended without `[DONE]`, text or usage.
    #[error("the answer ended without {0}")]
    Incomplete(&'static str),
    /// Nothing for a minute.
    #[error("no complete answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// A client that ends idle connections before vLLM's HTTP server does.
#[must_use]
pub fn http_client() -> Client<HttpConnector, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .build(connector)
}

/// A client of one server.
#[derive(Clone, Debug)]
pub(crate) struct ChatClient {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
}

impl ChatClient {
    /// For the server at `base`, such as `http://127.0.0.1:8080`.
    pub(crate) fn new(base: &str) -> Self {
        let client = http_client();
        Self { client, url: format!("{}/v1/chat/completions", base.trim_end_matches('/')) }
    }

    /// Asks and reads the whole answer.
    pub(crate) async fn ask(&self, chat: &Chat<'_>) -> Result<Answer, ChatError> {
        let body = serde_json::to_vec(chat).map_err(|e| ChatError::Http(e.to_string()))?;
        let request = Request::post(&self.url)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| ChatError::Http(e.to_string()))?;
        match tokio::time::timeout(TIMEOUT, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(ChatError::Timeout),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, ChatError> {
        let sent = Instant::now();
        let response = self.client.request(request).await.map_err(|e| broken(&e))?;
        let (head, body) = response.into_parts();
        if head.status != http::StatusCode::OK {
            let status = head.status.as_u16();
            return Err(ChatError::Status { status, body: refusal(body).await });
        }
        let mut reading = Reading::new(sent);
        reading.read(body).await?;
        reading.finish(&head.headers)
    }
}

/// An answer while it comes.
#[derive(Debug)]
struct Reading {
    sent: Instant,
    text: String,
    first_text: Option<Duration>,
    usage: Option<Usage>,
    done: Option<Duration>,
}

impl Reading {
    fn new(sent: Instant) -> Self {
        Self { sent, text: String::new(), first_text: None, usage: None, done: None }
    }

    async fn read(&mut self, mut body: Incoming) -> Result<(), ChatError> {
        let mut lines = Lines::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| broken(&e))?;
            let Some(data) = frame.data_ref() else { continue };
            lines.push(data)?;
            while let Some(event) = lines.next_event() {
                self.take(event)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<(), ChatError> {
        let Event::Data(data) = event else {
            self.done = Some(self.sent.elapsed());
            return Ok(());
        };
        let chunk: Chunk = serde_json::from_slice(&data)
            .map_err(|e| ChatError::Stream(format!("{e} in {}", beginning(&data))))?;
        if let Some(error) = chunk.error {
            return Err(ChatError::Stream(error.to_string()));
        }
        let text = chunk.choices.into_iter().filter_map(|choice| choice.delta.content);
        for text in text.filter(|text| !text.is_empty()) {
            self.first_text.get_or_insert_with(|| self.sent.elapsed());
            self.text.push_str(&text);
        }
        if chunk.usage.is_some() {
            self.usage = chunk.usage;
        }
        Ok(())
    }

    fn finish(self, headers: &HeaderMap) -> Result<Answer, ChatError> {
        let Self { text, first_text, usage, done, .. } = self;
        let e2e = done.ok_or(ChatError::Incomplete("[DONE]"))?;
        let ttft = first_text.ok_or(ChatError::Incomplete("text"))?;
        let usage = usage.ok_or(ChatError::Incomplete("usage"))?;
        let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let details = usage.prompt_tokens_details.unwrap_or_default();
        Ok(Answer {
            text,
            ttft,
            e2e,
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: details.cached_tokens.unwrap_or(0),
            predicted_tokens: word("x-kvasir-reason").and_then(overlap),
            endpoint: word("x-kvasir-endpoint").map(str::to_owned),
        })
    }
}

/// The `overlap` of a reason such as `policy=latency; reason=…; overlap=96; prompt=120`.
fn overlap(reason: &str) -> Option<u64> {
    let value = reason.split(';').find_map(|part| part.trim().strip_prefix("overlap="))?;
    value.parse().ok()
}

async fn refusal(body: Incoming) -> String {
    match Limited::new(body, MAX_REFUSAL).collect().await {
        Ok(body) => beginning(&body.to_bytes()),
        Err(error) => format!("(unreadable: {error})"),
    }
}

fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().chars().take(300).collect()
}

/// An error with what caused it: hyper's own messages name the stage only.
fn broken(error: &dyn std::error::Error) -> ChatError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    ChatError::Http(text)
}

/// The parts read of a chunk.
#[derive(Debug, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
}

#[derive(Debug, Default, Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    prompt_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

#[cfg(test)]
mod tests;
