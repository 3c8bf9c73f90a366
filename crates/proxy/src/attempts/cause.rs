//! Why a request goes to another engine.

use http::StatusCode;

/// What failed, and is reason to try another engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Connect,
    Broke,
    Error,
    Busy,
}

impl Cause {
    /// The word used in metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Broke => "broke",
            Self::Error => "error",
            Self::Busy => "busy",
        }
    }

    /// Of an answer that another engine may do better.
    pub(super) fn of(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Some(Self::Busy),
            StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::GATEWAY_TIMEOUT => Some(Self::Error),
            _ => None,
        }
    }
}
