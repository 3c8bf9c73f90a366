//! Prompts keyed and looked up in the inventory: once for all engines that key them alike.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use kvasir_inventory::{Inventory, Overlap, Overlaps, Slot};
use kvasir_kv_hash::Scope;

use super::{PromptTokens, sum};
use crate::card::EngineCard;
use crate::identity::{Hashed, Keying};
use crate::pending::{Chain, PromptKeys};
use crate::stage::Stage;
use crate::stream_applier::off_the_scheduler;

/// Prompts of so many tokens take the engine's hashes a millisecond or so.
const LONG_TO_HASH: usize = 32_768;

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
pub(super) struct KeyedAs<'a> {
    keying: Keying,
    block_size: u32,
    lookahead: u32,
    base: &'a str,
    adapter_path: Option<&'a str>,
}

/// A request's prompts keyed and looked up, once for all members that key them alike.
pub(super) struct Lookups<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) tokens: &'a PromptTokens<'a>,
    pub(super) known: Vec<(KeyedAs<'a>, Lookup)>,
}

pub(super) struct Lookup {
    pub(super) keys: Arc<PromptKeys>,
    pub(super) overlaps: Vec<Overlaps>,
}

impl<'a> Lookups<'a> {
    /// `None` where the tokens are not known.
    pub(super) fn get(&mut self, keyed: KeyedAs<'a>) -> Option<(usize, &Lookup)> {
        let prompts = self.tokens.prompts?;
        let known = self.known.iter().position(|(known, _)| *known == keyed);
        let at = known.unwrap_or_else(|| {
            let found = lookup(self.inventory, &keyed, prompts, self.tokens);
            self.known.push((keyed, found));
            self.known.len() - 1
        });
        Some((at, &self.known[at].1))
    }
}

impl<'a> KeyedAs<'a> {
    /// `None` while the block size, or the engine's way of hashing, is not known.
    pub(super) fn of(
        blocks: BlockShape,
        keying: Option<Keying>,
        card: Option<&'a EngineCard>,
        adapter: Option<&str>,
    ) -> Option<Self> {
        let adapter_path =
            adapter.and_then(|name| card?.adapter(name)).and_then(|a| a.path.as_deref());
        Some(Self {
            keying: keying?,
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
    keying: Option<Keying>,
    card: &EngineCard,
    tokens: &PromptTokens<'_>,
) -> Overlap {
    let keyed = KeyedAs::of(blocks, keying, Some(card), tokens.adapter);
    let (Some(prompts), Some(keyed)) = (tokens.prompts, keyed) else {
        return Overlap::default();
    };
    let found = lookup(inventory, &keyed, prompts, tokens);
    sum(found.overlaps.iter().map(|overlaps| overlaps.get(slot)))
}

fn lookup(
    inventory: &Inventory,
    keyed: &KeyedAs<'_>,
    prompts: &[Vec<u32>],
    tokens: &PromptTokens<'_>,
) -> Lookup {
    let lora = tokens.adapter.map(|name| (name, keyed.adapter_path));
    let space = inventory.space();
    // The engine's hashes cover adapter and salt.
    let scope = match keyed.keying {
        Keying::Tokens => Scope { model: keyed.base, lora, salt: tokens.salt },
        Keying::Engine(_) => Scope { model: keyed.base, lora: None, salt: None },
    };
    let start = Instant::now();
    let root = space.root(&scope);
    let (size, lookahead) = (keyed.block_size as usize, keyed.lookahead as usize);
    let hashed = Hashed { block_size: size, lookahead, lora, salt: tokens.salt };
    let chain = |prompt: &Vec<u32>| Chain {
        keys: match &keyed.keying {
            Keying::Tokens => inventory.keys(root, prompt, size, lookahead),
            Keying::Engine(contract) => {
                let hashes = hashed.hashes(contract, prompt);
                inventory.engine_keys(root, &hashes.unwrap_or_default())
            }
        },
        // An engine always computes the last token anew: a prompt that fills its last block does
        // not hit it. Nor one that has fewer tokens behind it than its hash looks ahead.
        usable: prompt.len().saturating_sub(1).checked_div(size).unwrap_or(0),
    };
    let chains: Vec<Chain> =
        off_the_scheduler(is_long(&keyed.keying, prompts), || prompts.iter().map(chain).collect());
    let hashed = Stage::Hash.since(start);
    let overlaps = |chain: &Chain| inventory.overlaps(chain.usable(), keyed.block_size);
    let overlaps = chains.iter().map(overlaps).collect();
    Stage::Overlap.since(hashed);
    let keys = PromptKeys { block_size: keyed.block_size, prompts: chains };
    Lookup { keys: Arc::new(keys), overlaps }
}

/// Whether keying takes so long that other requests should not wait for it: a batch as a whole.
fn is_long(keying: &Keying, prompts: &[Vec<u32>]) -> bool {
    let tokens: usize = prompts.iter().map(Vec::len).sum();
    matches!(keying, Keying::Engine(_)) && tokens > LONG_TO_HASH
}
