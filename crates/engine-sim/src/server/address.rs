//! ZeroMQ addresses: one base, from which every data-parallel rank counts up its port.

use std::hash::{BuildHasher as _, RandomState};
use std::net::Ipv4Addr;
use std::ops::Range;

/// Below what systems give out (Linux from 32768 on), above what well-known services use.
const PORTS: Range<u32> = 15_000..32_000;

/// Where rank 0 binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// `tcp://host:port`; no port means a free one.
    Tcp { host: String, port: Option<u16> },
    /// Anything else, as it is; for one rank only.
    Other(String),
}

impl Base {
    /// Reads `tcp://host:port` (`*` or 0 for a free port), `ipc://path` or `inproc://name`.
    pub(super) fn parse(text: &str, ranks: u32) -> Result<Self, String> {
        if text.starts_with("ipc://") || text.starts_with("inproc://") {
            return match ranks {
                1 => Ok(Self::Other(text.to_owned())),
                _ => Err(format!("{text:?} has no ports to tell {ranks} ranks apart")),
            };
        }
        let rest = text.strip_prefix("tcp://");
        let Some((host, port)) = rest.and_then(|rest| rest.rsplit_once(':')) else {
            return Err(format!("{text:?} is neither tcp://host:port nor ipc://path"));
        };
        if host.is_empty() {
            return Err(format!("{text:?} has no host"));
        }
        let port = match port {
            "*" | "0" => None,
            port => {
                let number: u16 =
                    port.parse().map_err(|_| format!("{text:?} has no valid port"))?;
                // The last rank needs a port, too.
                if u32::from(number) + ranks > u32::from(u16::MAX) + 1 {
                    return Err(format!("{text:?} leaves no ports for {ranks} ranks"));
                }
                Some(number)
            }
        };
        Ok(Self::Tcp { host: host.to_owned(), port })
    }

    /// The same with ports for so many ranks, where they are free to choose: one after the other, and
    /// below those that systems give to whoever asks for any port. A port of ours that is closed for a
    /// moment is nobody's then, and the ports after a free one are no connection's. Whether somebody has
    /// them is seen when they are bound.
    pub(super) fn or_range(&self, ranks: u32) -> Self {
        let Self::Tcp { host, port: None } = self else { return self.clone() };
        let span = PORTS.end - PORTS.start - ranks.min(PORTS.end - PORTS.start - 1);
        let chance = RandomState::new().hash_one(std::process::id());
        let first = PORTS.start + (chance % u64::from(span)) as u32;
        Self::Tcp { host: host.clone(), port: u16::try_from(first).ok() }
    }

    /// Whether the port is free to choose.
    pub(super) fn is_wildcard(&self) -> bool {
        matches!(self, Self::Tcp { port: None, .. })
    }

    /// The address a rank binds; `None` beyond the last port.
    pub(super) fn of_rank(&self, rank: u32) -> Option<String> {
        match self {
            Self::Tcp { host, port: None } => Some(format!("tcp://{host}:*")),
            Self::Tcp { host, port: Some(port) } => {
                let port = u16::try_from(u32::from(*port) + rank).ok()?;
                Some(format!("tcp://{host}:{port}"))
            }
            Self::Other(text) => Some(text.clone()),
        }
    }

    /// This base with the port that was bound, read off `endpoint`.
    pub(super) fn bound_as(&self, endpoint: &str) -> Self {
        match self {
            Self::Tcp { host, .. } => {
                let port = endpoint.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
                Self::Tcp { host: host.clone(), port }
            }
            other => other.clone(),
        }
    }

    /// The address to connect to for rank 0, from this machine.
    pub(super) fn to_connect(&self) -> Option<String> {
        let mut base = self.clone();
        if let Self::Tcp { host, .. } = &mut base
            && matches!(host.as_str(), "*" | "0.0.0.0")
        {
            *host = Ipv4Addr::LOCALHOST.to_string();
        }
        base.of_rank(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_up_from_the_base() {
        let base = Base::parse("tcp://*:5557", 3).unwrap();
        assert_eq!(base.of_rank(2).as_deref(), Some("tcp://*:5559"));
        assert_eq!(base.to_connect().as_deref(), Some("tcp://127.0.0.1:5557"));
        let free = Base::parse("tcp://127.0.0.1:*", 2).unwrap();
        assert!(free.is_wildcard() && Base::parse("tcp://[::1]:0", 1).unwrap().is_wildcard());
        assert_eq!(free.of_rank(1).as_deref(), Some("tcp://127.0.0.1:*"));
        let bound = free.bound_as("tcp://127.0.0.1:40001");
        assert_eq!(bound.of_rank(1).as_deref(), Some("tcp://127.0.0.1:40002"));
    }

    #[test]
    fn ranges_are_below_the_ports_that_systems_give_out() {
        let free = Base::parse("tcp://127.0.0.1:*", 8).unwrap();
        for _ in 0..1_000 {
            let Base::Tcp { host, port: Some(port) } = free.or_range(8) else { panic!() };
            assert_eq!(host, "127.0.0.1");
            assert!(PORTS.contains(&port.into()) && PORTS.contains(&(u32::from(port) + 7)));
        }
        let fixed = Base::parse("tcp://127.0.0.1:5557", 8).unwrap();
        assert_eq!(fixed.or_range(8), fixed);
    }

    #[test]
    fn what_cannot_be_bound_is_refused() {
        for (text, ranks) in [
            ("5557", 1),
            ("tcp://:5557", 1),
            ("tcp://host", 1),
            ("tcp://host:port", 1),
            ("tcp://host:65535", 2),
            ("ipc:///tmp/x", 2),
            ("udp://host:1", 1),
        ] {
            assert!(Base::parse(text, ranks).is_err(), "{text} for {ranks}");
        }
        assert!(Base::parse("tcp://host:65535", 1).is_ok());
        assert!(Base::parse("ipc:///tmp/x", 1).is_ok());
    }
}
