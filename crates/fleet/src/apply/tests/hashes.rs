//! What the hashes in events prove and contradict.

use kvasir_inventory::EngineHash;
use kvasir_kv_hash::vllm::{Algorithm, Contract, Digest, Lora, RequestExtras};

use super::*;
use crate::credit::Credit;
use crate::hash_contract::HashState;
use crate::identity::{EngineHashing, HashAlgorithm};

const SIZE: usize = 16;

fn contract(version: &str, algorithm: Algorithm, seed: &str) -> Contract {
    Contract::new(version.parse().unwrap(), algorithm, Some(seed)).unwrap()
}

/// One event with all blocks of a prompt, as an engine of this contract publishes it.
fn event(
    contract: &Contract,
    tokens: &[u32],
    extras: RequestExtras,
    published: bool,
) -> BlockStored {
    let mut chain = contract.chain_with(SIZE, extras).unwrap();
    let hashes: Vec<EngineHash> =
        chain.append(tokens).iter().map(|digest: &Digest| EngineHash(digest.to_u64())).collect();
    BlockStored {
        extra_keys: published.then(|| vec![Vec::new(); hashes.len()]),
        block_hashes: hashes,
        token_ids: tokens.to_vec(),
        block_size: SIZE as u32,
        ..stored(0)
    }
}

fn plain(contract: &Contract, tokens: &[u32]) -> BlockStored {
    event(contract, tokens, RequestExtras::default(), true)
}

fn salted(salt: &str) -> RequestExtras {
    RequestExtras { cache_salt: Some(salt.to_owned()), ..RequestExtras::default() }
}

fn tokens(from: u32, blocks: u32) -> Vec<u32> {
    (from..from + blocks * SIZE as u32).collect()
}

fn card(version: &str) -> EngineCard {
    let body = br#"{"data":[{"id":"m","root":"m","owned_by":"vllm"}]}"#;
    EngineCard { version: Some(version.to_owned()), ..EngineCard::from_models(body).unwrap() }
}

fn engine(algorithm: Algorithm, seed: Option<&str>) -> BlockIdentity {
    BlockIdentity::Engine(EngineHashing {
        algorithm: HashAlgorithm::Vllm(algorithm),
        seed: seed.map(str::to_owned),
        version: None,
    })
}

struct Stream {
    rig: Rig,
    card: EngineCard,
}

impl Stream {
    fn new(identity: BlockIdentity, version: &str) -> Self {
        let mut rig = Rig::new(Limits::default());
        rig.applier = rig.applier.known_by(identity);
        Self { rig, card: card(version) }
    }

    fn update(&mut self, update: &Update) {
        self.rig.applier.apply(update, &self.card);
    }

    fn events(&mut self, events: Vec<Event>) {
        self.update(&test_events::batch(events));
    }

    fn stored(&mut self, stored: BlockStored) {
        self.events(vec![Event::Stored(stored)]);
    }

    fn new_life(&mut self) {
        self.update(&Update::Forget { trust: Trust::Exact, why: Why::Restart });
    }

    fn found(&self) -> String {
        self.rig.applier.hash_contract().to_string()
    }

    /// Blocks credited to a plain prompt in tokens mode.
    fn credited(&self, tokens: &[u32]) -> u32 {
        let root = self.rig.inventory.space().root(&Scope { model: "m", ..Scope::default() });
        let keys = self.rig.inventory.keys(root, tokens, SIZE, 0);
        let size = SIZE as u32;
        self.rig.inventory.overlap_of(self.rig.slot, &keys, size).resident() / size
    }
}

#[test]
fn a_contract_is_found_and_followed() {
    for (algorithm, version, words) in [
        (Algorithm::Sha256, "0.20.2", "verified(vllm sha256)"),
        (Algorithm::Sha256Cbor, "0.32.0", "verified(vllm sha256_cbor)"),
        (Algorithm::Xxhash, "0.32.0", "verified(vllm xxhash)"),
        (Algorithm::XxhashCbor, "0.33.0", "verified(vllm xxhash_cbor)"),
    ] {
        let mut stream = Stream::new(BlockIdentity::Tokens, version);
        assert_eq!(stream.found(), "unchecked");
        let contract = contract(version, algorithm, "42");
        stream.stored(plain(&contract, &tokens(0, 3)));
        assert_eq!((stream.found().as_str(), stream.rig.applier.hashes_checked()), (words, (3, 0)));
        assert!(stream.rig.applier.hash_contract().detail.contains("seed \"42\""));
        stream.new_life();
        assert_eq!(stream.found(), "unchecked", "another life may have another seed");
    }
}

#[test]
fn what_cannot_be_reproduced_is_said_once_and_costs_nothing_else() {
    let mut stream = Stream::new(BlockIdentity::Tokens, "0.20.2");
    let unusual = contract("0.20.2", Algorithm::Sha256, "987654321");
    stream.stored(plain(&unusual, &tokens(0, 3)));
    assert_eq!(stream.found(), "unreproducible(seed_not_found)");
    let next = Event::Stored(plain(&unusual, &tokens(100, 3)));
    assert!(!stream.rig.applier.may_search(&[next]));
    assert_eq!((stream.credited(&tokens(0, 3)), stream.rig.applier.trust()), (3, Trust::Exact));
    stream.events(vec![Event::Cleared]);
    stream.stored(plain(&contract("0.20.2", Algorithm::Sha256, "7"), &tokens(0, 3)));
    assert_eq!(stream.found(), "verified(vllm sha256)", "it is looked for again");
}

#[test]
fn a_block_that_fits_no_more_is_named_and_keeps_its_credit_where_tokens_count() {
    let mut stream = Stream::new(BlockIdentity::Tokens, "0.32.0");
    let known = contract("0.32.0", Algorithm::Sha256, "0");
    stream.stored(plain(&known, &tokens(0, 3)));
    stream.stored(plain(&contract("0.32.0", Algorithm::Sha256, "1"), &tokens(1_000, 3)));
    assert_eq!(stream.found(), "mismatch(vllm sha256: unexplained)");
    assert_eq!(stream.rig.applier.hashes_checked(), (4, 1));
    assert_eq!((stream.credited(&tokens(1_000, 3)), stream.rig.applier.trust()), (3, Trust::Exact));
}

#[test]
fn where_extra_keys_are_not_published_the_hash_tells_plain_blocks_from_others() {
    let mut stream = Stream::new(BlockIdentity::Tokens, "0.16.0");
    let known = contract("0.16.0", Algorithm::Sha256, "0");
    let unpublished = |tokens: &[u32], extras| event(&known, tokens, extras, false);
    let mut credit = Credit::new();
    credit.carried_extras = true;
    credit.extras = Extras::Unpublished;
    stream.stored(unpublished(&tokens(0, 3), RequestExtras::default()));
    // Two salts for the same tokens, which a plain prompt has too.
    stream.stored(unpublished(&tokens(1_000, 3), salted("a")));
    stream.stored(unpublished(&tokens(1_000, 3), salted("b")));
    assert_eq!(stream.found(), "verified(vllm sha256)");
    assert_eq!(stream.credited(&tokens(0, 3)), 3);
    assert_eq!(stream.credited(&tokens(1_000, 3)), 0);
    assert_eq!(stream.rig.applier.trust(), Trust::Partial(PartialReason::BlocksLeftOut));
    // Plain blocks with the tokens of salted ones, and what goes on from them.
    let mut whole = unpublished(&tokens(1_000, 5), RequestExtras::default());
    let later = BlockStored {
        parent: Some(whole.block_hashes[2]),
        block_hashes: whole.block_hashes.split_off(3),
        token_ids: whole.token_ids.split_off(3 * SIZE),
        ..whole.clone()
    };
    stream.stored(whole);
    stream.stored(later);
    assert_eq!(stream.credited(&tokens(1_000, 5)), 5);
    // What a request has shown is no reason for doubt any more.
    credit.trust = stream.rig.applier.trust();
    credit.told_apart = stream.rig.applier.tells_apart();
    assert!(credit.effective().credits(), "{}", credit.effective());
    credit.before(&Update::Forget { trust: Trust::Exact, why: Why::Restart });
    assert!(!credit.effective().credits(), "until the new life is verified");
}

#[test]
fn blocks_stored_before_the_contract_was_known_are_not_told_apart() {
    let mut stream = Stream::new(BlockIdentity::Tokens, "0.16.0");
    let known = contract("0.16.0", Algorithm::Sha256, "0");
    let unpublished = |tokens: &[u32], extras| event(&known, tokens, extras, false);
    stream.stored(unpublished(&tokens(0, 2), salted("a")));
    assert_eq!(stream.found(), "unchecked", "it may be salted");
    stream.stored(unpublished(&tokens(500, 2), RequestExtras::default()));
    assert_eq!(stream.found(), "verified(vllm sha256)");
    assert!(!stream.rig.applier.tells_apart());
    stream.stored(unpublished(&tokens(0, 2), salted("b")));
    assert_eq!(stream.rig.applier.trust(), Trust::Partial(PartialReason::BlocksLeftOut));
    stream.events(vec![Event::Cleared]);
    stream.stored(unpublished(&tokens(500, 2), RequestExtras::default()));
    assert!(stream.rig.applier.tells_apart());
}

#[test]
fn sglang_hashes_do_not_tell_adapters_apart() {
    use kvasir_kv_hash::sglang;
    let version = "0.5.20".parse().unwrap();
    let known = sglang::Contract::new(version, sglang::EventFormat::Default).unwrap();
    let tokens = tokens(0, 2);
    let mut chain = known.chain(SIZE).unwrap();
    let hashes = chain.append(&tokens).iter().map(|page| EngineHash(page.to_u64())).collect();
    let mut stream = Stream::new(BlockIdentity::Tokens, "0.5.20");
    stream.stored(BlockStored {
        block_hashes: hashes,
        token_ids: tokens,
        block_size: SIZE as u32,
        ..stored(0)
    });
    assert_eq!(stream.found(), "verified(sglang)");
    assert!(!stream.rig.applier.tells_apart());
}

#[test]
fn a_wrong_configuration_is_named_and_ends_the_credit_until_a_life_fits() {
    let suspect = Trust::Suspect(SuspectReason::HashMismatch);
    let right = contract("0.32.0", Algorithm::Sha256Cbor, "0");
    for (identity, words) in [
        (engine(Algorithm::Sha256Cbor, Some("42")), "mismatch(vllm sha256_cbor: seed)"),
        (engine(Algorithm::Sha256Cbor, None), "mismatch(vllm sha256_cbor: seed)"),
        (engine(Algorithm::Sha256, Some("0")), "mismatch(vllm sha256: algorithm)"),
        (engine(Algorithm::Xxhash, Some("1")), "mismatch(vllm xxhash: algorithm,seed)"),
    ] {
        let mut stream = Stream::new(identity, "0.32.0");
        stream.stored(plain(&right, &tokens(0, 3)));
        assert_eq!((stream.found().as_str(), stream.rig.applier.trust()), (words, suspect));
        let next = Event::Stored(plain(&right, &tokens(100, 3)));
        assert!(!stream.rig.applier.may_search(&[next]), "once is enough");
        stream.events(vec![Event::Cleared]);
        assert_eq!(stream.rig.applier.trust(), suspect, "an empty cache proves nothing");
        stream.new_life();
        assert_eq!(stream.rig.applier.trust(), suspect);
        stream.stored(plain(&right, &tokens(0, 3)));
        assert_eq!((stream.found().as_str(), stream.rig.applier.trust()), (words, suspect));
    }
    let mut stream = Stream::new(engine(Algorithm::Sha256Cbor, Some("42")), "0.32.0");
    stream.stored(plain(&right, &tokens(0, 3)));
    assert_eq!(stream.rig.applier.trust(), suspect);
    stream.new_life();
    stream.stored(plain(&contract("0.32.0", Algorithm::Sha256Cbor, "42"), &tokens(0, 3)));
    assert_eq!(stream.found(), "verified(vllm sha256_cbor)");
    assert_eq!(stream.rig.applier.trust(), Trust::Exact);
}

#[test]
fn hybrid_blocks_and_foreign_engines_are_named() {
    let known = contract("0.32.0", Algorithm::Sha256, "0");
    let mut halves = known.chain(SIZE / 2).unwrap();
    let tokens = tokens(0, 2);
    let hashes = halves.append(&tokens).chunks(2).map(|two| EngineHash(two[1].to_u64())).collect();
    let mut stream = Stream::new(engine(Algorithm::Sha256, Some("0")), "0.32.0");
    stream.stored(BlockStored { block_hashes: hashes, ..plain(&known, &tokens) });
    assert_eq!(stream.found(), "mismatch(vllm sha256: hash_block_size)");
    let mut foreign = Stream::new(
        BlockIdentity::Engine(EngineHashing {
            algorithm: HashAlgorithm::Sglang,
            seed: None,
            version: None,
        }),
        "0.32.0",
    );
    foreign.stored(plain(&known, &tokens));
    assert_eq!(foreign.found(), "mismatch(sglang: engine)");
}

#[test]
fn an_engine_without_a_seed_that_draws_one_is_told_before_its_first_block() {
    let mut stream = Stream::new(engine(Algorithm::Sha256, None), "0.20.2");
    stream.stored(plain(&contract("0.20.2", Algorithm::Sha256, "0"), &tokens(0, 1)));
    assert_eq!(stream.found(), "unreproducible(unseeded)");
    assert_eq!(stream.rig.applier.trust(), Trust::Suspect(SuspectReason::HashMismatch));
    // The same, of a release that starts from a fixed text.
    let mut stream = Stream::new(engine(Algorithm::Sha256, None), "0.32.0");
    let fixed = Contract::new("0.32.0".parse().unwrap(), Algorithm::Sha256, None).unwrap();
    stream.stored(plain(&fixed, &tokens(0, 1)));
    assert_eq!(stream.found(), "verified(vllm sha256)");
}

#[test]
fn blocks_that_only_look_plain_contradict_no_configuration() {
    let mut stream = Stream::new(engine(Algorithm::Sha256, Some("0")), "0.16.0");
    let known = contract("0.16.0", Algorithm::Sha256, "0");
    let lora = Lora { name: "a".to_owned(), ..Lora::default() };
    for n in 0..2 {
        let extras = RequestExtras { lora: Some(lora.clone()), ..salted("x") };
        stream.stored(event(&known, &tokens(n * 1_000, 2), extras, false));
        assert_eq!(
            (stream.found().as_str(), stream.rig.applier.trust()),
            ("unchecked", Trust::Exact)
        );
    }
    stream.stored(event(&known, &tokens(9_000, 2), RequestExtras::default(), false));
    assert_eq!(stream.found(), "verified(vllm sha256)");
    for n in 3..9 {
        stream.stored(event(&known, &tokens(n * 1_000, 2), salted("y"), false));
    }
    assert_eq!(stream.rig.applier.trust(), Trust::Exact);
    assert!(stream.rig.applier.tells_apart());
}

#[test]
fn of_many_blocks_a_sample_is_checked() {
    let mut stream = Stream::new(BlockIdentity::Tokens, "0.32.0");
    let known = contract("0.32.0", Algorithm::XxhashCbor, "0");
    let events = (0..2_000).map(|n| Event::Stored(plain(&known, &tokens(n * 64, 8)))).collect();
    stream.events(events);
    let (checked, failed) = stream.rig.applier.hashes_checked();
    assert_eq!((stream.rig.applier.hash_contract().state, failed), (HashState::Verified, 0));
    assert!((256..600).contains(&checked), "{checked} of 16000");
}

#[test]
fn unpublished_blocks_of_any_tier_and_group_are_told_apart_or_vouched_for_by_nobody() {
    let known = contract("0.16.0", Algorithm::Sha256, "0");
    let unpublished = |from, extras| event(&known, &tokens(from, 2), extras, false);
    let host = |stored| BlockStored { medium: Medium::Known(Tier::Host), ..stored };
    let second =
        |stored| BlockStored { group: Some(1), spec_kind: Some(SpecKind::FullAttention), ..stored };
    let places: [&dyn Fn(BlockStored) -> BlockStored; 3] = [&host, &second, &|stored| stored];
    for (at, place) in places.iter().enumerate() {
        // Stored after the contract was known: each is checked, wherever it is.
        let mut stream = Stream::new(BlockIdentity::Tokens, "0.16.0");
        stream.stored(unpublished(9_000, RequestExtras::default()));
        stream.stored(place(unpublished(0, salted("a"))));
        // In both groups, so that nothing else keeps it from being credited.
        stream.stored(unpublished(0, salted("a")));
        assert_eq!(stream.credited(&tokens(0, 2)), 0, "{at}");
        stream.stored(place(unpublished(5_000, RequestExtras::default())));
        stream.stored(unpublished(5_000, RequestExtras::default()));
        assert_eq!(stream.credited(&tokens(5_000, 2)), 2, "{at}");
        assert!(stream.rig.applier.tells_apart(), "{at}");
        // Stored before it was known: nobody vouches for it.
        let mut stream = Stream::new(BlockIdentity::Tokens, "0.16.0");
        stream.stored(place(unpublished(0, salted("a"))));
        stream.stored(unpublished(9_000, RequestExtras::default()));
        assert_eq!(stream.found(), "verified(vllm sha256)");
        assert!(!stream.rig.applier.tells_apart(), "{at}");
    }
}

#[test]
fn blocks_of_adapters_that_may_be_salted_are_vouched_for_by_nobody() {
    let known = contract("0.16.0", Algorithm::Sha256, "0");
    for (name, id, apart) in [(Some("a"), Some(1), false), (None, Some(1), true)] {
        let mut stream = Stream::new(BlockIdentity::Tokens, "0.16.0");
        stream.stored(event(&known, &tokens(0, 2), RequestExtras::default(), false));
        assert!(stream.rig.applier.tells_apart());
        let adapted = event(&known, &tokens(500, 2), salted("a"), false);
        let lora_name = name.map(str::to_owned);
        stream.stored(BlockStored { lora_name, lora_id: id, ..adapted });
        // No request can ask for an adapter by number.
        assert_eq!(stream.rig.applier.tells_apart(), apart, "{name:?}");
    }
}

#[test]
fn only_the_beginning_of_a_plain_prompt_takes_a_search() {
    let known = contract("0.16.0", Algorithm::Sha256, "0");
    let first = event(&known, &tokens(0, 2), RequestExtras::default(), false);
    let later = BlockStored { parent: first.block_hashes.last().copied(), ..first.clone() };
    let bare = BlockStored { token_ids: Vec::new(), ..first.clone() };
    let adapted = BlockStored { lora_name: Some("a".to_owned()), ..first.clone() };
    for identity in [BlockIdentity::Tokens, engine(Algorithm::Sha256, Some("0"))] {
        let mut stream = Stream::new(identity, "0.16.0");
        let search = |stream: &Stream, stored: &BlockStored| {
            let events = [Event::Cleared, Event::Stored(stored.clone())];
            stream.rig.applier.may_search(&events)
        };
        let others = [&later, &bare, &adapted];
        assert!(others.iter().all(|stored| !search(&stream, stored)));
        assert!(search(&stream, &first));
        stream.stored(first.clone());
        assert!(!search(&stream, &first), "it is known now");
    }
}

#[test]
fn what_was_found_under_another_contract_counts_no_more() {
    // From 0.29 on, another start where no seed is set.
    let fixed = |version: &str| Contract::new(version.parse().unwrap(), Algorithm::Sha256, None);
    let mut stream = Stream::new(engine(Algorithm::Sha256, None), "0.32.0");
    stream.stored(plain(&fixed("0.32.0").unwrap(), &tokens(0, 1)));
    assert_eq!(stream.found(), "verified(vllm sha256)");
    let lora_by_path = contract("0.32.0", Algorithm::Sha256, "0");
    stream.card = card("0.33.0");
    stream.events(Vec::new());
    let same = stream.found();
    stream.card = EngineCard::default();
    stream.events(Vec::new());
    assert_eq!(stream.found(), "unchecked", "no contract is known any more; before: {same}");
    stream.card = card("0.20.2");
    stream.events(Vec::new());
    assert_eq!(stream.found(), "unreproducible(unseeded)");
    // Differences are explained again under a contract that can be followed.
    stream.card = card("0.32.0");
    stream.stored(plain(&lora_by_path, &tokens(0, 1)));
    assert_eq!(stream.found(), "mismatch(vllm sha256: seed)");
    // A doubt stays until blocks fit.
    stream.card = EngineCard::default();
    stream.events(Vec::new());
    assert_eq!(stream.found(), "mismatch(vllm sha256: seed)");
}
