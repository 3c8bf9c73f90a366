//! Preimages: their plain digest, by the hash crates' own entry points, is the block's.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use kvasir_kv_hash::vllm::{Lora, MmItem, PromptEmbeds, RequestExtras};
use kvasir_kv_hash::{Engine, Explained, Spec, SpecError, loxilb, sglang, trtllm, vllm};
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_128;

const BLOCK: usize = 4;

fn spec<'a>(engine: Engine, version: &'a str, algorithm: &'a str) -> Spec<'a> {
    Spec { engine, version, algorithm, seed: Some("0"), block_size: BLOCK }
}

/// Eleven whole blocks and a piece, in every width.
fn tokens() -> Vec<u32> {
    (0..46u32).map(|i| i.wrapping_pow(5).wrapping_mul(40_503)).collect()
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

fn xxh3(bytes: &[u8]) -> Vec<u8> {
    XxHash3_128::oneshot(bytes).to_be_bytes().to_vec()
}

fn integer(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

/// Explains, and checks that nothing but the bytes is added to what a request's blocks say.
fn explain(spec: &Spec<'_>, request: &RequestExtras) -> Explained {
    let explained = spec.explain(request, &tokens()).unwrap();
    let mut blocks = spec.blocks_with(request).unwrap();
    blocks.append(&tokens());
    assert_eq!(blocks.keys().len(), 11, "{spec:?}");
    assert_eq!(explained.blocks.iter().map(|b| b.key).collect::<Vec<_>>(), blocks.keys());
    for (index, block) in explained.blocks.iter().enumerate() {
        assert_eq!(block.digest.as_deref(), blocks.digest(index), "{spec:?}");
    }
    explained
}

/// Preimages hold their parents' digests one after the other, beginning with `first`.
fn check_chained(explained: &Explained, first: &[u8], hash: impl Fn(&[u8]) -> Vec<u8>) {
    let mut parent = first.to_vec();
    for block in &explained.blocks {
        let preimage = block.preimage.as_deref().unwrap();
        let at = preimage.windows(parent.len()).position(|window| window == parent);
        assert!(at.is_some_and(|at| at <= 14), "no parent in {preimage:02x?}");
        parent = hash(preimage);
        if let Some(digest) = &block.digest {
            assert_eq!(digest, &parent);
        }
    }
}

fn requests() -> Vec<RequestExtras> {
    let lora = Lora { name: "sql".into(), int_id: Some(3), path: Some("/adapters/sql".into()) };
    let items = vec![MmItem { identifier: "c0ffee".into(), offset: 3, length: 9 }];
    let all = RequestExtras {
        lora: Some(lora.clone()),
        cache_salt: Some("tenant-a".into()),
        items,
        ..RequestExtras::default()
    };
    vec![
        RequestExtras::default(),
        RequestExtras { cache_salt: all.cache_salt.clone(), ..RequestExtras::default() },
        RequestExtras { lora: Some(lora), ..RequestExtras::default() },
        all,
    ]
}

#[test]
fn vllm_with_every_algorithm_and_generation() {
    let mut checked = 0;
    for version in
        ["0.9.2", "0.10.0", "0.10.2", "0.11.1", "0.14.1", "0.17.1", "0.24.0", "0.30.0", "0.33.0"]
    {
        for algorithm in &vllm::Algorithm::ALL[1..] {
            if !algorithm.offered_by(version.parse().unwrap()) {
                continue;
            }
            for request in requests() {
                let spec = spec(Engine::Vllm, version, algorithm.as_str());
                let explained = explain(&spec, &request);
                let none_hash = explained.none_hash.clone().unwrap();
                assert_eq!(none_hash.len(), algorithm.digest_len());
                let hash = match algorithm {
                    vllm::Algorithm::Xxhash | vllm::Algorithm::XxhashCbor => xxh3,
                    vllm::Algorithm::Sha256Cbor64Bit => |bytes: &[u8]| sha256(bytes)[24..].to_vec(),
                    _ => sha256,
                };
                for block in &explained.blocks {
                    let digest = hash(block.preimage.as_deref().unwrap());
                    assert_eq!(block.key, integer(digest.last_chunk::<8>().unwrap()));
                    let expected = (digest.len() > 8).then_some(digest);
                    assert_eq!(block.digest, expected, "{spec:?}");
                }
                // Before 0.10.2 parents are integers: little-endian in a pickle, and CBOR's tags.
                if version.parse::<vllm::Version>().unwrap() >= vllm::Version::release(0, 10, 2) {
                    check_chained(&explained, &none_hash, hash);
                }
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 4 * 27);
}

#[test]
fn every_extra_is_in_the_bytes() {
    let [.., all] = &requests()[..] else { panic!("no requests") };
    let rows = PromptEmbeds::new(vec![7; 46 * 8], 8).unwrap();
    let request = RequestExtras { prompt_embeds: Some(rows), ..all.clone() };
    let holds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|w| w == part);
    for algorithm in ["sha256_cbor", "sha256"] {
        let explained = explain(&spec(Engine::Vllm, "0.32.0", algorithm), &request);
        let preimages: Vec<_> =
            explained.blocks.iter().map(|block| block.preimage.as_deref().unwrap()).collect();
        for (index, bytes) in preimages.iter().enumerate() {
            assert!(holds(bytes, b"/adapters/sql") && holds(bytes, b"sql"));
            assert!(holds(bytes, &Sha256::digest([7; BLOCK * 8])));
            assert_eq!(holds(bytes, b"tenant-a"), index == 0);
            assert_eq!(holds(bytes, b"c0ffee"), index < 3, "{index}");
        }
    }
}

#[test]
fn sglang_with_every_generation_and_format() {
    let mut none = 0;
    for (version, format) in [
        ("0.5.1", ""),
        ("0.5.5", ""),
        ("0.5.6", ""),
        ("0.5.18", ""),
        ("0.5.22", "dynamo"),
        ("0.5.23", "default"),
        ("0.5.23", "dynamo"),
    ] {
        for salt in [None, Some("tenant-a".to_owned())] {
            let request = RequestExtras { cache_salt: salt.clone(), ..RequestExtras::default() };
            let explained = explain(&spec(Engine::Sglang, version, format), &request);
            assert_eq!(explained.none_hash, None);
            let generation = sglang::Generation::of(version.parse().unwrap()).unwrap();
            if generation == sglang::Generation::TupleHash {
                for block in &explained.blocks {
                    assert_eq!((&block.digest, &block.preimage), (&None, &None));
                    none += 1;
                }
                continue;
            }
            let salted = salt.is_some() && generation >= sglang::Generation::Salted;
            let first = if salted { sha256(b"sglang-cache-salt-v1\0tenant-a") } else { vec![] };
            if salted {
                check_chained(&explained, &first, sha256);
            }
            let namespaced = salted && format == "dynamo";
            let mut parent = first;
            for (block, tokens) in explained.blocks.iter().zip(tokens().chunks(BLOCK)) {
                let words = tokens.iter().flat_map(|token| token.to_le_bytes());
                let expected: Vec<u8> = parent.iter().copied().chain(words).collect();
                assert_eq!(block.preimage.as_ref(), Some(&expected));
                parent = sha256(&expected);
                assert_eq!(block.digest.as_ref(), Some(&parent));
                assert_eq!(block.key == integer(&parent[..8]), !namespaced);
            }
        }
    }
    assert_eq!(none, 2 * 2 * 11);
}

#[test]
fn trtllm_with_every_algorithm() {
    for (manager, algorithm) in [("v1", ""), ("v1", "v1_block_key"), ("v2", "auto")] {
        let explained =
            explain(&spec(Engine::TrtLlm, manager, algorithm), &RequestExtras::default());
        assert_eq!(explained.none_hash, None);
        let none = explained.blocks.iter().all(|b| b.digest.is_none() && b.preimage.is_none());
        assert!(none, "{manager} {algorithm}");
    }
    for request in &requests()[..3] {
        let root = match (&request.lora, &request.cache_salt) {
            (Some(lora), None) => [&[1][..], &lora.int_id.unwrap().to_le_bytes()].concat(),
            (None, Some(salt)) => [&[2][..], &trtllm::salt_id(salt).to_le_bytes()].concat(),
            _ => vec![0],
        };
        for algorithm in ["v2_sha256", "v2_sha256_64"] {
            let explained = explain(&spec(Engine::TrtLlm, "v2", algorithm), request);
            check_chained(&explained, &sha256(&root), sha256);
            for block in &explained.blocks {
                let digest = sha256(block.preimage.as_deref().unwrap());
                assert_eq!(block.key, integer(&digest[..8]));
                assert_eq!(block.digest, (algorithm == "v2_sha256").then_some(digest));
            }
        }
    }
}

#[test]
fn trtllm_tree_keys_after_an_image() {
    use trtllm::{Algorithm, Contract, Manager, MmItem, Request};
    let items = vec![MmItem { hash: [9; 32], start: 5, length: 2, skipped: 0 }];
    let request = Request { items, vocab_size: Some(1000), ..Request::default() };
    let contract = Contract::new(Algorithm::Auto, Manager::V2).unwrap();
    let mut chain = contract.chain_with(BLOCK, request).unwrap();
    assert_eq!(chain.preimage(), None);
    let mut preimages = Vec::new();
    for piece in tokens()[..12].chunks(BLOCK) {
        let &[block] = chain.append(piece) else { panic!("one block") };
        preimages.extend(chain.preimage().map(|bytes| (block.to_u64(), sha256(bytes))));
    }
    // The first block has no content hash, and is mixed from integers.
    assert_eq!(preimages.len(), 2);
    preimages.iter().for_each(|(key, digest)| assert_eq!(*key, integer(&digest[..8])));
}

#[test]
fn loxilb_with_every_algorithm_and_seed() {
    for algorithm in loxilb::Algorithm::ALL {
        for seed in [None, Some("0"), Some("longer than twenty-three bytes")] {
            let spec = Spec { seed, ..spec(Engine::LoxiLb, "", algorithm.as_str()) };
            let explained = explain(&spec, &RequestExtras::default());
            let hash = if algorithm == loxilb::Algorithm::XxhashCbor { xxh3 } else { sha256 };
            let cbor = algorithm.as_str().ends_with("_cbor");
            assert_eq!(explained.none_hash.is_some(), cbor);
            if let Some(first) = &explained.none_hash {
                assert_eq!(first.iter().all(|byte| *byte == 0), seed != Some("0"));
                check_chained(&explained, first, hash);
            }
            for block in &explained.blocks {
                let digest = hash(block.preimage.as_deref().unwrap());
                let cut = if cbor { &digest[digest.len() - 8..] } else { &digest[..8] };
                assert_eq!(block.key, integer(cut));
                assert_eq!(block.digest.as_ref(), Some(&digest));
            }
        }
    }
}

#[test]
fn what_cannot_be_hashed_cannot_be_explained() {
    let unset = Spec { seed: None, ..spec(Engine::Vllm, "0.28.0", "sha256") };
    let random = vllm::ContractError::Unknowable(vllm::Unknowable::RandomNoneHash);
    assert_eq!(unset.explain(&RequestExtras::default(), &[]), Err(SpecError::Vllm(random)));
    let zero = Spec { block_size: 0, ..spec(Engine::Vllm, "0.32.0", "sha256") };
    assert!(zero.explain(&RequestExtras::default(), &[1]).is_err());
    let none = spec(Engine::Vllm, "0.32.0", "").explain(&RequestExtras::default(), &[1, 2, 3]);
    assert_eq!(none.unwrap().blocks, []);
}
