//! Why a request got no answer: in which phase, by whose fault, and whether another try may do.

use std::fmt;
use std::time::Duration;

/// Where a request was when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for one of the connections that the engine may have.
    Pool,
    /// Looking up the engine's name.
    Dns,
    /// Opening a TCP connection, or agreeing on h2 over it.
    Tcp,
    /// The TLS handshake, or agreeing on a protocol in it.
    Tls,
    /// Writing the request.
    Send,
    /// Waiting for the first data of the answer: it did not come in time.
    FirstData,
    /// Waiting for the first data of the answer: the connection broke.
    Broke,
    /// What came is not HTTP.
    NotHttp,
    /// The engine said that it did nothing with the request (h2: `REFUSED_STREAM`, or a `GOAWAY`
    /// that leaves it out; RFC 9113, 8.7): it is busy, or goes away.
    Refused,
    /// The request cannot be said in the protocol that the engine is spoken to in.
    Invalid,
}

/// Whose fault it is that there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request's: any engine would do as badly.
    Client,
    /// The engine's, its name's and its network's included: it cannot be reached as it is configured.
    Engine,
    /// A limit of our own.
    Us,
    /// An engine that is busy for a moment is at no fault.
    Nobody,
}

/// Whether another try may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No engine did anything with the request, which is certain.
    Safe,
    /// An engine may have worked on it: only what may be done twice is tried again.
    IfRepeatable,
    /// It would fail again.
    Never,
}

impl Phase {
    /// The word used in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "connect_pool",
            Self::Dns => "connect_dns",
            Self::Tcp => "connect_tcp",
            Self::Tls => "connect_tls",
            Self::Send => "send",
            Self::FirstData => "first_data_timeout",
            Self::Broke => "broke",
            Self::NotHttp => "not_http",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
        }
    }

    /// Whether there was no connection: the engine got nothing of the request.
    #[must_use]
    pub fn is_connect(self) -> bool {
        matches!(self, Self::Pool | Self::Dns | Self::Tcp | Self::Tls)
    }

    fn fault(self) -> Fault {
        match self {
            Self::Pool => Fault::Us,
            Self::Refused => Fault::Nobody,
            Self::Invalid => Fault::Client,
            Self::Dns | Self::Tcp | Self::Tls => Fault::Engine,
            Self::Send | Self::FirstData | Self::Broke | Self::NotHttp => Fault::Engine,
        }
    }

    fn retry(self) -> Retry {
        match self {
            Self::Pool | Self::Dns | Self::Tcp | Self::Tls | Self::Refused => Retry::Safe,
            Self::Send | Self::FirstData | Self::Broke | Self::NotHttp => Retry::IfRepeatable,
            Self::Invalid => Retry::Never,
        }
    }
}

/// Why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    phase: Phase,
    retry: Retry,
    why: String,
    repeated: bool,
}

impl Failure {
    pub(crate) fn new(phase: Phase, why: impl Into<String>) -> Self {
        Self { phase, retry: phase.retry(), why: why.into(), repeated: false }
    }

    /// The same, of a request of which nothing was sent.
    pub(crate) fn unsent(self) -> Self {
        let retry = if self.retry == Retry::Never { Retry::Never } else { Retry::Safe };
        Self { retry, ..self }
    }

    /// The first data of an answer did not come in this time.
    #[must_use]
    pub fn late(patience: Duration) -> Self {
        let why = match patience.subsec_millis() {
            0 => format!("no first data within {} s", patience.as_secs()),
            _ => format!("no first data within {} ms", patience.as_millis()),
        };
        Self::new(Phase::FirstData, why)
    }

    /// The engine broke off.
    #[must_use]
    pub fn broke(why: impl Into<String>) -> Self {
        Self::new(Phase::Broke, why)
    }

    /// The same, of a request that was repeated.
    pub(crate) fn repeated(self, repeated: bool) -> Self {
        Self { repeated, ..self }
    }

    /// Where the request was.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.phase.fault()
    }

    /// Whether another try may do.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.retry
    }

    /// The cause, for people.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Whether the engine was asked a second time already, over another connection, or would have
    /// been, but could not be connected to.
    #[must_use]
    pub fn was_repeated(&self) -> bool {
        self.repeated
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Failure {}

/// Whether the request itself cannot be sent, over whatever connection.
pub(crate) fn is_users(error: &hyper::Error) -> bool {
    let mut causes = std::iter::successors(std::error::Error::source(error), |it| it.source());
    match causes.find_map(|cause| cause.downcast_ref::<::h2::Error>()) {
        // Neither said by a peer nor of the socket.
        Some(h2) => h2.reason().is_none() && !h2.is_io(),
        // With a cause it is a connection that is gone.
        None => error.is_user() && std::error::Error::source(error).is_none(),
    }
}

/// The innermost cause: "connection refused" says more than "client error (Connect)".
#[must_use]
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
