//! The connection to a publisher: a SUB socket and the monitor that tells its fate.
//!
//! libzmq reconnects by itself, with messages of both connections in one queue. A link is
//! therefore used for one connection only: when it is lost, both sockets are closed, and a new
//! link holds nothing of the old publisher.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::SubscriberConfig;
use super::sockets::{self, Received};

/// Batches that may wait inside the SUB socket; what is lost above it shows as a gap.
const HIGH_WATER: i32 = 10_000;

const SUCCEEDED: zmq::SocketEvent = zmq::SocketEvent::HANDSHAKE_SUCCEEDED;
const DISCONNECTED: zmq::SocketEvent = zmq::SocketEvent::DISCONNECTED;
const FAILURES: [zmq::SocketEvent; 3] = [
    zmq::SocketEvent::HANDSHAKE_FAILED_NO_DETAIL,
    zmq::SocketEvent::HANDSHAKE_FAILED_PROTOCOL,
    zmq::SocketEvent::HANDSHAKE_FAILED_AUTH,
];

/// What became of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkEvent {
    Connected,
    Disconnected,
    /// Whoever is at the other end speaks something else.
    Refused,
}

pub(super) struct Link {
    subscription: zmq::Socket,
    monitor: zmq::Socket,
    /// The next disconnect belongs to a connection that was never established.
    failed: bool,
}

impl Link {
    /// Connects to the publisher, or binds the address it connects to; or connects to `hub`, which
    /// does so for several.
    pub(super) fn open(
        context: &zmq::Context,
        config: &SubscriberConfig,
        hub: Option<&str>,
    ) -> Result<Self, zmq::Error> {
        let subscription = context.socket(zmq::SUB)?;
        sockets::common_options(&subscription, config.max_message_bytes)?;
        subscription.set_rcvhwm(HIGH_WATER)?;
        subscription.set_reconnect_ivl(millis(config.backoff_min))?;
        subscription.set_reconnect_ivl_max(millis(config.backoff_max))?;
        subscription.set_connect_timeout(5_000)?;
        let heartbeat = millis(config.heartbeat);
        subscription.set_heartbeat_ivl(heartbeat)?;
        subscription.set_heartbeat_timeout(heartbeat.saturating_mul(3))?;
        subscription.set_subscribe(config.topic.as_bytes())?;

        // Before the connection starts, so that no event is missed.
        let address = monitor_address();
        let events = FAILURES.iter().chain(&[SUCCEEDED, DISCONNECTED]);
        let events = events.fold(0, |mask, event| mask | i32::from(event.to_raw()));
        subscription.monitor(&address, events)?;
        let monitor = context.socket(zmq::PAIR)?;
        monitor.set_linger(0)?;
        // libzmq's I/O thread, which others share, waits for room: there is always some.
        monitor.set_rcvhwm(0)?;
        monitor.connect(&address)?;

        let address = config.address.to_string();
        match hub {
            Some(hub) => subscription.connect(hub)?,
            None if config.bind => subscription.bind(&address)?,
            None => subscription.connect(&address)?,
        }
        Ok(Self { subscription, monitor, failed: false })
    }

    pub(super) fn subscription(&self) -> &zmq::Socket {
        &self.subscription
    }

    pub(super) fn monitor(&self) -> &zmq::Socket {
        &self.monitor
    }

    /// The next published message that has arrived.
    pub(super) fn receive(&self) -> Result<Received, zmq::Error> {
        sockets::receive(&self.subscription)
    }

    /// The next change of the connection that has been noticed.
    pub(super) fn event(&mut self) -> Result<Option<LinkEvent>, zmq::Error> {
        loop {
            let Received::Message(parts) = sockets::receive(&self.monitor)? else {
                return Ok(None);
            };
            let Some([low, high]) = parts.first().and_then(|part| part.first_chunk::<2>()) else {
                continue;
            };
            if let Some(event) = self.read_event(u16::from_ne_bytes([*low, *high])) {
                return Ok(Some(event));
            }
        }
    }

    /// A failed handshake is followed at once by the disconnect of its connection. libzmq may
    /// not try again after it.
    fn read_event(&mut self, event: u16) -> Option<LinkEvent> {
        if event == SUCCEEDED.to_raw() {
            return Some(LinkEvent::Connected);
        }
        if FAILURES.iter().any(|failure| failure.to_raw() == event) {
            self.failed = true;
        } else if event == DISCONNECTED.to_raw() {
            let failed = std::mem::take(&mut self.failed);
            return Some(if failed { LinkEvent::Refused } else { LinkEvent::Disconnected });
        }
        None
    }
}

impl Drop for Link {
    /// Turns the monitor off before its reader goes: an event without a reader would stop
    /// libzmq's I/O thread, and with it every subscriber that shares it. Monitoring no events,
    /// somewhere else, is the one way to do so that the binding offers; should it fail, the
    /// monitor is off all the same.
    fn drop(&mut self) {
        let _ = self.subscription.monitor(&monitor_address(), 0);
    }
}

fn monitor_address() -> String {
    static MONITORS: AtomicU64 = AtomicU64::new(0);
    format!("inproc://kv-events-monitor-{}", MONITORS.fetch_add(1, Ordering::Relaxed))
}

/// libzmq counts in milliseconds, and takes 0 for a default.
fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX).max(1)
}
