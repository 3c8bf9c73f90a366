//! The publisher's thread.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::{Call, PublisherOptions, ReplayFault, ReplayForm};

const END: [u8; 8] = [0xff; 8];

pub(super) enum Command {
    Nothing,
    Publish { payload: Vec<u8>, send: bool, keep: bool },
    Frames(Vec<Vec<u8>>),
    RepeatLast,
    NewLife { first_seq: u64, reconnect: bool },
    Down,
    Up,
    Fault(ReplayFault),
}

/// What a caller may want to know.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) topic: String,
    pub(super) endpoint: String,
    pub(super) replay_endpoint: Option<String>,
    pub(super) last_seq: u64,
    pub(super) requests: Vec<u64>,
    pub(super) subscriptions: usize,
    /// Whether the last subscriber has left, and none came since.
    pub(super) left: bool,
}

pub(super) struct Server {
    // Sockets before the context: closed first.
    publisher: Option<zmq::Socket>,
    router: Option<zmq::Socket>,
    context: zmq::Context,
    options: PublisherOptions,
    fault: ReplayFault,
    next_seq: u64,
    kept: VecDeque<(u64, Vec<u8>)>,
    state: State,
}

impl Server {
    pub(super) fn new(options: PublisherOptions) -> io::Result<Self> {
        let mut server = Self {
            publisher: None,
            router: None,
            context: zmq::Context::new(),
            fault: ReplayFault::None,
            next_seq: 0,
            kept: VecDeque::new(),
            state: State {
                topic: options.topic.clone(),
                endpoint: options
                    .connect_to
                    .clone()
                    .unwrap_or_else(|| "tcp://127.0.0.1:*".to_owned()),
                replay_endpoint: options.replay.map(|_| "tcp://127.0.0.1:*".to_owned()),
                ..State::default()
            },
            options,
        };
        server.open()?;
        Ok(server)
    }

    pub(super) fn run(&mut self, calls: &Receiver<Call>, wake: &UnixStream) {
        loop {
            self.answer_requests();
            self.count_subscriptions();
            let mut items = vec![zmq::PollItem::from_fd(wake.as_raw_fd(), zmq::POLLIN)];
            items.extend(self.publisher.as_ref().map(|s| s.as_poll_item(zmq::POLLIN)));
            items.extend(self.router.as_ref().map(|s| s.as_poll_item(zmq::POLLIN)));
            if zmq::poll(&mut items, 1_000).is_err() || !items[0].is_readable() {
                continue;
            }
            // One byte a call; none means that the publisher was dropped.
            let mut byte = [0];
            let mut wake = wake;
            if wake.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            let Ok((command, answer)) = calls.recv() else { return };
            // What arrived before the call is dealt with before it.
            self.answer_requests();
            self.count_subscriptions();
            if self.obey(command).is_err() {
                return;
            }
            let _ = answer.send(self.state.clone());
        }
    }

    fn obey(&mut self, command: Command) -> io::Result<()> {
        match command {
            Command::Nothing => {}
            Command::Publish { payload, send, keep } => self.publish(payload, send, keep)?,
            Command::Frames(frames) => self.send(frames)?,
            Command::RepeatLast => {
                if let Some((seq, payload)) = self.kept.back().cloned() {
                    self.send(vec![self.topic(), seq.to_be_bytes().to_vec(), payload])?;
                }
            }
            Command::NewLife { first_seq, reconnect } => {
                self.next_seq = first_seq;
                self.kept.clear();
                if reconnect {
                    self.close();
                    self.open()?;
                }
            }
            Command::Down => self.close(),
            Command::Up => self.open()?,
            Command::Fault(fault) => self.fault = fault,
        }
        Ok(())
    }

    fn publish(&mut self, payload: Vec<u8>, send: bool, keep: bool) -> io::Result<()> {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.state.last_seq = seq;
        if send {
            self.send(vec![self.topic(), seq.to_be_bytes().to_vec(), payload.clone()])?;
        }
        if keep {
            self.kept.push_back((seq, payload));
            self.trim();
        }
        Ok(())
    }

    fn trim(&mut self) {
        while self.kept.len() > self.options.buffer_steps {
            self.kept.pop_front();
        }
    }

    fn topic(&self) -> Vec<u8> {
        self.options.topic.clone().into_bytes()
    }

    fn send(&self, frames: Vec<Vec<u8>>) -> io::Result<()> {
        match &self.publisher {
            Some(socket) => Ok(socket.send_multipart(frames, 0)?),
            None => Ok(()),
        }
    }

    fn open(&mut self) -> io::Result<()> {
        self.state.subscriptions = 0;
        let publisher = self.context.socket(zmq::XPUB)?;
        publisher.set_linger(0)?;
        publisher.set_sndhwm(100_000)?;
        publisher.set_xpub_verbose(true)?;
        match &self.options.connect_to {
            Some(address) => publisher.connect(address)?,
            None => self.state.endpoint = bind(&publisher, &self.state.endpoint)?,
        }
        self.publisher = Some(publisher);
        if let Some(endpoint) = &self.state.replay_endpoint {
            let router = self.context.socket(zmq::ROUTER)?;
            router.set_linger(0)?;
            router.set_sndhwm(100_000)?;
            self.state.replay_endpoint = Some(bind(&router, endpoint)?);
            self.router = Some(router);
        }
        Ok(())
    }

    fn close(&mut self) {
        self.publisher = None;
        self.router = None;
        self.state.subscriptions = 0;
    }

    fn count_subscriptions(&mut self) {
        let Some(socket) = &self.publisher else { return };
        while let Ok(message) = socket.recv_bytes(zmq::DONTWAIT) {
            self.state.subscriptions += usize::from(message.first() == Some(&1));
            self.state.left = message.first() == Some(&0);
        }
    }

    fn answer_requests(&mut self) {
        while let Some(router) = &self.router {
            let Ok(request) = router.recv_multipart(zmq::DONTWAIT) else { return };
            // Identity, empty, number; any other request is ignored, as the engine does.
            let [identity, empty, start] = &request[..] else { continue };
            let (true, Ok(start)) = (empty.is_empty(), <[u8; 8]>::try_from(&start[..])) else {
                continue;
            };
            let start = u64::from_be_bytes(start);
            self.state.requests.push(start);
            if self.fault == ReplayFault::Hang {
                continue;
            }
            let (lost, empty) = match &self.fault {
                ReplayFault::Lose(lost) | ReplayFault::LoseOnce(lost) => (lost.clone(), false),
                fault => (Vec::new(), *fault == ReplayFault::Empty),
            };
            for (seq, payload) in self.kept.iter().filter(|(seq, _)| *seq >= start && !empty) {
                if !lost.contains(seq) {
                    self.reply(router, identity, self.topic(), seq.to_be_bytes(), payload.clone());
                }
            }
            if self.fault != ReplayFault::LoseEnd {
                self.reply(router, identity, Vec::new(), END, Vec::new());
            }
            if matches!(self.fault, ReplayFault::LoseOnce(_)) {
                self.fault = ReplayFault::None;
            }
        }
    }

    fn reply(
        &self,
        router: &zmq::Socket,
        identity: &[u8],
        topic: Vec<u8>,
        seq: [u8; 8],
        payload: Vec<u8>,
    ) {
        let mut frames = vec![identity.to_vec(), Vec::new()];
        if self.options.replay == Some(ReplayForm::WithTopic) {
            frames.push(topic);
        }
        frames.extend([seq.to_vec(), payload]);
        // A client that has gone is no matter.
        let _ = router.send_multipart(frames, zmq::DONTWAIT);
    }
}

/// Binds and says where. A port closed a moment ago may still be taken: it is waited for.
fn bind(socket: &zmq::Socket, endpoint: &str) -> io::Result<String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match socket.bind(endpoint) {
            Ok(()) => break,
            Err(zmq::Error::EADDRINUSE) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error.into()),
        }
    }
    socket.get_last_endpoint()?.map_err(|_| io::ErrorKind::InvalidData.into())
}
