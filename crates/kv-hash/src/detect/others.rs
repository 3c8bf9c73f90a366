//! Which of SGLang's and TensorRT-LLM's contracts fit.

use std::collections::HashMap;

use super::event::{EventBlock, EventHash};
use super::report::{Found, Match};
use crate::sglang::{self, EventFormat, Generation};
use crate::trtllm::{self, Algorithm, Manager, Salt, V1Block, salt_id, v1_block_key};

pub(super) fn candidates(blocks: &[EventBlock<'_>]) -> Vec<Match> {
    let mut matches = Vec::new();
    let mut add = |found, (verified, checked)| {
        let Some(first) = blocks.first() else { return };
        let (form, block_size) = (first.hash.form(), first.event.block_size);
        matches.push(Match { found, form, block_size, verified, checked });
    };
    let salted = blocks.iter().any(|block| block.event.cache_salt.is_some());
    let newest = Generation::newest();
    let sglang = |generations, format| Found::Sglang { generations, format };
    let tuples = (Generation::TupleHash, Generation::TupleHash);
    add(sglang(tuples, None), tuple_hashes(blocks));
    // Plain requests have one chain since 0.5.6.
    let first = if salted { Generation::Salted } else { Generation::Chained };
    add(sglang((first, newest), None), chained(blocks, newest, EventFormat::Default));
    if salted {
        let generations = (Generation::DynamoFormat, newest);
        let format = EventFormat::Dynamo;
        add(sglang(generations, Some(format)), chained(blocks, newest, format));
    }
    add(Found::TrtLlm { algorithm: Algorithm::V1BlockKey }, v1(blocks));
    for algorithm in [Algorithm::V2Sha256, Algorithm::V2Sha256First64] {
        add(Found::TrtLlm { algorithm }, v2(blocks, algorithm));
    }
    matches
}

/// Pages that are hashed on their own.
fn tuple_hashes(blocks: &[EventBlock<'_>]) -> (usize, usize) {
    let fits = |block: &&EventBlock<'_>| {
        let version = Generation::TupleHash.first_release();
        let contract = sglang::Contract::new(version, EventFormat::Default).ok();
        let chain = contract.and_then(|contract| contract.chain(block.tokens.len()).ok());
        let page = chain.and_then(|mut chain| chain.append(block.tokens).first().copied());
        page.is_some_and(|page| *block.hash == EventHash::Int(page.to_u64()))
    };
    (blocks.iter().filter(fits).count(), blocks.len())
}

/// Chains that begin among the events.
fn chained(
    blocks: &[EventBlock<'_>],
    generation: Generation,
    format: EventFormat,
) -> (usize, usize) {
    let Ok(contract) = sglang::Contract::new(generation.first_release(), format) else {
        return (0, 0);
    };
    follow(
        blocks,
        |block| {
            let salt = block.event.cache_salt.map(str::to_owned);
            let request = sglang::Request { cache_salt: salt, ..sglang::Request::default() };
            contract.chain_with(block.tokens.len(), &request).ok()
        },
        |chain: &mut sglang::Chain, block| {
            let page = chain.append(block.tokens).first().copied();
            page.is_some_and(|page| *block.hash == EventHash::Int(page.to_u64()))
        },
    )
}

fn v2(blocks: &[EventBlock<'_>], algorithm: Algorithm) -> (usize, usize) {
    let Ok(contract) = trtllm::Contract::new(algorithm, Manager::V2) else { return (0, 0) };
    follow(
        blocks,
        |block| {
            let salt = block.event.cache_salt.map(|salt| Salt::Text(salt.to_owned()));
            let request = trtllm::Request { salt, ..trtllm::Request::default() };
            contract.chain_with(block.tokens.len(), request).ok()
        },
        |chain: &mut trtllm::Chain, block| {
            let hash = chain.append(block.tokens).first().copied();
            hash.is_some_and(|hash| match hash.digest() {
                Some(digest) => {
                    matches!(block.hash, EventHash::Bytes(_)) && block.hash.is_head_of(digest)
                }
                None => *block.hash == EventHash::Int(hash.to_u64()),
            })
        },
    )
}

/// Follows chains from their first blocks; gives how many blocks fit and how many were checked.
fn follow<'a, C: Clone>(
    blocks: &[EventBlock<'a>],
    begin: impl Fn(&EventBlock<'a>) -> Option<C>,
    fits: impl Fn(&mut C, &EventBlock<'a>) -> bool,
) -> (usize, usize) {
    let mut chains: HashMap<&EventHash, C> = HashMap::new();
    let (mut verified, mut checked) = (0, 0);
    for block in blocks {
        let chain = match block.parent {
            None => begin(block),
            Some(parent) => chains.get(parent).cloned(),
        };
        let Some(mut chain) = chain else { continue };
        checked += 1;
        if fits(&mut chain, block) {
            verified += 1;
            chains.insert(block.hash, chain);
        }
    }
    (verified, checked)
}

/// Blocks whose 64-bit parent is all that is needed.
fn v1(blocks: &[EventBlock<'_>]) -> (usize, usize) {
    let fits = |block: &&EventBlock<'_>| {
        let parent = match block.parent {
            None => 0,
            Some(EventHash::Int(parent)) => *parent,
            Some(EventHash::Bytes(_)) => return false,
        };
        let salt_id = block.event.cache_salt.map(salt_id);
        let v1 = V1Block { tokens: block.tokens, salt_id, ..V1Block::default() };
        *block.hash == EventHash::Int(v1_block_key(parent, &v1))
    };
    (blocks.iter().filter(fits).count(), blocks.len())
}
