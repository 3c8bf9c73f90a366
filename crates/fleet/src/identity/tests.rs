use super::*;

fn hashing(algorithm: HashAlgorithm, seed: Option<&str>, version: Option<&str>) -> EngineHashing {
    EngineHashing {
        algorithm,
        seed: seed.map(str::to_owned),
        version: version.map(|text| text.parse().unwrap()),
    }
}

fn card(version: Option<&str>) -> EngineCard {
    EngineCard { version: version.map(str::to_owned), ..EngineCard::default() }
}

const SHA: HashAlgorithm = HashAlgorithm::Vllm(vllm::Algorithm::Sha256);

fn generation(contract: Contract) -> vllm::Generation {
    match contract {
        Contract::Vllm(contract) => contract.generation(),
        other => panic!("{other}"),
    }
}

#[test]
fn the_version_is_the_configured_one_else_what_the_engine_says_else_the_newest() {
    use vllm::Generation::{D, E, H};
    let seeded = |version| hashing(SHA, Some("0"), version);
    let of = |hashing: &EngineHashing, card: Option<&EngineCard>| {
        generation(hashing.contract(card).unwrap())
    };
    assert_eq!(of(&seeded(Some("0.17.1")), Some(&card(Some("0.20.2")))), D);
    assert_eq!(of(&seeded(None), Some(&card(Some("0.20.2")))), E);
    for unknown in [None, Some("9.9"), Some("main"), Some("0.20.3.dev4+gabc")] {
        assert_eq!(of(&seeded(None), Some(&card(unknown))), H, "{unknown:?}");
    }
    assert_eq!(of(&seeded(None), None), H, "before it has said anything");
    let old = hashing(HashAlgorithm::Vllm(vllm::Algorithm::Sha256Cbor64Bit), Some("0"), None);
    assert!(old.contract(Some(&card(None))).is_ok());
    assert_eq!(
        old.contract(Some(&card(Some("0.32.0")))).unwrap_err(),
        NoContract::Never(
            "algorithm",
            "vLLM 0.32.0 has no hash algorithm sha256_cbor_64bit".to_owned(),
        )
    );
}

#[test]
fn whether_a_seed_is_needed_the_version_decides() {
    let unseeded = hashing(SHA, None, None);
    assert_eq!(unseeded.contract(None).unwrap_err(), NoContract::NotTold);
    assert!(unseeded.contract(Some(&card(Some("0.29.0")))).is_ok());
    let old = unseeded.contract(Some(&card(Some("0.28.0")))).unwrap_err();
    assert!(matches!(old, NoContract::Never("unseeded", _)), "{old:?}");
}

#[test]
fn requests_whose_blocks_cannot_be_told_have_no_hashes() {
    let request = Hashed { block_size: 4, lookahead: 0, lora: None, salt: None };
    let tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    let vllm = |version| hashing(SHA, Some("0"), Some(version)).contract(None).unwrap();
    let with_path = Some(("a", Some("/a")));
    let without = Some(("a", None));
    for (version, lora, known) in [
        ("0.11.0", with_path, false),
        ("0.20.2", without, true),
        ("0.32.0", without, false),
        ("0.32.0", with_path, true),
    ] {
        let found = Hashed { lora, ..request }.hashes(&vllm(version), &tokens);
        assert_eq!(found.is_some(), known, "{version} {lora:?}");
        assert_ne!(
            found,
            request.hashes(&vllm(version), &tokens),
            "an adapter's blocks are others"
        );
    }
    let ahead = Hashed { lookahead: 1, ..request };
    assert_eq!(ahead.hashes(&vllm("0.32.0"), &tokens), None);
    assert_eq!(ahead.hashes(&vllm("0.33.0"), &tokens).map(|hashes| hashes.len()), Some(2));
    let sglang =
        |version| hashing(HashAlgorithm::Sglang, None, Some(version)).contract(None).unwrap();
    let salted = Hashed { salt: Some("s"), ..request };
    assert_eq!(salted.hashes(&sglang("0.5.17"), &tokens), None);
    assert!(salted.hashes(&sglang("0.5.18"), &tokens).is_some());
    assert_eq!(Hashed { lora: with_path, ..request }.hashes(&sglang("0.5.23"), &tokens), None);
    assert_eq!(request.hashes(&sglang("0.5.23"), &tokens).map(|hashes| hashes.len()), Some(2));
    assert_ne!(
        ahead.hashes(&sglang("0.5.23"), &tokens),
        request.hashes(&sglang("0.5.23"), &tokens)
    );
}
