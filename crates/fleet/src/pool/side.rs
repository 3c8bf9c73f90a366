//! One endpoint of a choice, and the claims on it.

use std::sync::Arc;
use std::time::Duration;

use kvasir_balance::Candidate;
use kvasir_inventory::Trust;

use super::candidates::prefill_takes;
use super::choice::PrefillSide;
use crate::endpoint::Endpoint;
use crate::evidence::Evidence;
use crate::health::Standing;
use crate::load::{Alone, Reservation, Work};
use crate::parity::{Prediction, Unjudged};
use crate::transfer::Fetch;

/// An endpoint that was chosen, with what was known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side<'a> {
    /// Its place in the pool.
    pub(super) place: usize,
    pub(super) member: &'a Arc<Endpoint>,
    pub(super) candidate: &'a Candidate,
    pub(super) evidence: &'a Evidence,
    prediction: Result<Prediction, Unjudged>,
}

impl<'a> Side<'a> {
    pub(super) fn of(
        place: usize,
        evidence: &'a Evidence,
        candidates: &'a [Candidate],
    ) -> Option<Self> {
        let (candidate, member) = (candidates.get(place)?, evidence.endpoints.get(place)?);
        let prediction = evidence.members.get(place)?.prediction;
        Some(Self { place, member, candidate, evidence, prediction })
    }

    /// How much the engine is expected to hit of the prompt it computes.
    pub(super) fn prediction(&self) -> Result<Prediction, Unjudged> {
        self.prediction
    }

    /// The claim of a request that is served there as a whole.
    pub(super) fn reserve(&self, standing: Standing) -> Reservation {
        self.reserve_for(self.whole_work(), standing)
    }

    /// The claim of a prefill leg: its answer comes with the first token.
    pub(super) fn reserve_prefill(&self, standing: Standing) -> Reservation {
        // The answer's reading of its context is the decode endpoint's work.
        self.reserve_for(Work { prompt: 0, ..self.work() }, standing)
    }

    /// The claim of a decode leg: it computes nothing of the prompt, and fetches what it lacks. It is
    /// not judged: what the engine counts as cached is no prediction of anybody.
    pub(super) fn reserve_decode(&self, standing: Standing, fixed: Duration) -> Reservation {
        let prompt = self.evidence.prompt_tokens;
        let work = Work { prompt, ..Work::default() };
        let reservation = Reservation::new(Arc::clone(self.member), work, None, None, standing);
        let rate = self.candidate.transfer_rate.max(1.0);
        let keys = self.evidence.keys(self.place).cloned();
        let alone = Alone { work: self.whole_work(), keys };
        reservation.fetching(Fetch::new(self.candidate.uncached(prompt), fixed, rate), alone)
    }

    /// Its part in a decision.
    pub(super) fn prefill(&self, cost: Option<f64>) -> PrefillSide {
        PrefillSide {
            endpoint: Arc::clone(self.member),
            overlap: self.candidate.overlap,
            pending: self.candidate.pending,
            trust: self.candidate.trust,
            cost,
            prediction: self.prediction,
        }
    }

    fn whole_work(&self) -> Work {
        let takes = || prefill_takes(self.candidate, self.evidence);
        Work { prefill_ends_after: self.evidence.answered_whole.then(takes), ..self.work() }
    }

    fn work(&self) -> Work {
        let Self { candidate, evidence, .. } = self;
        // How much of what is pending it will still wait for is not known.
        let told = evidence.is_one_exact() && candidate.pending == 0;
        let told = told.then_some(evidence.prompt_tokens);
        Work {
            computed: candidate.uncached(evidence.prompt_tokens),
            prompt: evidence.prompt_tokens,
            fetched: candidate.fetched(),
            measured: evidence.exact && candidate.trust == Trust::Exact && candidate.pending == 0,
            told,
            prefill_ends_after: None,
        }
    }

    fn reserve_for(&self, work: Work, standing: Standing) -> Reservation {
        let claim =
            self.evidence.keys(self.place).and_then(|keys| self.member.pending().begin(keys));
        let member = Arc::clone(self.member);
        Reservation::new(member, work, claim, self.prediction.ok(), standing)
    }
}
