//! A KV-event publisher and its replay socket, as engines have them, with every fault at hand.
//!
//! The publisher numbers, sends and keeps batches like vLLM's: a PUB socket (an XPUB here, to see
//! subscriptions come) and a ROUTER that answers from the last `buffer_steps` batches. Each call
//! returns when the socket has done it.

pub mod payload;
mod server;

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use self::server::{Command, Server, State};

/// How the replay socket answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayForm {
    /// `["", seq, payload]`: vLLM up to 0.25.
    WithoutTopic,
    /// `["", topic, seq, payload]`: vLLM 0.26 and newer.
    WithTopic,
}

/// What goes wrong with replays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReplayFault {
    /// Nothing.
    #[default]
    None,
    /// Requests are read and never answered.
    Hang,
    /// The end marker is lost.
    LoseEnd,
    /// These numbers are lost, each time.
    Lose(Vec<u64>),
    /// These numbers are lost in the next replay only.
    LoseOnce(Vec<u64>),
    /// Nothing is kept for replay: every answer is the end marker alone.
    Empty,
}

/// What a publisher is started with.
#[derive(Clone, Debug)]
pub struct PublisherOptions {
    /// The topic of every message.
    pub topic: String,
    /// The form of replay answers; `None` for no replay socket.
    pub replay: Option<ReplayForm>,
    /// Batches kept for replay.
    pub buffer_steps: usize,
    /// Connect the PUB socket to this address instead of binding it.
    pub connect_to: Option<String>,
}

impl Default for PublisherOptions {
    fn default() -> Self {
        Self {
            topic: String::new(),
            replay: Some(ReplayForm::WithTopic),
            buffer_steps: 10_000,
            connect_to: None,
        }
    }
}

/// A scriptable publisher on loopback ports of its own. Stops when dropped.
#[derive(Debug)]
pub struct FakePublisher {
    commands: SyncSender<Call>,
    wake: Mutex<UnixStream>,
}

/// A command, and where its answer goes.
type Call = (Command, SyncSender<State>);

impl FakePublisher {
    /// Binds and starts.
    ///
    /// # Errors
    /// No socket, thread or port to be had.
    pub fn start(options: PublisherOptions) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        let (commands, receiver): (_, Receiver<Call>) = sync_channel(16);
        let mut server = Server::new(options)?;
        std::thread::Builder::new()
            .name("fake-publisher".to_owned())
            .spawn(move || server.run(&receiver, &woken))?;
        Ok(Self { commands, wake: Mutex::new(wake) })
    }

    /// The address of the PUB socket, as a subscriber connects to it; the subscriber's own where
    /// the publisher connects.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.state().endpoint
    }

    /// The address of the replay socket; `None` if there is none.
    #[must_use]
    pub fn replay_endpoint(&self) -> Option<String> {
        self.state().replay_endpoint
    }

    /// Publishes a batch; returns its number.
    pub fn publish(&self, payload: Vec<u8>) -> u64 {
        self.call(Command::Publish { payload, send: true, keep: true }).last_seq
    }

    /// Loses a batch on the way: it is numbered and kept for replay, not sent.
    pub fn publish_lost(&self, payload: Vec<u8>) -> u64 {
        self.call(Command::Publish { payload, send: false, keep: true }).last_seq
    }

    /// Skips a number: nothing is sent and nothing kept.
    pub fn skip(&self) -> u64 {
        self.call(Command::Publish { payload: Vec::new(), send: false, keep: false }).last_seq
    }

    /// Sends a message with this number, outside the publisher's own count: repetitions, numbers
    /// out of order, other contents.
    pub fn send_numbered(&self, seq: u64, payload: Vec<u8>) {
        let topic = self.state().topic.into_bytes();
        self.send_frames(vec![topic, seq.to_be_bytes().to_vec(), payload]);
    }

    /// Sends any message.
    pub fn send_frames(&self, frames: Vec<Vec<u8>>) {
        self.call(Command::Frames(frames));
    }

    /// Sends the last batch once more.
    pub fn repeat_last(&self) {
        self.call(Command::RepeatLast);
    }

    /// Ends this life and starts another on the same ports: connections break, the buffer is
    /// empty, numbers start at `first_seq`.
    pub fn restart(&self, first_seq: u64) {
        self.call(Command::NewLife { first_seq, reconnect: true });
    }

    /// Starts another life without breaking connections, as behind a proxy.
    pub fn restart_unseen(&self, first_seq: u64) {
        self.call(Command::NewLife { first_seq, reconnect: false });
    }

    /// Closes both sockets.
    pub fn go_down(&self) {
        self.call(Command::Down);
    }

    /// Opens both sockets again on their ports, in the same life.
    pub fn come_up(&self) {
        self.call(Command::Up);
    }

    /// What goes wrong with replays from now on.
    pub fn set_replay_fault(&self, fault: ReplayFault) {
        self.call(Command::Fault(fault));
    }

    /// The first numbers asked for at the replay socket, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<u64> {
        self.state().requests
    }

    /// Subscriptions seen since the sockets were last opened.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.state().subscriptions
    }

    /// Whether the last subscriber has left, and none came since.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.state().left
    }

    /// Waits until that many subscriptions have come since the sockets were last opened.
    ///
    /// # Panics
    /// When `deadline` passes first.
    #[track_caller]
    pub fn wait_for_subscribers(&self, count: usize, deadline: Duration) {
        crate::eventually(deadline, || self.subscriptions() >= count);
    }

    fn state(&self) -> State {
        self.call(Command::Nothing)
    }

    fn call(&self, command: Command) -> State {
        let (answer, answered) = sync_channel(1);
        let sent = self.commands.send((command, answer)).is_ok();
        let mut wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = wake.write_all(&[0]).is_ok();
        drop(wake);
        match answered.recv() {
            Ok(state) if sent && woken => state,
            _ => panic!("the publisher's thread has ended"),
        }
    }
}
