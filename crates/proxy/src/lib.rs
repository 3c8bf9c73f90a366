//! The HTTP data plane.
//!
//! The life of a request: read the body (bounded) → read its envelope → tokenise the prompt →
//! gather evidence and choose an endpoint (both in `kvasir-fleet`) → forward the client's own bytes
//! → hold the answer's head until its first data → relay the rest as it comes. What must happen
//! however a request ends (load accounting, the access log line) hangs on guards that ride in the
//! response body.
//!
//! No request fails because routing state is missing: a model without a tokenizer, an engine
//! without events or a prompt that cannot be rendered is routed by load, and the answer's reason
//! says so. This crate chooses no endpoint itself, it decides whether another one is asked; and it
//! parses no prompt.

mod access_log;
mod app;
mod attempts;
mod debug_token;
mod explain;
mod fault;
mod forward;
mod forwarded;
mod handle;
mod headers;
mod incoming;
mod keys;
mod listen;
mod local_routes;
mod model_families;
mod moment;
mod observer;
mod owners;
mod parity;
mod plan;
mod prompt;
mod reading;
mod refusal;
mod relay;
mod request_body;
mod request_id;
mod route;
mod session;
mod spans;
mod split;
mod token_header;
mod usage;

pub use self::app::{App, DEFAULT_HEAD_BYTES, MetricsPage, Retries, Settings};
pub use self::explain::CannotExplain;
pub use self::forwarded::ForwardedHeaders;
pub use self::keys::ClientKeys;
pub use self::listen::{FileFamilies, ListenError, ListenSettings, Listener, serve, watch_files};
pub use self::observer::{Observer, Served};
pub use self::route::forwards;
pub use self::spans::{SpanSettings, Spans};
pub use kvasir_server_tls::TlsFiles;
