//! Whether anything listens at an address, said precisely: libzmq only retries in silence.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use kvasir_kv_events::Address;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// Why an address cannot be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreached {
    /// The host's name stands for no address.
    Name(String),
    /// The host is there, and nothing listens.
    Refused,
    /// No answer: wrong host, or packets are dropped on the way.
    TimedOut(Duration),
    /// No socket at that path.
    NoPath,
    /// Anything else.
    Other(String),
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(why) => write!(f, "name not found ({why})"),
            Self::Refused => f.write_str("connection refused: nothing listens there"),
            Self::TimedOut(after) => {
                write!(f, "no answer within {} s: wrong host, or a firewall", after.as_secs_f32())
            }
            Self::NoPath => f.write_str("no socket at that path"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

/// Connects once and closes again.
pub(super) async fn reach(address: &Address, patience: Duration) -> Result<(), Unreached> {
    let text = address.to_string();
    if let Some(path) = text.strip_prefix("ipc://") {
        let there = path.starts_with('@') || std::path::Path::new(path).exists();
        return if there { Ok(()) } else { Err(Unreached::NoPath) };
    }
    let place = text.strip_prefix("tcp://").unwrap_or(&text);
    if place.contains('%') {
        // Zones are libzmq's business.
        return Ok(());
    }
    let exchange = async {
        let found = lookup_host(place).await.map_err(|e| Unreached::Name(e.to_string()))?;
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return Err(Unreached::Name("no address".to_owned()));
        }
        TcpStream::connect(found.as_slice()).await.map(drop).map_err(|e| match e.kind() {
            io::ErrorKind::ConnectionRefused => Unreached::Refused,
            io::ErrorKind::TimedOut => Unreached::TimedOut(patience),
            _ => Unreached::Other(e.to_string()),
        })
    };
    timeout(patience, exchange).await.unwrap_or(Err(Unreached::TimedOut(patience)))
}

/// Whether a URL's host is this machine's own loopback, names looked up.
pub(super) async fn is_loopback(host: &str, patience: Duration) -> bool {
    if is_loopback_text(host) {
        return true;
    }
    let place = (host, 0);
    match timeout(patience, lookup_host(place)).await {
        Ok(Ok(found)) => {
            let mut found = found.peekable();
            found.peek().is_some() && found.all(|at| at.ip().to_canonical().is_loopback())
        }
        _ => false,
    }
}

/// The same of an address or `localhost`, without looking anything up.
pub(super) fn is_loopback_text(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}
