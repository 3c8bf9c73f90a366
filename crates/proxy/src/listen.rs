//! The client side: sockets, TLS, HTTP/1.1 and HTTP/2, and a stop in good order.
//!
//! A [`Listener`] is bound once and may be multiplied, one for each runtime that accepts: all share
//! one limit of connections, one stop and one end.

mod accept;
mod connection;
mod hub;
mod protocol;
mod settings;
mod socket;
mod stall;
mod streams;
mod tls;
mod watch;

pub use self::accept::serve;
pub(crate) use self::connection::Client;
pub(crate) use self::protocol::MAX_HEADERS;
pub use self::settings::ListenSettings;
pub use self::socket::{ListenError, Listener};
pub use self::watch::{FileFamilies, watch_files};
