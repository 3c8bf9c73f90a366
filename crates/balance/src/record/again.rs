//! A selection driven by the lines of a log.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    ChoiceRecord, DecisionRecord, EndpointRecord, OutcomeRecord, QueryRecord, ReplayError,
    exclusion_of,
};
use crate::exclusion::Exclusion;
use crate::policy::{Moment, Outcome};
use crate::rng::Rng;
use crate::select::{Members, Selection};
use crate::view::{Candidate, EndpointId};

/// Outcomes are waited for this many decisions at most, the latest ones.
const MAX_OPEN: usize = 65_536;
/// And for decisions with so many keys in all.
const MAX_OPEN_KEYS: usize = 1 << 24;

/// A selection, and the decisions whose outcome has not come yet.
#[derive(Debug)]
pub(super) struct Again {
    selection: Selection,
    open: BTreeMap<u64, (QueryRecord, EndpointId)>,
    open_keys: usize,
}

impl Again {
    pub(super) fn new(selection: Selection) -> Self {
        Self { selection, open: BTreeMap::new(), open_keys: 0 }
    }

    /// What is chosen now. The outcome that comes is that of the logged choice.
    pub(super) fn decide(
        &mut self,
        record: &DecisionRecord,
    ) -> Result<Option<ChoiceRecord>, ReplayError> {
        let candidates: Vec<Candidate> =
            record.endpoints.iter().map(EndpointRecord::candidate).collect();
        let exclusions: Vec<Option<Exclusion>> =
            record.endpoints.iter().map(exclusion).collect::<Result<_, _>>()?;
        let keys = record.query.keys();
        let members = Members {
            candidates: &candidates,
            exclusions: &exclusions,
            first_attempt: record.first_attempt,
        };
        let mut rng = Rng::new(record.seed);
        let mut moment = Moment { now: Duration::from_micros(record.at_us), rng: &mut rng };
        let query = record.query.query(&keys);
        let decision = match &record.pairing {
            Some(pairing) => {
                let cut = record.cuts();
                self.selection.select_pair(&query, &members, pairing, &cut, &mut moment)
            }
            None => self.selection.select(&query, &members, &mut moment),
        };
        if let Some(choice) = &record.choice {
            self.wait_for(record, EndpointId::of(choice.computes()));
        }
        let name = |place: usize| record.endpoints.get(place).map_or("", |e| e.name.as_str());
        Ok(decision.map(|decision| ChoiceRecord::new(&decision, name)))
    }

    /// What became of a decision; `false` where that is not known (any more).
    pub(super) fn outcome(&mut self, outcome: &OutcomeRecord) -> bool {
        let Some((query, endpoint)) = self.open.remove(&outcome.of) else { return false };
        self.open_keys = self.open_keys.saturating_sub(query.keys.len());
        let keys = query.keys();
        let query = &query.query(&keys);
        let (answered, now) = (outcome.answered, Duration::from_micros(outcome.at_us));
        self.selection.observe(&Outcome { query, endpoint, answered, now });
        true
    }

    pub(super) fn forget(&mut self, endpoint: &str) {
        self.selection.forget(EndpointId::of(endpoint));
    }

    fn wait_for(&mut self, record: &DecisionRecord, endpoint: EndpointId) {
        self.open_keys += record.query.keys.len();
        self.open.insert(record.id, (record.query.clone(), endpoint));
        while self.open.len() > MAX_OPEN || self.open_keys > MAX_OPEN_KEYS {
            let Some((_, (query, _))) = self.open.pop_first() else { break };
            self.open_keys = self.open_keys.saturating_sub(query.keys.len());
        }
    }
}

fn exclusion(endpoint: &EndpointRecord) -> Result<Option<Exclusion>, ReplayError> {
    let known =
        |word: &String| exclusion_of(word).ok_or_else(|| ReplayError::Exclusion(word.clone()));
    endpoint.exclusion.as_ref().map(known).transpose()
}
