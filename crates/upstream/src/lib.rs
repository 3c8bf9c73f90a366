//! Connections to engines.
//!
//! An [`Upstream`] sends requests to [`Origin`]s over connections of its own: a bounded stack of
//! kept HTTP/1.1 connections for each origin, or a few h2 connections that are shared. It is made
//! once for each runtime, and its limits are per value.
//!
//! Nothing runs beside a request: its HTTP/1.1 connection is driven by whoever waits for the
//! answer, and dropping that drops the connection, which is how an engine learns that its client
//! left. A connection is kept only after an answer was read to its end.
//!
//! A [`Failure`] names its phase, whose fault it is and whether another try may do. A kept
//! connection that the engine closed in the meantime is no failure of the engine: the request goes
//! over another one, once.

mod answer;
mod authorization;
mod certificate;
mod dial;
mod dns;
mod failure;
mod h1;
mod h2;
mod io;
mod lost;
mod origin;
mod page;
mod pool;
mod send;
mod socket;
mod tls;
mod upstream;

pub use self::answer::{AnswerStream, Broken, Started};
pub use self::authorization::bearer;
pub use self::dns::{Lookup, Resolve};
pub use self::failure::{Failure, Fault, Phase, Retry, root_cause};
pub use self::origin::{Limits, Origin};
pub use self::page::render;
pub use self::socket::prepare;
pub use self::tls::{Tls, TlsError, TlsFiles};
pub use self::upstream::{Options, OriginStats, Patience, Upstream};
