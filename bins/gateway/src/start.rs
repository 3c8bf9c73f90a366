//! What a gateway is started with: the configuration, the changes that were kept, and all they refer to.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use kvasir_admin::{Recent, Store};
use kvasir_advice::gateway::WatchSettings;
use kvasir_config::{Config, Overlay};
use kvasir_fleet::FleetSpec;

use crate::args::ServeArgs;
use crate::client_keys::Keys;
use crate::{admin, client_keys, controller, forwarded, spec};

/// All that was read before anything runs.
pub(crate) struct Start {
    pub(crate) args: ServeArgs,
    /// The file's text.
    pub(crate) text: String,
    /// What file, environment and flags say.
    pub(crate) base: Config,
    /// The changes that were kept.
    pub(crate) overlay: Overlay,
    /// Both together.
    pub(crate) config: Config,
    pub(crate) store: Option<Arc<Store>>,
    /// Where somebody can ask for it.
    pub(crate) recent: Option<Arc<Recent>>,
    pub(crate) fleet: FleetSpec,
    pub(crate) keys: Keys,
    /// How the weight controller is followed, where there is one.
    pub(crate) watch: Option<WatchSettings>,
}

impl Start {
    /// Reads what the configuration refers to: it belongs to it.
    pub(crate) fn of(args: ServeArgs, base: Config, text: String) -> Result<Self> {
        let store = admin::store(&base)?;
        let recent = base.admin.is_some().then(|| admin::recent(store.as_ref())).transpose()?;
        let kept = store.as_ref().map(|store| store.overlay()).transpose()?.unwrap_or_default();
        // What engines given by URL alone serve, is not known yet.
        let (overlay, config) = match args.urls.is_empty() {
            true => laid_over(&base, kept)?,
            false => (kept, base.clone()),
        };
        forwarded::warn_of_administrative(&config);
        let log = spec::decision_log(&config)?;
        let fleet = spec::fleet_spec(&config, log)?;
        let keys = client_keys::load(&config)?;
        let watch = controller::settings(&config)?;
        Ok(Self { args, text, base, overlay, config, store, recent, fleet, keys, watch })
    }
}

/// A configuration with changes on top: those that do not fit any more are dropped, and named.
pub(crate) fn laid_over(base: &Config, overlay: Overlay) -> Result<(Overlay, Config)> {
    let (config, dropped) = base.with_overlay(&overlay);
    for change in &dropped {
        tracing::warn!(%change, "a change made through the admin API is dropped: it does not fit any more");
    }
    config.check().map_err(|(key, why)| {
        anyhow!("with the changes made through the admin API on top: {key}: {why}")
    })?;
    Ok((overlay.without(&dropped), config))
}
