//! What a gateway is started with: the configuration, the changes that were kept, and all they refer to.

use std::sync::Arc;

use anyhow::{Context, Result};
use kvasir_admin::{Aside, Recent, Store};
use kvasir_advice::gateway::WatchSettings;
use kvasir_config::Config;

use crate::args::ServeArgs;
use crate::bad_key::Said;
use crate::next::Next;
use crate::{admin, controller, forwarded, reload, spec};

/// All that was read before anything runs.
pub(crate) struct Start {
    pub(crate) args: ServeArgs,
    /// The file's text.
    pub(crate) text: String,
    /// What file, environment and flags say.
    pub(crate) base: Config,
    /// The same with the changes that were kept, and all of it that is to be put into effect.
    pub(crate) next: Next,
    /// Changes that were dropped, now or before.
    pub(crate) aside: Aside,
    pub(crate) store: Option<Arc<Store>>,
    /// Where somebody can ask for it.
    pub(crate) recent: Option<Arc<Recent>>,
    /// How the weight controller is followed, where there is one.
    pub(crate) watch: Option<WatchSettings>,
}

impl Start {
    /// Reads what the configuration refers to: it belongs to it.
    pub(crate) fn of(args: ServeArgs, base: Config, said: &Said) -> Result<Self> {
        let text = said.text.clone();
        let store = admin::store(&base).map_err(|error| said.locate(error))?;
        let recent = base.admin.is_some().then(|| admin::recent(store.as_ref())).transpose()?;
        let kept =
            store.as_ref().map(|store| store.changes()).transpose().context("admin.store")?;
        let (overlay, aside) = kept.unwrap_or_default();
        forwarded::warn_of_administrative(&base);
        let located = |error| said.locate(error);
        let log = spec::decision_log(&base).map_err(located)?;
        let next = match args.urls.is_empty() {
            true => Next::fitted(&base, overlay, log.as_ref()),
            // What engines given by URL alone serve, is not known yet.
            false => Next::of(base.clone(), overlay, log),
        };
        let next = next.map_err(located)?;
        let aside = aside.with(&next.dropped);
        if !next.dropped.is_empty() {
            reload::keep_all(store.as_deref(), &next.overlay, &aside);
        }
        let watch = controller::settings(&next.config).map_err(located)?;
        Ok(Self { args, text, base, next, aside, store, recent, watch })
    }
}
