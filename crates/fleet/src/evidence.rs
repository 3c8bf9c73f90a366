//! How much of a prompt each endpoint of a pool holds.

use std::sync::Arc;

use kvasir_inventory::{Inventory, Overlap, Overlaps, Tier, Trust};
use kvasir_kv_hash::Scope;

use crate::card::EngineCard;
use crate::endpoint::Endpoint;

/// A request's prompts, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub struct PromptTokens<'a> {
    /// The token ids of each prompt; `None` where they are not known.
    pub prompts: Option<&'a [Vec<u32>]>,
    /// How many tokens there are; an estimate where the ids are not known.
    pub count: u64,
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
    /// One entry per member.
    pub(crate) members: Vec<MemberEvidence>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberEvidence {
    pub(crate) overlap: Overlap,
    pub(crate) trust: Trust,
}

/// Members that key one prompt alike share one lookup.
#[derive(PartialEq, Eq)]
struct KeyedAs {
    block_size: u32,
    base: String,
    adapter_path: Option<String>,
}

impl Evidence {
    pub(crate) fn gather(
        members: &[Arc<Endpoint>],
        inventory: &Inventory,
        tokens: &PromptTokens<'_>,
    ) -> Self {
        let mut lookups: Vec<(KeyedAs, Vec<Overlaps>)> = Vec::new();
        let members = members
            .iter()
            .map(|member| {
                let trust = member.trust();
                let overlap = match (tokens.prompts, keyed_as(member, tokens.adapter)) {
                    (Some(prompts), Some(keyed)) if trust.credits() => {
                        let at = lookups.iter().position(|(known, _)| *known == keyed);
                        let at = at.unwrap_or_else(|| {
                            let found = lookup(inventory, &keyed, prompts, tokens);
                            lookups.push((keyed, found));
                            lookups.len() - 1
                        });
                        sum(lookups[at].1.iter().map(|overlaps| overlaps.get(member.slot())))
                    }
                    _ => Overlap::default(),
                };
                MemberEvidence { overlap, trust }
            })
            .collect();
        Self { prompt_tokens: tokens.count, members }
    }
}

fn keyed_as(member: &Endpoint, adapter: Option<&str>) -> Option<KeyedAs> {
    let block_size = member.block_size()?;
    let card = member.card();
    let card = card.as_deref();
    let path = adapter.and_then(|name| card?.adapter(name)?.path.clone());
    let base = card.map_or("", EngineCard::base).to_owned();
    Some(KeyedAs { block_size, base, adapter_path: path })
}

fn lookup(
    inventory: &Inventory,
    keyed: &KeyedAs,
    prompts: &[Vec<u32>],
    tokens: &PromptTokens<'_>,
) -> Vec<Overlaps> {
    let KeyedAs { block_size, base, adapter_path } = keyed;
    let lora = tokens.adapter.map(|name| (name, adapter_path.as_deref()));
    let space = inventory.space();
    let root = space.root(&Scope { model: base, lora, salt: tokens.salt });
    let size = *block_size as usize;
    prompts
        .iter()
        .map(|prompt| {
            // An engine always computes the last token anew: a prompt that fills its last block
            // does not hit it.
            let usable = prompt.len().saturating_sub(1) / size * size;
            let keys = space.chain(root, &prompt[..usable], size);
            inventory.overlaps(&keys, *block_size)
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
