//! The event publisher of one rank: a PUB socket and a replay socket, on a thread of their own.
//!
//! Messages are `[topic, sequence number in 8 bytes big-endian, payload]`. The replay socket takes
//! `["", first number]` from a DEALER and answers a message a batch: `["", seq, payload]` before
//! 0.26, `["", topic, seq, payload]` from there on, then an end marker whose number is all ones.
//! Whoever publishes is never held up: a full queue, like a full socket, loses the batch.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use kvasir_kv_hash::vllm::Version;
use tokio::sync::oneshot;

use super::config::SimServerError;
use super::faults::{EventFault, Faults};

/// Batches that may wait for the thread, as vLLM's `max_queue_size`.
pub(super) const MAX_QUEUE: usize = 100_000;

/// Messages that may wait for a subscriber, as vLLM's `hwm`.
pub(super) const HIGH_WATER_MARK: i32 = 100_000;

/// How long a port closed by the life before is waited for.
const REBIND_DEADLINE: Duration = Duration::from_secs(10);

const END: [u8; 8] = [0xff; 8];

/// What one publisher is started with.
#[derive(Clone, Debug)]
pub(super) struct PublisherOptions {
    pub(super) rank: u32,
    pub(super) endpoint: String,
    pub(super) replay: Option<String>,
    pub(super) topic: String,
    pub(super) buffer_steps: usize,
    pub(super) version: Version,
}

/// A running publisher. Stops when dropped.
#[derive(Debug)]
pub(super) struct Publisher {
    queue: SyncSender<Message>,
    /// A byte for each message; closing it ends the thread.
    wake: UnixStream,
    /// The addresses as bound.
    pub(super) endpoint: String,
    pub(super) replay: Option<String>,
}

enum Message {
    Batch { seq: u64, payload: Vec<u8> },
    NewLife(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

impl Publisher {
    /// Binds both sockets and starts the thread.
    pub(super) async fn start(
        options: PublisherOptions,
        faults: Arc<Faults>,
    ) -> Result<Self, SimServerError> {
        let (wake, woken) = UnixStream::pair().map_err(SimServerError::Thread)?;
        wake.set_nonblocking(true).map_err(SimServerError::Thread)?;
        woken.set_nonblocking(true).map_err(SimServerError::Thread)?;
        let (queue, messages) = sync_channel(MAX_QUEUE);
        let (started, outcome) = oneshot::channel();
        let run = move || {
            let mut worker = Worker::new(options, faults);
            let bound =
                worker.open(false).map(|()| (worker.endpoint.clone(), worker.replay.clone()));
            let failed = bound.is_err();
            if started.send(bound).is_ok() && !failed {
                worker.run(&messages, &woken);
            }
        };
        std::thread::Builder::new()
            .name("sim-publisher".to_owned())
            .spawn(run)
            .map_err(SimServerError::Thread)?;
        let gone = |_| SimServerError::Thread(io::ErrorKind::BrokenPipe.into());
        let (endpoint, replay) = outcome.await.map_err(gone)??;
        Ok(Self { queue, wake, endpoint, replay })
    }

    /// Publishes a batch; false if the queue was full and the batch is lost.
    pub(super) fn publish(&self, seq: u64, payload: Vec<u8>) -> bool {
        self.send(Message::Batch { seq, payload })
    }

    /// Closes both sockets and opens them again, with nothing kept; answers when that is done.
    pub(super) fn new_life(&self, answer: oneshot::Sender<()>) {
        self.send(Message::NewLife(answer));
    }

    /// Ends; answers when both sockets are closed.
    pub(super) fn close(&self, answer: oneshot::Sender<()>) {
        self.send(Message::Close(answer));
    }

    fn send(&self, message: Message) -> bool {
        let queued = self.queue.try_send(message).is_ok();
        // A full pipe means that the thread is awake already.
        let _ = (&self.wake).write(&[0]);
        queued
    }
}

/// A batch that waits for its time.
struct Pending {
    due: Instant,
    seq: u64,
    payload: Vec<u8>,
    fault: EventFault,
}

struct Worker {
    // Sockets before the context: closed first.
    publisher: Option<zmq::Socket>,
    router: Option<zmq::Socket>,
    context: zmq::Context,
    endpoint: String,
    replay: Option<String>,
    options: PublisherOptions,
    faults: Arc<Faults>,
    pending: VecDeque<Pending>,
    kept: VecDeque<(u64, Vec<u8>)>,
}

impl Worker {
    fn new(options: PublisherOptions, faults: Arc<Faults>) -> Self {
        Self {
            publisher: None,
            router: None,
            context: zmq::Context::new(),
            endpoint: options.endpoint.clone(),
            replay: options.replay.clone(),
            options,
            faults,
            pending: VecDeque::new(),
            kept: VecDeque::new(),
        }
    }

    /// Opens the sockets; `patient` waits for ports that are taken.
    fn open(&mut self, patient: bool) -> Result<(), SimServerError> {
        let failed =
            |endpoint: &str, error| SimServerError::Bind { endpoint: endpoint.to_owned(), error };
        let open = |kind, hwm: Option<i32>, endpoint: &str| {
            let socket = self.context.socket(kind)?;
            socket.set_linger(0)?;
            if let Some(hwm) = hwm {
                socket.set_sndhwm(hwm)?;
            }
            bind(&socket, endpoint, patient).map(|bound| (socket, bound))
        };
        let (publisher, bound) = open(zmq::PUB, Some(HIGH_WATER_MARK), &self.endpoint)
            .map_err(|e| failed(&self.endpoint, e))?;
        let router = match &self.replay {
            // Before 0.33 the socket keeps libzmq's own limit of 1,000 messages a client.
            Some(replay) => {
                let steps = i32::try_from(self.options.buffer_steps).unwrap_or(i32::MAX / 4);
                let hwm = (self.options.version >= Version::release(0, 33, 0))
                    .then(|| steps.saturating_add(1).saturating_mul(2));
                Some(open(zmq::ROUTER, hwm, replay).map_err(|e| failed(replay, e))?)
            }
            None => None,
        };
        self.publisher = Some(publisher);
        self.endpoint = bound;
        if let Some((router, bound)) = router {
            self.router = Some(router);
            self.replay = Some(bound);
        }
        Ok(())
    }

    fn run(&mut self, messages: &Receiver<Message>, woken: &UnixStream) {
        let mut bytes = [0; 512];
        loop {
            self.send_due();
            self.answer_requests();
            let mut items = vec![zmq::PollItem::from_fd(woken.as_raw_fd(), zmq::POLLIN)];
            items.extend(self.router.as_ref().map(|router| router.as_poll_item(zmq::POLLIN)));
            if let Err(error) = zmq::poll(&mut items, self.timeout_ms())
                && error != zmq::Error::EINTR
            {
                tracing::error!(%error, "events are no longer published");
                return;
            }
            match (&*woken).read(&mut bytes) {
                Ok(0) => return,
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return,
                _ => {}
            }
            loop {
                match messages.try_recv() {
                    Ok(Message::Batch { seq, payload }) => self.enqueue(seq, payload),
                    Ok(Message::NewLife(answer)) => self.new_life(answer),
                    Ok(Message::Close(answer)) => {
                        self.publisher = None;
                        self.router = None;
                        // Waits for libzmq's own threads, which close the ports.
                        let _ = self.context.destroy();
                        let _ = answer.send(());
                        return;
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        }
    }

    /// Until the next delayed batch; rounded up, or the thread would spin.
    fn timeout_ms(&self) -> i64 {
        let Some(next) = self.pending.front() else { return -1 };
        let left = next.due.saturating_duration_since(Instant::now());
        i64::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(i64::MAX)
    }

    fn enqueue(&mut self, seq: u64, payload: Vec<u8>) {
        let fault = self.faults.take_event();
        let delay = if let EventFault::Delay(delay) = fault { delay } else { Duration::ZERO };
        // A batch never overtakes another.
        let earliest = self.pending.back().map_or_else(Instant::now, |last| last.due);
        let due = earliest.max(Instant::now() + delay);
        if self.pending.len() < MAX_QUEUE {
            self.pending.push_back(Pending { due, seq, payload, fault });
        }
        self.send_due();
    }

    fn send_due(&mut self) {
        let now = Instant::now();
        while self.pending.front().is_some_and(|batch| batch.due <= now) {
            let Some(batch) = self.pending.pop_front() else { return };
            let copies = match batch.fault {
                EventFault::Drop => 0,
                EventFault::Duplicate => 2,
                EventFault::None | EventFault::Delay(_) => 1,
            };
            for _ in 0..copies {
                self.send(batch.seq, &batch.payload);
            }
            self.kept.push_back((batch.seq, batch.payload));
            while self.kept.len() > self.options.buffer_steps {
                self.kept.pop_front();
            }
        }
    }

    fn send(&self, seq: u64, payload: &[u8]) {
        let Some(socket) = &self.publisher else { return };
        let seq = seq.to_be_bytes();
        // PUB never blocks: what a subscriber is too slow for is dropped for it alone.
        let frames = [self.options.topic.as_bytes(), &seq, payload];
        if let Err(error) = socket.send_multipart(frames, zmq::DONTWAIT) {
            tracing::warn!(%error, rank = self.options.rank, "batch not sent");
        }
    }

    fn new_life(&mut self, answer: oneshot::Sender<()>) {
        self.pending.clear();
        self.kept.clear();
        self.publisher = None;
        self.router = None;
        match self.open(true) {
            // Nobody may be waiting any more.
            Ok(()) => drop(answer.send(())),
            Err(error) => {
                tracing::error!(%error, rank = self.options.rank, "no events in this life");
            }
        }
    }

    fn answer_requests(&self) {
        let Some(router) = &self.router else { return };
        while let Ok(request) = router.recv_multipart(zmq::DONTWAIT) {
            // Identity, empty, number: anything else is ignored, as the engine does.
            let [identity, empty, start] = &request[..] else { continue };
            let (true, Ok(start)) = (empty.is_empty(), <[u8; 8]>::try_from(&start[..])) else {
                continue;
            };
            let start = u64::from_be_bytes(start);
            let topic = self.options.topic.as_bytes();
            for (seq, payload) in self.kept.iter().filter(|(seq, _)| *seq >= start) {
                self.answer(router, identity, topic, &seq.to_be_bytes(), payload);
            }
            self.answer(router, identity, b"", &END, b"");
        }
    }

    fn answer(&self, to: &zmq::Socket, identity: &[u8], topic: &[u8], seq: &[u8], payload: &[u8]) {
        let with_topic = [identity, b"", topic, seq, payload];
        let without = [identity, b"", seq, payload];
        let frames: &[&[u8]] =
            if self.options.version >= Version::release(0, 26, 0) { &with_topic } else { &without };
        // A client that has gone is no matter.
        let _ = to.send_multipart(frames, zmq::DONTWAIT);
    }
}

/// Binds and says where. A port that a life before has just closed may still be taken.
fn bind(socket: &zmq::Socket, endpoint: &str, patient: bool) -> zmq::Result<String> {
    let deadline = Instant::now() + REBIND_DEADLINE;
    loop {
        match socket.bind(endpoint) {
            Ok(()) => break,
            Err(zmq::Error::EADDRINUSE) if patient && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(socket.get_last_endpoint()?.unwrap_or_else(|_| endpoint.to_owned()))
}
