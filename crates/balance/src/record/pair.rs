//! What a record of a pool that splits requests has beyond others: who handed over nothing to whom, and
//! what the plans cost.

use serde::{Deserialize, Serialize};

use super::{DecisionRecord, EndpointRecord};
use crate::pair::{Cut, Legs, PairTerms, Role, Sides, load_score};
use crate::view::Candidate;

/// Who handed over nothing to whom, by name: a prefill endpoint to nobody, nobody to a decode endpoint,
/// or one to the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CutRecord {
    /// The prefill endpoint; any where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<String>,
    /// The decode endpoint; any where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<String>,
}

impl DecisionRecord {
    /// The same where these hand over nothing.
    #[must_use]
    pub fn cut_by(mut self, cut: &[Cut]) -> Self {
        let name = |place: usize| self.endpoints.get(place).map(|endpoint| endpoint.name.clone());
        let one = |cut: &Cut| {
            let (prefill, decode) = cut.ends();
            CutRecord { prefill: prefill.and_then(name), decode: decode.and_then(name) }
        };
        self.cut = cut.iter().map(one).collect();
        self
    }

    /// By their places. Names that no endpoint has say nothing.
    pub(super) fn cuts(&self) -> Vec<Cut> {
        let place = |name: &String| self.endpoints.iter().position(|e| e.name == *name);
        let one = |cut: &CutRecord| match (&cut.prefill, &cut.decode) {
            (Some(prefill), Some(decode)) => {
                Some(Cut::Link { prefill: place(prefill)?, decode: place(decode)? })
            }
            (Some(prefill), None) => Some(Cut::Prefill(place(prefill)?)),
            (None, Some(decode)) => Some(Cut::Decode(place(decode)?)),
            (None, None) => None,
        };
        self.cut.iter().filter_map(one).collect()
    }

    /// What decode endpoints were compared by, where pairs were not compared by cost: places and loads, the
    /// lower the better.
    #[must_use]
    pub fn decode_loads(&self) -> Vec<(usize, f64)> {
        let is_split = self.choice.as_ref().is_some_and(|choice| choice.plan == "split");
        let Some(pairing) = self.pairing.as_ref().filter(|_| is_split) else { return Vec::new() };
        let all = self.endpoints.iter().enumerate();
        all.filter(|(_, endpoint)| endpoint.role == Role::Decode && endpoint.exclusion.is_none())
            .map(|(place, endpoint)| (place, load_score(&endpoint.candidate(), pairing.select)))
            .collect()
    }

    /// What the plans cost that were compared, made again from the record; `None` where pairs were not
    /// compared by cost. Places are those of [`endpoints`](Self::endpoints).
    #[must_use]
    pub fn pair_terms(&self) -> Option<PairTerms> {
        let (pairing, choice) = (self.pairing.as_ref()?, self.choice.as_ref()?);
        let candidates: Vec<Candidate> =
            self.endpoints.iter().map(EndpointRecord::candidate).collect();
        // What was compared has a score.
        let of = |role: Role| -> Vec<usize> {
            let all = self.endpoints.iter().enumerate();
            all.filter(|(_, e)| e.role == role && e.score.is_some()).map(|(at, _)| at).collect()
        };
        let splits = pairing.legs == Legs::Any;
        let prefill = if splits { of(Role::Prefill) } else { Vec::new() };
        let (decode, unified, cut) = (of(Role::Decode), of(Role::Unified), self.cuts());
        if decode.is_empty() && unified.is_empty() {
            return None;
        }
        let sides = Sides {
            candidates: &candidates,
            prefill: &prefill,
            decode: &decode,
            unified: &unified,
            cut: &cut,
        };
        let keys = self.query.keys();
        PairTerms::of(&choice.policy, &self.query.query(&keys), &sides, pairing)
    }
}
