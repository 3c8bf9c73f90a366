//! One data-parallel rank: an engine on a thread of its own, in real time.
//!
//! The thread takes in what arrived, runs one step, waits until the step's duration has passed,
//! publishes its events and hands out its tokens. What arrives meanwhile is taken in between two
//! steps, as in vLLM's engine core; only a restart and the end interrupt a step.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::{mpsc, oneshot};

use super::metrics::{RankMetrics, unix_seconds};
use super::publisher::Publisher;
use crate::{
    BlockHash, Engine, EventFormat, FinishReason, Output, Request, RequestId, StepOutcome,
    SubmitError,
};

/// A step that begins this much late or less makes up for it, so that waking up late does not
/// slow the engine down.
const MAKE_UP: Duration = Duration::from_millis(2);

/// One prompt on its way to an engine.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) request: Request,
    /// The number of the choice its tokens belong to.
    pub(super) choice: usize,
    pub(super) sink: mpsc::UnboundedSender<Generated>,
    /// The adapter's name, for metrics.
    pub(super) adapter: Option<Arc<str>>,
    /// The `n` of the client's request, for metrics.
    pub(super) n: usize,
    pub(super) arrived: Instant,
}

/// What an engine hands out. A request gets at most `max_tokens` of them, which bounds its queue.
#[derive(Debug)]
pub(super) enum Generated {
    Token { choice: usize, token: u32, finished: Option<FinishReason>, cached_tokens: usize },
    Refused(SubmitError),
}

/// As many requests wait as the engine takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Debug)]
enum Command {
    Submit(Box<Submission>),
    Abort(RequestId),
    Reset { running_too: bool, answer: oneshot::Sender<bool> },
    Cached(oneshot::Sender<Vec<(BlockHash, usize)>>),
    Restart(oneshot::Sender<()>),
    Stop,
}

/// A rank, as the rest of the server sees it. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Rank {
    shared: Arc<Shared>,
    max_waiting: usize,
}

#[derive(Debug)]
struct Shared {
    inbox: Mutex<Inbox>,
    wake: Condvar,
    metrics: Mutex<RankMetrics>,
    /// Requests submitted and not ended.
    unfinished: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inbox {
    commands: VecDeque<Command>,
    submissions: usize,
    /// The thread waits for any command.
    idle: bool,
    /// A command is there that interrupts a step.
    pressing: bool,
}

impl Rank {
    /// Starts the thread.
    pub(super) fn start(
        number: u32,
        engine: Engine,
        format: EventFormat,
        publisher: Option<Publisher>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            wake: Condvar::new(),
            metrics: Mutex::new(RankMetrics::new(*engine.stats())),
            unfinished: AtomicUsize::new(0),
        });
        let max_waiting = engine.config().max_waiting;
        let mut worker = Worker {
            number,
            engine,
            format,
            publisher,
            shared: Arc::clone(&shared),
            sinks: HashMap::new(),
            next_seq: 0,
            due: None,
        };
        std::thread::Builder::new()
            .name(format!("sim-engine-{number}"))
            .spawn(move || worker.run())?;
        Ok(Self { shared, max_waiting })
    }

    /// Hands a request to the engine; the next step may admit it.
    pub(super) fn submit(&self, submission: Submission) -> Result<(), Full> {
        let waiting = self.shared.metrics.lock().stats.waiting;
        let mut inbox = self.shared.inbox.lock();
        if waiting + inbox.submissions >= self.max_waiting {
            return Err(Full);
        }
        inbox.submissions += 1;
        self.shared.unfinished.fetch_add(1, Ordering::Relaxed);
        self.shared.push(&mut inbox, Command::Submit(Box::new(submission)));
        Ok(())
    }

    /// Drops a request; nothing happens if it has ended.
    pub(super) fn abort(&self, id: RequestId) {
        self.push(Command::Abort(id));
    }

    /// Empties the prefix cache; answers whether it did.
    pub(super) fn reset(&self, running_too: bool) -> oneshot::Receiver<bool> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Reset { running_too, answer });
        answered
    }

    /// What the prefix cache holds between two steps, and in how many blocks.
    pub(super) fn cached(&self) -> oneshot::Receiver<Vec<(BlockHash, usize)>> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Cached(answer));
        answered
    }

    /// Starts a new life; answers when the sockets are open again.
    pub(super) fn restart(&self) -> oneshot::Receiver<()> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Restart(answer));
        answered
    }

    /// Requests submitted and not ended.
    pub(super) fn unfinished(&self) -> usize {
        self.shared.unfinished.load(Ordering::Relaxed)
    }

    /// Metrics as of the end of the last step.
    pub(super) fn metrics(&self) -> parking_lot::MutexGuard<'_, RankMetrics> {
        self.shared.metrics.lock()
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.push(Command::Stop);
    }

    fn push(&self, command: Command) {
        self.shared.push(&mut self.shared.inbox.lock(), command);
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn push(&self, inbox: &mut Inbox, command: Command) {
        inbox.pressing |= matches!(command, Command::Restart(_) | Command::Stop);
        inbox.commands.push_back(command);
        if inbox.idle || inbox.pressing {
            self.wake.notify_one();
        }
    }

    /// Waits until `due`; false if a pressing command came first.
    fn wait_until(&self, due: Instant) -> bool {
        let mut inbox = self.inbox.lock();
        while !inbox.pressing {
            if self.wake.wait_until(&mut inbox, due).timed_out() {
                return !inbox.pressing;
            }
        }
        false
    }
}

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

struct Worker {
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
    fn run(&mut self) {
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
            self.shared.metrics.lock().update(*self.engine.stats());
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
            Command::Stop => return false,
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
        for output in step.outputs {
            self.hand_out(output, now, &mut metrics);
        }
        let adapters = self.sinks.values().filter_map(|sink| sink.submission.adapter.clone());
        metrics.running_adapters(adapters);
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

    fn hand_out(&mut self, output: Output, now: Instant, metrics: &mut RankMetrics) {
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
        });
        let Some(reason) = output.finished else { return };
        let Some(Sink { submission, first, tokens, .. }) = self.end(output.id) else { return };
        metrics.finished(&super::metrics::Finished {
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
