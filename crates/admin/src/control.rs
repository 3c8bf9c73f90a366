//! What only the program around this crate can do.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use kvasir_config::{Change, Config, Overlay};
use kvasir_fleet::Fleet;
use serde_json::Value;

use crate::aside::{Aside, LeftOut};
use crate::error::ApiError;
use crate::recent::Recent;
use crate::version::{Expected, Version};

/// Something that comes later.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a gateway runs with.
#[derive(Clone, Debug)]
pub struct State {
    /// The effective configuration: file, environment, flags and changes.
    pub config: Arc<Config>,
    /// The changes alone.
    pub overlay: Arc<Overlay>,
    /// Changes that are in effect no more.
    pub aside: Arc<Aside>,
    /// What tells this configuration, with these changes, from others.
    pub version: Version,
    /// Why the configuration file is not in effect as it is now, where it was refused.
    pub refused: Option<Arc<str>>,
}

impl State {
    /// Of a configuration with changes in it, and those that are in effect no more.
    #[must_use]
    pub fn of(config: Config, overlay: Overlay, aside: Arc<Aside>) -> Self {
        let version = Version::of(&config, &overlay);
        Self { config: Arc::new(config), overlay: Arc::new(overlay), aside, version, refused: None }
    }
}

/// A change that is in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// What changed in the fleet, in words; empty for nothing.
    pub changes: String,
    /// The configuration that is in effect with it.
    pub version: Version,
    /// Whether it outlives the process.
    pub persisted: bool,
    /// Changes of before that a configuration which was read anew left no place for.
    pub dropped: Vec<LeftOut>,
}

/// A gateway, to its control plane.
pub trait Control: Send + Sync + 'static {
    /// The fleet now.
    fn fleet(&self) -> Arc<Fleet>;

    /// What it runs with now.
    fn state(&self) -> State;

    /// What would be decided about a request with this body to an API's path.
    fn explain(
        &self,
        path: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Later<Result<Value, ApiError>>;

    /// Makes a change: checked, in effect, and kept where there is a store, or refused without effect.
    /// Changes are made one after the other; one that expects another configuration is refused.
    fn change(&self, change: Change, expected: Expected) -> Later<Result<Applied, ApiError>>;

    /// Reads the configuration file anew.
    fn reload(&self, expected: Expected) -> Later<Result<Applied, ApiError>>;

    /// The whole metrics page.
    fn metrics(&self) -> String;

    /// What it decided lately.
    fn recent(&self) -> Arc<Recent>;

    /// How it stands with the weight controller, or that none is followed.
    fn controller(&self) -> Value;
}
