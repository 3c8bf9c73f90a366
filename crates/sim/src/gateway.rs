//! A gateway in the simulation: it knows of the engines what a real one knows, late and at times
//! not at all, by the real one's code for events, residency, trust and estimates.

mod follow;

use std::sync::Arc;
use std::time::Duration;

use kvasir_balance::{
    Candidate, DEFAULT_PROMPT_TOKENS, EndpointId, Exclusion, Load, Members, Outcome, PrefillRate,
    Prefix, Query, RecentWork, even_out, expected_rate, fetch_rate, foreign_waiting, median_rate,
    next_typical_prompt,
};
use kvasir_fleet::pending::{Chain, PendingClaim, PendingPrefixes, PromptKeys};
use kvasir_fleet::{BlockIdentity, EngineCard, Picture};
use kvasir_inventory::{Inventory, Limits, Trust};

use crate::decisions::Sink;
use crate::policies::{Player, SimPolicy, eligible};
use crate::prepared::Prepared;
use crate::queue::Time;

pub(crate) use self::follow::{Clock, Following, Wants};

/// An engine's own account of its load, as last read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Signals {
    pub(crate) running: Option<f64>,
    pub(crate) waiting: Option<f64>,
    pub(crate) kv_usage: Option<f64>,
    /// Requests of this gateway that were there when it was read.
    pub(crate) own_in_flight: u32,
}

/// One engine, as one gateway sees it.
#[derive(Debug)]
pub(crate) struct Member {
    id: EndpointId,
    pub(crate) following: Following,
    /// Its capacity weight, as configured.
    weight: u32,
    card: EngineCard,
    in_flight: u32,
    queued_prefill_tokens: u64,
    /// Prompt tokens of the requests in flight.
    prompt_tokens: u64,
    rate: PrefillRate,
    recent: RecentWork,
    signals: Signals,
    reachable: bool,
}

/// A gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    inventory: Arc<Inventory>,
    pending: Arc<PendingPrefixes>,
    /// The time that pending prefixes are told.
    clock: Clock,
    pub(crate) members: Vec<Member>,
    player: Player,
    typical_prompt: u64,
}

/// A request's claim on an engine.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) replica: u16,
    /// The decision's number.
    decision: u64,
    /// Tokens the engine is expected to find.
    pub(crate) predicted: u32,
    /// Whether another engine was known to hold more, or to be computing it.
    pub(crate) spilled: bool,
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
}

/// What peers' policies look at besides [`FleetView`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extra {
    /// Requests waiting at the engine, as last read.
    pub(crate) waiting: f64,
    /// Used part of its cache, as last read.
    pub(crate) kv_usage: f64,
    /// Prompt tokens of the gateway's own requests in flight there.
    pub(crate) prompt_tokens: u64,
}

impl Gateway {
    /// A gateway before engines of so many blocks and such capacity weights; `None` if there is no
    /// room.
    pub(crate) fn new(
        policy: &SimPolicy,
        prepared: &Prepared<'_>,
        engines: &[(u64, u32)],
        events: Option<bool>,
        seed: u64,
    ) -> Option<Self> {
        let inventory = Arc::new(Inventory::new(prepared.space.clone(), Limits::default()));
        let pending = Arc::new(PendingPrefixes::default());
        let member = |(place, (blocks, weight)): (usize, &(u64, u32))| {
            let picture =
                Picture::new(Arc::clone(&inventory), BlockIdentity::Tokens)?.completed_by_refills();
            Some(Member {
                id: EndpointId::of(&name_of(place)),
                following: Following::new(picture, pending.slot(), events, seed ^ place as u64),
                weight: *weight,
                card: EngineCard {
                    blocks: Some(*blocks),
                    block_size: Some(prepared.block_size),
                    ..EngineCard::default()
                },
                in_flight: 0,
                queued_prefill_tokens: 0,
                prompt_tokens: 0,
                rate: PrefillRate::default(),
                recent: RecentWork::default(),
                signals: Signals::default(),
                reachable: true,
            })
        };
        let members = engines.iter().enumerate().map(member).collect::<Option<Vec<_>>>()?;
        let player = policy.build(seed);
        let (clock, typical_prompt) = (Clock::new(), DEFAULT_PROMPT_TOKENS);
        Some(Self { inventory, pending, clock, members, player, typical_prompt })
    }

    /// What an engine's stream wants to be told, and the card it is read by.
    pub(crate) fn follow(&mut self, replica: u16) -> Option<(&mut Following, &EngineCard)> {
        let member = self.members.get_mut(usize::from(replica))?;
        Some((&mut member.following, &member.card))
    }

    /// Chooses an engine for a request and reserves its load there. `tried` are engines where it
    /// failed before.
    pub(crate) fn choose(
        &mut self,
        prepared: &Prepared<'_>,
        request: usize,
        tried: &[u16],
        now: Time,
    ) -> Option<Reservation> {
        let prompt_tokens = prepared.prompt_tokens[request];
        if tried.is_empty() {
            self.typical_prompt = next_typical_prompt(self.typical_prompt, prompt_tokens);
        }
        let keys = Arc::new(prepared.keys(request));
        let candidates = self.candidates(&keys, now);
        let extras: Vec<Extra> = self.members.iter().map(Member::extra).collect();
        let query = query_of(prompt_tokens, &keys);
        let (exclusions, first_attempt) = (self.exclusions(tried), tried.is_empty());
        let members = Members { candidates: &candidates, exclusions: &exclusions, first_attempt };
        let place = self.player.choose(&query, &members, &extras, whole_micros(now))?;
        let candidate = candidates.get(place)?;
        let resident = candidate.overlap.resident();
        let held = |c: &Candidate| c.overlap.resident().saturating_add(c.pending);
        let others = eligible(&members).into_iter().filter_map(|place| candidates.get(place));
        let most = others.map(held).max().unwrap_or(0);
        let member = &mut self.members[place];
        let mut reservation = Reservation {
            replica: u16::try_from(place).ok()?,
            decision: self.player.decisions(),
            predicted: resident,
            spilled: most > held(candidate),
            prefill_tokens: candidate.uncached(prompt_tokens),
            prompt_tokens,
            queued: true,
            alone: false,
            measured: candidate.trust == Trust::Exact && candidate.pending == 0,
            since: now,
            pending: member.following.claim(&keys),
            keys,
            told: false,
        };
        reservation.alone = member.queued_prefill_tokens == 0;
        member.in_flight += 1;
        member.queued_prefill_tokens += reservation.prefill_tokens;
        member.recent.add(reservation.prefill_tokens, prompt_tokens, Duration::from_nanos(now));
        member.prompt_tokens += prompt_tokens;
        Some(reservation)
    }

    /// What is known of every engine.
    fn candidates(&self, keys: &PromptKeys, now: Time) -> Vec<Candidate> {
        let usable = keys.prompts.first().map(Chain::usable).unwrap_or_default();
        let overlaps = self.inventory.overlaps(usable, keys.block_size);
        let pending = self.pending.find(&[Some(keys)], self.clock.instant(now));
        let pending = pending.into_iter().next().unwrap_or_default();
        let median = median_rate(self.members.iter().filter_map(Member::timed));
        let blocks = self.player.gathers_blocks();
        let mut candidates: Vec<Candidate> = self
            .members
            .iter()
            .map(|member| {
                let overlap = member.following.picture.credited(&overlaps);
                let resident = overlap.resident();
                let pending = member.following.pending(&pending, keys.block_size, resident);
                Candidate {
                    pending,
                    ..member.candidate(overlap, self.typical_prompt, median, blocks, now)
                }
            })
            .collect();
        let now = Duration::from_nanos(now);
        let recent: Vec<(f64, f64)> =
            self.members.iter().map(|m| (m.recent.get(now), m.recent.missing(now))).collect();
        even_out(&mut candidates, &recent);
        candidates
    }

    /// What speaks against each engine.
    fn exclusions(&self, tried: &[u16]) -> Vec<Option<Exclusion>> {
        let one = |(place, member): (usize, &Member)| {
            let is_tried = tried.iter().any(|known| usize::from(*known) == place);
            match (is_tried, member.reachable) {
                (true, _) => Some(Exclusion::Tried),
                (false, false) => Some(Exclusion::Unreachable),
                (false, true) => None,
            }
        };
        self.members.iter().enumerate().map(one).collect()
    }

    /// Logs its decisions from now on.
    pub(crate) fn log_to(&mut self, sink: &Sink) {
        self.player.log_to(sink, (0..self.members.len()).map(name_of).collect());
    }

    /// The first data of a streamed answer came.
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
    }

    /// A request's claim ends.
    pub(crate) fn release(&mut self, reservation: &mut Reservation, now: Time) {
        reservation.pending = None;
        self.tell(reservation, false, now);
        let Some(member) = self.members.get_mut(usize::from(reservation.replica)) else { return };
        member.release_prefill(reservation);
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

    pub(crate) fn in_flight(&self, replica: u16) -> u32 {
        self.members.get(usize::from(replica)).map_or(0, |member| member.in_flight)
    }

    /// An engine cannot be reached.
    pub(crate) fn unreachable(&mut self, replica: u16) {
        if let Some(member) = self.members.get_mut(usize::from(replica)) {
            member.reachable = false;
        }
    }

    /// An engine's metrics were read; `None` if it could not be reached, and may come back as
    /// another one.
    pub(crate) fn scraped(&mut self, replica: u16, signals: Option<Signals>, now: Time) {
        let Some(member) = self.members.get_mut(usize::from(replica)) else { return };
        member.reachable = signals.is_some();
        match signals {
            Some(signals) => {
                // What was sent while the answer was on its way may be in it.
                let own_in_flight = signals.own_in_flight.max(member.in_flight);
                member.signals = Signals { own_in_flight, ..signals };
            }
            None => {
                self.player.forget(usize::from(replica), member.id);
                member.following.gone();
                member.signals = Signals::default();
                member.rate = PrefillRate::default();
                member.recent = RecentWork::new(Duration::from_nanos(now));
            }
        }
    }
}

fn name_of(place: usize) -> String {
    format!("replica-{place}")
}

/// The time that policies are told, as decision logs have it.
fn whole_micros(now: Time) -> Duration {
    Duration::from_micros(now / 1_000)
}

/// The request as policies see it. A key of a prefix tells that prefix from others, as the digest of
/// its tokens does.
fn query_of(prompt_tokens: u64, keys: &PromptKeys) -> Query<'_> {
    let all = keys.prompts.first().map(|chain| chain.keys.as_slice()).unwrap_or_default();
    let head = usize::try_from(HEAD_TOKENS.div_ceil(keys.block_size.max(1))).unwrap_or(1);
    let prefix = Prefix {
        keys: all,
        tokens_per_key: keys.block_size,
        token_head: all.get(..head.min(all.len())).and_then(|head| Some(head.last()?.0)),
        ..Prefix::default()
    };
    Query { prompt_tokens, prefix, ..Query::default() }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn whole(count: f64) -> u32 {
    count.clamp(0.0, f64::from(u32::MAX)) as u32
}

/// Tokens at the beginning of a prompt that hashing policies go by.
const HEAD_TOKENS: u32 = 256;

impl Member {
    /// Its rate and capacity weight, if it was timed.
    fn timed(&self) -> Option<(f64, u32)> {
        Some((self.rate.get()?, self.weight))
    }

    fn candidate(
        &self,
        overlap: kvasir_inventory::Overlap,
        typical_prompt: u64,
        median_rate: f64,
        blocks: bool,
        now: Time,
    ) -> Candidate {
        let prefill_rate =
            self.rate.against(expected_rate(median_rate, self.weight), Duration::from_nanos(now));
        let Signals { running, waiting, own_in_flight, .. } = self.signals;
        let foreign = u64::from(foreign_waiting(running, waiting, own_in_flight));
        Candidate {
            id: self.id,
            overlap,
            trust: self.following.picture.trust(),
            load: Load {
                in_flight: self.in_flight,
                queued_prefill_tokens: self
                    .queued_prefill_tokens
                    .saturating_add(foreign.saturating_mul(typical_prompt)),
                recent_work: 0.0,
                waiting: waiting.map(whole),
                kv_usage: self.signals.kv_usage,
            },
            weight: self.weight,
            prefill_rate,
            fetch_rate: fetch_rate(&PrefillRate::default(), prefill_rate, Duration::ZERO),
            capacity_blocks: self.card.blocks.filter(|_| blocks),
            resident_blocks: blocks.then(|| self.resident_blocks()),
            ..Candidate::default()
        }
    }

    fn resident_blocks(&self) -> u64 {
        self.following.picture.blocks().iter().sum::<usize>() as u64
    }

    fn extra(&self) -> Extra {
        Extra {
            waiting: self.signals.waiting.unwrap_or(0.0),
            kv_usage: self.signals.kv_usage.unwrap_or(0.0),
            prompt_tokens: self.prompt_tokens,
        }
    }

    fn release_prefill(&mut self, reservation: &mut Reservation) -> bool {
        let was_queued = std::mem::take(&mut reservation.queued);
        if was_queued {
            self.queued_prefill_tokens =
                self.queued_prefill_tokens.saturating_sub(reservation.prefill_tokens);
        }
        was_queued
    }
}
