//! Whose fault it is that a request got no whole answer.

/// Who would have to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client: its request is not what it should be, or it left.
    Client,
    /// An engine: it is not there, does not answer in time, or breaks off.
    Engine,
    /// The gateway: by its limits there is no room.
    Gateway,
}

impl Fault {
    /// The word used in logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Engine => "engine",
            Self::Gateway => "gateway",
        }
    }
}
