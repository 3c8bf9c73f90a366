//! Why an endpoint may not be chosen.

/// Why an endpoint is not among a request's candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exclusion {
    /// The last connection to it failed.
    Unreachable,
    /// It says it does not serve this model or adapter.
    ModelNotServed,
    /// The prompt is longer than its context.
    ContextTooLong,
    /// It sleeps: it holds no cache and answers nothing.
    Asleep,
    /// It failed several requests in a row, just now: its breaker is open.
    BreakerOpen,
    /// Its breaker is half-open, and as many requests as may are trying it.
    HalfOpen,
    /// It said that it is busy and when to come again.
    BackPressure,
    /// Its health page says that it is not well, or does not come.
    Unhealthy,
    /// It accepts connections and answers nothing.
    Silent,
    /// It, or its pool, has as many requests in hand as it may.
    AtLimitRequests,
    /// It, or its pool, has as many prompt tokens yet to compute as it may.
    AtLimitTokens,
    /// More of its KV cache is in use than may be for another request.
    KvSaturated,
    /// It takes no new conversations; those pinned to it go on.
    Draining,
    /// An operator took it out.
    Disabled,
    /// The weight controller advises against new conversations there; those pinned to it go on.
    AdvisedDraining,
    /// The weight controller advises against it.
    AdvisedDisabled,
    /// It has another part in disaggregated serving.
    WrongRole,
    /// How it hands over the KV of prompts is not known, or not as the pool's others do.
    NoTransfer,
    /// This request already failed there.
    Tried,
    /// The request goes on from what another engine has stored.
    NotOwner,
}

impl Exclusion {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Unreachable,
        Self::ModelNotServed,
        Self::ContextTooLong,
        Self::Asleep,
        Self::BreakerOpen,
        Self::HalfOpen,
        Self::BackPressure,
        Self::Unhealthy,
        Self::Silent,
        Self::AtLimitRequests,
        Self::AtLimitTokens,
        Self::KvSaturated,
        Self::Draining,
        Self::Disabled,
        Self::AdvisedDraining,
        Self::AdvisedDisabled,
        Self::WrongRole,
        Self::NoTransfer,
        Self::Tried,
        Self::NotOwner,
    ];

    /// The word used in metrics, logs and decision records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::ModelNotServed => "model_not_served",
            Self::ContextTooLong => "context_too_long",
            Self::Asleep => "asleep",
            Self::BreakerOpen => "breaker_open",
            Self::HalfOpen => "half_open",
            Self::BackPressure => "back_pressure",
            Self::Unhealthy => "unhealthy",
            Self::Silent => "silent",
            Self::AtLimitRequests => "at_limit_requests",
            Self::AtLimitTokens => "at_limit_tokens",
            Self::KvSaturated => "kv_saturated",
            Self::Draining => "draining",
            Self::Disabled => "disabled",
            Self::AdvisedDraining => "advised_draining",
            Self::AdvisedDisabled => "advised_disabled",
            Self::WrongRole => "wrong_role",
            Self::NoTransfer => "no_transfer",
            Self::Tried => "tried",
            Self::NotOwner => "not_owner",
        }
    }

    /// Whether conversations that are pinned to an endpoint go on there although it is excluded for this.
    #[must_use]
    pub fn is_draining(self) -> bool {
        matches!(self, Self::Draining | Self::AdvisedDraining)
    }

    /// Where an endpoint excluded for this comes in when there is no other: the lower the sooner,
    /// `None` for never, as for one that is at a limit. One that is known to be unreachable is worth
    /// a try only while no engine got the request, as it may just have come back; so is a busy one,
    /// which may serve this client though it had another one wait.
    #[must_use]
    pub fn resort(self, first_attempt: bool) -> Option<u8> {
        match self {
            // Advice never leaves a request without an endpoint.
            Self::AdvisedDraining | Self::AdvisedDisabled => Some(1),
            Self::HalfOpen => Some(2),
            Self::BackPressure if first_attempt => Some(3),
            Self::BreakerOpen | Self::Unhealthy | Self::Silent => Some(4),
            Self::Unreachable if first_attempt => Some(5),
            // The engine says best itself what is wrong with such a request.
            Self::ContextTooLong => Some(6),
            _ => None,
        }
    }
}
