//! vLLM chains against a naive model: every block computed from scratch. CBOR is serialised by
//! ciborium; pickles are read back by a decoder of the tests' own.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use ciborium::Value;
use kvasir_kv_hash::vllm::{
    Algorithm, Block, Contract, ExtraKey, Generation, Lora, MmItem, RequestExtras, Version,
};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_128;

#[path = "support/unpickle.rs"]
mod unpickle;

use unpickle::{Object, decode};

const GENERATIONS: [Generation; 7] = [
    Generation::B,
    Generation::C,
    Generation::D,
    Generation::E,
    Generation::F,
    Generation::G,
    Generation::H,
];

#[derive(Clone, Debug)]
struct Case {
    generation: Generation,
    algorithm: Algorithm,
    lookahead: usize,
    seed: String,
    block_size: usize,
    tokens: Vec<u32>,
    /// Where the tokens are cut into pieces.
    cuts: Vec<usize>,
    extras: RequestExtras,
}

/// Items that do not overlap: gaps and lengths laid end to end.
fn items() -> impl Strategy<Value = Vec<MmItem>> {
    prop::collection::vec((0usize..20, 1usize..30, "[a-f0-9]{0,40}"), 0..6).prop_map(|parts| {
        let mut at = 0;
        let place = |(gap, length, identifier)| {
            let offset = at + gap;
            at = offset + length;
            MmItem { identifier, offset, length }
        };
        parts.into_iter().map(place).collect()
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let token = prop_oneof![0u32..300, 60_000u32..70_000, any::<u32>()];
    let lora = prop::option::of((".{0,30}", any::<u64>(), ".{0,30}"));
    (
        (
            prop::sample::select(&GENERATIONS[..]),
            prop::sample::select(&ALGORITHMS[..]),
            0usize..5,
            ".{0,30}",
        ),
        (
            1usize..20,
            prop::collection::vec(token, 0..120),
            prop::collection::vec(0usize..120, 0..6),
        ),
        (lora, prop::option::of(".{0,30}"), items()),
    )
        .prop_map(
            |((generation, algorithm, lookahead, seed), (block_size, tokens, cuts), extras)| {
                let (lora, cache_salt, items) = extras;
                let lora =
                    lora.map(|(name, id, path)| Lora { name, int_id: Some(id), path: Some(path) });
                Case {
                    generation,
                    algorithm,
                    lookahead: if generation >= Generation::H { lookahead } else { 0 },
                    seed,
                    block_size,
                    tokens,
                    cuts,
                    extras: RequestExtras { lora, cache_salt, items, prompt_embeds: None },
                }
            },
        )
}

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Sha256Cbor, Algorithm::Sha256, Algorithm::XxhashCbor, Algorithm::Xxhash];

impl Case {
    /// The algorithm came with 0.13.0, in the middle of generation C.
    fn version(&self) -> Version {
        match (self.generation, self.algorithm) {
            (Generation::C, _) => Version::release(0, 13, 0),
            (Generation::B, Algorithm::Xxhash | Algorithm::XxhashCbor) => {
                Version::release(0, 13, 0)
            }
            (generation, _) => generation.first_release(),
        }
    }

    fn contract(&self) -> Contract {
        Contract::new(self.version(), self.algorithm, Some(&self.seed))
            .and_then(|contract| contract.with_lookahead(self.lookahead))
            .unwrap()
    }

    fn digest(&self, bytes: &[u8]) -> Vec<u8> {
        match self.algorithm {
            Algorithm::Xxhash | Algorithm::XxhashCbor => {
                XxHash3_128::oneshot(bytes).to_be_bytes().to_vec()
            }
            _ => Sha256::digest(bytes).to_vec(),
        }
    }

    fn pickles(&self) -> bool {
        matches!(self.algorithm, Algorithm::Sha256 | Algorithm::Xxhash)
    }
}

fn cbor(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

/// A pickled object as the value that CBOR would have.
fn as_value(object: Object) -> Value {
    match object {
        Object::None => Value::Null,
        Object::Int(int) => Value::Integer(int.try_into().unwrap()),
        Object::Bytes(bytes) => Value::Bytes(bytes),
        Object::Text(text) => Value::Text(text),
        Object::Tuple(items) => Value::Array(items.into_iter().map(as_value).collect()),
    }
}

fn tagged(case: &Case, tag: &str, plain: Vec<Value>) -> Value {
    if case.contract().generation() >= Generation::G {
        Value::Array(std::iter::once(Value::from(tag)).chain(plain).collect())
    } else if plain.len() == 1 {
        plain.into_iter().next().unwrap()
    } else {
        Value::Array(plain)
    }
}

/// The extra keys of the tokens `[start, end)`.
fn extra_keys(case: &Case, start: usize, end: usize) -> Value {
    let mut keys = Vec::new();
    if let Some(lora) = &case.extras.lora {
        keys.push(match case.contract().generation() {
            Generation::A | Generation::B => Value::from(lora.int_id.unwrap()),
            Generation::C | Generation::D | Generation::E | Generation::F => {
                Value::from(lora.name.as_str())
            }
            Generation::G | Generation::H => {
                let path = lora.path.clone().unwrap();
                tagged(case, "lora", vec![Value::from(lora.name.as_str()), Value::from(path)])
            }
        });
    }
    for item in &case.extras.items {
        if item.offset < end && start < item.offset + item.length {
            let mut plain = vec![Value::from(item.identifier.as_str())];
            if case.contract().generation() >= Generation::E {
                plain.push(Value::from(item.offset as i64 - start as i64));
            }
            keys.push(tagged(case, "mm", plain));
        }
    }
    match case.extras.cache_salt.as_deref() {
        Some(salt) if start == 0 && !salt.is_empty() => {
            keys.push(tagged(case, "cache_salt", vec![Value::from(salt)]));
        }
        _ => {}
    }
    if keys.is_empty() { Value::Null } else { Value::Array(keys) }
}

/// What is hashed for each block; `digests` are the chain's own, the parents.
fn naive(case: &Case, digests: &[Vec<u8>]) -> Vec<Value> {
    let numbers = |tokens: &[u32]| tokens.iter().map(|&t| Value::from(t)).collect::<Vec<_>>();
    let none_hash = case.contract().none_hash().as_bytes().to_vec();
    let parents = std::iter::once(&none_hash).chain(digests);
    let mut blocks = Vec::new();
    let mut start = 0;
    for parent in parents {
        let end = start + case.block_size;
        let covered = end + case.lookahead;
        if covered > case.tokens.len() {
            break;
        }
        let mut extra = extra_keys(case, start, covered);
        if case.lookahead > 0 {
            let ahead = numbers(&case.tokens[end..covered]);
            extra = Value::Array(std::iter::once(extra).chain(ahead).collect());
        }
        let tokens = Value::Array(numbers(&case.tokens[start..end]));
        blocks.push(Value::Array(vec![Value::Bytes(parent.clone()), tokens, extra]));
        start = end;
    }
    blocks
}

/// The preimages of a chain fed token by token.
fn preimages(case: &Case) -> Vec<Vec<u8>> {
    let mut chain = case.contract().chain_with(case.block_size, case.extras.clone()).unwrap();
    let mut out = Vec::new();
    for token in &case.tokens {
        if !chain.append(&[*token]).is_empty() {
            out.push(chain.preimage().unwrap().to_vec());
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn chain_equals_the_naive_model_however_it_is_cut(case in cases()) {
        let mut chain = case.contract().chain_with(case.block_size, case.extras.clone()).unwrap();
        let mut cuts: Vec<usize> = case.cuts.iter().map(|&c| c.min(case.tokens.len())).collect();
        cuts.sort_unstable();
        cuts.push(case.tokens.len());
        let mut at = 0;
        let mut returned = Vec::new();
        for cut in cuts {
            returned.extend_from_slice(chain.append(&case.tokens[at..cut]));
            at = cut;
        }
        prop_assert_eq!(&returned[..], chain.digests());
        prop_assert_eq!(chain.token_count(), case.tokens.len());
        let digests: Vec<_> = returned.iter().map(|d| d.as_bytes().to_vec()).collect();

        let expected = naive(&case, &digests);
        prop_assert_eq!(expected.len(), digests.len());
        let preimages = preimages(&case);
        prop_assert_eq!(preimages.len(), digests.len());
        for ((expected, preimage), digest) in expected.iter().zip(&preimages).zip(&digests) {
            if case.pickles() {
                prop_assert_eq!(&as_value(decode(preimage).0), expected);
            } else {
                prop_assert_eq!(preimage, &cbor(expected));
            }
            prop_assert_eq!(&case.digest(preimage), digest);
        }
    }

    #[test]
    fn a_request_and_its_blocks_one_by_one_have_the_same_hashes(case in cases()) {
        let contract = case.contract();
        let mut chain = contract.chain_with(case.block_size, case.extras.clone()).unwrap();
        let digests = chain.append(&case.tokens);
        let mut hasher = contract.hasher();
        let mut parent = contract.none_hash();
        for (index, digest) in digests.iter().enumerate() {
            let start = index * case.block_size;
            let (end, covered) = (start + case.block_size, start + case.block_size + case.lookahead);
            let items = case.extras.items.iter();
            let items = items.filter(|i| i.offset < covered && start < i.offset + i.length);
            let mut keys: Vec<ExtraKey<'_>> =
                case.extras.lora.iter().map(ExtraKey::Lora).collect();
            keys.extend(items.map(|item| ExtraKey::Item {
                identifier: &item.identifier,
                offset: item.offset as i64 - start as i64,
            }));
            let salt = case.extras.cache_salt.as_deref().filter(|s| start == 0 && !s.is_empty());
            keys.extend(salt.map(ExtraKey::CacheSalt));
            let (tokens, ahead) = (&case.tokens[start..end], &case.tokens[end..covered]);
            parent = hasher.hash(&parent, &Block { tokens, keys: &keys, ahead }).unwrap();
            prop_assert_eq!(&parent, digest);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// Plain blocks are hashed by a faster way than single ones.
    #[test]
    fn plain_blocks_at_once_equal_single_ones(
        algorithm in prop::sample::select(&ALGORITHMS[..]),
        block_size in prop_oneof![1usize..200, 4_000usize..10_000],
        blocks in 1usize..6,
        over in 0usize..3,
        seed in any::<u64>(),
    ) {
        let contract = Contract::new(Version::release(0, 33, 0), algorithm, Some("0")).unwrap();
        let mixed = |i: u64| {
            let x = (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (x >> 32) as u32 >> (x % 32)
        };
        let tokens: Vec<u32> = (0..(block_size * blocks + over) as u64).map(mixed).collect();
        let mut chain = contract.chain(block_size).unwrap();
        chain.append(&tokens);
        let (mut hasher, mut parent) = (contract.hasher(), contract.none_hash());
        for (digest, tokens) in chain.digests().iter().zip(tokens.chunks(block_size)) {
            parent = hasher.hash(&parent, &Block { tokens, ..Block::default() }).unwrap();
            prop_assert_eq!(digest, &parent);
        }
        prop_assert_eq!(chain.digests().len(), tokens.len() / block_size);
        prop_assert_eq!(chain.preimage().unwrap(), hasher.preimage());
    }
}
