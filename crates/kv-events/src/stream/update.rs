//! What a stream tells whoever keeps the picture of the cache.

use std::fmt;
use std::sync::Arc;

use kvasir_inventory::Trust;

use crate::event::Batch;

/// One instruction; apply them in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// Drop every block known from this stream, then hold `trust`.
    Forget {
        /// How far what follows can be believed.
        trust: Trust,
        /// What happened.
        why: Why,
    },
    /// Apply the events in order.
    Batch {
        /// The publisher's number for it.
        seq: u64,
        /// Whether it came from the replay socket.
        replayed: bool,
        /// The events.
        batch: Batch,
        /// The bytes they were decoded from: for recording, and for
        /// [`decode_published`](crate::decode_published).
        payload: Arc<Vec<u8>>,
    },
    /// Keep the blocks; the trust is now `trust`.
    Trust {
        /// How far the picture can be believed from now on.
        trust: Trust,
        /// What happened.
        why: Why,
    },
}

/// What made a stream's trust change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The subscriber was started.
    Start,
    /// A connection to the publisher was made.
    Connected,
    /// The connection was lost.
    Disconnected,
    /// The publisher's history was replayed up to the live batches.
    Joined,
    /// The first batch of a publisher's life arrived live.
    FromStart,
    /// The numbers jumped forward.
    Gap,
    /// A lost batch was replayed.
    Repaired,
    /// A lost batch could not be replayed.
    Unrepaired,
    /// The replay socket does not answer.
    ReplaySilent,
    /// The publisher is in a new life.
    Restart,
    /// After a new connection: the publisher is still in the same life.
    SameLife,
    /// After a new connection: nothing shows that the publisher is still in the same life.
    Unproven,
    /// A known event could not be decoded.
    Schema,
    /// The engine emptied its cache.
    Cleared,
    /// A second publisher connected to an endpoint that follows one.
    TwoPublishers,
}

impl Why {
    /// The word used in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Joined => "joined",
            Self::FromStart => "from_start",
            Self::Gap => "gap",
            Self::Repaired => "repaired",
            Self::Unrepaired => "unrepaired",
            Self::ReplaySilent => "replay_silent",
            Self::Restart => "restart",
            Self::SameLife => "same_life",
            Self::Unproven => "unproven",
            Self::Schema => "schema",
            Self::Cleared => "cleared",
            Self::TwoPublishers => "two_publishers",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
