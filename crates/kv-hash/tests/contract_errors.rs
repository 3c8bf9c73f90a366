//! What a stranger gets wrong, and what they are told.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use kvasir_kv_hash::vllm::{
    Algorithm, Block, Contract, ContractError, Digest, ExtraKey, Generation, Lora, MmItem,
    PromptEmbeds, RequestExtras, Unknowable, Version, token_ids,
};

const CBOR: Algorithm = Algorithm::Sha256Cbor;

fn engine(version: &str) -> Contract {
    Contract::new(version.parse().unwrap(), CBOR, Some("0")).unwrap()
}

fn item(offset: usize, length: usize) -> MmItem {
    MmItem { identifier: "image".into(), offset, length }
}

fn with_items(items: Vec<MmItem>) -> RequestExtras {
    RequestExtras { items, ..RequestExtras::default() }
}

#[test]
fn algorithms_parse_as_vllm_spells_them() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
    for text in ["SHA256", "sha-256", "sha256 ", "", "md5"] {
        let error = text.parse::<Algorithm>().unwrap_err();
        assert_eq!(error, ContractError::BadAlgorithm { text: text.into() });
        assert!(error.to_string().contains("sha256_cbor"), "names the choices: {error}");
    }
}

#[test]
fn an_algorithm_the_engine_does_not_have() {
    for (version, algorithm) in [
        ("0.10.1.1", CBOR),
        ("0.10.2", Algorithm::Builtin),
        ("0.9.2", Algorithm::Sha256Cbor64Bit),
        ("0.10.2", Algorithm::Sha256Cbor64Bit),
        ("0.12.0", Algorithm::Xxhash),
        ("0.12.0", Algorithm::XxhashCbor),
    ] {
        let version: Version = version.parse().unwrap();
        let error = Contract::new(version, algorithm, Some("0")).unwrap_err();
        assert_eq!(error, ContractError::NotOffered { algorithm, version });
    }
}

#[test]
fn what_is_unknowable_says_what_to_do() {
    let new = |version: &str, algorithm, seed| {
        Contract::new(version.parse().unwrap(), algorithm, seed).unwrap_err()
    };
    let builtin = ContractError::Unknowable(Unknowable::BuiltinHash);
    let random = ContractError::Unknowable(Unknowable::RandomNoneHash);
    assert_eq!(new("0.9.2", Algorithm::Builtin, Some("0")), builtin);
    assert_eq!(new("0.9.2", Algorithm::Sha256, None), random);
    assert_eq!(new("0.28.0", CBOR, None), random);
    assert_eq!(new("0.33.0", Algorithm::Xxhash, None), random);
    for error in [builtin, random] {
        assert!(error.to_string().contains("index by the tokens"), "{error}");
    }
    for algorithm in [Algorithm::Sha256, CBOR] {
        assert!(Contract::new(Version::release(0, 29, 0), algorithm, None).is_ok());
    }
}

#[test]
fn a_none_hash_that_cannot_be() {
    let version = Version::release(0, 28, 0);
    for len in [0, 33] {
        let error = Contract::with_none_hash(version, CBOR, vec![0; len]).unwrap_err();
        assert_eq!(error, ContractError::BadNoneHash { len });
    }
    assert!(Contract::with_none_hash(version, Algorithm::Xxhash, [7; 32]).is_ok());
}

#[test]
fn digests_from_text() {
    let digest: Digest = "00ffAB".parse().unwrap();
    assert_eq!((digest.as_bytes(), digest.to_u64()), (&[0, 255, 0xab][..], 0xffab));
    assert_eq!(digest.to_string(), "00ffab");
    assert_eq!(Digest::from_bytes(&[0, 255, 0xab]), Ok(digest));
    for text in ["", "a", "0g", "+1", "é", &"00".repeat(33), &"x".repeat(10_000)] {
        let error = text.parse::<Digest>().unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
    }
    assert!(Digest::from_bytes(&[]).is_err() && Digest::from_bytes(&[0; 33]).is_err());
}

#[test]
fn single_blocks_refuse_what_chains_refuse() {
    let contract = engine("0.33.0");
    let lora = Lora { name: "sql".into(), ..Lora::default() };
    let block = Block { tokens: &[1], keys: &[ExtraKey::Lora(&lora)], ahead: &[] };
    let error = contract.hasher().hash(&contract.none_hash(), &block).unwrap_err();
    assert!(matches!(error, ContractError::LoraPartMissing { part: "path", .. }));
}

#[test]
fn an_empty_seed_is_a_set_seed() {
    let version = Version::release(0, 33, 0);
    let empty = Contract::new(version, CBOR, Some("")).unwrap();
    assert_ne!(empty, Contract::new(version, CBOR, None).unwrap());
    assert!(Contract::new(Version::release(0, 20, 0), CBOR, Some("")).is_ok());
}

#[test]
fn block_size_group_and_lookahead() {
    let contract = engine("0.33.0");
    assert_eq!(contract.chain(0).unwrap_err(), ContractError::ZeroBlockSize);
    assert_eq!(contract.group_hashes(&[], 0), Err(ContractError::ZeroGroup));
    let old = engine("0.11.2");
    let no_view = ContractError::NoGroupView { version: old.version() };
    assert_eq!(old.group_hashes(&[], 2), Err(no_view));
    assert_eq!(old.with_lookahead(0), Ok(old));
    let no_lookahead = ContractError::NoLookahead { version: old.version() };
    assert_eq!(old.with_lookahead(1), Err(no_lookahead));
}

#[test]
fn sizes_beyond_any_prompt_hash_nothing() {
    let contract = engine("0.33.0").with_lookahead(usize::MAX).unwrap();
    for block_size in [1, 16, usize::MAX] {
        let mut chain = contract.chain(block_size).unwrap();
        assert!(chain.append(&[1; 50]).is_empty());
        assert!(chain.append(&[1; 50]).is_empty());
        assert_eq!(chain.token_count(), 100);
    }
}

#[test]
fn tokens_out_of_range() {
    assert_eq!(token_ids(&[0, 4_294_967_295]), Ok(vec![0, u32::MAX]));
    for token in [-1, 4_294_967_296] {
        let error = ContractError::TokenOutOfRange { index: 1, token };
        assert_eq!(token_ids(&[7, token]), Err(error));
    }
}

#[test]
fn an_adapter_without_the_part_that_is_hashed() {
    let lora = Lora { name: "sql".into(), ..Lora::default() };
    let extras = RequestExtras { lora: Some(lora), ..RequestExtras::default() };
    for (version, part) in [("0.11.0", Some("int_id")), ("0.30.0", None), ("0.31.0", Some("path"))]
    {
        let contract = engine(version);
        let missing = part
            .map(|part| ContractError::LoraPartMissing { generation: contract.generation(), part });
        assert_eq!(contract.chain_with(16, extras.clone()).err(), missing, "{version}");
    }
}

#[test]
fn embeddings_and_items_that_cannot_be() {
    for (len, row_bytes) in [(10, 3), (10, 0), (0, 0)] {
        let error = PromptEmbeds::new(vec![0; len], row_bytes).unwrap_err();
        assert_eq!(error, ContractError::BadPromptEmbeds { len, row_bytes });
    }
    let embeds = PromptEmbeds::new(vec![0; 12], 3).unwrap();
    let extras = RequestExtras { prompt_embeds: Some(embeds), ..RequestExtras::default() };
    let old = engine("0.11.0");
    let error = ContractError::NoPromptEmbeds { version: old.version() };
    assert_eq!(old.chain_with(16, extras).unwrap_err(), error);

    let contract = engine("0.33.0");
    for (items, error) in [
        (vec![item(5, 0)], ContractError::BadItemLength { index: 0, length: 0 }),
        (
            vec![item(5, 1), item(usize::MAX, 1)],
            ContractError::BadItemLength { index: 1, length: 1 },
        ),
        (vec![item(5, 1), item(4, 1)], ContractError::ItemsOutOfOrder { index: 1 }),
    ] {
        assert_eq!(contract.chain_with(16, with_items(items)).unwrap_err(), error);
    }
}

#[test]
fn a_version_not_known_by_number_can_be_assumed() {
    let error = Contract::new("0.40.0".parse().unwrap(), CBOR, None).unwrap_err();
    assert!(matches!(error, ContractError::UnverifiedVersion { .. }));
    assert!(
        error.to_string().contains("of a verified release, give its number"),
        "says what to do: {error}"
    );
    let assumed = Contract::new(Generation::H.first_release(), CBOR, None).unwrap();
    assert_eq!(assumed.generation(), Generation::H);
}
