//! What the engine remembers of each request, and what became of it.

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Instant;

/// What became of a request, as seen from the engine's end of the socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// Still being read or answered.
    Open,
    /// The whole answer was written to the socket.
    Completed,
    /// The peer went away before the head of the answer was written.
    ClientGoneBeforeHead,
    /// The peer went away after the head and before the end of the answer.
    ClientGoneMidBody,
    /// The engine itself broke off: a scripted raw reply came to its end, or the
    /// engine was stopped.
    EngineEnded,
}

/// Who asks: traffic under test, or the router's own look-outs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Health, version, models, metrics and other built-in pages.
    Info,
    /// Everything else: the requests that are routed.
    Inference,
}

/// One request as the engine received it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Sequence number, from 0, over all requests of this engine.
    pub id: u64,
    /// Built-in page or routed request.
    pub kind: Kind,
    /// The method.
    pub method: String,
    /// Path and query, as sent.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, byte for byte, as far as it came.
    pub body: Bytes,
    /// Whether the body came to its proper end.
    pub body_complete: bool,
    /// When the head had been read.
    pub at: Instant,
    /// What became of it.
    pub fate: Fate,
    /// When `fate` stopped being [`Fate::Open`].
    pub ended: Option<Instant>,
}

impl Recorded {
    /// A request whose head and body have been read.
    pub(super) fn new(id: u64, kind: Kind, head: &http::request::Parts, body: Bytes) -> Self {
        Self {
            id,
            kind,
            method: head.method.to_string(),
            path: head.uri.path_and_query().map_or_else(String::new, ToString::to_string),
            headers: head.headers.clone(),
            body,
            body_complete: true,
            at: Instant::now(),
            fate: Fate::Open,
            ended: None,
        }
    }

    /// The body as JSON; `Null` when it is not JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A header's value as text; empty when absent or not text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }
}

/// All records of one engine. Keeps the newest `limit`.
#[derive(Debug)]
pub(super) struct Ledger {
    inner: Mutex<Inner>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Inner {
    records: VecDeque<Recorded>,
    next_id: u64,
    active: usize,
}

impl Inner {
    fn get_mut(&mut self, id: u64) -> Option<&mut Recorded> {
        let first = self.records.front()?.id;
        self.records.get_mut(usize::try_from(id.checked_sub(first)?).ok()?)
    }
}

impl Ledger {
    pub(super) fn new(limit: usize) -> Self {
        Self { inner: Mutex::default(), limit: limit.max(1) }
    }

    /// Opens a record when the head of a request has been read.
    pub(super) fn open(&self, kind: Kind, head: &http::request::Parts) -> u64 {
        let inner = &mut *self.inner.lock();
        let id = inner.next_id;
        inner.next_id += 1;
        if kind == Kind::Inference {
            inner.active += 1;
        }
        if inner.records.len() == self.limit {
            inner.records.pop_front();
        }
        let record = Recorded::new(id, kind, head, Bytes::new());
        inner.records.push_back(Recorded { body_complete: false, ..record });
        id
    }

    /// Notes the body read so far.
    pub(super) fn body(&self, id: u64, body: Bytes, complete: bool) {
        if let Some(record) = self.inner.lock().get_mut(id) {
            record.body = body;
            record.body_complete = complete;
        }
    }

    /// Closes a record. Callers close each record once.
    pub(super) fn close(&self, id: u64, kind: Kind, fate: Fate) {
        let inner = &mut *self.inner.lock();
        if kind == Kind::Inference {
            inner.active = inner.active.saturating_sub(1);
        }
        if let Some(record) = inner.get_mut(id) {
            record.fate = fate;
            record.ended = Some(Instant::now());
        }
    }

    pub(super) fn active(&self) -> usize {
        self.inner.lock().active
    }

    pub(super) fn of_kind(&self, kind: Kind) -> Vec<Recorded> {
        self.inner.lock().records.iter().filter(|r| r.kind == kind).cloned().collect()
    }
}
