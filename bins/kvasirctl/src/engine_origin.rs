//! How an engine is connected to, by its URL alone or by what a configuration says of its pool.

use std::path::Path;

use anyhow::{Context, Result};
use kvasir_config::{EngineTlsConfig, EngineUrl, PoolConfig};
use kvasir_fleet::{ConnectionLimits, Origin, Tls, TlsFiles};

/// By its URL: in TLS the system's authorities are believed.
pub(crate) fn of_url(url: &EngineUrl) -> Result<Origin> {
    Ok(Origin::at(url.authority().clone(), url.is_https())?)
}

/// By its URL: in TLS the authorities of a file are believed, the system's without one.
pub(crate) fn of_url_by(url: &EngineUrl, ca_file: Option<&Path>) -> Result<Origin> {
    let Some(file) = ca_file.filter(|_| url.is_https()) else { return of_url(url) };
    let files = TlsFiles { ca_file: Some(file.to_owned()), ..TlsFiles::default() };
    let tls = Tls::load(&files).context("--ca-file")?;
    Ok(Origin::new(url.authority().clone(), Some(tls), false, ConnectionLimits::default()))
}

/// As a gateway connects to it.
pub(crate) fn of_pool(pool: &PoolConfig, url: &EngineUrl) -> Result<Origin> {
    let files = pool.engine_tls.clone().map_or_else(TlsFiles::default, |config| {
        let EngineTlsConfig { ca_file, cert_file, key_file, server_name, insecure_skip_verify } =
            config;
        TlsFiles { ca_file, cert_file, key_file, server_name, insecure_skip_verify }
    });
    let tls = url.is_https().then(|| Tls::load(&files)).transpose().context("engine_tls")?;
    let limits = ConnectionLimits::default();
    Ok(Origin::new(url.authority().clone(), tls, pool.http2, limits))
}
