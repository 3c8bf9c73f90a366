//! A gateway in the simulation: it knows of the engines what a real one knows, late and at times
//! not at all, by the real one's code for events, residency, trust and estimates.

mod claim;
mod follow;
mod member;

use std::sync::Arc;
use std::time::Duration;

use kvasir_balance::{
    Candidate, DEFAULT_PROMPT_TOKENS, EndpointId, Exclusion, Members, PairPlan, Pairing,
    PrefillRate, Prefix, Query, RecentWork, even_out, median_rate, next_typical_prompt,
};
use kvasir_fleet::pending::{Chain, PendingPrefixes, PromptKeys};
use kvasir_fleet::{BlockIdentity, EngineCard, Picture};
use kvasir_inventory::{Inventory, Limits};

pub(crate) use self::claim::Reservation;
use self::claim::{Part, Wanted};
pub(crate) use self::follow::{Clock, Following, Wants};
use self::member::{Common, Member};
pub(crate) use self::member::{Extra, Seat, Signals};
use crate::decisions::Sink;
use crate::options::Split;
use crate::policies::{Player, SimPolicy, eligible};
use crate::prepared::Prepared;
use crate::queue::Time;

/// A gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    inventory: Arc<Inventory>,
    pending: Arc<PendingPrefixes>,
    /// The time that pending prefixes are told.
    clock: Clock,
    pub(crate) members: Vec<Member>,
    player: Player,
    /// How requests are split, where any engine has a role, and how fast prompts are taken to travel.
    pairing: Option<Pairing>,
    transfer: (Duration, f64),
    typical_prompt: u64,
}

/// The engines chosen for a request, and the claims on them.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// On the one that answers.
    pub(crate) answers: Reservation,
    /// On the one that computes the prompt, where that is another.
    pub(crate) prefill: Option<Reservation>,
    pub(crate) plan: Option<PairPlan>,
    /// Tokens that the engine that computes is expected to find.
    pub(crate) predicted: u32,
    /// Whether another engine was known to hold more, or to be computing it.
    pub(crate) spilled: bool,
}

impl Gateway {
    /// A gateway before these engines; `None` if there is no room.
    pub(crate) fn new(
        policy: &SimPolicy,
        prepared: &Prepared<'_>,
        engines: &[Seat],
        split: Split,
        events: Option<bool>,
        seed: u64,
    ) -> Option<Self> {
        let inventory = Arc::new(Inventory::new(prepared.space.clone(), Limits::default()));
        let pending = Arc::new(PendingPrefixes::default());
        let member = |(place, seat): (usize, &Seat)| {
            let picture =
                Picture::new(Arc::clone(&inventory), BlockIdentity::Tokens)?.completed_by_refills();
            let following = Following::new(picture, pending.slot(), events, seed ^ place as u64);
            let id = EndpointId::of(&name_of(place));
            Some(Member::new(id, following, prepared.block_size, seat))
        };
        let members = engines.iter().enumerate().map(member).collect::<Option<Vec<_>>>()?;
        let player = policy.build(seed);
        let transfer = split.expected();
        let splits = split.prefill > 0 || split.decode > 0;
        let pairing =
            splits.then(|| Pairing { transfer_s: transfer.0.as_secs_f64(), ..Pairing::default() });
        let (clock, typical_prompt) = (Clock::new(), DEFAULT_PROMPT_TOKENS);
        Some(Self { inventory, pending, clock, members, player, pairing, transfer, typical_prompt })
    }

    /// What an engine's stream wants to be told, and the card it is read by.
    pub(crate) fn follow(&mut self, replica: u16) -> Option<(&mut Following, &EngineCard)> {
        let member = self.members.get_mut(usize::from(replica))?;
        Some((&mut member.following, &member.card))
    }

    /// Chooses who serves a request and reserves its load there. `tried` are engines where it failed
    /// before; it is a `first_attempt` as long as no engine got the request.
    pub(crate) fn choose(
        &mut self,
        prepared: &Prepared<'_>,
        request: usize,
        (tried, first_attempt): (&[u16], bool),
        now: Time,
    ) -> Option<Chosen> {
        let prompt_tokens = prepared.prompt_tokens[request];
        if tried.is_empty() {
            self.typical_prompt = next_typical_prompt(self.typical_prompt, prompt_tokens);
        }
        let keys = Arc::new(prepared.keys(request));
        let candidates = self.candidates(&keys, now);
        let extras: Vec<Extra> = self.members.iter().map(Member::extra).collect();
        let query = query_of(prompt_tokens, &keys);
        let exclusions = self.exclusions(tried);
        let members = Members { candidates: &candidates, exclusions: &exclusions, first_attempt };
        let pairing = self.pairing.as_ref();
        let picked = self.player.choose(&query, &members, pairing, &extras, whole_micros(now))?;
        let answers = candidates.get(picked.index)?;
        let computes = candidates.get(picked.prefill.unwrap_or(picked.index))?;
        let held = |c: &Candidate| c.overlap.resident().saturating_add(c.pending);
        let others = eligible(&members).into_iter().filter_map(|place| candidates.get(place));
        let most = others.map(held).max().unwrap_or(0);
        let decision = self.player.decisions();
        let wanted = |part| Wanted { keys: &keys, prompt_tokens, decision, part };
        let part = match picked.prefill {
            Some(_) => Part::Decode { fixed: self.transfer.0 },
            None => Part::Whole,
        };
        let reservation = self.claim(picked.index, answers, wanted(part), now)?;
        let prefill = match picked.prefill {
            Some(place) => Some(self.claim(place, computes, wanted(Part::Prefill), now)?),
            None => None,
        };
        Some(Chosen {
            answers: reservation,
            prefill,
            plan: picked.plan,
            predicted: computes.overlap.resident(),
            spilled: most > held(answers).max(held(computes)),
        })
    }

    /// What is known of every engine.
    fn candidates(&self, keys: &PromptKeys, now: Time) -> Vec<Candidate> {
        let usable = keys.prompts.first().map(Chain::usable).unwrap_or_default();
        let overlaps = self.inventory.overlaps(usable, keys.block_size);
        let pending = self.pending.find(&[Some(keys)], self.clock.instant(now));
        let pending = pending.into_iter().next().unwrap_or_default();
        let common = Common {
            typical_prompt: self.typical_prompt,
            median_rate: median_rate(self.members.iter().filter_map(Member::timed)),
            transfer_rate: self.transfer.1,
            blocks: self.player.gathers_blocks(),
        };
        let mut candidates: Vec<Candidate> = self
            .members
            .iter()
            .map(|member| {
                let overlap = member.following.picture.credited(&overlaps);
                let resident = overlap.resident();
                let pending = member.following.pending(&pending, keys.block_size, resident);
                Candidate { pending, ..member.candidate(overlap, common, now) }
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
                member.transfers = PrefillRate::default();
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

/// Tokens at the beginning of a prompt that hashing policies go by.
const HEAD_TOKENS: u32 = 256;
