//! An endpoint's predictions held against what its engine says: [`crate::parity`] with the moment,
//! the log and the metrics.

use std::time::Instant;

use kvasir_inventory::{SuspectReason, Trust};

use super::Endpoint;
use crate::parity::counters::Counters;
use crate::parity::hits::{Change, HitExample, HitParity, Now};
use crate::parity::report::Report;
use crate::parity::{Prediction, Stamp, Unjudged};
use crate::signals::Signals;

impl Endpoint {
    /// The cached tokens an answer reports: `number`, or 0 for an answer without a number from an
    /// engine that has reported one before, in its present life and in answers of the same API and
    /// form (vLLM 0.20 says null for none). `None` where the engine does not report.
    pub fn reported_cached_tokens(
        &self,
        api: &'static str,
        streamed: bool,
        number: Option<u64>,
    ) -> Option<u64> {
        let (reported, change) = self.parity.reported(self.now(), api, streamed, number);
        self.tell(change);
        reported
    }

    /// Holds what an answer reports against what was predicted when the endpoint was chosen for it.
    /// The endpoint's trust may change, now or a little later.
    pub fn judge(&self, prediction: Result<Prediction, Unjudged>, report: &Report<'_>) {
        let change = self.parity.judge(prediction, report, self.now());
        self.tell(change);
    }

    /// The last request of which the engine hit less than was predicted, since its blocks were
    /// last forgotten.
    #[must_use]
    pub fn hit_example(&self) -> Option<HitExample> {
        let stamp = self.creditable().stamp;
        self.parity.read(|state| state.example(stamp))
    }

    /// An example of answers that again and again report at least twice the cached tokens predicted;
    /// `None` where few do.
    #[must_use]
    pub fn under_example(&self) -> Option<HitExample> {
        let stamp = self.creditable().stamp;
        self.parity.read(|state| state.under_example(stamp))
    }

    /// No metrics page came: what it would say is unknown.
    pub(crate) fn unread(&self) {
        self.set_signals(Signals::default(), 0);
        self.counters_read(self.parity.moves(), None);
    }

    /// Blocks that were removed since a prediction was made.
    pub(crate) fn evicted_since(&self, prediction: &Prediction) -> u64 {
        self.creditable().removed.saturating_sub(prediction.removed)
    }

    pub(crate) fn parity(&self) -> &HitParity {
        &self.parity
    }

    /// A metrics page came with these counters, or none did; it was asked for when the parity's
    /// [`moves`](HitParity::moves) were so many.
    pub(crate) fn counters_read(&self, moves: u64, counters: Option<Counters>) {
        let change = self.parity.page(moves, counters, self.now());
        self.tell(change);
    }

    fn now(&self) -> Now {
        Now { at: Instant::now(), stamp: self.creditable().stamp }
    }

    /// A change is a log line and counted, as those of event streams are.
    fn tell(&self, change: Option<Change>) {
        let Some(Change { suspected, why, example }) = change else { return };
        let stream = self.streams_creditable().trust;
        let suspect = Trust::Suspect(SuspectReason::HitMismatch);
        let (before, now) = if suspected { (stream, suspect) } else { (suspect, stream) };
        let (endpoint, rank) = (self.url(), self.rank);
        if let Some(HitExample { request_id, prompt_tokens, predicted, reported, .. }) = example {
            tracing::warn!(endpoint, rank, %before, %now, why, request_id, prompt_tokens, predicted,
                reported, "engine hits less than its events promise; no credit");
        } else {
            tracing::info!(endpoint, rank, %before, %now, why, "trust changed");
        }
        self.engine.trust_changes().count(rank, before, now, why);
    }

    /// How many tokens at the end of what it holds it does not hit, by its hit profile.
    pub(crate) fn dropped_tokens(&self, stamp: Stamp, block: u32) -> u32 {
        self.parity.dropped_blocks(stamp).saturating_mul(block)
    }
}
