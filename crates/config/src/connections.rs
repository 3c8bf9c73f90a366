//! How a pool's engines are connected to.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// TLS to a pool's engines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineTlsConfig {
    /// The certificates of the authorities that are believed, PEM. Default: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The gateway's certificate and its chain, PEM, for engines that ask for one.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    /// The name the engines' certificates must have. Default: the host in each URL.
    pub server_name: Option<String>,
    /// Whether any certificate is believed. Off by default.
    pub insecure_skip_verify: bool,
}

/// How many connections an engine may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Most {
    pub(crate) idle: usize,
    pub(crate) connections: usize,
}

/// Kept unused at most.
pub(crate) fn max_idle_connections() -> usize {
    256
}

/// In all at most.
pub(crate) fn max_connections() -> usize {
    4096
}

/// No process has more sockets.
const MOST: usize = 1 << 20;

impl EngineTlsConfig {
    /// Whether its parts fit together; the key and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        let fail = |key, message: &str| Err((key, message.to_owned()));
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => return fail("key_file", "is needed where `cert_file` is given"),
            (None, Some(_)) => return fail("cert_file", "is needed where `key_file` is given"),
            _ => {}
        }
        if self.insecure_skip_verify && (self.ca_file.is_some() || self.server_name.is_some()) {
            let message = "believes any certificate: it goes without `ca_file` and `server_name`";
            return fail("insecure_skip_verify", message);
        }
        Ok(())
    }
}

impl Most {
    pub(crate) fn check(self) -> Result<(), (&'static str, String)> {
        if !(1..=MOST).contains(&self.connections) {
            return Err(("max_connections", format!("must be from 1 to {MOST}")));
        }
        if self.idle > MOST {
            return Err(("max_idle_connections", format!("must be at most {MOST}")));
        }
        Ok(())
    }
}
