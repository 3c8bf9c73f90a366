//! Addresses: from what an engine says it binds to what we connect to.
//!
//! An engine reports its endpoints as configured (`tcp://*:5557`), not as seen from outside. A
//! wildcard stands for the host of the engine's URL; anything else is taken as it is, IPv4-mapped
//! IPv6 addresses included (sockets are opened with `ZMQ_IPV6`).

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::Ipv6Addr;

/// The longest address text accepted.
const MAX_LEN: usize = 255;

/// The longest path of a Unix socket.
const MAX_PATH: usize = 107;

/// A checked ZeroMQ address: `tcp://host:port` or `ipc://path`.
///
/// libzmq resolves host names on the thread that serves the sockets of several publishers, so a
/// name that resolves slowly delays them all; prefer numeric addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address(Form);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    Tcp { host: String, port: u16 },
    Ipc(String),
}

/// Text that is no usable address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// No scheme, or one other than `tcp` and `ipc`.
    #[error("endpoint {0:?} is neither tcp:// nor ipc://")]
    Scheme(String),
    /// The host is empty or holds characters no host has.
    #[error("endpoint {0:?} has no valid host")]
    Host(String),
    /// The port is missing, not a number, or 0 (chosen at run time).
    #[error("endpoint {0:?} has no fixed port")]
    Port(String),
    /// An empty path, or one with control characters.
    #[error("endpoint {0:?} has no valid path")]
    Path(String),
    /// More text than any address has.
    #[error("endpoint of {0} bytes is too long")]
    Length(usize),
    /// A wildcard where an address to connect to is needed, and no URL to take the host from.
    #[error("endpoint {0:?} is a wildcard: it can be bound, not connected to")]
    Wildcard(String),
    /// The port of a data-parallel rank lies beyond 65535.
    #[error("endpoint {0} has no port for rank {1}")]
    Rank(String, u32),
}

impl Address {
    /// Reads an address as written; wildcards are kept, for binding.
    ///
    /// # Errors
    /// Text that is no `tcp://host:port` or `ipc://path`.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        if text.len() > MAX_LEN {
            return Err(EndpointError::Length(text.len()));
        }
        if let Some(path) = text.strip_prefix("ipc://") {
            let bad = path.is_empty()
                || path == "*"
                || path.len() > MAX_PATH
                || path.chars().any(char::is_control);
            return if bad {
                Err(EndpointError::Path(text.to_owned()))
            } else {
                Ok(Self(Form::Ipc(path.to_owned())))
            };
        }
        let Some(rest) = text.strip_prefix("tcp://") else {
            return Err(EndpointError::Scheme(text.to_owned()));
        };
        let (host, port) =
            rest.rsplit_once(':').ok_or_else(|| EndpointError::Port(text.to_owned()))?;
        let port = match port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse::<u16>()) {
            Some(Ok(port)) if port > 0 => port,
            _ => return Err(EndpointError::Port(text.to_owned())),
        };
        let host = read_host(host).ok_or_else(|| EndpointError::Host(text.to_owned()))?;
        Ok(Self(Form::Tcp { host, port }))
    }

    /// The address to connect to for a publisher that says it binds `published` and whose engine
    /// is reached at `url_host` (a name or an IP address, IPv6 with or without brackets).
    ///
    /// # Errors
    /// Text that is no address, or a wildcard together with a host that is none.
    pub fn resolve(published: &str, url_host: &str) -> Result<Self, EndpointError> {
        let mut address = Self::parse(published)?;
        if let Form::Tcp { host, .. } = &mut address.0
            && is_wildcard(host)
        {
            let url_host_error = || EndpointError::Host(url_host.to_owned());
            if url_host.len() > MAX_LEN {
                return Err(EndpointError::Length(url_host.len()));
            }
            *host = read_host(url_host).filter(|h| !is_wildcard(h)).ok_or_else(url_host_error)?;
        }
        Ok(address)
    }

    /// The address of a data-parallel rank whose engine counts ports up from this one.
    ///
    /// # Errors
    /// There is no such port; a path has none.
    pub fn for_rank(&self, rank: u32) -> Result<Self, EndpointError> {
        match &self.0 {
            Form::Ipc(_) if rank == 0 => Ok(self.clone()),
            Form::Ipc(_) => Err(EndpointError::Rank(self.to_string(), rank)),
            Form::Tcp { host, port } => u16::try_from(rank)
                .ok()
                .and_then(|rank| port.checked_add(rank))
                .map(|port| Self(Form::Tcp { host: host.clone(), port }))
                .ok_or_else(|| EndpointError::Rank(self.to_string(), rank)),
        }
    }

    /// Whether the host stands for every interface: such an address can only be bound.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        matches!(&self.0, Form::Tcp { host, .. } if is_wildcard(host))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Form::Ipc(path) => write!(f, "ipc://{path}"),
        }
    }
}

/// A host in the form libzmq wants: IPv6 addresses in brackets.
fn read_host(host: &str) -> Option<String> {
    let bare = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None => host,
    };
    let (address, zone) = match bare.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (bare, None),
    };
    if address.parse::<Ipv6Addr>().is_ok() {
        let zone_ok =
            zone.is_none_or(|z| !z.is_empty() && z.bytes().all(|b| b.is_ascii_alphanumeric()));
        return zone_ok.then(|| format!("[{bare}]"));
    }
    let name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let first = host.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let ok = host == "*" || (first && host.bytes().all(name));
    ok.then(|| host.to_owned())
}

fn is_wildcard(host: &str) -> bool {
    if host == "*" || host == "0.0.0.0" {
        return true;
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<Ipv6Addr>().is_ok_and(|ip| {
        ip.is_unspecified() || ip.to_ipv4_mapped().is_some_and(|v4| v4.is_unspecified())
    })
}
