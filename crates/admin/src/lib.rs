//! The control plane's HTTP API: a port of its own, on which an operator sees what a gateway knows and
//! does, and changes it.
//!
//! A request goes: connection (bounded: `connections`) → path and method (`routes`, one table, of which the `OpenAPI`
//! document is made) → who asks (`auth`: roles by bearer token, and no browser of another site) → the
//! handler → the answer, with errors that name the field. A change goes on to its end whoever waits for
//! it, and leaves a line in the audit (`audit`).
//!
//! The status page (`page`) is a few static files that ask the API, as anybody does.
//!
//! This crate shows a [`kvasir_fleet::Fleet`] and a [`kvasir_config::Config`]. What only the program can
//! do (deciding about a request, taking up a changed configuration) it asks of [`Control`]. It knows no
//! data plane. What a gateway decided lately comes in through [`Recent`], and what is to outlive the
//! process goes into a [`Store`].

mod answer;
mod aside;
mod audit;
mod auth;
mod connections;
mod control;
mod counts;
mod error;
mod openapi;
mod page;
mod path;
mod recent;
mod requests;
mod routes;
mod server;
mod settings;
mod stats;
mod store;
mod timeline;
mod tls;
mod version;
mod views;

pub use self::aside::{Aside, LeftOut};
pub use self::control::{Applied, Control, Later, State};
pub use self::error::ApiError;
pub use self::openapi::document;
pub use self::recent::{Decided, Recent};
pub use self::server::{Admin, AdminError, Tokens};
pub use self::settings::AdminSettings;
pub use self::stats::{Stats, Tally};
pub use self::store::{Store, StoreError};
pub use self::version::{Expected, Version};
pub use kvasir_server_tls::TlsFiles;
