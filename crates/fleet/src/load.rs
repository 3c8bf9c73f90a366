//! Work in hand at an endpoint, and the guards that account for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::counters::Part;
pub(crate) use self::counters::{LoadCounters, LoadNow};
pub(crate) use self::speeds::{FirstTokens, Rates};
use crate::admission;
use crate::breaker::Verdict;
use crate::endpoint::Endpoint;
use crate::health::Standing;
use crate::kind::EngineKind;
use crate::lease::Lease;
use crate::parity::Prediction;
use crate::pending::{PendingClaim, PromptKeys};
use crate::selecting::Watch;
use crate::transfer::Fetch;

mod counters;
mod speeds;

/// What a request asks of an endpoint, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Prompt tokens.
    pub(crate) prompt: u64,
    /// Those to be computed.
    pub(crate) computed: u64,
    /// Prompt tokens to be fetched from slower tiers.
    pub(crate) fetched: u32,
    /// Whether both are known and not estimated: only then does an answer time them.
    pub(crate) measured: bool,
    /// The tokens of its one prompt, where they are known and it waits for none that is being computed: then
    /// what its engine reports says how many were computed.
    pub(crate) told: Option<u64>,
    /// Of an answer that comes as a whole, after decoding: when its prefill is over, as predicted.
    /// `None` where the answer's first data shows it.
    pub(crate) prefill_ends_after: Option<Duration>,
}

/// One request's claim on an endpoint: it counts from the moment the endpoint was chosen until it
/// is dropped, whatever happens in between.
#[derive(Debug)]
pub struct Reservation {
    endpoint: Arc<Endpoint>,
    work: Work,
    /// Its answer has not begun.
    queued: bool,
    /// Its part in the endpoint's load. Only where it was alone does its first answer time its own
    /// prefill.
    part: Part,
    since: Instant,
    /// The prompt, as long as others can count on its being computed there.
    pending: Option<PendingClaim>,
    /// What the engine will count it as, where that is known.
    prediction: Option<Prediction>,
    /// What the pool's selection learns of it.
    watch: Option<Watch>,
    /// Blocks that the engine removed before it began to answer.
    evicted: u64,
    /// Whether its work counts no more as work given to the endpoint.
    taken_back: bool,
    /// Whether the parity's account of it is closed.
    settled: bool,
    /// Its part in the engine's health.
    standing: Standing,
    /// What a decode leg has to fetch, whose prompt is computed elsewhere.
    fetch: Option<Fetch>,
    /// What it has to do where it computes the prompt after all.
    alone: Option<Box<Alone>>,
    /// What computing its prompt took, as long as it is not known how much was computed.
    took: Option<Duration>,
}

/// What a decode endpoint has to do that computes a prompt after all.
#[derive(Debug)]
pub(crate) struct Alone {
    pub(crate) work: Work,
    /// What is pending there then.
    pub(crate) keys: Option<Arc<PromptKeys>>,
}

impl Reservation {
    pub(crate) fn new(
        endpoint: Arc<Endpoint>,
        work: Work,
        pending: Option<PendingClaim>,
        prediction: Option<Prediction>,
        standing: Standing,
    ) -> Self {
        endpoint.parity().sent();
        let since = Instant::now();
        let part = endpoint.load().add(work, since);
        Self {
            endpoint,
            work,
            queued: true,
            part,
            since,
            pending,
            prediction,
            watch: None,
            evicted: 0,
            taken_back: false,
            settled: false,
            standing,
            fetch: None,
            alone: None,
            took: None,
        }
    }

    /// It is a decode leg, and its endpoint fetches what it lacks of the prompt; or has that to do where
    /// it computes the prompt after all.
    pub(crate) fn fetching(mut self, fetch: Fetch, alone: Alone) -> Self {
        (self.fetch, self.alone) = (Some(fetch), Some(Box::new(alone)));
        self
    }

    /// The endpoint of a decode leg computes the prompt itself. From now on that counts as for any
    /// prompt sent there: in its queue, as work given to it, and as pending. Of other claims it changes
    /// nothing. To be said before the request is sent.
    pub fn computes_prompt(&mut self) {
        let Some(alone) = self.alone.take().filter(|_| self.queued) else { return };
        let Alone { work, keys } = *alone;
        let now = Instant::now();
        self.fetch = None;
        self.endpoint.load().grows(work, &mut self.part, now);
        self.pending = keys.and_then(|keys| self.endpoint.pending().begin(&keys));
        (self.work, self.since) = (work, now);
    }

    /// The decode leg goes on from what this prefill endpoint has computed: its engine could fetch it.
    pub fn has_fetched_from(&self, prefill: &Endpoint) {
        self.endpoint.engine().hand_overs().worked(prefill, &self.endpoint);
    }

    /// The decode leg failed as it does where its engine could not fetch what this prefill endpoint has
    /// computed. Whose fault that is shows by who fails with whom, and who is left out of
    /// hand-overs for a while.
    pub fn could_not_fetch_from(&self, prefill: &Endpoint) {
        self.endpoint.engine().hand_overs().failed(prefill, &self.endpoint);
    }

    /// The prefill leg was answered without anything to hand over.
    pub fn handed_nothing(&self) {
        self.endpoint.engine().hand_overs().nothing_handed(&self.endpoint);
    }

    /// Lets a selection learn what becomes of it.
    pub(crate) fn watched_by(mut self, watch: Option<Watch>) -> Self {
        self.watch = watch;
        self
    }

    /// The endpoint claimed.
    #[must_use]
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// The prefill leg is over, with its answer: what the endpoint has to do for it is done, and it
    /// keeps the prompt's blocks for so long for the decode leg to fetch. `since` is when the leg was
    /// sent: when the engine's own time began is not known, but not before.
    #[must_use]
    pub fn lease(self, time: Duration, since: Instant) -> Lease {
        Lease::new(Arc::clone(&self.endpoint), time, since)
    }

    /// The decode leg is sent now, to an engine that has to fetch the prompt's KV: what it takes from
    /// here to the first data is the transfer's. Not to be said where both legs are sent at once. The first
    /// data of an answer that comes as a `whole` comes after decoding, which begins when the transfer is
    /// over, as predicted.
    pub fn decode_begins(&mut self, whole: bool) {
        let now = Instant::now();
        if let Some(fetch) = &mut self.fetch {
            fetch.begin(&self.endpoint, now);
            let takes = fetch.takes();
            if whole {
                self.prefill_ends(now.checked_add(takes));
            }
        }
    }

    /// The prompt is there, computed or fetched: the endpoint generates from now on. To be said of answers
    /// that come as a whole, whose first data does not show it.
    pub fn generates(&mut self) {
        self.prefill_ends(Some(Instant::now()));
    }

    fn prefill_ends(&mut self, at: Option<Instant>) {
        if let Some(at) = at.filter(|_| self.queued) {
            self.endpoint.load().prefill_ends(self.work, &mut self.part, at);
        }
    }

    /// The engine began to answer: the prompt is computed. `streamed` says that the answer began
    /// with the first token, so that the time taken is that of the prefill.
    pub fn first_data(&mut self, streamed: bool) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.since);
        if let Some(pending) = &mut self.pending {
            pending.computed(now);
        }
        if let Some(prediction) = self.prediction.filter(|_| self.queued) {
            self.evicted = self.endpoint.evicted_since(&prediction);
        }
        let was_queued = self.release_prefill();
        if was_queued {
            admission::ring(&self.endpoint);
        }
        if was_queued && streamed && self.part.alone && self.fetch.is_none() {
            if self.work.measured {
                self.endpoint.rates().observe(self.work, took, self.endpoint.load().age(now));
            } else if self.work.told.is_some() {
                self.took = Some(took);
            }
        }
        // Of a decode leg the time before it was sent is the prefill endpoint's.
        let alone = self.part.alone;
        let took = match &mut self.fetch {
            Some(fetch) => fetch.end(now, streamed && alone),
            None => Some(took),
        };
        if let Some(took) = took.filter(|_| streamed) {
            self.endpoint.first_tokens().observe(took, now);
        }
        if let Some(watch) = &mut self.watch {
            watch.tell(true);
        }
        // SGLang counts a request when it is finished, vLLM when it is scheduled first.
        if self.endpoint.card().is_none_or(|card| card.kind != EngineKind::Sglang) {
            self.settle();
        }
    }

    /// The engine reports how many tokens the prompt had, and how many of them were cached. Where what it
    /// holds is not known otherwise, that tells what it computed in the time to the first data.
    pub fn reported(&self, prompt_tokens: u64, cached_tokens: u64) {
        let Some(took) = self.took.filter(|_| self.work.told == Some(prompt_tokens)) else {
            return;
        };
        let work = Work {
            computed: prompt_tokens.saturating_sub(cached_tokens),
            prompt: prompt_tokens,
            ..Work::default()
        };
        let age = self.endpoint.load().age(Instant::now());
        self.endpoint.rates().observe(work, took, age);
    }

    /// The engine answers without having computed the prompt: nobody can count on it. To be said
    /// before [`first_data`](Self::first_data).
    pub fn not_computed(&mut self) {
        self.pending = None;
        self.watch = None;
        self.take_back();
    }

    /// The engine answered: with the first data of an answer that is no fault of its own. A
    /// breaker that is half-open closes by this, and a streak of faults ends.
    pub fn answered(&mut self) {
        self.standing.settle(Verdict::Answered, "");
    }

    /// The engine is at fault: no connection, broken off before the first data, an error of its own.
    pub fn faulted(&mut self, why: &str) {
        self.standing.settle(Verdict::Fault, why);
    }

    /// The engine refused the request or did not finish it: how it counts it is not known.
    pub fn uncounted(&mut self) {
        self.prediction = None;
    }

    /// Blocks that the engine removed between the choice and the first data.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn settle(&mut self) {
        if !std::mem::replace(&mut self.settled, true) {
            self.endpoint.parity().settled(self.prediction.filter(|_| !self.queued), self.evicted);
        }
    }

    /// It is not computed after all.
    fn take_back(&mut self) {
        if self.queued && !std::mem::replace(&mut self.taken_back, true) {
            self.endpoint.load().take_back(self.work, self.since);
        }
    }

    fn release_prefill(&mut self) -> bool {
        let was_queued = std::mem::take(&mut self.queued);
        if was_queued {
            self.endpoint.load().answered(self.work, &self.part);
        }
        was_queued
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // What never began to answer is not known to be counted.
        self.settle();
        self.take_back();
        self.release_prefill();
        self.endpoint.load().finished();
        admission::ring(&self.endpoint);
    }
}
