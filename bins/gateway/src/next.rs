//! A configuration that can be put into effect, and everything it refers to: at the start, when the file is
//! read anew, and after a change through the admin API.

use std::sync::Arc;

use anyhow::Result;
use kvasir_admin::LeftOut;
use kvasir_config::{Config, Fitted, Overlay};
use kvasir_fleet::{DecisionLog, FleetSpec};

use crate::bad_key::wrong;
use crate::client_keys::{self, Keys};
use crate::{admin, spec};

/// What was read from files and variables of secrets, but for those of engines.
#[derive(Clone)]
pub(crate) struct Secrets {
    pub(crate) keys: Keys,
    /// The admin API's tokens for reading and for changes.
    pub(crate) tokens: (Option<String>, Option<String>),
}

/// A configuration that can be put into effect.
pub(crate) struct Next {
    pub(crate) config: Config,
    /// The changes that are in it.
    pub(crate) overlay: Overlay,
    pub(crate) fleet: FleetSpec,
    pub(crate) secrets: Secrets,
    /// Changes that it left no place for.
    pub(crate) dropped: Vec<LeftOut>,
}

impl Secrets {
    fn of(config: &Config) -> Result<Self> {
        let keys = client_keys::load(config)?;
        let tokens = config.admin.as_ref().map(admin::tokens).transpose()?.unwrap_or_default();
        Ok(Self { keys, tokens })
    }
}

/// Off the async threads, all of it: it reads files.
impl Next {
    /// What was read anew, with those changes on top that fit.
    pub(crate) fn fitted(
        base: &Config,
        overlay: Overlay,
        log: Option<&Arc<DecisionLog>>,
    ) -> Result<Self> {
        let secrets = Secrets::of(base)?;
        let make = |config: Config| {
            config.check().map_err(wrong)?;
            let fleet = spec::fleet_spec(&config, log.cloned())?;
            Ok::<_, anyhow::Error>((config, fleet))
        };
        let before = overlay.clone();
        let fitted = base.fitted(overlay, make)?;
        let Fitted { made: (config, fleet), overlay, dropped } = fitted;
        let left_out = dropped.iter().map(|one| LeftOut::now(one, before.said(one))).collect();
        Ok(Self { config, overlay, fleet, secrets, dropped: left_out })
    }

    /// The same where the changes are known to fit, or are not laid yet.
    pub(crate) fn of(
        config: Config,
        overlay: Overlay,
        log: Option<Arc<DecisionLog>>,
    ) -> Result<Self> {
        let secrets = Secrets::of(&config)?;
        Self::changed(config, overlay, secrets, log)
    }

    /// After one change: no change is about secrets.
    pub(crate) fn changed(
        config: Config,
        overlay: Overlay,
        secrets: Secrets,
        log: Option<Arc<DecisionLog>>,
    ) -> Result<Self> {
        let fleet = spec::fleet_spec(&config, log)?;
        Ok(Self { config, overlay, fleet, secrets, dropped: Vec::new() })
    }
}
