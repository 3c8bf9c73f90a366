//! What clients show: API keys, read at the start and again when their file changes, and the token for
//! decision headers, read with the configuration.

use std::sync::Arc;

use anyhow::Result;
use kvasir_config::{ClientKeySource, Config, Secret};
use kvasir_proxy::{ClientKeys, FileFamilies, watch_files};
use tokio::task::JoinHandle;

use crate::bad_key::{read_token, wrong};

/// The keys and tokens a configuration speaks of, as they are now.
#[derive(Clone)]
pub(crate) struct Keys {
    /// Where clients must show a key: one of these.
    pub(crate) clients: Option<Arc<ClientKeys>>,
    /// What turns decision headers on for one request, where anything does.
    pub(crate) debug: Option<Arc<ClientKeys>>,
}

/// Reads them.
pub(crate) fn load(config: &Config) -> Result<Keys> {
    let known = |keys: &[Secret]| Arc::new(ClientKeys::new(keys.iter().map(Secret::expose)));
    let clients = config.client_keys().map(|source| source.read_all());
    let clients = clients.transpose().map_err(wrong)?;
    let debug = config.decision_headers_token_source();
    let debug = read_token(debug, "decision_headers_token")?;
    Ok(Keys { clients: clients.as_deref().map(known), debug: debug.map(|token| known(&[token])) })
}

/// What tells of the file of keys.
const FAMILIES: FileFamilies =
    FileFamilies { reloads: "kvasir_api_keys_reloads_total", stale: "kvasir_api_keys_stale" };

/// The keys that are in use, and what follows their file.
pub(crate) struct Keyring(Option<JoinHandle<()>>);

impl Keyring {
    /// Follows the file the keys are in, where they are in one, until it is dropped. Must be called
    /// within a tokio runtime.
    pub(crate) fn new(config: &Config, keys: Keys) -> Self {
        let source = config.client_keys();
        let (Some(ClientKeySource::File(path)), Some(keys)) = (source, keys.clients) else {
            return Self(None);
        };
        let path = path.to_owned();
        let watched = vec![path.clone()];
        Self(Some(tokio::spawn(watch_files(FAMILIES, watched, move || {
            let fresh = ClientKeySource::File(&path).read_all();
            let fresh = fresh.map_err(|(_, why)| why)?;
            keys.replace(fresh.iter().map(Secret::expose));
            Ok::<_, String>(())
        }))))
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        if let Some(watching) = &self.0 {
            watching.abort();
        }
    }
}
