//! Multimodal blocks of TensorRT-LLM against a naive model. The facts come from its sources; no
//! vectors of its own are at hand.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use kvasir_kv_hash::trtllm::{
    Algorithm, BlockHash, Contract, ContractError, Manager, MmItem, MmKey, Request, Salt, V1Block,
    v1_block_key,
};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

const VOCAB: u32 = 1000;

fn request(items: &[MmItem], lora_task_id: Option<u64>, salt: Option<u64>) -> Request {
    let (items, vocab_size) = (items.to_vec(), Some(VOCAB));
    Request { lora_task_id, salt: salt.map(Salt::Id), items, vocab_size }
}

fn items() -> impl Strategy<Value = Vec<MmItem>> {
    prop::collection::vec((0usize..9, 1usize..12, 0usize..3, any::<u8>()), 0..5).prop_map(|parts| {
        let mut at = 0;
        let place = |(gap, length, skipped, fill)| {
            let start = at + gap;
            at = start + length;
            MmItem { hash: [fill; 32], start, length, skipped }
        };
        parts.into_iter().map(place).collect()
    })
}

/// A block's tokens with items in place of their placeholders: ids, or content hashes.
fn substituted(tokens: &[u32], start: usize, items: &[MmItem]) -> Vec<Result<u32, [u8; 32]>> {
    let one = |(index, &token): (usize, &u32)| {
        let at = start + index;
        let item = items.iter().find(|item| (item.start..item.start + item.length).contains(&at));
        match item.map(|item| (item, item.skipped + at - item.start)) {
            None => Ok(token),
            Some((item, 0)) => Err(item.hash),
            Some((_, within)) => Ok(VOCAB + within as u32),
        }
    };
    tokens.iter().enumerate().map(one).collect()
}

fn tree_key(parent: &[u8], tokens: &[Result<u32, [u8; 32]>]) -> Vec<u8> {
    let mut bytes = parent.to_vec();
    for token in tokens {
        match token {
            Ok(id) => bytes.extend(id.to_le_bytes()),
            Err(hash) => bytes.extend(hash),
        }
    }
    Sha256::digest(bytes).to_vec()
}

fn root(lora: Option<u64>, salt: Option<u64>) -> Vec<u8> {
    let mut bytes = vec![u8::from(lora.is_some()) + 2 * u8::from(salt.is_some())];
    bytes.extend(lora.into_iter().chain(salt).flat_map(u64::to_le_bytes));
    Sha256::digest(bytes).to_vec()
}

fn first_eight(key: &[u8]) -> u64 {
    u64::from_be_bytes(key[..8].try_into().unwrap())
}

/// Hashes of all blocks, the partial one too, under the three ways.
fn naive(
    tokens: &[u32],
    size: usize,
    items: &[MmItem],
    lora: Option<u64>,
    salt: Option<u64>,
) -> [Vec<u64>; 3] {
    let (mut v1, mut v2, mut mixed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut parent_v1, mut parent_mixed, mut key) = (0, 0, root(lora, salt));
    let mut fell_back = false;
    for (index, block) in tokens.chunks(size).enumerate() {
        let start = index * size;
        let end = start + block.len();
        let keys: Vec<MmKey> = items
            .iter()
            .filter(|item| item.start < end && start < item.start + item.length)
            .map(|item| MmKey {
                hash: item.hash,
                start_offset: (item.skipped + start.max(item.start) - item.start) as u64,
            })
            .collect();
        let plain = V1Block { lora_task_id: lora, salt_id: salt, ..V1Block::default() };
        parent_v1 = v1_block_key(parent_v1, &V1Block { tokens: block, mm_keys: &keys, ..plain });
        v1.push(parent_v1);

        let replaced = substituted(block, start, items);
        key = tree_key(&key, &replaced);
        v2.push(first_eight(&key));

        let ids: Result<Vec<u32>, _> = replaced.into_iter().collect();
        fell_back |= ids.is_err();
        parent_mixed = match ids {
            Ok(ids) if !fell_back => v1_block_key(parent_mixed, &V1Block { tokens: &ids, ..plain }),
            _ => first_eight(&key),
        };
        mixed.push(parent_mixed);
    }
    [v1, v2, mixed]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn chains_equal_the_naive_model(
        tokens in prop::collection::vec(0u32..VOCAB, 0..60),
        size in 1usize..9,
        items in items(),
        lora in prop::option::of(any::<u64>()),
        salt in prop::option::of(any::<u64>()),
        piece in 1usize..20,
    ) {
        let expected = naive(&tokens, size, &items, lora, salt);
        let ways = [
            (Algorithm::V1BlockKey, Manager::V1),
            (Algorithm::V2Sha256First64, Manager::V2),
            (Algorithm::V1BlockKey, Manager::V2),
        ];
        for ((algorithm, manager), expected) in ways.into_iter().zip(&expected) {
            let contract = Contract::new(algorithm, manager).unwrap();
            let mut chain = contract.chain_with(size, request(&items, lora, salt)).unwrap();
            let mut hashes: Vec<u64> = Vec::new();
            for tokens in tokens.chunks(piece) {
                hashes.extend(chain.append(tokens).iter().map(BlockHash::to_u64));
            }
            prop_assert_eq!(chain.token_count(), tokens.len());
            hashes.extend(chain.partial().as_ref().map(BlockHash::to_u64));
            prop_assert_eq!(&hashes, expected, "{} {}", algorithm, manager);
        }
    }
}

#[test]
fn items_that_cannot_be() {
    let item = |start, length| MmItem { hash: [0; 32], start, length, skipped: 0 };
    let contract = Contract::new(Algorithm::Auto, Manager::V2).unwrap();
    for (items, error) in [
        (vec![item(0, 0)], ContractError::BadItemLength { index: 0, length: 0 }),
        (vec![item(usize::MAX, 1)], ContractError::BadItemLength { index: 0, length: 1 }),
        (vec![item(0, 2), item(1, 1)], ContractError::ItemsOutOfOrder { index: 1 }),
    ] {
        assert_eq!(contract.chain_with(4, request(&items, None, None)).unwrap_err(), error);
    }
    let unsized_vocabulary = Request { vocab_size: None, ..request(&[item(0, 1)], None, None) };
    let error = contract.chain_with(4, unsized_vocabulary).unwrap_err();
    assert_eq!(error, ContractError::NoVocabularySize);
}

#[test]
fn extra_ids_are_mixed_in() {
    let block = V1Block { tokens: &[1, 2], ..V1Block::default() };
    let hash = |extra_ids| v1_block_key(0, &V1Block { extra_ids, ..block });
    assert_ne!(hash(None), hash(Some(&[0, 0])));
    assert_eq!(hash(Some(&[5])), hash(Some(&[5, 0])));
    assert_ne!(hash(Some(&[5])), hash(Some(&[6])));
}
