//! Where a port is listened on: an IP address or a name, and the port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

/// A host and a port, as they were written: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`. A name is
/// looked up where it is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Ip(IpAddr),
    Name(String),
}

impl ListenAddress {
    /// The port; 0 lets the system choose one.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address itself, where it needs no look-up.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(ip) => Some(SocketAddr::new(ip, self.port)),
            Host::Name(_) => None,
        }
    }

    /// Whether it can be reached from this machine alone: of names, only `localhost` is taken to be so.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Ip(ip) => ip.to_canonical().is_loopback(),
            Host::Name(name) => name.eq_ignore_ascii_case("localhost"),
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Ip(address.ip()), port: address.port() }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = |why: &str| {
            format!(
                "`{text}` is no address to listen on (host:port, such as 127.0.0.1:8080, [::1]:8080 or \
                 localhost:8080): {why}"
            )
        };
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| problem("it has no port"))?;
        let port = port.parse().map_err(|_| problem("its port is no number up to 65535"))?;
        if host.contains(':') {
            return Err(problem("an IPv6 address stands in brackets"));
        }
        let is_label = |label: &str| {
            let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=63).contains(&label.len()) && label.bytes().all(may_stand)
        };
        // What ends in a number would be an IPv4 address.
        let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
        if host.len() > 253 || is_number || !host.trim_end_matches('.').split('.').all(is_label) {
            return Err(problem("its host is neither an IP address nor a name"));
        }
        Ok(Self { host: Host::Name(host.to_owned()), port })
    }
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for ListenAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_or_a_name_and_a_port() {
        for (text, is_ip, is_loopback) in [
            ("127.0.0.1:8080", true, true),
            ("0.0.0.0:0", true, false),
            ("[::1]:65535", true, true),
            ("[::ffff:127.0.0.1]:1", true, true),
            ("localhost:8080", false, true),
            ("LocalHost:1", false, true),
            ("gateway-0.svc.cluster.local.:80", false, false),
        ] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!((address.ip().is_some(), address.is_loopback()), (is_ip, is_loopback));
        }
        for (text, why) in [
            ("nowhere", "it has no port"),
            ("", "it has no port"),
            ("localhost:", "its port is no number up to 65535"),
            ("localhost:70000", "its port is no number"),
            (":8080", "neither an IP address nor a name"),
            ("::1:8080", "stands in brackets"),
            ("http://a:80", "stands in brackets"),
            ("1.2.3:80", "neither an IP address nor a name"),
            ("300.1.1.1:80", "neither an IP address nor a name"),
            ("a b:80", "neither an IP address nor a name"),
            ("a..b:80", "neither an IP address nor a name"),
        ] {
            let message = text.parse::<ListenAddress>().unwrap_err();
            assert!(message.contains(why), "{text}: {message}");
        }
    }
}
