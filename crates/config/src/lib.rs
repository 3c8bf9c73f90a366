//! The configuration: one typed tree, one set of defaults, errors that say where.
//!
//! [`Config::parse`] turns a YAML text into a [`Config`] or a [`ConfigError`] with file, line,
//! column and what would have been allowed. Unknown keys are errors. Everything that can be checked
//! without a network is checked here, so that a configuration that parses can be started.
//!
//! This crate opens no sockets and knows nothing of the crates it configures except the names of
//! the policies and of the engines' hash algorithms.

mod admin;
mod admission;
mod aliases;
mod bounds;
mod changed;
mod check;
mod client_keys;
mod connections;
mod controller;
mod decision_log;
mod diff;
mod disaggregation;
mod endpoint;
mod environment;
mod error;
mod fixed;
mod hidden;
mod identity;
mod inventory;
mod listen_address;
mod listener;
mod log_level;
mod loxilb;
mod model;
mod overlay;
mod places;
mod pool;
mod resilience;
mod rolter;
mod schema;
mod secret;
mod shown;
mod suggest;
mod timeouts;
mod tracing;
mod yaml;

pub use self::admin::AdminConfig;
pub use self::admission::{AdmissionConfig, EndpointAdmission, QueueConfig};
pub use self::client_keys::ClientKeySource;
pub use self::connections::EngineTlsConfig;
pub use self::controller::{ControllerConfig, ControllerService};
pub use self::decision_log::DecisionLogConfig;
pub use self::diff::{Difference, differences};
pub use self::disaggregation::{DisaggregationConfig, EndpointRole, TransferProtocol};
pub use self::endpoint::{EndpointConfig, EndpointState, EngineUrl, RankAddressing};
pub use self::environment::{CONFIG_VARIABLE, Taken, VARIABLES, Variable, misspelt};
pub use self::error::ConfigError;
pub use self::hidden::{hide_in_url, hide_secrets, is_secret_key};
pub use self::identity::{BlockIdentity, EngineHashing, HashAlgorithm};
pub use self::inventory::InventoryConfig;
pub use self::listen_address::ListenAddress;
pub use self::listener::{ForwardedHeaders, ListenerConfig, ListenerTls};
pub use self::loxilb::LoxilbConfig;
pub use self::model::{Config, LogConfig, LogFormat};
pub use self::overlay::{
    Change, DEFAULT_TENANT, Dropped, ENDPOINT_KEYS, Fitted, Overlay, POOL_KEYS, Patch, Place,
    Refused, RefusedFor, Routing, RoutingMode,
};
pub use self::pool::{PoolConfig, TokenParity};
pub use self::resilience::{HealthConfig, RetriesConfig};
pub use self::schema::SCHEMA;
pub use self::secret::{Secret, SecretSource};
pub use self::shown::shown;
pub use self::suggest::hint;
pub use self::timeouts::{PoolTimeouts, TimeoutsConfig};
pub use self::tracing::{OtlpEndpoint, TracingConfig};
