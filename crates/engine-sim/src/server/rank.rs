//! One data-parallel rank: an engine on a thread of its own, in real time.
//!
//! The thread takes in what arrived, runs one step, waits until the step's duration has passed,
//! publishes its events and hands out its tokens. What arrives meanwhile is taken in between two
//! steps, as in vLLM's engine core; only a restart and the end interrupt a step.

mod hold;
mod worker;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{mpsc, oneshot};

pub(super) use self::hold::Hold;
use self::worker::Worker;
use super::metrics::RankMetrics;
use super::publisher::Publisher;
use crate::{BlockHash, Engine, EventFormat, FinishReason, Request, RequestId, SubmitError};

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
    Token {
        choice: usize,
        token: u32,
        finished: Option<FinishReason>,
        cached_tokens: usize,
        /// The prompt's blocks, with the last token of a request that is to leave them.
        hold: Option<Hold>,
    },
    Refused(SubmitError),
}

/// As many requests wait as the engine takes, or nearly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Debug)]
enum Command {
    Submit(Box<Submission>),
    Abort(RequestId),
    Release(RequestId),
    Resident(Box<Request>, oneshot::Sender<usize>),
    Reset { running_too: bool, answer: oneshot::Sender<bool> },
    Cached(oneshot::Sender<Vec<(BlockHash, usize)>>),
    Restart(oneshot::Sender<()>),
    Stop(oneshot::Sender<()>),
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
        let mut worker = Worker::new(number, engine, format, publisher, Arc::clone(&shared));
        std::thread::Builder::new()
            .name(format!("sim-engine-{number}"))
            .spawn(move || worker.run())?;
        Ok(Self { shared, max_waiting })
    }

    /// Hands requests to the engine, all of them before its next step or none.
    pub(super) fn submit(&self, submissions: Vec<Submission>) -> Result<(), Full> {
        let waiting = self.shared.metrics.lock().stats.waiting;
        let mut inbox = self.shared.inbox.lock();
        if waiting + inbox.submissions + submissions.len() > self.max_waiting {
            return Err(Full);
        }
        inbox.submissions += submissions.len();
        self.shared.unfinished.fetch_add(submissions.len(), Ordering::Relaxed);
        for submission in submissions {
            self.shared.push(&mut inbox, Command::Submit(Box::new(submission)));
        }
        Ok(())
    }

    /// Drops a request; nothing happens if it has ended.
    pub(super) fn abort(&self, id: RequestId) {
        self.push(Command::Abort(id));
    }

    /// How many tokens of a request's prompt would be found in the cache now.
    pub(super) fn resident(&self, request: Request) -> oneshot::Receiver<usize> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Resident(Box::new(request), answer));
        answered
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

    /// Ends the thread; answers when its sockets are closed.
    pub(super) fn stop(&self) -> oneshot::Receiver<()> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Stop(answer));
        answered
    }

    fn push(&self, command: Command) {
        self.shared.push(&mut self.shared.inbox.lock(), command);
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

impl Shared {
    fn push(&self, inbox: &mut Inbox, command: Command) {
        inbox.pressing |= matches!(command, Command::Restart(_) | Command::Stop(_));
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
