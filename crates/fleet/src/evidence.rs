//! How much of a prompt each endpoint of a pool holds.

use std::sync::Arc;

use kvasir_inventory::{Inventory, Overlap, Overlaps, Slot, Tier, Trust};
use kvasir_kv_hash::Scope;

use crate::card::EngineCard;
use crate::credit::Creditable;
use crate::endpoint::Endpoint;
use crate::parity::{Prediction, Unjudged, without_last};

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
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberEvidence {
    /// What it is credited with.
    pub(crate) overlap: Overlap,
    pub(crate) trust: Trust,
    /// What it is expected to hit, also where it is not credited for having hit less than expected.
    pub(crate) prediction: Result<Prediction, Unjudged>,
}

/// What a member holds, and what it is expected to hit of that.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    held: u32,
    hit: Overlap,
    /// Tokens per block; 0 where that is not known.
    block: u32,
}

/// How an engine cuts prompts into blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockShape {
    /// Tokens per block; `None` while that is not known.
    pub(crate) size: Option<u32>,
    /// How many of the tokens after a block are part of its identity.
    pub(crate) lookahead: u32,
}

/// Members that key one prompt alike share one lookup.
#[derive(PartialEq, Eq)]
struct KeyedAs<'a> {
    block_size: u32,
    lookahead: u32,
    base: &'a str,
    adapter_path: Option<&'a str>,
}

impl Evidence {
    pub(crate) fn gather(
        endpoints: Arc<Vec<Arc<Endpoint>>>,
        inventory: &Inventory,
        tokens: &PromptTokens<'_>,
    ) -> Self {
        let members = &*endpoints;
        let cards: Vec<_> = members.iter().map(|member| member.card()).collect();
        // Read before and after the lookups: blocks that were doubtful at either moment, or at any
        // between, are not credited.
        let before: Vec<Creditable> = members.iter().map(|member| member.creditable()).collect();
        let mut lookups: Vec<(KeyedAs<'_>, Vec<Overlaps>)> = Vec::new();
        let found = members.iter().zip(&cards).zip(&before).map(|((member, card), then)| {
            let keyed = KeyedAs::of(member.block_shape(), card.as_deref(), tokens.adapter);
            let (Some(prompts), Some(keyed), true) = (tokens.prompts, keyed, then.predicts) else {
                return Found::default();
            };
            let block = keyed.block_size;
            let known = lookups.iter().position(|(known, _)| *known == keyed);
            let at = known.unwrap_or_else(|| {
                let found = lookup(inventory, &keyed, prompts, tokens);
                lookups.push((keyed, found));
                lookups.len() - 1
            });
            let held = || lookups[at].1.iter().map(|overlaps| member.held(overlaps));
            let drop = member.dropped_tokens(then.stamp, block);
            let hit = sum(held().map(|overlap| without_last(overlap, drop)));
            Found { held: sum(held()).resident(), hit, block }
        });
        let found: Vec<Found> = found.collect();
        let judged = tokens.exact && tokens.prompts.is_some_and(|prompts| prompts.len() == 1);
        let members = members.iter().zip(&before).zip(found).map(|((member, then), found)| {
            let now = member.creditable();
            let sound = now.predicts && now.epoch == then.epoch;
            let credited = sound && now.credits;
            MemberEvidence {
                overlap: if credited { found.hit } else { Overlap::default() },
                trust: now.trust,
                prediction: if judged {
                    found.prediction(tokens.count, then, &now)
                } else {
                    Err(Unjudged::Prompt)
                },
            }
        });
        let members = members.collect();
        Self { prompt_tokens: tokens.count, exact: tokens.exact, endpoints, members }
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
        let Self { held, hit, block } = self;
        if !then.judged || !now.judged || then.stamp != now.stamp || block == 0 {
            return Err(Unjudged::Trust);
        }
        let tokens = hit.resident();
        let on_device = hit.in_tier(Tier::Device) == tokens;
        Ok(Prediction { tokens, held, block, prompt, on_device, stamp: now.stamp })
    }
}

impl<'a> KeyedAs<'a> {
    /// `None` while the block size is not known.
    fn of(blocks: BlockShape, card: Option<&'a EngineCard>, adapter: Option<&str>) -> Option<Self> {
        let adapter_path =
            adapter.and_then(|name| card?.adapter(name)).and_then(|a| a.path.as_deref());
        Some(Self {
            block_size: blocks.size?,
            lookahead: blocks.lookahead,
            base: card.map_or("", EngineCard::base),
            adapter_path,
        })
    }
}

/// What the engine in one slot can use of a request's prompts, all together.
pub(crate) fn held(
    inventory: &Inventory,
    slot: Slot,
    blocks: BlockShape,
    card: &EngineCard,
    tokens: &PromptTokens<'_>,
) -> Overlap {
    let keyed = KeyedAs::of(blocks, Some(card), tokens.adapter);
    let (Some(prompts), Some(keyed)) = (tokens.prompts, keyed) else {
        return Overlap::default();
    };
    let found = lookup(inventory, &keyed, prompts, tokens);
    sum(found.iter().map(|overlaps| overlaps.get(slot)))
}

fn lookup(
    inventory: &Inventory,
    keyed: &KeyedAs<'_>,
    prompts: &[Vec<u32>],
    tokens: &PromptTokens<'_>,
) -> Vec<Overlaps> {
    let lora = tokens.adapter.map(|name| (name, keyed.adapter_path));
    let space = inventory.space();
    let root = space.root(&Scope { model: keyed.base, lora, salt: tokens.salt });
    let (size, lookahead) = (keyed.block_size as usize, keyed.lookahead as usize);
    prompts
        .iter()
        .map(|prompt| {
            // An engine always computes the last token anew: a prompt that fills its last block
            // does not hit it. Nor one that has fewer tokens behind it than its hash looks ahead.
            let mut keys = inventory.keys(root, prompt, size, lookahead);
            keys.truncate(prompt.len().saturating_sub(1) / size);
            inventory.overlaps(&keys, keyed.block_size)
        })
        .collect()
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
