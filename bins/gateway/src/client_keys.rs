//! The API keys of clients: read at the start, and again when their file changes.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use kvasir_config::{ClientKeySource, Config, Secret};
use kvasir_proxy::{ClientKeys, watch_files};
use tokio::task::JoinHandle;

/// The keys, where clients must show one.
pub(crate) fn load(config: &Config) -> Result<Option<Arc<ClientKeys>>> {
    let Some(source) = config.client_keys() else { return Ok(None) };
    let keys = source.read_all().map_err(|why| anyhow!(why))?;
    Ok(Some(Arc::new(ClientKeys::new(keys.iter().map(Secret::expose)))))
}

/// The keys that are in use, and what follows their file.
pub(crate) struct Keyring(Option<JoinHandle<()>>);

impl Keyring {
    /// Follows the file the keys are in, where they are in one, until it is dropped. Must be called
    /// within a tokio runtime.
    pub(crate) fn new(config: &Config, keys: Option<Arc<ClientKeys>>) -> Self {
        let (Some(ClientKeySource::File(path)), Some(keys)) = (config.client_keys(), keys) else {
            return Self(None);
        };
        let path = path.to_owned();
        let watched = vec![path.clone()];
        Self(Some(tokio::spawn(watch_files("api_keys", watched, move || {
            let fresh = ClientKeySource::File(&path).read_all()?;
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
