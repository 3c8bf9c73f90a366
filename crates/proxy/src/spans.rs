//! Spans of requests for OpenTelemetry, where a collector is configured.
//!
//! A sampled request carries a [`Trace`] in its access log record, in which instants are noted as it
//! goes on. When it ends the record goes through a bounded queue to one task, which makes spans of
//! it and sends them (OTLP over HTTP, JSON). A request that is not sampled costs one branch at each
//! place, and none ever waits for the collector.

mod context;
mod export;
mod otlp;
mod record;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use kvasir_fleet::{Decision, Endpoint};
use kvasir_upstream::Origin;
use tokio::sync::{mpsc, oneshot};

use self::context::Context;
use self::export::Exporter;
use self::record::Record;
pub(crate) use self::record::{Decided, Ended, Pattern};
use crate::request_id;
use crate::split::Leg;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Requests whose spans wait to be sent. A record is a few hundred bytes.
const QUEUE: usize = 4096;

/// Where spans are sent to, and of how many requests.
#[derive(Clone, Debug)]
pub struct SpanSettings {
    /// The collector.
    pub collector: Origin,
    /// The path that traces are posted to, usually `/v1/traces`.
    pub path: String,
    /// The share of requests that is traced where the client says nothing of it; 0 to 1.
    pub sample_ratio: f64,
    /// The resource attribute `service.name`.
    pub service_name: String,
    /// The resource attribute `service.version`.
    pub service_version: String,
}

/// Begins the traces of requests. Clones are the same.
#[derive(Clone)]
pub struct Spans {
    queue: Queue,
    /// Of 2^56: a new trace whose id's low bits are below is sampled.
    threshold: u64,
}

/// What goes to the task that sends.
enum Message {
    Request(Box<Record>),
    /// Everything before is to be sent now; says when that is done.
    Flush(oneshot::Sender<()>),
}

/// The way there.
#[derive(Clone)]
struct Queue {
    sender: mpsc::Sender<Message>,
    /// It was said that spans are dropped, and none was sent since.
    full: Arc<AtomicBool>,
}

// === impl Spans ===

impl Spans {
    /// Starts the task that sends them, on the current runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(settings: SpanSettings) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let full = Arc::new(AtomicBool::new(false));
        let threshold = threshold(settings.sample_ratio);
        tokio::spawn(Exporter::new(settings, Arc::clone(&full)).run(receiver));
        Self { queue: Queue { sender, full }, threshold }
    }

    /// Begins a request's trace, if it is sampled: its client decides that, else chance. A client's
    /// context that is none, or is not whole, is taken out of the head: the trace begins here.
    pub(crate) fn begin(
        &self,
        headers: &mut HeaderMap,
        route: Pattern,
        scheme: &'static str,
    ) -> Option<Trace> {
        let context = match Context::of(headers) {
            Some(given) => given.is_sampled().then_some(given)?,
            None => {
                headers.remove(TRACEPARENT);
                headers.remove(TRACESTATE);
                Context::fresh(request_id::bits(), self.threshold)?
            }
        };
        let clocks = (Instant::now(), SystemTime::now());
        let record = Record::begin(context, span_id(), route, scheme, clocks);
        Some(Trace { record: Box::new(record), queue: self.queue.clone() })
    }

    /// Sends what waits, for at most `patience`.
    pub(crate) async fn flush(&self, patience: Duration) {
        let (done, is_done) = oneshot::channel();
        let flushed = async {
            if self.queue.sender.send(Message::Flush(done)).await.is_ok() {
                // A sender that is gone means that nothing waits.
                let _ = is_done.await;
            }
        };
        if tokio::time::timeout(patience, flushed).await.is_err() {
            tracing::warn!(?patience, "the last spans were not sent in time");
        }
    }
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spans").field("threshold", &self.threshold).finish_non_exhaustive()
    }
}

/// How many of 2^56 are sampled.
fn threshold(ratio: f64) -> u64 {
    // Between 0 and 2^56, which a float holds.
    (ratio.clamp(0.0, 1.0) * (1_u64 << 56) as f64) as u64
}

/// A new span's id, which must not be 0.
fn span_id() -> u64 {
    ((request_id::bits() >> 64) as u64).max(1)
}

/// How many spans became what: `sent`, `dropped` (the queue was full) or `failed` (the collector did
/// not take them).
fn count(result: &'static str, spans: usize) {
    metrics::counter!("kvasir_spans_total", "result" => result).increment(spans as u64);
}

// === impl Queue ===

impl Queue {
    fn offer(&self, record: Box<Record>) {
        let spans = record.spans();
        if self.sender.try_send(Message::Request(record)).is_ok() {
            return;
        }
        count("dropped", spans);
        if !self.full.swap(true, Ordering::Relaxed) {
            tracing::warn!(QUEUE, "more spans than the collector takes: some are dropped");
        }
    }
}

/// A place in the course of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The body was read.
    Received,
    /// Its tokens are looked for, and are known.
    Tokenising,
    Tokenised,
    /// An engine is looked for, and was chosen (or not).
    Choosing,
    Chosen,
    /// That engine's answer is held, and another engine is asked.
    Held,
}

/// The trace of one request.
pub(crate) struct Trace {
    record: Box<Record>,
    queue: Queue,
}

impl Trace {
    pub(crate) fn note(&mut self, step: Step) {
        self.record.note(step, Instant::now());
    }

    /// The request is sent to an engine, whose span will be a child of ours: its head says so.
    pub(crate) fn attempt(
        &mut self,
        headers: &mut HeaderMap,
        endpoint: &Endpoint,
        decision: &Decision,
        leg: Option<Leg>,
    ) {
        let id = span_id();
        let context = self.record.attempt(id, endpoint, decision, leg, Instant::now());
        // Digits and dashes are always a value.
        if let Ok(value) = HeaderValue::from_str(&context) {
            headers.insert(TRACEPARENT, value);
        }
    }

    /// The first data of that engine's answer came, which has this status.
    pub(crate) fn answered(&mut self, status: u16) {
        self.record.answered(status, Instant::now());
    }

    /// It did not, or not to the end.
    pub(crate) fn failed(&mut self, phase: &'static str, why: &str) {
        self.record.failed(phase, why, Instant::now());
    }

    /// One leg of a split request was ended because the other one failed.
    pub(crate) fn aborted(&mut self, leg: Leg) {
        self.record.aborted(leg, Instant::now());
    }

    /// The request is over.
    pub(crate) fn end(mut self, ended: Ended) {
        self.record.end(ended, Instant::now());
        self.queue.offer(self.record);
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trace").field(&self.record).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_what_was_asked_for() {
        assert_eq!((threshold(0.0), threshold(1.0)), (0, 1 << 56));
        let sampled = |ratio| {
            let threshold = threshold(ratio);
            (0..20_000).filter(|_| Context::fresh(request_id::bits(), threshold).is_some()).count()
        };
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 20_000));
        let some = sampled(0.1);
        assert!((1_700..2_300).contains(&some), "{some} of 20,000 for a tenth");
    }

    #[test]
    fn what_finds_the_queue_full_is_dropped_at_once() {
        let (sender, mut receiver) = mpsc::channel(1);
        let full = Arc::new(AtomicBool::new(false));
        let spans = Spans { queue: Queue { sender, full: Arc::clone(&full) }, threshold: 1 << 56 };
        let now = Instant::now();
        for (place, is_full) in [(0, false), (1, true), (2, true)] {
            let trace = spans.begin(&mut HeaderMap::new(), Pattern::Path, "http").unwrap();
            trace.end(Ended {
                started: now,
                method: "GET".into(),
                path: place.to_string(),
                request_id: String::new(),
                model: None,
                endpoint: None,
                prefill_endpoint: None,
                plan: None,
                status: 200,
                outcome: "complete",
                broken: None,
                decision: None,
                tokens: "exact",
                attempts: 0,
                waited_ms: None,
                reported_prompt_tokens: None,
                reported_cached_tokens: None,
            });
            assert_eq!(full.load(Ordering::Relaxed), is_full, "{place}");
        }
        let Ok(Message::Request(record)) = receiver.try_recv() else { panic!() };
        assert_eq!(record.ended.map(|(ended, _)| ended.path).as_deref(), Some("0"));
        assert!(receiver.try_recv().is_err());
    }
}
