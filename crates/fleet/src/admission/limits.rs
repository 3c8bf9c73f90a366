//! What a pool and its endpoints take at once.

use std::sync::Arc;

use kvasir_balance::{Candidate, Exclusion, Legs, Role};

use super::NoRoom;
use crate::endpoint::Endpoint;

/// The most that may be in hand of what this gateway sent; `None` for any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Requests sent and not finished.
    pub requests: Option<u32>,
    /// Prompt tokens yet to be computed. What is more than that alone is taken where there are
    /// none.
    pub prefill_tokens: Option<u64>,
}

/// The limits of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndpointLimits {
    /// What it has in hand.
    pub most: Most,
    /// The used share of its KV cache, by its last metrics page, at which it gets no more requests.
    pub kv_usage: Option<f64>,
}

/// The limits of a pool. They hold exactly for what goes through it; work that other pools send to
/// the same endpoints is counted, but may come at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// All its endpoints together.
    pub pool: Most,
    /// Each of them.
    pub endpoint: EndpointLimits,
}

impl Most {
    fn reached(self, requests: u64, tokens: u64, more_tokens: u64) -> Option<Exclusion> {
        if self.requests.is_some_and(|most| requests >= u64::from(most)) {
            return Some(Exclusion::AtLimitRequests);
        }
        let most = self.prefill_tokens?;
        let over = tokens > 0 && tokens.saturating_add(more_tokens) > most;
        over.then_some(Exclusion::AtLimitTokens)
    }
}

impl Limits {
    /// Excludes what is at a limit, for a request of so many prompt tokens. To be called under the
    /// lock under which the request is committed. In a pool that splits requests, those whose prefill
    /// endpoints are all at a limit wait for one: decode endpoints do not compute in their place.
    ///
    /// # Errors
    /// [`NoRoom::Full`] where nobody is left but for the limits: those who fail are no better than
    /// waiting. [`NoRoom::FullForIt`] where there is room at another that this request alone cannot
    /// go to.
    pub(crate) fn exclude(
        &self,
        endpoints: &[Arc<Endpoint>],
        candidates: &[Candidate],
        prompt_tokens: u64,
        legs: Legs,
        exclusions: &mut [Option<Exclusion>],
    ) -> Result<(), NoRoom> {
        let only_computes = |place: usize| candidates.get(place).is_some_and(computes_alone);
        let (requests, tokens) = in_hand(endpoints, &only_computes);
        let (mut answering, mut computing) = (Room::default(), Room::default());
        let mut room_elsewhere = false;
        let members = endpoints.iter().zip(candidates).zip(exclusions);
        for ((endpoint, candidate), exclusion) in members {
            // Of a request that is split a decode endpoint computes nothing.
            let more = match candidate.role {
                Role::Decode if legs != Legs::Whole => 0,
                _ => candidate.uncached(prompt_tokens),
            };
            let is_asked = match legs {
                Legs::Any => true,
                Legs::Whole => !computes_alone(candidate),
                Legs::Decode => candidate.role == Role::Decode,
            };
            let reached = || {
                let reached = self.pool.reached(requests, tokens, more);
                reached.or_else(|| self.endpoint.reached(endpoint, more))
            };
            if let Some(why) = *exclusion {
                room_elsewhere |= is_asked && is_its_own(why) && reached().is_none();
                continue;
            }
            *exclusion = reached();
            if is_asked && candidate.role != Role::Prefill {
                answering.note(*exclusion);
            }
            if is_asked && (candidate.role != Role::Decode || legs != Legs::Any) {
                computing.note(*exclusion);
            }
        }
        match (answering.is_full() || computing.is_full(), room_elsewhere) {
            (false, _) => Ok(()),
            (true, false) => Err(NoRoom::Full),
            (true, true) => Err(NoRoom::FullForIt),
        }
    }

    /// Whether it is sure, without looking closer, that no endpoint has room for anything.
    pub(super) fn are_all_reached(&self, endpoints: &[Arc<Endpoint>]) -> bool {
        let is_prefill = |place: usize| {
            endpoints.get(place).is_some_and(|endpoint| endpoint.role() == Role::Prefill)
        };
        let (requests, tokens) = in_hand(endpoints, &is_prefill);
        // Of a request that finds all of its prompt cached there would be nothing to compute.
        let is_full = |endpoint: &Arc<Endpoint>| self.endpoint.reached(endpoint, 0).is_some();
        self.pool.reached(requests, tokens, 0).is_some()
            || (!endpoints.is_empty() && endpoints.iter().all(is_full))
    }
}

impl EndpointLimits {
    fn reached(&self, endpoint: &Endpoint, more_tokens: u64) -> Option<Exclusion> {
        let (former_requests, former_tokens) = endpoint.former().share();
        let requests = u64::from(endpoint.in_flight()) + former_requests;
        let tokens = endpoint.queued_prefill_tokens().saturating_add(former_tokens);
        let reached = self.most.reached(requests, tokens, more_tokens);
        reached.or_else(|| {
            let usage = self.kv_usage.and(endpoint.signals().kv_usage);
            let saturated = usage.zip(self.kv_usage).is_some_and(|(usage, most)| usage >= most);
            saturated.then_some(Exclusion::KvSaturated)
        })
    }
}

/// Whether an endpoint is excluded for what the request is: others may go there.
fn is_its_own(why: Exclusion) -> bool {
    use Exclusion::{ContextTooLong, ModelNotServed, NotOwner, Tried};
    matches!(why, ModelNotServed | ContextTooLong | Tried | NotOwner)
}

/// Whether it serves no request but together with another endpoint, which counts it.
fn computes_alone(candidate: &Candidate) -> bool {
    candidate.role == Role::Prefill
}

/// Whether those with one part in a request are all at a limit.
#[derive(Default)]
struct Room {
    limited: bool,
    left: bool,
}

impl Room {
    fn note(&mut self, exclusion: Option<Exclusion>) {
        self.limited |= exclusion.is_some();
        self.left |= exclusion.is_none();
    }

    fn is_full(&self) -> bool {
        self.limited && !self.left
    }
}

/// Requests and prompt tokens of all together, with what is left of endpoints their engines had.
/// The requests of those that only compute prompts are counted where they are answered.
fn in_hand(endpoints: &[Arc<Endpoint>], only_computes: &dyn Fn(usize) -> bool) -> (u64, u64) {
    let (mut requests, mut tokens) = (0_u64, 0_u64);
    for (place, endpoint) in endpoints.iter().enumerate() {
        if !only_computes(place) {
            requests += u64::from(endpoint.in_flight());
        }
        tokens = tokens.saturating_add(endpoint.queued_prefill_tokens());
        // Those of one engine stand side by side.
        let before = place.checked_sub(1).and_then(|before| endpoints.get(before));
        if before.is_none_or(|before| !before.same_engine(endpoint)) {
            let (former_requests, former_tokens) = endpoint.former().in_hand();
            requests += former_requests;
            tokens = tokens.saturating_add(former_tokens);
        }
    }
    (requests, tokens)
}
