//! The weight controller that the gateway follows: what the configuration says of it, and its start.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kvasir_advice::gateway::{FollowerSettings, Watch, WatchSettings};
use kvasir_config::{Config, ControllerConfig};
use kvasir_fleet::Tls;
use kvasir_proxy::App;

use crate::bad_key::{cannot_use, read_token};
use crate::spec;

/// How it is followed; `None` where there is none.
pub(crate) fn settings(config: &Config) -> Result<Option<WatchSettings>> {
    let Some(controller) = &config.controller else { return Ok(None) };
    let token = read_token(controller.token_source(), "controller.token")?;
    let tls = controller.tls.as_ref().map(|tls| Tls::load(&spec::engine_tls_files(tls)));
    let tls = tls.transpose().map_err(|error| cannot_use("controller.tls", error))?;
    if token.is_some() && tls.is_none() {
        tracing::warn!(
            address = controller.address,
            "the controller's token is sent without TLS: it can be read on the way"
        );
    }
    let ControllerConfig { decay_ms, hysteresis_ms, apply_jitter_percent, .. } = controller;
    let follower = FollowerSettings {
        decay: Duration::from_millis(*decay_ms),
        hysteresis: Duration::from_millis(*hysteresis_ms),
        jitter_percent: *apply_jitter_percent,
    };
    let services = controller.services.iter();
    let own_name = || format!("kvasir {}", config.listen);
    Ok(Some(WatchSettings {
        address: controller.address.clone(),
        tls,
        token: token.map(|token| token.expose().to_owned()),
        gateway_id: controller.gateway_id.clone().unwrap_or_else(own_name),
        services: services.map(|service| (service.key.clone(), service.pool.clone())).collect(),
        ack_timeout: Duration::from_millis(controller.ack_timeout_ms),
        follower,
    }))
}

/// Follows it, for the fleet of the moment.
pub(crate) fn watch(settings: WatchSettings, app: &Arc<App>) -> Watch {
    let app = Arc::clone(app);
    Watch::start(settings, Arc::new(move || app.fleet()), spec::chance)
}
