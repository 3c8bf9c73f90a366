//! Which of vLLM's contracts fit.

use std::collections::HashMap;

use super::event::{EventBlock, EventHash, EventKey};
use super::report::{Found, Match};
use super::seeds::{Seed, Seeds};
use crate::digest::Digest;
use crate::vllm::{Algorithm, Block, BlockHasher, Contract, ExtraKey, Generation, Lora};

/// The most hashed blocks that a published block is tried with.
const MAX_FACTOR: usize = 64;

/// One way of hashing, and the generations it stands for.
#[derive(Clone, Copy)]
struct Way<'a> {
    algorithm: Algorithm,
    /// Whose shape of extra keys is used.
    shape: Generation,
    generations: (Generation, Generation),
    lora_path: Option<&'a str>,
    /// Hashed blocks per published block.
    factor: usize,
}

/// The matches of each way, with its seed where that can be told.
pub(super) fn candidates(
    blocks: &[EventBlock<'_>],
    seeds: &Seeds,
    lora_paths: &[String],
    grouped: bool,
) -> Vec<Match> {
    let ways = ways(blocks, lora_paths);
    let matches = |ways: &[Way<'_>]| -> Vec<Match> {
        let one = |way: &Way<'_>| verify(*way, find_seed(*way, blocks, seeds), blocks);
        ways.iter().filter_map(one).collect()
    };
    let found = matches(&ways);
    if !grouped || found.iter().any(|found| found.verified > 0) {
        return found;
    }
    // Groups of hybrid models are published in multiples of what is hashed.
    let size = blocks.first().map_or(1, |block| block.tokens.len());
    let factors = (2..=MAX_FACTOR).filter(|factor| size.is_multiple_of(*factor));
    let plain = ways.iter().filter(|way| way.shape == Generation::B);
    let grouped = plain.flat_map(|way| factors.clone().map(|factor| Way { factor, ..*way }));
    matches(&grouped.collect::<Vec<_>>())
}

/// The ways that can have made these blocks, by their extra keys and sizes.
fn ways<'a>(blocks: &[EventBlock<'_>], lora_paths: &'a [String]) -> Vec<Way<'a>> {
    use Generation::{A, B, C, D, E, F, G, H};
    let any =
        |test: fn(&EventKey<'_>) -> bool| blocks.iter().any(|block| block.keys.iter().any(test));
    let lookahead = blocks.iter().any(|block| !block.ahead.is_empty());
    let with_path = blocks.iter().any(|b| b.event.lora_name.is_some() && !b.keys.is_empty());
    let (items, keys) = (any(|key| matches!(key, EventKey::Item(..))), any(|_| true));
    let shapes: &[(Generation, (Generation, Generation))] = match (lookahead, items, keys) {
        (true, ..) => &[(H, (H, H))],
        (false, true, _) => &[(E, (E, F)), (G, (G, H))],
        (false, false, true) => &[(D, (D, F)), (G, (G, H))],
        (false, false, false) => &[(A, (A, A)), (B, (B, H))],
    };
    let mut ways = Vec::new();
    for &(shape, (first, last)) in shapes {
        for algorithm in Algorithm::ALL {
            let old = algorithm == Algorithm::Sha256Cbor64Bit;
            if algorithm == Algorithm::Builtin || old != (shape == A) {
                continue;
            }
            let first = match algorithm {
                Algorithm::Xxhash | Algorithm::XxhashCbor => first.max(C),
                _ => first,
            };
            let way =
                Way { algorithm, shape, generations: (first, last), lora_path: None, factor: 1 };
            if with_path && shape >= G {
                ways.extend(lora_paths.iter().map(|path| Way { lora_path: Some(path), ..way }));
            } else {
                ways.push(way);
            }
        }
    }
    ways
}

impl Way<'_> {
    /// A release that hashes so, of those that start from a fixed parent if that is asked.
    fn contract(&self, seed: &Seed) -> Option<Contract> {
        let unset = *seed == Seed::Unset;
        let first = match (unset, self.algorithm) {
            (true, _) => self.shape.max(Generation::F),
            (false, Algorithm::Sha256Cbor64Bit) => {
                return Contract::new("0.10.0".parse().ok()?, self.algorithm, seed.as_option())
                    .ok();
            }
            (false, Algorithm::Xxhash | Algorithm::XxhashCbor) => self.shape.max(Generation::D),
            (false, _) => self.shape,
        };
        // Of B to F the shape of keys differs; none of them has an unset seed but F.
        let shape = if unset && self.generations.1 < first { return None } else { first };
        Contract::new(shape.first_release(), self.algorithm, seed.as_option()).ok()
    }

    /// A hasher of this shape, whatever the seed.
    fn hasher(&self) -> Option<BlockHasher> {
        let contract = self.contract(&Seed::Text("0".into()))?;
        Some(contract.hasher())
    }

    /// The hash of a block after a parent, as it is published; and its digest, for the next.
    fn hash(
        &self,
        hasher: &mut BlockHasher,
        parent: &Digest,
        block: &EventBlock<'_>,
    ) -> Option<(Vec<u8>, Digest)> {
        let lora = block.event.lora_name.map(|name| Lora {
            name: name.to_owned(),
            path: self.lora_path.map(str::to_owned),
            int_id: None,
        });
        let keys: Vec<ExtraKey<'_>> = block
            .keys
            .iter()
            .enumerate()
            .map(|(index, key)| match (key, &lora) {
                (EventKey::Text(_), Some(lora)) if index == 0 => Some(ExtraKey::Lora(lora)),
                // Before tags, a salt and an identifier are the same plain string.
                (EventKey::Text(text), _) => Some(ExtraKey::CacheSalt(text)),
                (EventKey::Item(identifier, offset), _) => {
                    Some(ExtraKey::Item { identifier, offset: *offset })
                }
                (EventKey::Bytes(bytes), _) => Some(ExtraKey::PromptEmbeds(bytes)),
                (EventKey::Int(_), _) => None,
            })
            .collect::<Option<_>>()?;
        let size = block.tokens.len() / self.factor;
        let (mut parent, mut joined) = (*parent, Vec::new());
        for tokens in block.tokens.chunks_exact(size.max(1)) {
            let block = Block { tokens, keys: &keys, ahead: block.ahead };
            parent = hasher.hash(&parent, &block).ok()?;
            joined.extend_from_slice(parent.as_bytes());
        }
        Some((joined, parent))
    }

    /// Whether an event's hash is this one: of a group, all digests (up to 0.23) or the last.
    fn fits(&self, hash: &EventHash, joined: &[u8], digest: &Digest) -> bool {
        hash.is_tail_of(digest.as_bytes()) || (self.factor > 1 && hash.is_tail_of(joined))
    }
}

/// The seed under which a chain's first block fits.
fn find_seed<'a>(way: Way<'_>, blocks: &[EventBlock<'_>], seeds: &'a Seeds) -> Option<&'a Seed> {
    let mut roots = blocks.iter().filter(|block| block.parent.is_none());
    let first = roots.clone().next()?;
    // Extra keys can be wrong without the seed being so.
    let root = roots.find(|block| block.keys.is_empty()).unwrap_or(first);
    let mut hasher = way.hasher()?;
    seeds.iter().find(|seed| {
        let Some(contract) = way.contract(seed) else { return false };
        way.hash(&mut hasher, &contract.none_hash(), root)
            .is_some_and(|(joined, digest)| way.fits(root.hash, &joined, &digest))
    })
}

/// How many blocks a way computes. Without a seed, those after a parent that is known in full.
fn verify(way: Way<'_>, seed: Option<&Seed>, blocks: &[EventBlock<'_>]) -> Option<Match> {
    let mut hasher = way.hasher()?;
    let none_hash = seed.and_then(|seed| way.contract(seed)).map(|c| c.none_hash());
    let mut digests: HashMap<&EventHash, Digest> = HashMap::new();
    let (mut verified, mut checked) = (0, 0);
    for block in blocks {
        let parent = match block.parent {
            None => none_hash,
            Some(parent) => {
                digests.get(parent).copied().or_else(|| whole_parent(way.algorithm, parent))
            }
        };
        let Some(parent) = parent else { continue };
        checked += 1;
        let hashed = way.hash(&mut hasher, &parent, block);
        if let Some((joined, digest)) = hashed
            && way.fits(block.hash, &joined, &digest)
        {
            verified += 1;
            digests.insert(block.hash, digest);
        }
    }
    let first = blocks.first()?;
    let (from, to) = way.generations;
    // An unset seed with a fixed start came with F.
    let from = if seed == Some(&Seed::Unset) { from.max(Generation::F) } else { from };
    let found = Found::Vllm {
        algorithm: way.algorithm,
        seed: seed.cloned(),
        generations: (from, to),
        hash_block_size: (way.factor > 1).then(|| first.tokens.len() / way.factor),
    };
    let (form, block_size) = (first.hash.form(), first.event.block_size);
    Some(Match { found, form, block_size, verified, checked })
}

/// A parent in full, if the event shows all of it.
fn whole_parent(algorithm: Algorithm, parent: &EventHash) -> Option<Digest> {
    match parent {
        EventHash::Bytes(bytes) if bytes.len() >= algorithm.digest_len() => {
            // Of a group's joined digests, the last is the parent.
            Digest::from_bytes(&bytes[bytes.len() - algorithm.digest_len()..]).ok()
        }
        EventHash::Int(int) if algorithm == Algorithm::Sha256Cbor64Bit => {
            Some(Digest::new8(int.to_be_bytes()))
        }
        _ => None,
    }
}
