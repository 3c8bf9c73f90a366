//! The control plane's own port: where it listens, who may ask it and who may change things.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::bounds::Wrong;
use crate::listen_address::ListenAddress;
use crate::listener::ListenerTls;
use crate::secret::{Secret, SecretSource, Sources};

/// The admin port. Without this section there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Where it listens. Default `127.0.0.1:8081`.
    pub listen: ListenAddress,
    /// The bearer token for reading, one of three. On a loopback address reading is open without one.
    pub read_token: Option<Secret>,
    /// The environment variable that holds it.
    pub read_token_env: Option<String>,
    /// The file that holds it.
    pub read_token_file: Option<PathBuf>,
    /// The bearer token for changes, one of three; it reads as well. Without one nothing can be changed.
    pub write_token: Option<Secret>,
    /// The environment variable that holds it.
    pub write_token_env: Option<String>,
    /// The file that holds it.
    pub write_token_file: Option<PathBuf>,
    /// TLS; plain text by default.
    pub tls: Option<ListenerTls>,
    /// The file that keeps changes over a restart. Without one they live until the process ends.
    pub store: Option<PathBuf>,
    /// The file that lines of the audit go to. Default: the log, target `kvasir_audit`.
    pub audit_log: Option<PathBuf>,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)).into(),
            read_token: None,
            read_token_env: None,
            read_token_file: None,
            write_token: None,
            write_token_env: None,
            write_token_file: None,
            tls: None,
            store: None,
            audit_log: None,
        }
    }
}

impl AdminConfig {
    /// Where the token for reading is; `None` lets everybody read.
    #[must_use]
    pub fn read_token_source(&self) -> Option<SecretSource<'_>> {
        self.read_sources().source()
    }

    /// Where the token for changes is; `None` refuses all of them.
    #[must_use]
    pub fn write_token_source(&self) -> Option<SecretSource<'_>> {
        self.write_sources().source()
    }

    /// Whether it can be reached from other machines.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        !self.listen.is_loopback()
    }

    fn read_sources(&self) -> Sources<'_, Secret> {
        Sources {
            key: "read_token",
            given: self.read_token.as_ref(),
            env: self.read_token_env.as_deref(),
            file: self.read_token_file.as_deref(),
        }
    }

    fn write_sources(&self) -> Sources<'_, Secret> {
        Sources {
            key: "write_token",
            given: self.write_token.as_ref(),
            env: self.write_token_env.as_deref(),
            file: self.write_token_file.as_deref(),
        }
    }

    /// Whether its parts fit together; the key and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        let fail = |key: &str, message: &str| Err((key.to_owned(), message.to_owned()));
        self.read_sources().check_token()?;
        self.write_sources().check_token()?;
        if self.is_exposed() && self.read_token_source().is_none() {
            let why = "is needed where `listen` is no loopback address: `read_token_env` or \
                       `read_token_file`";
            return fail("read_token", why);
        }
        if self.write_token.is_some() && self.write_token == self.read_token {
            return fail("write_token", "is that for reading: whoever reads could change things");
        }
        for (key, path) in [("store", &self.store), ("audit_log", &self.audit_log)] {
            if path.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
                return fail(key, "the file must have a name");
            }
        }
        Ok(())
    }
}
