use super::*;
use crate::detect::{Detector, EventHash, StoredEvent};
use crate::vllm::RequestExtras;

const SIZE: usize = 16;

/// The blocks of a chain whose hashes are these.
fn blocks<'a>(hashes: &'a [u64], tokens: &'a [u32]) -> Vec<PublishedBlock<'a>> {
    let parents = std::iter::once(None).chain(hashes.iter().copied().map(Some));
    let chunks = tokens.chunks_exact(SIZE);
    hashes
        .iter()
        .zip(parents)
        .zip(chunks)
        .map(|((hash, parent), tokens)| PublishedBlock { hash: *hash, parent, tokens, ahead: &[] })
        .collect()
}

fn verdicts(contract: Contract, hashes: &[u64], tokens: &[u32]) -> Vec<Verdict> {
    let mut verifier = Verifier::new(contract, 100);
    blocks(hashes, tokens).iter().map(|block| verifier.check(block)).collect()
}

fn vllm(version: &str, algorithm: Algorithm, seed: &str) -> vllm::Contract {
    vllm::Contract::new(version.parse().unwrap(), algorithm, Some(seed)).unwrap()
}

fn hashes_of(contract: &vllm::Contract, tokens: &[u32], extras: RequestExtras) -> Vec<u64> {
    let mut chain = contract.chain_with(SIZE, extras).unwrap();
    chain.append(tokens).iter().map(Digest::to_u64).collect()
}

/// Each contract with the hashes of these tokens.
fn contracts(tokens: &[u32]) -> Vec<(Contract, Vec<u64>)> {
    let of_vllm = [
        vllm("0.10.0", Algorithm::Sha256Cbor64Bit, "7"),
        vllm("0.16.0", Algorithm::Sha256, "7"),
        vllm("0.20.2", Algorithm::Sha256Cbor, "random"),
        vllm("0.32.0", Algorithm::Xxhash, "7"),
        vllm("0.33.0", Algorithm::XxhashCbor, "0"),
    ];
    let mut all: Vec<(Contract, Vec<u64>)> = of_vllm
        .into_iter()
        .map(|c| (Contract::Vllm(c), hashes_of(&c, tokens, RequestExtras::default())))
        .collect();
    for version in ["0.5.3", "0.5.15", "0.5.23"] {
        let format = sglang::EventFormat::Default;
        let contract = sglang::Contract::new(version.parse().unwrap(), format).unwrap();
        let mut chain = contract.chain(SIZE).unwrap();
        let hashes = chain.append(tokens).iter().map(sglang::PageHash::to_u64).collect();
        all.push((Contract::Sglang(contract), hashes));
    }
    let v1 = trtllm::Contract::new(trtllm::Algorithm::V1BlockKey, trtllm::Manager::V1).unwrap();
    let mut chain = v1.chain(SIZE).unwrap();
    let hashes = chain.append(tokens).iter().map(trtllm::BlockHash::to_u64).collect();
    all.push((Contract::TrtLlmV1, hashes));
    all
}

#[test]
fn blocks_fit_their_own_contract_and_no_other() {
    let tokens: Vec<u32> = (0..64).map(|n| n * 70_001).collect();
    let all = contracts(&tokens);
    for (one, (contract, _)) in all.iter().enumerate() {
        for (other, (_, hashes)) in all.iter().enumerate() {
            let found = verdicts(*contract, hashes, &tokens);
            // Plain pages of SGLang are the same in every generation that chains them.
            let same_chain = [one, other].iter().all(|at| (6..8).contains(at));
            let expected =
                if one == other || same_chain { Verdict::Fits } else { Verdict::Differs };
            assert_eq!(found[0], expected, "{contract} {one} {other}");
            assert!(
                !found[1..].iter().any(|v| (*v == Verdict::Fits) != (expected == Verdict::Fits))
            );
        }
    }
}

#[test]
fn what_detection_finds_is_followed() {
    let tokens: Vec<u32> = (0..64).collect();
    for (contract, hashes) in contracts(&tokens) {
        let published: Vec<EventHash> = hashes.iter().copied().map(EventHash::Int).collect();
        let event = StoredEvent {
            hashes: &published,
            tokens: &tokens,
            block_size: SIZE,
            ..Default::default()
        };
        let report = Detector::new().run(&[event]);
        let found = Contract::of_plain_blocks(&report.found.unwrap().found).unwrap();
        assert_eq!(verdicts(found, &hashes, &tokens), [Verdict::Fits; 4], "{contract}");
    }
}

#[test]
fn salted_blocks_and_those_behind_them_do_not_pass_for_plain() {
    let contract = vllm("0.16.0", Algorithm::Sha256, "0");
    let tokens: Vec<u32> = (0..48).collect();
    let salted = RequestExtras { cache_salt: Some("a".to_owned()), ..Default::default() };
    let hashes = hashes_of(&contract, &tokens, salted);
    let found = verdicts(Contract::Vllm(contract), &hashes, &tokens);
    assert_eq!(found, [Verdict::Differs, Verdict::NoParent, Verdict::NoParent]);
}

#[test]
fn tokens_ahead_are_part_of_the_hash() {
    let contract = vllm("0.33.0", Algorithm::Sha256, "0").with_lookahead(2).unwrap();
    let tokens: Vec<u32> = (0..2 * 16 + 2).collect();
    let hashes = hashes_of(&contract, &tokens, RequestExtras::default());
    let mut verifier = Verifier::new(Contract::Vllm(contract), 10);
    for (at, block) in blocks(&hashes, &tokens).into_iter().enumerate() {
        let end = (at + 1) * SIZE;
        let ahead = PublishedBlock { ahead: &tokens[end..end + 2], ..block };
        assert_eq!(verifier.check(&block), Verdict::Differs);
        assert_eq!(verifier.check(&ahead), Verdict::Fits);
    }
    let bigrams = sglang::Contract::new("0.5.23".parse().unwrap(), sglang::EventFormat::Default)
        .unwrap()
        .with_bigrams(true);
    let mut chain = bigrams.chain(SIZE).unwrap();
    let hash = chain.append(&tokens)[0].to_u64();
    let page = PublishedBlock { hash, parent: None, tokens: &tokens[..16], ahead: &tokens[16..17] };
    let plain = sglang::Contract::new("0.5.23".parse().unwrap(), sglang::EventFormat::Default);
    let mut verifier = Verifier::new(Contract::Sglang(plain.unwrap()), 10);
    assert_eq!(verifier.check(&page), Verdict::Fits);
    assert_eq!(verifier.check(&PublishedBlock { ahead: &[], ..page }), Verdict::Differs);
}

#[test]
fn digests_are_bounded_and_go_with_their_blocks() {
    let contract = vllm("0.32.0", Algorithm::Sha256, "0");
    let tokens: Vec<u32> = (0..320).collect();
    let hashes = hashes_of(&contract, &tokens, RequestExtras::default());
    let blocks = blocks(&hashes, &tokens);
    let mut verifier = Verifier::new(Contract::Vllm(contract), 4);
    for block in &blocks {
        assert_eq!(verifier.check(block), Verdict::Fits);
    }
    assert!(verifier.len() == 4 && !verifier.is_empty());
    assert_eq!(verifier.check(&blocks[1]), Verdict::NoParent);
    // A block that comes and goes takes nobody else's place.
    for _ in 0..4 {
        verifier.removed(hashes[19]);
        assert_eq!(verifier.check(&blocks[19]), Verdict::Fits);
    }
    assert_eq!(verifier.len(), 4);
    verifier.removed(hashes[18]);
    assert_eq!(verifier.check(&blocks[19]), Verdict::NoParent);
    verifier.forget();
    assert!(verifier.is_empty());
}

#[test]
fn a_parent_never_seen_is_known_where_its_event_hash_is_all_of_it() {
    let tokens: Vec<u32> = (0..48).collect();
    for (contract, hashes) in contracts(&tokens) {
        let expected = match contract {
            Contract::Vllm(c) if c.algorithm() != Algorithm::Sha256Cbor64Bit => Verdict::NoParent,
            Contract::Sglang(c) if c.generation() > sglang::Generation::TupleHash => {
                Verdict::NoParent
            }
            _ => Verdict::Fits,
        };
        let mut verifier = Verifier::new(contract, 100);
        assert_eq!(verifier.check(&blocks(&hashes, &tokens)[2]), expected, "{contract}");
        // Only SGLang's hashes leave out what a request brings beside its tokens.
        assert_eq!(contract.covers_extras(), !matches!(contract, Contract::Sglang(_)));
    }
}
