//! The client side: TLS, HTTP/2, limits, what engines are told of clients.

use std::path::PathBuf;
use std::time::Duration;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

use crate::bounds::DAY_S;

/// Connections beyond any machine's file descriptors.
const MOST_CONNECTIONS: usize = 1 << 20;
/// Each may cost a head and a buffer.
const MOST_STREAMS: u32 = 65_536;

/// How clients are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerConfig {
    /// TLS; plain text by default.
    pub tls: Option<ListenerTls>,
    /// Whether HTTP/2 is spoken: by prior knowledge, by ALPN under TLS. Default true.
    pub http2: bool,
    /// Connections open at one time; further ones wait to be accepted. Default 16384; 1 to 1048576.
    #[serde(deserialize_with = "connections")]
    pub max_connections: usize,
    /// Requests open at one time on one HTTP/2 connection. Default 256; 1 to 65536.
    #[serde(deserialize_with = "streams")]
    pub max_concurrent_streams: u32,
    /// Seconds a connection may be idle, and a request's head may take. Default 75, above the 60 s
    /// for which load balancers commonly keep idle connections, so that they close them first. 1 to
    /// 86400.
    #[serde(deserialize_with = "seconds")]
    pub idle_timeout_s: u64,
    /// Seconds after which a client that reads nothing is cut off. Default 60; 1 to 86400.
    #[serde(deserialize_with = "seconds")]
    pub write_stall_s: u64,
    /// Whether other processes may listen on the same port (`SO_REUSEPORT`). Default false.
    pub reuse_port: bool,
    /// What engines are told of where requests come from. Default `append`.
    pub forwarded_headers: ForwardedHeaders,
}

/// Where the server's identity is. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerTls {
    /// The certificate chain (PEM), the server's own first.
    #[serde(deserialize_with = "path")]
    pub cert_file: PathBuf,
    /// Its private key (PEM).
    #[serde(deserialize_with = "path")]
    pub key_file: PathBuf,
    /// Certificate authorities (PEM); where given, clients must show a certificate of one of them.
    #[serde(default, deserialize_with = "optional_path")]
    pub client_ca_file: Option<PathBuf>,
}

/// What happens to `x-forwarded-for`, `-proto` and `-host`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardedHeaders {
    /// The client's address is added to what it says.
    #[default]
    Append,
    /// What the client says is replaced.
    Replace,
    /// What the client says passes, and nothing is added.
    Off,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            tls: None,
            http2: true,
            max_connections: 16_384,
            max_concurrent_streams: 256,
            idle_timeout_s: 75,
            write_stall_s: 60,
            reuse_port: false,
            forwarded_headers: ForwardedHeaders::default(),
        }
    }
}

impl ListenerConfig {
    /// How long a connection may be idle.
    #[must_use]
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_s)
    }

    /// After how long a client that reads nothing is cut off.
    #[must_use]
    pub fn write_stall(&self) -> Duration {
        Duration::from_secs(self.write_stall_s)
    }
}

fn within<T: Copy + PartialOrd + std::fmt::Display, E: de::Error>(
    value: T,
    least: T,
    most: T,
) -> Result<T, E> {
    if value < least || value > most {
        return Err(E::custom(format!("must be from {least} to {most}")));
    }
    Ok(value)
}

fn connections<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    within(usize::deserialize(deserializer)?, 1, MOST_CONNECTIONS)
}

fn streams<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    within(u32::deserialize(deserializer)?, 1, MOST_STREAMS)
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    within(u64::deserialize(deserializer)?, 1, DAY_S)
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    if path.as_os_str().is_empty() {
        return Err(de::Error::custom("the file must have a name"));
    }
    Ok(path)
}

fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    path(deserializer).map(Some)
}
