//! A request's claims on engines, as `kvasir_fleet::Reservation` has them.

use std::sync::Arc;
use std::time::Duration;

use kvasir_balance::{Candidate, Outcome};
use kvasir_fleet::pending::{PendingClaim, PromptKeys};
use kvasir_inventory::Trust;

use super::member::Member;
use super::{Gateway, query_of, whole_micros};
use crate::queue::Time;

/// A request's claim on an engine.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) replica: u16,
    /// The decision's number.
    decision: u64,
    prefill_tokens: u64,
    prompt_tokens: u64,
    queued: bool,
    alone: bool,
    measured: bool,
    since: Time,
    /// The prompt, as long as others can count on its being computed there.
    pending: Option<PendingClaim>,
    keys: Arc<PromptKeys>,
    /// Whether the policy knows how it went.
    told: bool,
    /// What a decode leg has to fetch.
    fetch: Option<Fetch>,
}

/// What one decode leg has to fetch.
#[derive(Debug)]
struct Fetch {
    tokens: u64,
    /// What it takes however little that is.
    fixed: Duration,
    /// When it was sent, and whether nothing else was being fetched.
    begun: Option<(Time, bool)>,
}

/// A part of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// Its prompt.
    Prefill,
    /// Its answer.
    Decode {
        /// What handing over the prompt takes however little it is.
        fixed: Duration,
    },
}

/// What is wanted of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) keys: &'a Arc<PromptKeys>,
    pub(super) prompt_tokens: u64,
    pub(super) decision: u64,
    pub(super) part: Part,
}

impl Gateway {
    /// Claims a part of a request at the engine of this place.
    pub(super) fn claim(
        &mut self,
        place: usize,
        candidate: &Candidate,
        wanted: Wanted<'_>,
        now: Time,
    ) -> Option<Reservation> {
        let Wanted { keys, prompt_tokens, decision, part } = wanted;
        let member = self.members.get_mut(place)?;
        let uncached = candidate.uncached(prompt_tokens);
        // Reading its context is the work of who answers.
        let (prefill_tokens, reads, fetch) = match part {
            Part::Whole => (uncached, prompt_tokens, None),
            Part::Prefill => (uncached, 0, None),
            Part::Decode { fixed } => {
                (0, prompt_tokens, Some(Fetch { tokens: uncached, fixed, begun: None }))
            }
        };
        let computes = fetch.is_none();
        let reservation = Reservation {
            replica: u16::try_from(place).ok()?,
            decision,
            prefill_tokens,
            prompt_tokens,
            queued: true,
            alone: member.queued_prefill_tokens == 0,
            measured: computes && candidate.trust == Trust::Exact && candidate.pending == 0,
            since: now,
            pending: if computes { member.following.claim(keys) } else { None },
            keys: Arc::clone(keys),
            // Policies learn where prompts are computed.
            told: !computes,
            fetch,
        };
        member.in_flight += 1;
        member.queued_prefill_tokens += prefill_tokens;
        member.recent.add(prefill_tokens, reads, Duration::from_nanos(now));
        member.prompt_tokens += prompt_tokens;
        Some(reservation)
    }

    /// The decode leg is sent.
    pub(crate) fn decode_begins(&mut self, reservation: &mut Reservation, now: Time) {
        let Some(member) = self.members.get_mut(usize::from(reservation.replica)) else { return };
        if let Some(fetch) = reservation.fetch.as_mut().filter(|fetch| fetch.begun.is_none()) {
            fetch.begun = Some((now, member.fetching == 0));
            member.fetching += 1;
        }
    }

    /// The first data of a streamed answer came, or the answer of a prefill leg.
    pub(crate) fn first_data(&mut self, reservation: &mut Reservation, now: Time) {
        if let Some(pending) = &mut reservation.pending {
            pending.computed(self.clock.instant(now));
        }
        self.tell(reservation, true, now);
        let Some(member) = self.members.get_mut(usize::from(reservation.replica)) else { return };
        if member.release_prefill(reservation) && reservation.alone && reservation.measured {
            let took = Duration::from_nanos(now.saturating_sub(reservation.since));
            let now = Duration::from_nanos(now);
            member.rate.observe(reservation.prefill_tokens, took.as_secs_f64(), now);
        }
        member.fetched(reservation, Some(now));
    }

    /// A request's claim ends.
    pub(crate) fn release(&mut self, reservation: &mut Reservation, now: Time) {
        reservation.pending = None;
        self.tell(reservation, false, now);
        let Some(member) = self.members.get_mut(usize::from(reservation.replica)) else { return };
        member.release_prefill(reservation);
        member.fetched(reservation, None);
        member.in_flight = member.in_flight.saturating_sub(1);
        member.prompt_tokens = member.prompt_tokens.saturating_sub(reservation.prompt_tokens);
    }

    /// The policy learns whether a request was answered, once.
    fn tell(&mut self, reservation: &mut Reservation, answered: bool, now: Time) {
        if std::mem::replace(&mut reservation.told, true) {
            return;
        }
        let Some(member) = self.members.get(usize::from(reservation.replica)) else { return };
        let (query, endpoint) =
            (&query_of(reservation.prompt_tokens, &reservation.keys), member.id);
        let now = whole_micros(now);
        let outcome = Outcome { query, endpoint, answered, now };
        self.player.observe(reservation.decision, &outcome);
    }
}

impl Member {
    fn release_prefill(&mut self, reservation: &mut Reservation) -> bool {
        let was_queued = std::mem::take(&mut reservation.queued);
        if was_queued {
            self.queued_prefill_tokens =
                self.queued_prefill_tokens.saturating_sub(reservation.prefill_tokens);
        }
        was_queued
    }

    /// A decode leg fetches no longer; with its first data, where there is a time. That times the
    /// transfer where nothing else was being fetched or computed.
    fn fetched(&mut self, reservation: &mut Reservation, now: Option<Time>) {
        let Some(fetch) = &mut reservation.fetch else { return };
        let Some((began, alone)) = fetch.begun.take() else { return };
        let others = self.fetching > 1;
        self.fetching = self.fetching.saturating_sub(1);
        if let Some(now) = now.filter(|_| alone && !others && reservation.alone) {
            let took = Duration::from_nanos(now.saturating_sub(began));
            let seconds = took.as_secs_f64() - fetch.fixed.as_secs_f64();
            self.transfers.observe(fetch.tokens, seconds, Duration::from_nanos(now));
        }
    }
}
