//! Fake engines and raw clients for Kvasir's tests. A dev-dependency only.
//!
//! - [`engine`]: an OpenAI-compatible HTTP engine whose every answer, delay and
//!   failure is scripted, and which records what happened to each request.
//! - [`live`]: real vLLM servers, for tests that are run on purpose.
//! - [`publisher`]: the engine's KV-event publisher and replay socket.
//! - [`client`]: an HTTP/1.1 client that shows bytes as they arrive and can
//!   misbehave on purpose.
//! - [`http_client`]: HTTP/2 and TLS from the client's side.
//! - [`pki`]: certificates made on the spot, and both sides' settings of TLS with them.
//! - [`tls`]: TLS in front of an engine.
//! - [`eventually`] and [`eventually_async`]: wait for a state by polling, never
//!   by sleeping for a guessed time.
//!
//! Helpers panic when a deadline passes: they are for tests.

pub mod client;
pub mod engine;
pub mod http_client;
pub mod live;
pub mod pki;
mod poll;
pub mod publisher;
pub mod tls;

pub use self::poll::{eventually, eventually_async};
