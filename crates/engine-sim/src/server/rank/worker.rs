//! The thread of a rank.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::{Command, Generated, Hold, Shared, Submission};
use crate::server::metrics::{Finished, RankMetrics, unix_seconds};
use crate::server::publisher::Publisher;
use crate::{Engine, EventFormat, Held, Output, RequestId, StepOutcome};

/// A step that begins this much late or less makes up for it, so that waking up late does not
/// slow the engine down.
const MAKE_UP: Duration = Duration::from_millis(2);

/// Where a request's tokens go, and its times.
#[derive(Debug)]
struct Sink {
    submission: SinkOf,
    first: Option<Instant>,
    last: Instant,
    tokens: usize,
}

/// What is kept of a [`Submission`].
#[derive(Debug)]
struct SinkOf {
    choice: usize,
    sink: mpsc::UnboundedSender<Generated>,
    adapter: Option<Arc<str>>,
    n: usize,
    prompt_tokens: usize,
    max_tokens: usize,
    arrived: Instant,
}

pub(super) struct Worker {
    number: u32,
    engine: Engine,
    format: EventFormat,
    publisher: Option<Publisher>,
    shared: Arc<Shared>,
    sinks: HashMap<RequestId, Sink>,
    next_seq: u64,
    /// When the step before ended.
    due: Option<Instant>,
}

impl Worker {
    pub(super) fn new(
        number: u32,
        engine: Engine,
        format: EventFormat,
        publisher: Option<Publisher>,
        shared: Arc<Shared>,
    ) -> Self {
        let sinks = HashMap::new();
        Self { number, engine, format, publisher, shared, sinks, next_seq: 0, due: None }
    }

    /// Runs until it is told to stop.
    pub(super) fn run(&mut self) {
        while self.take_in() {
            let now = Instant::now();
            let on_time = self.due.filter(|due| now.saturating_duration_since(*due) <= MAKE_UP);
            let begun = on_time.unwrap_or(now);
            let Some(step) = self.engine.step() else { continue };
            let due = begun.checked_add(step.duration).unwrap_or(begun);
            if self.shared.wait_until(due) {
                self.due = Some(due);
                self.deliver(step);
            }
        }
    }

    /// Obeys what arrived, and waits for more while there is nothing to compute. False at the
    /// end.
    fn take_in(&mut self) -> bool {
        loop {
            let commands = {
                let mut inbox = self.shared.inbox.lock();
                while inbox.commands.is_empty() && self.engine.is_idle() {
                    self.due = None;
                    inbox.idle = true;
                    self.shared.wake.wait(&mut inbox);
                }
                inbox.idle = false;
                inbox.pressing = false;
                inbox.submissions = 0;
                std::mem::take(&mut inbox.commands)
            };
            if commands.is_empty() {
                return true;
            }
            for command in commands {
                if !self.obey(command) {
                    return false;
                }
            }
            let mut metrics = self.shared.metrics.lock();
            metrics.update(*self.engine.stats());
            metrics.running_adapters(self.adapters());
            drop(metrics);
            if !self.engine.is_idle() {
                return true;
            }
        }
    }

    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Submit(submission) => self.submit(*submission),
            Command::Abort(id) => {
                if self.engine.abort(id) {
                    self.shared.metrics.lock().aborted();
                    self.end(id);
                }
            }
            Command::Release(id) => {
                self.engine.release_held(id);
            }
            Command::Resident(request, answer) => {
                let block = self.engine.config().block_size;
                let most = request.prompt.len().saturating_sub(1) / block;
                let hashes = self.engine.block_hashes(*request).unwrap_or_default();
                let found = self.engine.resident_prefix(&hashes).min(most);
                let caching = self.engine.config().enable_prefix_caching;
                let _ = answer.send(if caching { found * block } else { 0 });
            }
            Command::Reset { running_too, answer } => {
                let done = if running_too {
                    self.engine.reset_prefix_cache_and_requests()
                } else {
                    self.engine.reset_prefix_cache()
                };
                // The client may have gone.
                let _ = answer.send(done);
            }
            Command::Cached(answer) => {
                let _ = answer.send(self.engine.cached_blocks().collect());
            }
            Command::Restart(answer) => self.restart(answer),
            Command::Stop(answer) => {
                match &self.publisher {
                    Some(publisher) => publisher.close(answer),
                    None => drop(answer.send(())),
                }
                return false;
            }
        }
        true
    }

    fn submit(&mut self, submission: Submission) {
        let Submission { request, choice, sink, adapter, n, arrived } = submission;
        let id = request.id;
        let (prompt_tokens, max_tokens) = (request.prompt.len(), request.max_tokens);
        if let Err(error) = self.engine.submit(request) {
            let _ = sink.send(Generated::Refused(error));
            self.shared.metrics.lock().refused();
            self.shared.unfinished.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let submission = SinkOf { choice, sink, adapter, n, prompt_tokens, max_tokens, arrived };
        self.sinks.insert(id, Sink { submission, first: None, last: arrived, tokens: 0 });
    }

    /// Forgets a request that has ended.
    fn end(&mut self, id: RequestId) -> Option<Sink> {
        let sink = self.sinks.remove(&id);
        if sink.is_some() {
            self.shared.unfinished.fetch_sub(1, Ordering::Relaxed);
        }
        sink
    }

    fn restart(&mut self, answer: oneshot::Sender<()>) {
        self.engine.restart();
        self.shared.unfinished.fetch_sub(self.sinks.len(), Ordering::Relaxed);
        self.sinks.clear();
        self.next_seq = 0;
        self.due = None;
        *self.shared.metrics.lock() = RankMetrics::new(*self.engine.stats());
        match &self.publisher {
            Some(publisher) => publisher.new_life(answer),
            None => drop(answer.send(())),
        }
    }

    /// What a step did becomes visible.
    fn deliver(&mut self, step: StepOutcome) {
        let lost = !self.publish(&step);
        let now = Instant::now();
        let shared = Arc::clone(&self.shared);
        let mut metrics = shared.metrics.lock();
        metrics.stepped(*self.engine.stats(), &step, lost);
        let hold = |held: Held| (held.id, Hold::new(Arc::clone(&self.shared), held));
        // Those nobody takes out are released.
        let mut holds: HashMap<RequestId, Hold> = step.held.into_iter().map(hold).collect();
        for output in step.outputs {
            let hold = output.finished.and_then(|_| holds.remove(&output.id));
            self.hand_out(output, hold, now, &mut metrics);
        }
        metrics.running_adapters(self.adapters());
    }

    fn adapters(&self) -> impl Iterator<Item = Arc<str>> {
        self.sinks.values().filter_map(|sink| sink.submission.adapter.clone())
    }

    fn publish(&mut self, step: &StepOutcome) -> bool {
        let Some(publisher) = self.publisher.as_ref().filter(|_| !step.events.is_empty()) else {
            return true;
        };
        let payload = self.format.encode(unix_seconds(), &step.events, Some(self.number));
        let seq = self.next_seq;
        self.next_seq += 1;
        let queued = publisher.publish(seq, payload);
        if !queued {
            tracing::warn!(rank = self.number, seq, "event queue full: batch lost");
        }
        queued
    }

    fn hand_out(
        &mut self,
        output: Output,
        hold: Option<Hold>,
        now: Instant,
        metrics: &mut RankMetrics,
    ) {
        let Some(sink) = self.sinks.get_mut(&output.id) else { return };
        let of = &sink.submission;
        match sink.first {
            None => {
                sink.first = Some(now);
                metrics.first_token(now - of.arrived, of.prompt_tokens, output.cached_tokens);
            }
            Some(_) => metrics.next_token(now - sink.last),
        }
        sink.last = now;
        sink.tokens += 1;
        // A client that has gone aborts its request in another way.
        let _ = of.sink.send(Generated::Token {
            choice: of.choice,
            token: output.token,
            finished: output.finished,
            cached_tokens: output.cached_tokens,
            hold,
        });
        let Some(reason) = output.finished else { return };
        let Some(Sink { submission, first, tokens, .. }) = self.end(output.id) else { return };
        metrics.finished(&Finished {
            reason,
            n: submission.n,
            prompt_tokens: submission.prompt_tokens,
            max_tokens: submission.max_tokens,
            tokens,
            latency: now - submission.arrived,
            decode: now - first.unwrap_or(now),
        });
    }
}
