//! One door to all engines: it leads where each engine's own module does.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use kvasir_kv_hash::vllm::{self, Lora, MmItem, RequestExtras};
use kvasir_kv_hash::{Engine, Spec, SpecError, loxilb, sglang, trtllm};

fn spec<'a>(engine: &str, version: &'a str, algorithm: &'a str) -> Spec<'a> {
    Spec { engine: engine.parse().unwrap(), version, algorithm, seed: Some("0"), block_size: 4 }
}

fn tokens() -> Vec<u32> {
    (0..10).map(|i| i * 9973).collect()
}

fn keys(spec: &Spec<'_>, request: &RequestExtras) -> Result<Vec<u64>, SpecError> {
    let mut blocks = spec.blocks_with(request)?;
    tokens().chunks(3).for_each(|piece| assert!(blocks.append(piece).len() <= 1));
    Ok(blocks.keys().to_vec())
}

#[test]
fn the_same_hashes_as_each_engines_module() {
    let (tokens, plain) = (tokens(), RequestExtras::default());
    for algorithm in ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"] {
        let contract =
            vllm::Contract::new("0.33.0".parse().unwrap(), algorithm.parse().unwrap(), Some("0"));
        let mut chain = contract.unwrap().chain(4).unwrap();
        let expected: Vec<u64> = chain.append(&tokens).iter().map(vllm::Digest::to_u64).collect();
        let spec = spec("vllm", "0.33.0", algorithm);
        assert_eq!(keys(&spec, &plain), Ok(expected));
        let mut blocks = spec.blocks().unwrap();
        blocks.append(&tokens);
        assert_eq!(blocks.digest(1), Some(chain.digests()[1].as_bytes()));
        assert_eq!(blocks.digest(2), None);
    }
    for (format, algorithm) in [("default", ""), ("default", "default"), ("dynamo", "dynamo")] {
        let contract =
            sglang::Contract::new("0.5.23".parse().unwrap(), format.parse().unwrap()).unwrap();
        let salted = RequestExtras { cache_salt: Some("a".into()), ..plain.clone() };
        let request = sglang::Request { cache_salt: Some("a".into()), ..Default::default() };
        let mut chain = contract.chain_with(4, &request).unwrap();
        let expected: Vec<u64> =
            chain.append(&tokens).iter().map(sglang::PageHash::to_u64).collect();
        assert_eq!(keys(&spec("sglang", "0.5.23", algorithm), &salted), Ok(expected));
    }
    for algorithm in ["", "auto", "v1_block_key", "v2_sha256", "v2_sha256_64"] {
        let named = if algorithm.is_empty() { "auto" } else { algorithm };
        let contract = trtllm::Contract::new(named.parse().unwrap(), trtllm::Manager::V2).unwrap();
        let mut chain = contract.chain(4).unwrap();
        let expected: Vec<u64> =
            chain.append(&tokens).iter().map(trtllm::BlockHash::to_u64).collect();
        assert_eq!(keys(&spec("trtllm", "v2", algorithm), &plain), Ok(expected));
    }
    for algorithm in loxilb::Algorithm::ALL {
        let mut chain = loxilb::Contract::new(algorithm, Some("0")).chain(4).unwrap();
        let expected: Vec<u64> =
            chain.append(&tokens).iter().map(loxilb::BlockHash::to_u64).collect();
        assert_eq!(keys(&spec("loxilb", "", algorithm.as_str()), &plain), Ok(expected));
    }
}

#[test]
fn the_default_algorithm_of_a_version() {
    let plain = RequestExtras::default();
    let sha256 = keys(&spec("vllm", "0.20.0", "sha256"), &plain);
    assert_eq!(keys(&spec("vllm", "0.20.0", ""), &plain), sha256);
    let error = keys(&spec("vllm", "0.10.0", ""), &plain).unwrap_err();
    let builtin = vllm::ContractError::Unknowable(vllm::Unknowable::BuiltinHash);
    assert_eq!(error, SpecError::Vllm(builtin));
}

#[test]
fn what_is_wrong_says_so() {
    let plain = RequestExtras::default();
    let lora = Some(Lora { name: "sql".into(), ..Lora::default() });
    let adapter = RequestExtras { lora, ..RequestExtras::default() };
    let items = vec![MmItem { identifier: "cat".into(), offset: 0, length: 1 }];
    let image = RequestExtras { items, ..RequestExtras::default() };
    let salted = RequestExtras { cache_salt: Some("a".into()), ..RequestExtras::default() };
    for (spec, request, text) in [
        (spec("vllm", "latest", ""), &plain, "\"latest\" is not a version number"),
        (spec("vllm", "0.32.0", "md5"), &plain, "\"md5\" is not a vLLM hash algorithm"),
        (spec("sglang", "0.5.24", ""), &plain, "newer than 0.5.23"),
        (spec("sglang", "0.5.20rc0", ""), &salted, ""),
        (spec("sglang", "0.5.18rc0", ""), &plain, "pre-release"),
        (spec("sglang", "0.5.0", ""), &plain, "older than 0.5.1"),
        (spec("sglang", "0.5.21", "dynamo"), &plain, "0.5.22 and later"),
        (spec("sglang", "0.5.23", "json"), &plain, "not an SGLang event format"),
        (spec("sglang", "0.5.23", ""), &adapter, "`lora_name` of events"),
        (spec("sglang", "0.5.22", ""), &adapter, ""),
        (spec("sglang", "0.5.22", ""), &image, "multimodal items"),
        (spec("trtllm", "v1", "v2_sha256"), &plain, "no hash algorithm v2_sha256"),
        (spec("trtllm", "v1", ""), &salted, "std::hash"),
        (spec("trtllm", "v2", ""), &adapter, "task id"),
        (spec("trtllm", "1.2.1", ""), &plain, "v1 or v2"),
        (spec("trtllm", "v2", "sha"), &plain, "event hash algorithm"),
        (spec("loxilb", "", "sha256"), &plain, "not a LoxiLB hash algorithm"),
        (Spec { block_size: 0, ..spec("loxilb", "", "") }, &plain, "block size 0"),
        (Spec { block_size: 0, ..spec("trtllm", "v2", "") }, &plain, "block size 0"),
        (Spec { block_size: 0, ..spec("sglang", "0.5.9", "") }, &plain, "page size 0"),
    ] {
        match keys(&spec, request) {
            Ok(_) => assert_eq!(text, "", "{spec:?}"),
            Err(error) => {
                let message = error.to_string();
                assert!(!text.is_empty() && message.contains(text), "{spec:?}: {message}");
            }
        }
    }
    assert!("VLLM".parse::<Engine>().unwrap_err().to_string().contains("vllm, sglang"));
}
