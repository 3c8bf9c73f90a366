//! How much of a prompt each endpoint of a pool holds.

mod lookup;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_balance::{Blind, Needs};
use kvasir_inventory::{Inventory, Overlap, Tier, Trust};

pub(crate) use self::lookup::{BlockShape, held};
use self::lookup::{KeyedAs, Lookups};
use crate::asked::Asked;
use crate::card::EngineCard;
use crate::credit::Creditable;
use crate::endpoint::Endpoint;
use crate::parity::{Prediction, Unjudged, without_last};
use crate::pending::{PendingPrefixes, PromptKeys};
use crate::selecting::Traits;

/// A request's prompts, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub struct PromptTokens<'a> {
    /// The token ids of each prompt; `None` where they are not known.
    pub prompts: Option<&'a [Vec<u32>]>,
    /// How many tokens there are; an estimate unless `exact`.
    pub count: u64,
    /// Whether the ids are exactly the engine's. Where they are not, what an engine holds of them is
    /// still the best guess of what it holds of the prompt.
    pub exact: bool,
    /// The LoRA adapter asked for.
    pub adapter: Option<&'a str>,
    /// The request's cache salt.
    pub salt: Option<&'a str>,
}

/// What is known about one request at every member of a pool, in the pool's order.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// Prompt tokens, all prompts together.
    pub prompt_tokens: u64,
    /// Whether that is a count; else it is an estimate.
    pub(crate) exact: bool,
    /// The pool's members when it was gathered.
    pub(crate) endpoints: Arc<Vec<Arc<Endpoint>>>,
    /// One entry per member.
    pub(crate) members: Vec<MemberEvidence>,
    /// The prompts as members key them, each way once.
    keyed: Vec<Arc<PromptKeys>>,
    /// Keys for policies that guess, where members key it in no way.
    guessed: Option<Arc<PromptKeys>>,
    /// Tokens resident of each prompt of a batch, member by member; empty for a single prompt.
    of_batch: Vec<u32>,
    pub(crate) traits: Traits,
    /// Whether the answer begins only when all of it was generated.
    pub(crate) answered_whole: bool,
    /// Whether one endpoint has to serve all of it.
    pub(crate) not_split: bool,
    /// Whether an endpoint that computes no prompts can serve all of it.
    pub(crate) computes_nothing: bool,
    /// Whether the endpoints that were tried got nothing of it.
    pub(crate) sent_nowhere: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberEvidence {
    /// What it is credited with.
    pub(crate) overlap: Overlap,
    pub(crate) trust: Trust,
    /// What it is expected to hit, also where it is not credited for having hit less than expected.
    pub(crate) prediction: Result<Prediction, Unjudged>,
    /// Which of the keyed prompts will be pending there, if it is chosen.
    keyed: Option<usize>,
    /// How much of the end of what it holds it does not hit.
    dropped: u32,
}

/// What a member holds, and what it is expected to hit of that.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    held: u32,
    hit: Overlap,
    /// Tokens per block; 0 where that is not known.
    block: u32,
    /// Which of the keyed prompts will be pending there.
    keyed: Option<usize>,
    dropped: u32,
}

impl Evidence {
    /// `counts` how long it takes.
    pub(crate) fn gather(
        endpoints: Arc<Vec<Arc<Endpoint>>>,
        inventory: &Inventory,
        tokens: &PromptTokens<'_>,
        needs: Needs,
        counts: bool,
    ) -> Self {
        let members = &*endpoints;
        let cards: Vec<_> = members.iter().map(|member| member.card()).collect();
        // Read before and after the lookups: blocks that were doubtful at either moment, or at any
        // between, are not credited.
        let before: Vec<Creditable> = members.iter().map(|member| member.creditable()).collect();
        let mut lookups = Lookups::new(inventory, tokens, counts);
        let batch = tokens.prompts.map_or(0, <[_]>::len);
        let (found, mut of_batch) = look_up(members, &cards, &before, &mut lookups);
        let judged = tokens.exact && tokens.prompts.is_some_and(|prompts| prompts.len() == 1);
        let mut sound = Vec::with_capacity(members.len());
        for (place, ((member, then), found)) in members.iter().zip(&before).zip(found).enumerate() {
            let now = member.creditable();
            let credited = then.predicts && now.predicts && now.epoch == then.epoch && now.credits;
            if !credited && batch > 1 {
                of_batch[place * batch..][..batch].fill(0);
            }
            sound.push(MemberEvidence {
                overlap: if credited { found.hit } else { Overlap::default() },
                trust: now.trust,
                prediction: if judged {
                    found.prediction(tokens.count, then, &now)
                } else {
                    Err(Unjudged::Prompt)
                },
                keyed: found.keyed,
                dropped: found.dropped,
            });
        }
        let keyed = lookups.known.into_iter().map(|(_, lookup)| lookup.keys).collect();
        let (prompt_tokens, exact) = (tokens.count, tokens.exact);
        let traits = Traits::of(tokens, needs);
        Self {
            prompt_tokens,
            exact,
            endpoints,
            members: sound,
            keyed,
            guessed: None,
            of_batch,
            traits,
            answered_whole: false,
            not_split: false,
            computes_nothing: false,
            sent_nowhere: false,
        }
    }

    /// The same for a request of which engines may hit less than they hold (`prompt_logprobs`,
    /// pooling): what they report of it is not held against it.
    #[must_use]
    pub fn not_judged(mut self) -> Self {
        for member in &mut self.members {
            member.prediction = Err(Unjudged::Prompt);
        }
        self
    }

    /// Adds what else is known of the request, and `guess`es keys where a policy reads some and no
    /// member keys the prompt.
    pub(crate) fn asked(
        mut self,
        asked: &Asked<'_>,
        guess: impl FnOnce() -> Option<PromptKeys>,
    ) -> Self {
        self.traits.ask(asked);
        if self.traits.needs.keys && self.keyed.is_empty() {
            self.guessed = guess().map(Arc::new);
        }
        self
    }

    /// The same for a request whose answer begins only when all of it was generated (not streamed):
    /// its prefill is over when that was predicted, and not when the answer begins.
    #[must_use]
    pub fn answered_whole(mut self) -> Self {
        self.answered_whole = true;
        self
    }

    /// The same for a request that one endpoint has to serve as a whole, in pools that split requests:
    /// prefill endpoints are no candidates for it.
    #[must_use]
    pub fn not_split(mut self) -> Self {
        self.not_split = true;
        self
    }

    /// The same for a request that needs no prompt to be computed where it goes, since it names blocks
    /// to fetch, or generates nothing: decode endpoints that only fetch are candidates for it.
    #[must_use]
    pub fn computes_nothing(mut self) -> Self {
        self.computes_nothing = true;
        self
    }

    /// The same for a request that no engine got yet, though some were tried: they could not be
    /// connected to. As at a first attempt, those are candidates that are known to be unreachable,
    /// where there is no other.
    #[must_use]
    pub fn sent_nowhere(mut self) -> Self {
        self.sent_nowhere = true;
        self
    }

    /// The id the client gave the request, for pools that log ([`crate::Pool::logs_decisions`]).
    #[must_use]
    pub fn known_as(mut self, request_id: Option<&str>) -> Self {
        if let Some(id) = request_id {
            self.traits.known_as(id);
        }
        self
    }

    /// How long the request had waited for room when it was gathered, where it did: the decision
    /// log says so.
    #[must_use]
    pub fn after_waiting(mut self, waited: Option<Duration>) -> Self {
        self.traits.waited(waited);
        self
    }

    /// Whether it is one prompt whose tokens are counted.
    pub(crate) fn is_one_exact(&self) -> bool {
        self.exact && self.of_batch.is_empty()
    }

    /// What policies are told: the prompts in the finest blocks that a member keys them in, else keys
    /// to guess by.
    pub(crate) fn query_keys(&self) -> Option<&Arc<PromptKeys>> {
        self.keyed.iter().min_by_key(|keys| keys.block_size).or(self.guessed.as_ref())
    }

    /// Why no member's blocks can be known by the prompt's keys.
    pub(crate) fn blind(&self) -> Option<Blind> {
        self.keyed.is_empty().then(|| self.traits.blind.unwrap_or(Blind::Hashes))
    }

    /// What will be pending at a member that is chosen; `None` where nobody could use it.
    pub(crate) fn keys(&self, place: usize) -> Option<&Arc<PromptKeys>> {
        self.keyed.get(self.members.get(place)?.keyed?)
    }

    /// Tokens that are pending now at each member, beyond what is resident there; all prompts of a
    /// batch together.
    pub(crate) fn pending(&self, all: &PendingPrefixes, now: Instant) -> Vec<u32> {
        let mut used: Vec<Option<&PromptKeys>> = vec![None; self.keyed.len()];
        for keyed in self.members.iter().filter_map(|member| member.keyed) {
            used[keyed] = Some(&self.keyed[keyed]);
        }
        let found = all.find(&used, now);
        let beyond = |(place, (endpoint, member)): (usize, (&Arc<Endpoint>, &MemberEvidence))| {
            let Some(keyed) = member.keyed else { return 0 };
            let size = self.keyed[keyed].block_size;
            let mut pending = 0_u32;
            for (prompt, found) in found[keyed].iter().enumerate() {
                let keys = u32::try_from(found.keys(endpoint.pending())).unwrap_or(u32::MAX);
                let hit = keys.saturating_mul(size).saturating_sub(member.dropped);
                pending = pending.saturating_add(hit.saturating_sub(self.resident(place, prompt)));
            }
            pending
        };
        self.endpoints.iter().zip(&self.members).enumerate().map(beyond).collect()
    }

    /// Tokens of one prompt resident at a member.
    fn resident(&self, place: usize, prompt: usize) -> u32 {
        if self.of_batch.is_empty() {
            return self.members[place].overlap.resident();
        }
        let batch = self.of_batch.len() / self.members.len().max(1);
        self.of_batch.get(place * batch + prompt).copied().unwrap_or(0)
    }
}

impl Found {
    /// What may be held against the engine's report: only what a sound stream told, before and
    /// after the lookup.
    fn prediction(
        self,
        prompt: u64,
        then: &Creditable,
        now: &Creditable,
    ) -> Result<Prediction, Unjudged> {
        let Self { held, hit, block, .. } = self;
        if !then.judged || !now.judged || then.stamp != now.stamp || block == 0 {
            return Err(Unjudged::Trust);
        }
        let tokens = hit.resident();
        let on_device = hit.in_tier(Tier::Device) == tokens;
        let (stamp, removed) = (now.stamp, then.removed);
        Ok(Prediction { tokens, held, block, prompt, on_device, stamp, removed })
    }
}

/// What each member holds, and of a batch what of each prompt is resident, member by member.
fn look_up<'a>(
    members: &[Arc<Endpoint>],
    cards: &'a [Option<Arc<EngineCard>>],
    before: &[Creditable],
    lookups: &mut Lookups<'a>,
) -> (Vec<Found>, Vec<u32>) {
    let tokens = lookups.tokens;
    let batch = tokens.prompts.map_or(0, <[_]>::len);
    let mut of_batch = Vec::new();
    let mut found = Vec::with_capacity(members.len());
    for ((member, card), then) in members.iter().zip(cards).zip(before) {
        let (blocks, keying) = (member.block_shape(), member.keying());
        let keyed = KeyedAs::of(blocks, keying, card.as_deref(), tokens.adapter);
        let shares = then.credits || !then.predicts;
        let shares = shares && member.shares_pending(card.as_deref(), then.credits);
        let keyed = keyed.filter(|_| then.predicts || shares);
        let Some((at, lookup)) = keyed.and_then(|keyed| lookups.get(keyed)) else {
            found.push(Found::default());
            of_batch.resize(of_batch.len() + if batch > 1 { batch } else { 0 }, 0);
            continue;
        };
        let block = lookup.keys.block_size;
        let dropped = member.dropped_tokens(then.stamp, block);
        let held = || lookup.overlaps.iter().map(|overlaps| member.held(overlaps));
        let hit = || held().map(|overlap| without_last(overlap, dropped));
        if batch > 1 {
            of_batch.extend(hit().map(|overlap| overlap.resident()));
        }
        let keyed = shares.then_some(at);
        found.push(match then.predicts {
            true => Found { held: sum(held()).resident(), hit: sum(hit()), block, keyed, dropped },
            false => Found { keyed, dropped, ..Found::default() },
        });
    }
    (found, of_batch)
}

fn sum(overlaps: impl Iterator<Item = Overlap>) -> Overlap {
    let mut total = Overlap::default();
    for overlap in overlaps {
        for tier in Tier::ALL {
            total.add(tier, overlap.in_tier(tier));
        }
    }
    total
}
