//! The replay client: a DEALER socket that asks one question at a time.
//!
//! Answers carry no sign of the question they belong to, so an unfinished question is ended by
//! closing the socket: a new one has another identity, and late answers to the old one are dropped
//! by the publisher's ROUTER.

use crate::address::Address;
use crate::frames::{self, Answer};
use crate::subscriber::sockets::{self, Received};

/// Answers that may wait inside the socket; a publisher's buffer holds 10,000 batches by default.
const HIGH_WATER: i32 = 12_000;

/// An answer, owned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Batch { seq: u64, payload: Vec<u8> },
    End,
    Malformed,
}

pub(crate) struct ReplayClient {
    address: Address,
    max_message_bytes: usize,
    socket: Option<zmq::Socket>,
    /// Whether a question is not answered to the end.
    open: bool,
}

impl ReplayClient {
    pub(crate) fn new(address: Address, max_message_bytes: usize) -> Self {
        Self { address, max_message_bytes, socket: None, open: false }
    }

    /// Asks for everything from `start` on.
    pub(crate) fn ask(&mut self, context: &zmq::Context, start: u64) -> Result<(), zmq::Error> {
        if self.open {
            self.abandon();
        }
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.connect(context)?,
        };
        let sent = socket.send_multipart(frames::request(start), zmq::DONTWAIT);
        self.socket = Some(socket);
        self.open = true;
        sent
    }

    /// Drops the open question and what it may still bring.
    pub(crate) fn abandon(&mut self) {
        self.socket = None;
        self.open = false;
    }

    /// The socket to poll while a question is open.
    pub(crate) fn socket(&self) -> Option<&zmq::Socket> {
        self.socket.as_ref().filter(|_| self.open)
    }

    /// The next answer that has arrived.
    pub(crate) fn receive(&mut self) -> Result<Option<Reply>, zmq::Error> {
        let Some(socket) = self.socket() else { return Ok(None) };
        let mut parts = match sockets::receive(socket)? {
            Received::Nothing => return Ok(None),
            Received::TooManyParts => return Ok(Some(Reply::Malformed)),
            Received::Message(parts) => parts,
        };
        let reply = match frames::parse_answer(&parts) {
            Ok(Answer::End) => Reply::End,
            Ok(Answer::Batch { seq, .. }) => {
                Reply::Batch { seq, payload: parts.pop().unwrap_or_default() }
            }
            Err(_) => Reply::Malformed,
        };
        if reply == Reply::End {
            self.open = false;
        }
        Ok(Some(reply))
    }

    fn connect(&self, context: &zmq::Context) -> Result<zmq::Socket, zmq::Error> {
        let socket = context.socket(zmq::DEALER)?;
        sockets::common_options(&socket, self.max_message_bytes)?;
        socket.set_rcvhwm(HIGH_WATER)?;
        socket.connect(&self.address.to_string())?;
        Ok(socket)
    }
}
