//! Whose fault it is that a request got no whole answer.

/// Who would have to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client: its request is not what it should be, or it left.
    Client,
    /// An engine: it is not there, does not answer in time, or breaks off.
    Engine,
    /// The gateway: by its limits there is no room, or it stops.
    Gateway,
}

impl From<kvasir_upstream::Fault> for Fault {
    /// Where there is no answer: a busy engine is one that is not there for this request.
    fn from(fault: kvasir_upstream::Fault) -> Self {
        match fault {
            kvasir_upstream::Fault::Client => Self::Client,
            kvasir_upstream::Fault::Engine | kvasir_upstream::Fault::Nobody => Self::Engine,
            kvasir_upstream::Fault::Us => Self::Gateway,
        }
    }
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
