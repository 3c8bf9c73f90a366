//! Why a request got no answer, and in which phase.

use std::fmt;
use std::time::Duration;

/// Where a request was when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for one of the connections that the engine may have.
    Pool,
    /// Looking up the engine's name.
    Dns,
    /// Opening a TCP connection.
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
        }
    }

    /// Whether it says anything of the engine: a limit of our own on its connections does not.
    #[must_use]
    pub fn is_the_engines(self) -> bool {
        self != Self::Pool
    }

    /// Whether there was no connection: the engine got nothing of the request.
    #[must_use]
    pub fn is_connect(self) -> bool {
        matches!(self, Self::Pool | Self::Dns | Self::Tcp | Self::Tls)
    }
}

/// Why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    phase: Phase,
    why: String,
    repeated: bool,
}

impl Failure {
    pub(crate) fn new(phase: Phase, why: impl Into<String>) -> Self {
        Self { phase, why: why.into(), repeated: false }
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

    /// The same, of a request that was sent twice.
    pub(crate) fn repeated(self, repeated: bool) -> Self {
        Self { repeated, ..self }
    }

    /// Where the request was.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The cause, for people; it names the phase.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Whether the engine was asked a second time already, over a new connection, since the first
    /// had been kept and broke at once; or would have been, but could not be connected to.
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

/// The innermost cause: "connection refused" says more than "client error (Connect)".
#[must_use]
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
