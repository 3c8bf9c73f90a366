//! The port of `LoxiLB`'s API: where it listens, where its rules' ports are bound, who may change them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::bounds::{Wrong, within};
use crate::listener::ListenerTls;
use crate::secret::{Secret, SecretSource, Sources};

/// The port of `LoxiLB`'s API. Without this section there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoxilbConfig {
    /// Where it listens. Default `127.0.0.1:11111`.
    pub listen: SocketAddr,
    /// Where the ports of rules are bound whose address is not this machine's. Default `127.0.0.1`.
    pub bind: IpAddr,
    /// The bearer token, one of three. On a loopback address the API is open without one.
    pub token: Option<Secret>,
    /// The environment variable that holds it.
    pub token_env: Option<String>,
    /// The file that holds it.
    pub token_file: Option<PathBuf>,
    /// TLS; plain text by default.
    pub tls: Option<ListenerTls>,
    /// The file that keeps the rules over a restart. Without one they live until the process ends.
    pub store: Option<PathBuf>,
    /// The directory of staged tokenizers of the rules' models. Default: LoxiLB's own.
    pub tokenizer_dir: Option<PathBuf>,
    /// How far the engines' replay sockets are above their event ports; 0, the default, for none.
    pub replay_port_offset: u16,
}

impl Default for LoxilbConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 11111)),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            token: None,
            token_env: None,
            token_file: None,
            tls: None,
            store: None,
            tokenizer_dir: None,
            replay_port_offset: 0,
        }
    }
}

impl LoxilbConfig {
    /// Where the token is; `None` lets everybody in.
    #[must_use]
    pub fn token_source(&self) -> Option<SecretSource<'_>> {
        self.sources().source()
    }

    fn sources(&self) -> Sources<'_, Secret> {
        Sources {
            key: "token",
            given: self.token.as_ref(),
            env: self.token_env.as_deref(),
            file: self.token_file.as_deref(),
        }
    }

    /// Whether its parts fit together; the key and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        self.sources().check_token()?;
        within("replay_port_offset", &self.replay_port_offset, &0, &60_000)?;
        if !self.listen.ip().to_canonical().is_loopback() && self.token_source().is_none() {
            let why =
                "is needed where `listen` is no loopback address: `token_env` or `token_file`";
            return Err(("token".to_owned(), why.to_owned()));
        }
        if self.store.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
            return Err(("store".to_owned(), "the file must have a name".to_owned()));
        }
        Ok(())
    }
}
