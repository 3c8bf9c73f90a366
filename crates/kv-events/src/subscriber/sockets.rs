//! What all ZeroMQ sockets of this crate share: contexts, options, bounded receiving.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Subscribers that share a context, and with it one I/O thread and libzmq's limit of 1023
/// sockets. Kept small: a slow name resolution stops the I/O thread.
const SUBSCRIBERS_PER_CONTEXT: usize = 16;

/// Parts of a message that are kept; publishers send at most four.
const MAX_PARTS: usize = 8;

/// A context in use by a few subscribers.
pub(crate) fn shared_context() -> Arc<zmq::Context> {
    static CONTEXTS: Mutex<Vec<Weak<zmq::Context>>> = Mutex::new(Vec::new());
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.retain(|context| context.strong_count() > 0);
    let roomy = contexts
        .iter()
        .filter(|context| context.strong_count() < SUBSCRIBERS_PER_CONTEXT)
        .find_map(Weak::upgrade);
    roomy.unwrap_or_else(|| {
        let context = Arc::new(zmq::Context::new());
        contexts.push(Arc::downgrade(&context));
        context
    })
}

/// Options every socket gets: IPv6 (and IPv4-mapped) addresses, no lingering, bounded messages,
/// quick notice of dead peers.
pub(crate) fn common_options(
    socket: &zmq::Socket,
    max_message_bytes: usize,
) -> Result<(), zmq::Error> {
    socket.set_ipv6(true)?;
    socket.set_linger(0)?;
    socket.set_maxmsgsize(i64::try_from(max_message_bytes).unwrap_or(i64::MAX))?;
    socket.set_handshake_ivl(5_000)?;
    socket.set_tcp_keepalive(1)?;
    socket.set_tcp_keepalive_idle(30)?;
    socket.set_tcp_keepalive_intvl(10)?;
    socket.set_tcp_keepalive_cnt(3)
}

/// What a socket held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Nothing,
    Message(Vec<Vec<u8>>),
    /// A message of more parts than any publisher sends; dropped.
    TooManyParts,
}

/// Takes one message without waiting.
pub(crate) fn receive(socket: &zmq::Socket) -> Result<Received, zmq::Error> {
    let mut parts = Vec::with_capacity(4);
    let mut count = 0_usize;
    loop {
        // Only the first part can be missing: messages arrive whole.
        match socket.recv_bytes(zmq::DONTWAIT) {
            Ok(part) if count < MAX_PARTS => parts.push(part),
            Ok(_) => {}
            Err(zmq::Error::EAGAIN) if count == 0 => return Ok(Received::Nothing),
            Err(zmq::Error::EINTR) => continue,
            Err(error) => return Err(error),
        }
        count += 1;
        if !socket.get_rcvmore()? {
            break;
        }
    }
    Ok(if count > MAX_PARTS { Received::TooManyParts } else { Received::Message(parts) })
}
