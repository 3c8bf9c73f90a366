//! What a record of a pool that splits requests has beyond others: who handed over nothing to whom, and
//! what the plans cost.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{ChoiceRecord, DecisionRecord, EndpointRecord};
use crate::pair::{
    Cut, DecodeTerms, Legs, PairPlan, PairTerms, PlanCost, PrefillTerms, Role, Sides, load_score,
};
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

/// What a pair was chosen by, with its endpoints by name: for whoever reads one decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairRecord {
    /// The best plan of each kind, the cheapest first; empty where pairs were not compared by cost.
    pub plans: Vec<Named<PlanCost>>,
    /// Those who may compute the prompt for another.
    pub prefill: Vec<Named<PrefillTerms>>,
    /// Those who may answer.
    pub decode: Vec<Named<DecodeTerms>>,
    /// Endpoints of either side beyond those told of.
    pub untold: usize,
    /// What those who may answer were compared by, where that was their load.
    pub decode_loads: Vec<Named<DecodeLoad>>,
    /// Who hands over nothing to whom.
    pub cut: Vec<CutRecord>,
}

/// An endpoint, and what is to be said of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Named<T> {
    /// The endpoint; of a plan the one that answers.
    pub endpoint: String,
    /// Who computes the prompt, of a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub computes: Option<String>,
    /// What is to be said.
    #[serde(flatten)]
    pub terms: T,
}

/// A load that decode endpoints are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DecodeLoad {
    /// The endpoint's place.
    pub place: usize,
    /// The lower the better.
    pub load: f64,
}

impl DecisionRecord {
    /// What the pair was chosen by; `None` where the pool does not split requests, or there was nothing to
    /// compare.
    #[must_use]
    pub fn pair(&self) -> Option<PairRecord> {
        let name = |place: usize| self.endpoints.get(place).map_or("", |e| e.name.as_str());
        self.pairing.as_ref()?;
        let terms = self.pair_terms().unwrap_or_default();
        let plan = |plan: PlanCost| Named {
            endpoint: name(plan.place).to_owned(),
            computes: Some(name(plan.prefill.unwrap_or(plan.place)).to_owned()),
            terms: plan,
        };
        let load = |(place, load)| Named::of(name(place), DecodeLoad { place, load });
        let pair = PairRecord {
            plans: terms.plans.into_iter().map(plan).collect(),
            prefill: terms.prefill.into_iter().map(|p| Named::of(name(p.place), p)).collect(),
            decode: terms.decode.into_iter().map(|d| Named::of(name(d.place), d)).collect(),
            untold: terms.untold,
            decode_loads: Vec::new(),
            cut: self.cut.clone(),
        };
        let by_cost = !pair.plans.is_empty();
        let loads = if by_cost { Vec::new() } else { self.decode_loads() };
        let pair = PairRecord { decode_loads: loads.into_iter().map(load).collect(), ..pair };
        let is_empty = !by_cost && pair.decode_loads.is_empty() && pair.cut.is_empty();
        (!is_empty).then_some(pair)
    }

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

    /// The same with its plan in today's words: of what is not split it was `no_prefill` once.
    pub(super) fn as_named_now(&self) -> Cow<'_, Self> {
        let (old, now) = (PairPlan::NoPrefill.as_str(), PairPlan::NotSplit.as_str());
        let is_whole = self.pairing.as_ref().is_some_and(|pairing| pairing.legs == Legs::Whole);
        match &self.choice {
            Some(choice) if is_whole && choice.plan == old => {
                let choice = ChoiceRecord { plan: now.to_owned(), ..choice.clone() };
                Cow::Owned(Self { choice: Some(choice), ..self.clone() })
            }
            _ => Cow::Borrowed(self),
        }
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

impl<T> Named<T> {
    fn of(name: &str, terms: T) -> Self {
        Self { endpoint: name.to_owned(), computes: None, terms }
    }
}
