//! What speaks against an endpoint, with what is to be said of it.

/// Why an endpoint is not among a request's candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The last connection to it failed.
    Unreachable(String),
    /// It says it does not serve this model or adapter.
    ModelNotServed,
    /// It sleeps: it holds no cache and answers nothing.
    Asleep,
    /// Its breaker is open: it failed several requests in a row, just now.
    BreakerOpen,
    /// Its breaker is half-open, and as many requests as may are trying it.
    HalfOpen,
    /// It said that it is busy and when to come again.
    BackPressure,
    /// Its health page says that it is not well, or does not come.
    Unhealthy,
    /// It accepts connections and answers nothing.
    Silent,
    /// The prompt is longer than its context.
    ContextTooLong,
    /// It takes no new conversations; those pinned to it go on.
    Draining,
    /// It was taken out of service.
    Disabled,
    /// The weight controller advises against new conversations there; those pinned to it go on.
    AdvisedDraining,
    /// The weight controller advises against it.
    AdvisedDisabled,
    /// This request already failed there.
    Tried,
    /// The request goes on from what another engine has stored.
    NotOwner,
    /// It only computes prompts for others, and the request is one that is not split.
    WrongRole,
    /// How it hands over the KV of prompts is not known, or not as the pool's others do.
    NoTransfer,
}

impl From<&Exclusion> for kvasir_balance::Exclusion {
    fn from(exclusion: &Exclusion) -> Self {
        match exclusion {
            Exclusion::Unreachable(_) => Self::Unreachable,
            Exclusion::ModelNotServed => Self::ModelNotServed,
            Exclusion::Asleep => Self::Asleep,
            Exclusion::BreakerOpen => Self::BreakerOpen,
            Exclusion::HalfOpen => Self::HalfOpen,
            Exclusion::BackPressure => Self::BackPressure,
            Exclusion::Unhealthy => Self::Unhealthy,
            Exclusion::Silent => Self::Silent,
            Exclusion::ContextTooLong => Self::ContextTooLong,
            Exclusion::Draining => Self::Draining,
            Exclusion::Disabled => Self::Disabled,
            Exclusion::AdvisedDraining => Self::AdvisedDraining,
            Exclusion::AdvisedDisabled => Self::AdvisedDisabled,
            Exclusion::Tried => Self::Tried,
            Exclusion::NotOwner => Self::NotOwner,
            Exclusion::WrongRole => Self::WrongRole,
            Exclusion::NoTransfer => Self::NoTransfer,
        }
    }
}

impl Exclusion {
    /// Whether requests may go there all the same, now or in a moment.
    pub(crate) fn takes_some(&self) -> bool {
        use Exclusion::{AdvisedDisabled, AdvisedDraining, BackPressure, HalfOpen};
        matches!(self, BackPressure | HalfOpen | AdvisedDraining | AdvisedDisabled)
    }

    /// The word used in metrics and logs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        kvasir_balance::Exclusion::from(self).as_str()
    }
}
