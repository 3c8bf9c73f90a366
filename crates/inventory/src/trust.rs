//! How far an endpoint's stream of events can be believed, and why no further.

use std::fmt;

/// How far one stream of events (an endpoint's rank) can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// No stream, or nothing learned from it yet: no credit.
    Absent(AbsentReason),
    /// History is being replayed; live batches wait behind it.
    CatchingUp,
    /// Sound and complete.
    Exact,
    /// Sound, but the endpoint may hold more than is known.
    Partial(PartialReason),
    /// May claim more than the endpoint holds: no credit.
    Suspect(SuspectReason),
}

/// Why there is no picture of an endpoint's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AbsentReason {
    /// The engine publishes no events, or none were configured.
    NoStream,
    /// The publisher could not be reached yet.
    Connecting,
    /// The connection was lost.
    Disconnected,
    /// The engine does not say what it is.
    EngineUnknown,
    /// There are more data-parallel ranks than can be followed.
    TooManyRanks,
    /// The engine publishes events of a data-parallel rank nobody told of.
    RankUnknown,
    /// Engines of this kind publish no events (llama.cpp).
    EngineWithoutEvents,
    /// The engine's events are taken away by whoever asks (TensorRT-LLM), and nobody allowed it.
    NotPolled,
}

/// Why a sound picture is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartialReason {
    /// The stream was joined after it began and its beginning could not be replayed.
    JoinedLate,
    /// A batch was lost; everything was forgotten and is being learned anew.
    LostBatch,
    /// Blocks whose parent is unknown are kept aside.
    Orphans,
    /// Blocks that the events did not describe well enough were left out.
    BlocksLeftOut,
    /// Blocks were given up to stay within the byte budget.
    ByteBudget,
}

/// Why a picture may claim too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SuspectReason {
    /// It is not certain that the engine is still the one the picture is of.
    LifeInDoubt,
    /// Two publishers at an address that belongs to one.
    Crowded,
    /// A known event could not be decoded.
    Schema,
    /// The engine stores salted, adapter or image blocks without saying so.
    ExtraKeysUnpublished,
    /// A cache group of a kind that is not understood.
    UnsupportedGroup,
    /// The tokens after a block enter its identity (vLLM 0.33 with EAGLE or MTP), and the events
    /// differ in how many.
    LookaheadHashing,
    /// Blocks are known by the engine's hashes, and it does not hash as configured.
    HashMismatch,
    /// The engine was seen to hit less than its events promise.
    HitMismatch,
}

impl Trust {
    /// Whether resident blocks of such a stream may be credited at all.
    #[must_use]
    pub fn credits(self) -> bool {
        matches!(self, Self::CatchingUp | Self::Exact | Self::Partial(_))
    }

    /// The state's word in metrics and logs.
    #[must_use]
    pub fn state(self) -> &'static str {
        match self {
            Self::Absent(_) => "absent",
            Self::CatchingUp => "catching_up",
            Self::Exact => "exact",
            Self::Partial(_) => "partial",
            Self::Suspect(_) => "suspect",
        }
    }

    /// The reason's word in metrics and logs; empty for states that need none.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::CatchingUp | Self::Exact => "",
            Self::Absent(AbsentReason::NoStream) => "no_stream",
            Self::Absent(AbsentReason::Connecting) => "connecting",
            Self::Absent(AbsentReason::Disconnected) => "disconnected",
            Self::Absent(AbsentReason::EngineUnknown) => "engine_unknown",
            Self::Absent(AbsentReason::TooManyRanks) => "too_many_ranks",
            Self::Absent(AbsentReason::RankUnknown) => "rank_unknown",
            Self::Absent(AbsentReason::EngineWithoutEvents) => "engine_without_events",
            Self::Absent(AbsentReason::NotPolled) => "not_polled",
            Self::Partial(PartialReason::JoinedLate) => "joined_late",
            Self::Partial(PartialReason::LostBatch) => "lost_batch",
            Self::Partial(PartialReason::Orphans) => "orphans",
            Self::Partial(PartialReason::BlocksLeftOut) => "blocks_left_out",
            Self::Partial(PartialReason::ByteBudget) => "byte_budget",
            Self::Suspect(SuspectReason::LifeInDoubt) => "life_in_doubt",
            Self::Suspect(SuspectReason::Crowded) => "crowded",
            Self::Suspect(SuspectReason::Schema) => "schema",
            Self::Suspect(SuspectReason::ExtraKeysUnpublished) => "extra_keys_unpublished",
            Self::Suspect(SuspectReason::UnsupportedGroup) => "unsupported_group",
            Self::Suspect(SuspectReason::LookaheadHashing) => "lookahead_hashing",
            Self::Suspect(SuspectReason::HashMismatch) => "hash_mismatch",
            Self::Suspect(SuspectReason::HitMismatch) => "hit_mismatch",
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            "" => f.write_str(self.state()),
            reason => write!(f, "{}({reason})", self.state()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_reads_as_a_person_would_say_it() {
        assert_eq!(Trust::Exact.to_string(), "exact");
        assert_eq!(Trust::Partial(PartialReason::LostBatch).to_string(), "partial(lost_batch)");
        assert!(!Trust::Suspect(SuspectReason::Schema).credits());
        assert!(!Trust::Absent(AbsentReason::NoStream).credits());
        assert!(Trust::CatchingUp.credits());
    }
}
