//! A choice foreseen: what would be chosen now and on what grounds, with nothing committed, learned,
//! pinned, tried or logged.

use std::sync::Arc;

use kvasir_balance::record::DecisionRecord;
use kvasir_balance::{Legs, Members};

use super::Pool;
use super::asking::Asking;
use crate::admission::NoRoom;
use crate::decision_log::Noted;
use crate::endpoint::Endpoint;
use crate::evidence::Evidence;
use crate::exclusion::Exclusion;

/// What would be decided.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The decision as it would be logged: every endpoint with what was known of it, the stages and
    /// the choice, if there is one. Its number is that of the decision that comes next.
    pub record: DecisionRecord,
    /// What speaks against each endpoint, in the record's order.
    pub exclusions: Vec<Option<Exclusion>>,
    /// Why nobody would be chosen, where that is so.
    pub no_room: Option<NoRoom>,
}

impl Pool {
    /// What [`choose`](Self::choose) would choose now for a first attempt, or
    /// [`choose_owner`](Self::choose_owner) where an `owner` is given.
    ///
    /// An engine whose breaker is half-open is a candidate while it has a place for a trial; none is
    /// taken. That an engine began anew is noted, as any look at it does.
    #[must_use]
    pub fn explain(&self, model: &str, evidence: &Evidence, owner: Option<&Endpoint>) -> Explained {
        let whole = evidence.not_split || owner.is_some();
        let legs = if whole { Legs::Whole } else { Legs::Any };
        let asking = Asking::new(self, model, evidence, &[], owner, legs);
        let reasons: Vec<_> =
            evidence.endpoints.iter().map(|member| asking.exclusion(member)).collect();
        let mut exclusions: Vec<_> =
            reasons.iter().map(|reason| reason.as_ref().map(Into::into)).collect();
        let keys = evidence.query_keys();
        let (tokens, blind) = (evidence.prompt_tokens, evidence.blind());
        let query = evidence.traits.query(tokens, keys.map(|keys| &**keys), blind);
        let selecting = &self.state.selecting;
        let clock = selecting.now();
        let mut state = selecting.lock();
        selecting.note_lives(&mut state, &evidence.endpoints);
        let pairing = asking.pairing;
        let (candidates, room) = self.weigh(evidence, pairing, &mut exclusions);
        let members =
            Members { candidates: &candidates, exclusions: &exclusions, first_attempt: true };
        let cut = self.cuts(&evidence.endpoints, pairing.as_ref());
        let pairing = pairing.as_ref().map(|pairing| (pairing, &cut[..]));
        let (made, chosen) = match room {
            Ok(()) => state.foresee(&query, &members, pairing, clock),
            Err(_) => (state.next(clock), None),
        };
        drop(state);
        let no_room = match room {
            Err(why) => Some(why),
            Ok(()) => chosen.is_none().then_some(NoRoom::Nobody),
        };
        let keys = keys.filter(|_| selecting.reads_keys()).map(Arc::clone);
        let noted = Noted::new(made, evidence, &query, keys, &members, pairing, chosen.as_ref());
        Explained { record: noted.record(), exclusions: reasons, no_room }
    }
}
