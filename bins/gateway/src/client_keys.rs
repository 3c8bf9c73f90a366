//! The API keys of clients: read at the start, and again when their file changes.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use kvasir_config::{ClientKeySource, Config, Secret};
use kvasir_proxy::{ClientKeys, watch_files};

/// The keys, where clients must show one.
pub(crate) fn load(config: &Config) -> Result<Option<Arc<ClientKeys>>> {
    let Some(source) = config.client_keys() else { return Ok(None) };
    let keys = source.read().map_err(|why| anyhow!(why))?;
    Ok(Some(Arc::new(ClientKeys::new(keys.iter().map(Secret::expose)))))
}

/// Follows the file they are in, where they are in one.
pub(crate) fn watch(config: &Config, keys: &Arc<ClientKeys>) {
    let Some(ClientKeySource::File(path)) = config.client_keys() else { return };
    let (path, keys) = (path.clone(), Arc::clone(keys));
    let watched = vec![path.clone()];
    tokio::spawn(watch_files("api_keys", watched, move || {
        let fresh = ClientKeySource::File(&path).read()?;
        keys.replace(fresh.iter().map(Secret::expose));
        Ok::<_, String>(())
    }));
}
