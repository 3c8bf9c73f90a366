//! One recording under way: what is heard and asked, in the order it is to be written.

mod listening;

use std::io::Write;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use kvasir_fleet::ProbeError;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use self::listening::{Listening, Sound};
use super::engine::{Answer, Engine, seconds};
use super::prompts::Prompt;
use super::writer::LineWriter;
use super::{RecordError, Recorded, Recording};

/// How long a publisher may take to answer the first connection.
const CONNECT: Duration = Duration::from_secs(10);
/// A subscription takes a moment to reach the publisher.
const SUBSCRIBE: Duration = Duration::from_millis(200);
/// Silence after which a request's events are all there.
const QUIET: Duration = Duration::from_millis(500);
/// How long silence is waited for on a busy engine.
const UNQUIET: Duration = Duration::from_secs(10);
/// Messages kept back while a request is under way.
const HELD: usize = 100_000;
/// The fields of a body that decide its tokens, as `/tokenize` takes them.
const TOKENIZED: [&str; 9] = [
    "model",
    "prompt",
    "messages",
    "tools",
    "add_special_tokens",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
];

/// A recording under way.
pub(super) struct Session<W> {
    engine: Engine,
    writer: LineWriter<W>,
    listening: Listening,
    /// What goes on.
    step: String,
    /// Heard while a request is under way: written after it, as its effects are.
    held: Vec<Sound>,
    recorded: Recorded,
}

impl<W: Write> Session<W> {
    pub(super) fn start(engine: Engine, writer: LineWriter<W>) -> Result<Self, RecordError> {
        let listening = Listening::start(&engine.publishers)?;
        let recorded = Recorded::default();
        Ok(Self { engine, writer, listening, step: "start".to_owned(), held: Vec::new(), recorded })
    }

    /// Joins the publishers, sends what is to be sent, listens.
    pub(super) async fn run(&mut self, recording: &Recording) -> Result<(), RecordError> {
        self.join().await?;
        for prompt in &recording.prompts {
            self.settle().await?;
            self.send(prompt).await?;
            self.settle().await?;
            if self.writer.is_full() {
                return Ok(());
            }
        }
        if recording.listen != Some(Duration::ZERO) {
            "listening".clone_into(&mut self.step);
            self.listen(recording.listen.map(|long| Instant::now() + long)).await?;
        }
        Ok(())
    }

    /// Writes what is still to be written, and how things stood at the end.
    pub(super) async fn finish(mut self) -> Result<Recorded, RecordError> {
        self.write_held()?;
        "end".clone_into(&mut self.step);
        self.recorded.full = self.writer.is_full();
        if !self.recorded.full {
            self.replay("at_end").await?;
        }
        let metrics = self.engine.metrics().await;
        self.writer.write(&json!({"kind": "end", "metrics": metrics}))?;
        Ok(Recorded { bytes: self.writer.bytes(), ..self.recorded })
    }

    async fn join(&mut self) -> Result<(), RecordError> {
        let until = Instant::now() + CONNECT;
        while let Some(missing) = self.listening.unconnected() {
            let missing = missing.to_owned();
            match tokio::time::timeout_at(until, self.listening.hear()).await {
                Ok(sound) => self.note(sound?)?,
                Err(_) => return Err(RecordError::NotConnected(missing)),
            }
        }
        // Subscribed before asked: what is published in between comes twice, not never.
        self.until(Instant::now() + SUBSCRIBE).await?;
        self.replay("from_zero").await
    }

    /// Asks every replay socket for what it should still have.
    async fn replay(&mut self, label: &'static str) -> Result<(), RecordError> {
        self.listening.ask_all(label);
        while let Some(due) = self.listening.due() {
            match tokio::time::timeout_at(due, self.listening.hear()).await {
                Ok(sound) => self.note(sound?)?,
                Err(_) => self.write_overdue()?,
            }
        }
        Ok(())
    }

    /// Takes in what comes until nothing does.
    async fn settle(&mut self) -> Result<(), RecordError> {
        let latest = Instant::now() + UNQUIET;
        loop {
            let quiet = (Instant::now() + QUIET).min(latest);
            match tokio::time::timeout_at(quiet, self.listening.hear()).await {
                Ok(sound) => self.note(sound?)?,
                Err(_) => return self.write_overdue(),
            }
        }
    }

    async fn until(&mut self, end: Instant) -> Result<(), RecordError> {
        while let Ok(sound) = tokio::time::timeout_at(end, self.listening.hear()).await {
            self.note(sound?)?;
        }
        Ok(())
    }

    /// Listens until `end`, or until the recording is full.
    async fn listen(&mut self, end: Option<Instant>) -> Result<(), RecordError> {
        while !self.writer.is_full() && end.is_none_or(|end| end > Instant::now()) {
            let next = Instant::now() + Duration::from_secs(1);
            self.until(end.map_or(next, |end| end.min(next))).await?;
            self.write_overdue()?;
        }
        Ok(())
    }

    async fn send(&mut self, prompt: &Prompt) -> Result<(), RecordError> {
        let mut body = prompt.body.clone();
        body.entry("model").or_insert_with(|| self.engine.model.clone().into());
        let tokenize = self.tokenize(&prompt.path, &body).await;
        let body = Value::Object(body);
        // What was heard until now is not of this request's doing.
        self.until(Instant::now()).await?;
        prompt.step.clone_into(&mut self.step);
        let at = seconds(SystemTime::now());
        let (status, response) = self.ask(prompt, &body).await?;
        let mut line = json!({"kind": "request", "step": self.step, "t": at, "method": "POST",
            "path": prompt.path, "body": body, "status": status, "response": response,
            "tokenize": tokenize});
        if !prompt.headers.is_empty() {
            line["headers"] = shown(&prompt.headers);
        }
        self.writer.write(&line)?;
        self.recorded.requests += 1;
        self.write_held()
    }

    /// Sends a request and keeps back what is heard until it is answered.
    async fn ask(&mut self, prompt: &Prompt, body: &Value) -> Result<(u16, Value), RecordError> {
        let mut answer = std::pin::pin!(self.engine.post(&prompt.path, &prompt.headers, body));
        loop {
            tokio::select! {
                answer = &mut answer => return Ok(answered(answer)),
                sound = self.listening.hear(), if self.held.len() < HELD => {
                    self.held.push(sound?);
                }
            }
        }
    }

    /// The engine's own tokens of a text prompt; null where that cannot be asked.
    async fn tokenize(&self, path: &str, body: &Map<String, Value>) -> Value {
        // A list of one text is a text; `/tokenize` takes no lists.
        let text = match body.get("prompt") {
            Some(Value::Array(list)) => <&[Value; 1]>::try_from(list.as_slice()).ok().map(|[t]| t),
            prompt => prompt,
        };
        let text = text.filter(|prompt| prompt.is_string());
        if !body.contains_key("messages") && text.is_none() {
            return Value::Null;
        }
        let fields = body.iter().filter(|(name, _)| TOKENIZED.contains(&name.as_str()));
        let mut asked: Map<String, Value> =
            fields.map(|(name, value)| (name.clone(), value.clone())).collect();
        if let Some(text) = text {
            asked.insert("prompt".to_owned(), text.clone());
        }
        if path.contains("chat") {
            asked.entry("add_generation_prompt").or_insert(true.into());
        }
        let asked = Value::Object(asked);
        let (status, response) =
            answered(self.engine.post("/tokenize", &HeaderMap::new(), &asked).await);
        json!({"request": asked, "status": status, "response": response})
    }

    fn write_held(&mut self) -> Result<(), RecordError> {
        for sound in std::mem::take(&mut self.held) {
            self.note(sound)?;
        }
        Ok(())
    }

    /// Writes what was heard.
    fn note(&mut self, sound: Sound) -> Result<(), RecordError> {
        match &sound {
            Sound::Message { .. } => self.recorded.messages += 1,
            Sound::Link { connected: false, .. } => self.recorded.disconnects += 1,
            Sound::Link { .. } | Sound::Answer { .. } => {}
        }
        if let Some(line) = self.listening.line(sound, &self.step) {
            self.write(&line)?;
        }
        Ok(())
    }

    fn write_overdue(&mut self) -> Result<(), RecordError> {
        for line in self.listening.overdue(&self.step) {
            self.write(&line)?;
        }
        Ok(())
    }

    fn write(&mut self, line: &Value) -> Result<(), RecordError> {
        if let Some(replies) = line["replies"].as_array() {
            let batches = replies.iter().filter(|reply| reply["decoded"]["seq"] != -1).count();
            self.recorded.replayed += batches as u64;
        }
        Ok(self.writer.write(line)?)
    }
}

/// Status 0 stands for no answer at all.
fn answered(answer: Result<Answer, ProbeError>) -> (u16, Value) {
    match answer {
        Ok(Answer { status, body }) => (status, body),
        Err(error) => (0, format!("no answer: {error}").into()),
    }
}

/// Headers of one request; only those that choose an engine's rank are shown with their value.
fn shown(headers: &HeaderMap) -> Value {
    let shown = headers.iter().map(|(name, value)| {
        let is_rank = name == "x-data-parallel-rank";
        let value = value.to_str().ok().filter(|_| is_rank).unwrap_or("[redacted]");
        (name.as_str().to_owned(), value.into())
    });
    Value::Object(shown.collect())
}
