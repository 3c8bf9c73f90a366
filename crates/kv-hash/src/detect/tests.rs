//! Each part of a configuration, put wrong in turn.

use super::*;
use crate::vllm::{Algorithm, Contract, Generation, Lora, MmItem, RequestExtras, Version};
use crate::{sglang, trtllm};

fn engine(version: &str, algorithm: Algorithm, seed: Option<&str>) -> Contract {
    Contract::new(version.parse().unwrap(), algorithm, seed).unwrap()
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| i * 37 % 5000).collect()
}

/// A chain's hashes, as integers or bytes.
fn hashes(contract: &Contract, block_size: usize, tokens: &[u32], form: Form) -> Vec<EventHash> {
    let mut chain = contract.chain(block_size).unwrap();
    let digests = chain.append(tokens).iter();
    let hash = |digest: &crate::vllm::Digest| match form {
        Form::Int => EventHash::Int(digest.to_u64()),
        Form::Bytes => EventHash::Bytes(digest.as_bytes().to_vec()),
    };
    digests.map(hash).collect()
}

fn event<'a>(hashes: &'a [EventHash], tokens: &'a [u32], block_size: usize) -> StoredEvent<'a> {
    StoredEvent { hashes, tokens, block_size, ..StoredEvent::default() }
}

fn expected() -> Expected<'static> {
    Expected {
        engine: Some("vllm"),
        version: Some(Version::release(0, 32, 0)),
        algorithm: Some("sha256_cbor"),
        seed: Some(Some("0")),
        block_size: Some(16),
        form: Some(Form::Int),
    }
}

fn legs(hashes: &[EventHash], block_size: usize) -> (Report, String) {
    let tokens = tokens(48);
    let report = Detector::new().expect(expected()).run(&[event(hashes, &tokens, block_size)]);
    let text = report.to_string();
    (report, text)
}

#[test]
fn as_expected() {
    let contract = engine("0.32.0", Algorithm::Sha256Cbor, Some("0"));
    let (report, text) = legs(&hashes(&contract, 16, &tokens(48), Form::Int), 16);
    assert!(report.is_as_expected(), "{text}");
    assert_eq!(report.legs, []);
    assert_eq!(
        text,
        "vLLM sha256_cbor, seed \"0\", generations B to H, integer hashes, block size 16 \
         (3 of 3 blocks verified)"
    );
}

#[test]
fn one_leg_off() {
    let sha = Algorithm::Sha256Cbor;
    for (contract, size, form, expected_text) in [
        (
            engine("0.32.0", Algorithm::Xxhash, Some("0")),
            16,
            Form::Int,
            "algorithm is xxhash, you configured sha256_cbor",
        ),
        (engine("0.32.0", sha, Some("7")), 16, Form::Int, "seed is \"7\", you configured \"0\""),
        (engine("0.32.0", sha, None), 16, Form::Int, "seed is unset, you configured \"0\""),
        (engine("0.32.0", sha, Some("0")), 8, Form::Int, "block size is 8, you configured 16"),
        (
            engine("0.32.0", sha, Some("0")),
            16,
            Form::Bytes,
            "hashes are byte strings, you configured integers (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES)",
        ),
        (
            engine("0.32.0", sha, Some("a secret")),
            16,
            Form::Bytes,
            "hashes are byte strings, you configured integers (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES)",
        ),
    ] {
        let (report, text) = legs(&hashes(&contract, size, &tokens(48), form), size);
        assert!(!report.is_as_expected());
        assert!(text.contains(expected_text), "{text}");
    }
}

#[test]
fn a_seed_that_is_no_candidate() {
    let contract = engine("0.32.0", Algorithm::Sha256, Some("a secret"));
    // Bytes show whole parents, so that the algorithm is certain.
    let (report, text) = legs(&hashes(&contract, 16, &tokens(48), Form::Bytes), 16);
    assert!(report.legs.contains(&Leg::SeedUnknown { tried: 1028 }), "{text}");
    assert!(text.contains("algorithm is sha256, you configured sha256_cbor"), "{text}");
    assert!(text.contains("seed differs: not among 1028 candidates"), "{text}");
    // Integers do not.
    let (report, text) = legs(&hashes(&contract, 16, &tokens(48), Form::Int), 16);
    assert_eq!(report.found, None);
    assert_eq!(report.legs, [Leg::NothingFits { tried: 1028 }], "{text}");
    // The right candidate makes all plain.
    let tokens = tokens(48);
    let hashes = hashes(&contract, 16, &tokens, Form::Int);
    let mut seeds = Seeds::none();
    seeds.put_first(Seed::Text("a secret".into()));
    let report = Detector::new().seeds(seeds).run(&[event(&hashes, &tokens, 16)]);
    assert_eq!(report.legs, []);
    assert_eq!(report.found.unwrap().verified, 3);
}

#[test]
fn without_a_first_block() {
    let contract = engine("0.32.0", Algorithm::Sha256Cbor, Some("0"));
    let tokens = tokens(48);
    for (form, fits) in [(Form::Int, false), (Form::Bytes, true)] {
        let hashes = hashes(&contract, 16, &tokens, form);
        let parent = Some(&hashes[0]);
        let later = StoredEvent { parent, ..event(&hashes[1..], &tokens[16..], 16) };
        let report = Detector::new().run(&[later]);
        assert_eq!(report.found.is_some(), fits);
        assert_eq!(report.legs, [Leg::NoRoot], "{report}");
        // Events in any number of pieces.
        let first = event(&hashes[..1], &tokens[..16], 16);
        let report = Detector::new().run(&[first, later]);
        assert_eq!(report.found.unwrap().verified, 3);
    }
}

#[test]
fn generations_by_what_only_they_hash() {
    use Generation::{B, C, F, H};
    for (version, algorithm, seed, generations) in [
        ("0.12.0", Algorithm::Sha256, Some("0"), (B, H)),
        ("0.13.0", Algorithm::Xxhash, Some("0"), (C, H)),
        ("0.30.0", Algorithm::Sha256, None, (F, H)),
    ] {
        let tokens = tokens(48);
        let contract = engine(version, algorithm, seed);
        let hashes = hashes(&contract, 16, &tokens, Form::Int);
        let configured = Version::release(0, 20, 0);
        let old = Expected { version: Some(configured), ..Expected::default() };
        let report = Detector::new().expect(old).run(&[event(&hashes, &tokens, 16)]);
        let Found::Vllm { generations: found, .. } = report.found.unwrap().found else {
            panic!("not vLLM")
        };
        assert_eq!(found, generations);
        let off = Leg::Generation { configured, found };
        assert_eq!(report.legs.contains(&off), generations.0 == F);
    }
    // The only contract of generation A that can publish.
    let contract = engine("0.10.1.1", Algorithm::Sha256Cbor64Bit, Some("0"));
    let tokens = tokens(48);
    let hashes = hashes(&contract, 16, &tokens, Form::Int);
    let later = StoredEvent { parent: Some(&hashes[0]), ..event(&hashes[1..], &tokens[16..], 16) };
    let report = Detector::new().run(&[later]);
    assert!(report.to_string().starts_with("vLLM sha256_cbor_64bit, seed unknown, generation A"));
}

#[test]
fn extra_keys_as_events_show_them() {
    let lora = Lora { name: "sql".into(), path: Some("/sql".into()), int_id: Some(1) };
    let request = RequestExtras {
        lora: Some(lora),
        cache_salt: Some("s".into()),
        items: vec![MmItem { identifier: "cat".into(), offset: 5, length: 20 }],
        prompt_embeds: None,
    };
    let tokens = tokens(48);
    let (name, salt) = (EventKey::Text("sql"), EventKey::Text("s"));
    let keys: [&[EventKey<'_>]; 3] =
        [&[name, EventKey::Item("cat", 5), salt], &[name, EventKey::Item("cat", -11)], &[name]];
    for version in ["0.20.0", "0.33.0"] {
        let contract = engine(version, Algorithm::Sha256, Some("3"));
        let mut chain = contract.chain_with(16, request.clone()).unwrap();
        let hashes: Vec<EventHash> =
            chain.append(&tokens).iter().map(|d| EventHash::Int(d.to_u64())).collect();
        let event = StoredEvent {
            lora_name: Some("sql"),
            extra_keys: &keys,
            ..event(&hashes, &tokens, 16)
        };
        let paths = ["/other".to_owned(), "/sql".to_owned()];
        let report = Detector::new().lora_paths(paths).run(&[event]);
        let kinds = vec!["cache_salt", "lora", "multimodal"];
        assert_eq!(report.legs, [Leg::ExtraKeys { kinds }], "{version}: {report}");
        assert_eq!(report.found.unwrap().verified, 3);
        // Unpublished, they explain nothing.
        let bare = StoredEvent { extra_keys: &[], lora_name: None, ..event };
        assert_eq!(Detector::new().run(&[bare]).legs, [Leg::NothingFits { tried: 1028 }]);
    }
}

#[test]
fn a_salted_block_beside_a_plain_chain() {
    let contract = engine("0.32.0", Algorithm::Sha256Cbor, Some("0"));
    let tokens = tokens(48);
    let plain = hashes(&contract, 16, &tokens, Form::Int);
    let salted = RequestExtras { cache_salt: Some("x".into()), ..RequestExtras::default() };
    let mut chain = contract.chain_with(16, salted).unwrap();
    let salted: Vec<EventHash> =
        chain.append(&tokens).iter().map(|d| EventHash::Int(d.to_u64())).collect();
    let events = [event(&plain, &tokens, 16), event(&salted, &tokens, 16)];
    let report = Detector::new().expect(expected()).run(&events);
    assert_eq!(report.legs, [Leg::Unexplained { blocks: 1 }], "{report}");
}

#[test]
fn groups_of_hybrid_models() {
    let contract = engine("0.20.0", Algorithm::XxhashCbor, Some("0"));
    let tokens = tokens(96);
    let mut chain = contract.chain(16).unwrap();
    chain.append(&tokens);
    let groups = contract.group_hashes(chain.digests(), 2).unwrap();
    let int: Vec<_> = groups.iter().map(|hash| EventHash::Int(hash.to_u64())).collect();
    let bytes: Vec<_> =
        groups.iter().map(|hash| EventHash::Bytes(hash.as_bytes().to_vec())).collect();
    for hashes in [int, bytes] {
        let report = Detector::new().run(&[event(&hashes, &tokens, 32)]);
        let found = report.found.as_ref().unwrap();
        assert_eq!(found.verified, 3, "{report}");
        assert!(report.to_string().contains("hashed in blocks of 16"), "{report}");
    }
}

#[test]
fn lookahead() {
    let contract = engine("0.33.0", Algorithm::Sha256Cbor, Some("0")).with_lookahead(1).unwrap();
    let tokens = tokens(49);
    let hashes = hashes(&contract, 16, &tokens, Form::Int);
    let ahead: Vec<&[u32]> = vec![&tokens[16..17], &tokens[32..33], &tokens[48..]];
    let event = StoredEvent { lookahead: &ahead, ..event(&hashes, &tokens[..48], 16) };
    let report = Detector::new().run(&[event]);
    assert_eq!(report.found.as_ref().unwrap().verified, 3);
    assert!(report.to_string().contains("generation H"), "{report}");
}

#[test]
fn other_engines() {
    let tokens = tokens(48);
    let sglang = |version: &str, salt: Option<&str>, format| {
        let contract = sglang::Contract::new(version.parse().unwrap(), format).unwrap();
        let cache_salt = salt.map(str::to_owned);
        let request = sglang::Request { cache_salt, ..sglang::Request::default() };
        let mut chain = contract.chain_with(16, &request).unwrap();
        chain.append(&tokens).iter().map(|page| page.to_i64().into()).collect::<Vec<EventHash>>()
    };
    let trtllm = |salt: Option<&str>, algorithm| {
        let contract = trtllm::Contract::new(algorithm, trtllm::Manager::V2).unwrap();
        let salt = salt.map(|salt| trtllm::Salt::Text(salt.to_owned()));
        let request = trtllm::Request { salt, ..trtllm::Request::default() };
        let mut chain = contract.chain_with(16, request).unwrap();
        let hash = |hash: &trtllm::BlockHash| match hash.digest() {
            Some(digest) => EventHash::Bytes(digest.to_vec()),
            None => EventHash::Int(hash.to_u64()),
        };
        chain.append(&tokens).iter().map(hash).collect::<Vec<EventHash>>()
    };
    let (plain, dynamo) = (sglang::EventFormat::Default, sglang::EventFormat::Dynamo);
    for (hashes, salt, text) in [
        (sglang("0.5.3", None, plain), None, "SGLang TupleHash, "),
        (sglang("0.5.9", None, plain), None, "SGLang 0.5.6 and later, "),
        (sglang("0.5.23", Some("a"), plain), Some("a"), "SGLang 0.5.18 and later, "),
        (
            sglang("0.5.23", Some("a"), dynamo),
            Some("a"),
            "SGLang 0.5.22 and later, dynamo event format, ",
        ),
        (trtllm(None, trtllm::Algorithm::Auto), None, "TensorRT-LLM v1_block_key, "),
        (trtllm(Some("a"), trtllm::Algorithm::Auto), Some("a"), "TensorRT-LLM v1_block_key, "),
        (trtllm(None, trtllm::Algorithm::V2Sha256), None, "TensorRT-LLM v2_sha256, "),
        (
            trtllm(Some("a"), trtllm::Algorithm::V2Sha256First64),
            Some("a"),
            "TensorRT-LLM v2_sha256_64, ",
        ),
    ] {
        let event = StoredEvent { cache_salt: salt, ..event(&hashes, &tokens, 16) };
        let report = Detector::new().expect(expected()).run(&[event]);
        assert!(report.to_string().starts_with(text), "{report}");
        assert_eq!(report.found.as_ref().unwrap().verified, 3);
        assert!(matches!(report.legs[0], Leg::Engine { .. }), "{report}");
    }
}

#[test]
fn an_algorithm_configured_beside_the_one_found() {
    let tokens = tokens(48);
    let hashes_by = |algorithm| {
        let contract = trtllm::Contract::new(algorithm, trtllm::Manager::V2).unwrap();
        let mut chain = contract.chain_with(16, trtllm::Request::default()).unwrap();
        let hash = |hash: &trtllm::BlockHash| match hash.digest() {
            Some(digest) => EventHash::Bytes(digest.to_vec()),
            None => EventHash::Int(hash.to_u64()),
        };
        chain.append(&tokens).iter().map(hash).collect::<Vec<EventHash>>()
    };
    let (auto, v2) = (trtllm::Algorithm::Auto, trtllm::Algorithm::V2Sha256);
    // TensorRT-LLM's `auto` is v1_block_key, and nothing else.
    for (algorithm, configured, said) in [
        (auto, "auto", false),
        (auto, "v1_block_key", false),
        (auto, "v2_sha256", true),
        (v2, "v2_sha256", false),
        (v2, "auto", true),
        (v2, "v1_block_key", true),
    ] {
        let hashes = hashes_by(algorithm);
        let expected =
            Expected { engine: Some("trtllm"), algorithm: Some(configured), ..Expected::default() };
        let report = Detector::new().expect(expected).run(&[event(&hashes, &tokens, 16)]);
        let found = report.legs.iter().any(|leg| matches!(leg, Leg::Algorithm { .. }));
        assert_eq!(found, said, "{configured}: {report}");
    }
}

#[test]
fn nothing_to_check() {
    let hashes = [EventHash::Int(1)];
    let offloaded = StoredEvent { hashes: &hashes, block_size: 0, ..StoredEvent::default() };
    // A window's blocks were left out, so that tokens cannot be told apart.
    let window = event(&hashes, &[1, 2, 3, 4], 2);
    let report = Detector::new().run(&[offloaded, window]);
    assert_eq!((report.found, report.legs), (None, vec![Leg::NoTokens]));
}

#[test]
fn lists_of_seeds() {
    let seeds: Seeds = "unset,0..3,random,2,a b,".parse().unwrap();
    let texts: Vec<String> = seeds.iter().map(Seed::to_string).collect();
    assert_eq!(
        texts,
        ["unset", "\"0\"", "\"1\"", "\"2\"", "\"3\"", "\"random\"", "\"a b\"", "\"\""]
    );
    for text in ["5..4", "a..b", "0..4294967296", "0..65536", "1..", "0..65535,x"] {
        assert!(text.parse::<Seeds>().is_err(), "{text}");
    }
    assert_eq!("0..65534".parse::<Seeds>().unwrap().len(), 65_535);

    // What is put first stands once in the list, and costs a full one its last.
    let mut full: Seeds = "0..65534".parse().unwrap();
    let seed = |text| Seed::from(Some(text));
    for text in ["a", "b", "7"] {
        full.put_first(seed(text));
        assert_eq!(full.len(), Seeds::MAX, "{text}");
    }
    assert!(full.iter().take(4).eq(&[seed("7"), seed("b"), seed("a"), seed("0")]));
    assert_eq!(full.iter().filter(|known| **known == seed("7")).count(), 1);
    assert!(full.iter().all(|known| *known != seed("65534")));
}
