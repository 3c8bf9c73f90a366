//! What every policy is.

use std::fmt;
use std::time::Duration;

use crate::choice::Choice;
use crate::miss::Miss;
use crate::pair::{Paired, Pairing, Sides};
use crate::query::{Needs, Query};
use crate::rng::Rng;
use crate::view::{EndpointId, FleetView};

/// The clock and the chance of one decision, passed in: policies have none of their own.
#[derive(Debug)]
pub struct Moment<'a> {
    /// Since whenever the caller began to count; never goes back.
    pub now: Duration,
    /// Breaks ties.
    pub rng: &'a mut Rng,
}

/// What became of a request that was sent to an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The request, as it was when the endpoint was chosen.
    pub query: &'a Query<'a>,
    /// Where it went.
    pub endpoint: EndpointId,
    /// Whether the endpoint answered it. Requests that failed there, or whose client left before
    /// the first token, teach nothing.
    pub answered: bool,
    /// When that was known, on the clock of [`Moment::now`].
    pub now: Duration,
}

/// A routing policy with what it remembers between the decisions of one pool.
///
/// The same sequence of calls gives the same choices.
pub trait Policy: fmt::Debug + Send {
    /// Its name in configuration, headers and metrics.
    fn name(&self) -> &'static str;

    /// What it reads of a request.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Picks a candidate; `None` when there is none, or when this policy has no say in the request
    /// (hashing by session without a session): then the pool's fallback decides.
    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice>;

    /// Picks the endpoints of a request that may be split, by the costs of all plans; `None` where
    /// there is none, and of policies that have no such costs: they [`choose`](Self::choose) who
    /// computes the prompt.
    fn pair(
        &mut self,
        query: &Query<'_>,
        sides: &Sides<'_>,
        pairing: &Pairing,
        moment: &mut Moment<'_>,
    ) -> Option<Paired> {
        let _ = (query, sides, pairing, moment);
        None
    }

    /// Why it had no say the last time it was asked, where it can tell.
    fn miss(&self) -> Option<Miss> {
        None
    }

    /// After a [`Miss::NoHolder`]: no endpoint that was left out holds any of the prompt either.
    /// What to call the miss then.
    fn nobody_holds(&mut self) -> Miss {
        Miss::NoHolder
    }

    /// The policy as it is now, for one choice about `query` that is not to be made but foreseen: it
    /// remembers all that such a choice depends on, and nothing of it gets back.
    fn fork(&self, query: &Query<'_>) -> Box<dyn Policy>;

    /// Takes note of what became of a request.
    fn observe(&mut self, outcome: &Outcome<'_>) {
        let _ = outcome;
    }

    /// An endpoint has lost its cache, or is gone.
    fn forget(&mut self, endpoint: EndpointId) {
        let _ = endpoint;
    }
}
