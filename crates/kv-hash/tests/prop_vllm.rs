//! vLLM chains against a naive model: every block computed from scratch, serialised by ciborium.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use ciborium::Value;
use kvasir_kv_hash::vllm::{Algorithm, Contract, Generation, Lora, MmItem, RequestExtras};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

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
        (prop::sample::select(&GENERATIONS[..]), 0usize..5, ".{0,30}"),
        (
            1usize..20,
            prop::collection::vec(token, 0..120),
            prop::collection::vec(0usize..120, 0..6),
        ),
        (lora, prop::option::of(".{0,30}"), items()),
    )
        .prop_map(|((generation, lookahead, seed), (block_size, tokens, cuts), extras)| {
            let (lora, cache_salt, items) = extras;
            let lora =
                lora.map(|(name, id, path)| Lora { name, int_id: Some(id), path: Some(path) });
            Case {
                generation,
                lookahead: if generation >= Generation::H { lookahead } else { 0 },
                seed,
                block_size,
                tokens,
                cuts,
                extras: RequestExtras { lora, cache_salt, items, prompt_embeds: None },
            }
        })
}

fn sha256(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    Sha256::digest(bytes).to_vec()
}

fn tagged(case: &Case, tag: &str, plain: Vec<Value>) -> Value {
    if case.generation >= Generation::G {
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
        keys.push(match case.generation {
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
            if case.generation >= Generation::E {
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

fn naive(case: &Case) -> Vec<Vec<u8>> {
    let numbers = |tokens: &[u32]| tokens.iter().map(|&t| Value::from(t)).collect::<Vec<_>>();
    let mut parent = sha256(&Value::from(case.seed.as_str()));
    let mut digests = Vec::new();
    let mut start = 0;
    while start + case.block_size + case.lookahead <= case.tokens.len() {
        let end = start + case.block_size;
        let covered = end + case.lookahead;
        let mut extra = extra_keys(case, start, covered);
        if case.lookahead > 0 {
            let ahead = numbers(&case.tokens[end..covered]);
            extra = Value::Array(std::iter::once(extra).chain(ahead).collect());
        }
        let tokens = Value::Array(numbers(&case.tokens[start..end]));
        parent = sha256(&Value::Array(vec![Value::Bytes(parent), tokens, extra]));
        digests.push(parent.clone());
        start = end;
    }
    digests
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn chain_equals_the_naive_model_however_it_is_cut(case in cases()) {
        let version = case.generation.first_release();
        let mut chain = Contract::new(version, Algorithm::Sha256Cbor, Some(&case.seed))
            .and_then(|contract| contract.with_lookahead(case.lookahead))
            .and_then(|contract| contract.chain_with(case.block_size, case.extras.clone()))
            .unwrap();
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
        prop_assert_eq!(digests, naive(&case));
    }
}
