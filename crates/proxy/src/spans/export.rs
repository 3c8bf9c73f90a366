//! The task that sends spans to the collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use kvasir_upstream::{Patience, Started, Upstream};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::record::Record;
use super::{Message, SpanSettings, count, otlp};

/// A batch is sent when it has so many spans,
const BATCH: usize = 512;
/// or when its first request has waited for so long.
const WAIT: Duration = Duration::from_secs(2);
/// How long a collector may take, to be connected to and in all.
const CONNECT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);
/// The most that is read of its answer.
const LONGEST_ANSWER: usize = 64 << 10;

pub(super) struct Exporter {
    settings: SpanSettings,
    upstream: Upstream,
    path: Uri,
    /// See [`Queue`](super::Queue).
    full: Arc<AtomicBool>,
    /// The last batch was not taken.
    failing: bool,
}

/// What is sent at one time.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    spans: usize,
    /// Who wants to know when it was.
    flush: Option<oneshot::Sender<()>>,
}

impl Exporter {
    pub(super) fn new(settings: SpanSettings, full: Arc<AtomicBool>) -> Self {
        let path = settings.path.parse().unwrap_or(PathAndQuery::from_static("/v1/traces"));
        let (upstream, path) = (Upstream::default(), Uri::from(path));
        Self { settings, upstream, path, full, failing: false }
    }

    /// Sends what comes, until nothing can come any more.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        while let Some(first) = queue.recv().await {
            let mut batch = Batch::default();
            batch.take_in(first);
            let until = Instant::now() + WAIT;
            while batch.spans < BATCH && batch.flush.is_none() {
                match timeout_at(until, queue.recv()).await {
                    Ok(Some(message)) => batch.take_in(message),
                    Ok(None) | Err(_) => break,
                }
            }
            if batch.spans > 0 {
                self.send(&batch).await;
            }
            if let Some(flushed) = batch.flush {
                // Who asked may have lost patience.
                let _ = flushed.send(());
            }
        }
    }

    async fn send(&mut self, batch: &Batch) {
        let SpanSettings { service_name, service_version, .. } = &self.settings;
        let body = Bytes::from(otlp::body(service_name, service_version, &batch.records));
        let posted = timeout(PATIENCE, self.post(body)).await;
        let late = || Err(format!("no answer within {} s", PATIENCE.as_secs()));
        match posted.unwrap_or_else(|_| late()) {
            Ok(rejected) => {
                let rejected = rejected.min(batch.spans);
                count("sent", batch.spans - rejected);
                if rejected > 0 {
                    count("failed", rejected);
                    tracing::debug!(rejected, "the collector rejected some spans");
                }
                self.full.store(false, Ordering::Relaxed);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the collector takes spans again");
                }
            }
            Err(why) => {
                count("failed", batch.spans);
                if !std::mem::replace(&mut self.failing, true) {
                    let collector = self.settings.collector.url();
                    tracing::warn!(collector, why, "spans are lost: the collector takes none");
                }
            }
        }
    }

    /// How many spans were rejected; why none was taken.
    async fn post(&self, body: Bytes) -> Result<usize, String> {
        let request = || {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = self.path.clone();
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::CONTENT_TYPE, json);
            request
        };
        let patience = Patience { connect: CONNECT, first_data: PATIENCE };
        let sent = self.upstream.send(&self.settings.collector, patience, || true, request).await;
        let Started { head, first, rest } = sent.map_err(|failure| failure.why().to_owned())?;
        if !head.status.is_success() {
            return Err(format!("it answered {}", head.status));
        }
        let mut answer =
            first.and_then(|frame| frame.into_data().ok()).unwrap_or_default().to_vec();
        // Read to its end, so that the connection is kept.
        if let Ok(rest) = Limited::new(rest, LONGEST_ANSWER).collect().await {
            answer.extend_from_slice(&rest.to_bytes());
        }
        Ok(rejected(&answer))
    }
}

/// What a collector's answer (`ExportTraceServiceResponse`) says of spans it did not take. Integers
/// of 64 bits are strings in it, though not everybody writes them so.
fn rejected(answer: &[u8]) -> usize {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let number = answer.get("partialSuccess").and_then(|partial| partial.get("rejectedSpans"));
    let read = |number: &Value| match number {
        Value::String(text) => text.parse().ok(),
        number => number.as_u64().and_then(|number| usize::try_from(number).ok()),
    };
    number.and_then(read).unwrap_or(0)
}

impl Batch {
    fn take_in(&mut self, message: Message) {
        match message {
            Message::Request(record) => {
                self.spans += record.spans();
                self.records.push(*record);
            }
            Message::Flush(flushed) => self.flush = Some(flushed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_spans_are_read_of_either_form() {
        for (answer, spans) in [
            ("", 0),
            ("{}", 0),
            (r#"{"partialSuccess":{}}"#, 0),
            (r#"{"partialSuccess":{"rejectedSpans":"7","errorMessage":"no"}}"#, 7),
            (r#"{"partialSuccess":{"rejectedSpans":7}}"#, 7),
            (r#"{"partialSuccess":{"rejectedSpans":-1}}"#, 0),
        ] {
            assert_eq!(rejected(answer.as_bytes()), spans, "{answer}");
        }
    }
}
