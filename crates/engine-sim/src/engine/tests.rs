//! The engine's own duties: admission, aborts, resets, restarts, ends of requests, extra keys.

mod properties;

use kvasir_kv_hash::vllm::{Algorithm, Contract, ContractError, Lora, MmItem, Version};

use super::*;
use crate::events::{BlockStored, ExtraKey};
use crate::hashing::{Hashing, OpaqueHashing};
use crate::timing::CostModel;

fn small() -> EngineConfig {
    EngineConfig { block_size: 4, num_blocks: 17, max_model_len: 64, ..EngineConfig::default() }
}

fn request(id: u64, tokens: u32, max_tokens: usize) -> Request {
    Request::new(RequestId(id), (0..tokens).collect(), max_tokens)
}

fn drain(engine: &mut Engine) -> Vec<StepOutcome> {
    std::iter::from_fn(|| engine.step()).collect()
}

fn tokens(outcomes: &[StepOutcome], id: u64) -> Vec<u32> {
    let of_one = outcomes.iter().flat_map(|step| &step.outputs).filter(|o| o.id == RequestId(id));
    of_one.map(|output| output.token).collect()
}

#[test]
fn a_prompt_computed_elsewhere_costs_one_token_and_changes_no_output() {
    for length in [1, 3, 4, 5, 8, 13] {
        let mut whole = Engine::new(small()).unwrap();
        whole.submit(request(1, length, 6)).unwrap();
        let alone = drain(&mut whole);

        let mut prefill = Engine::new(small()).unwrap();
        prefill.submit(Request { hold: true, ..request(1, length, 1) }).unwrap();
        let first = drain(&mut prefill);
        let held = &first.last().unwrap().held[0];
        assert_eq!(
            (held.tokens, held.blocks.len()),
            (length as usize, length.div_ceil(4) as usize)
        );
        assert_eq!(prefill.stats().used_blocks, held.blocks.len());
        assert!(!prefill.reset_prefix_cache());
        assert_eq!(prefill.submit(request(1, 1, 1)), Err(SubmitError::DuplicateId(RequestId(1))));
        assert!(prefill.release_held(held.id) && !prefill.release_held(held.id));
        assert_eq!(prefill.stats().used_blocks, 0);

        let mut decode = Engine::new(small()).unwrap();
        decode.submit(Request { remote_prefill: true, ..request(1, length, 6) }).unwrap();
        let split = drain(&mut decode);
        assert_eq!((split[0].load.prefill_tokens, split[0].outputs[0].cached_tokens), (1, 0));
        let blocks =
            stored(&split[0]).iter().map(|stored| stored.block_hashes.len()).sum::<usize>();
        assert_eq!(blocks, length as usize / 4, "full blocks of the prompt, at once");
        assert_eq!(tokens(&split, 1), tokens(&alone, 1));
        assert_eq!(tokens(&first, 1), tokens(&alone, 1)[..1]);
        let stats = decode.stats();
        let length = u64::from(length);
        assert_eq!((stats.external_queries, stats.external_hits), (length, length));
    }
}

#[test]
fn what_came_from_elsewhere_and_was_lost_is_computed() {
    let mut engine = Engine::new(small()).unwrap();
    engine.submit(Request { remote_prefill: true, ..request(1, 13, 6) }).unwrap();
    let before = engine.step().unwrap();
    assert!(engine.reset_prefix_cache_and_requests());
    let after = engine.step().unwrap();
    assert_eq!((before.load.prefill_tokens, after.load.prefill_tokens), (1, 14));
    assert_eq!(engine.stats().external_hits, 13);
}

fn stored(outcome: &StepOutcome) -> Vec<&BlockStored> {
    let mut all = Vec::new();
    for event in &outcome.events {
        if let Event::Stored(stored) = event {
            all.push(stored.as_ref());
        }
    }
    all
}

#[test]
fn what_cannot_be_served_is_refused_with_the_reason() {
    let mut engine = Engine::new(EngineConfig { max_waiting: 2, ..small() }).unwrap();
    assert_eq!(engine.submit(request(1, 0, 1)), Err(SubmitError::EmptyPrompt));
    assert_eq!(engine.submit(request(1, 5, 0)), Err(SubmitError::NoOutput));
    let too_long = SubmitError::PromptTooLong { tokens: 64, max_model_len: 64 };
    assert_eq!(engine.submit(request(1, 64, 1)), Err(too_long));
    engine.submit(request(1, 63, 1)).unwrap();
    assert_eq!(engine.submit(request(1, 5, 1)), Err(SubmitError::DuplicateId(RequestId(1))));
    engine.submit(request(2, 5, 1)).unwrap();
    assert_eq!(engine.submit(request(3, 5, 1)), Err(SubmitError::QueueFull { waiting: 2 }));
    drain(&mut engine);
    engine.submit(request(1, 5, 1)).unwrap();
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let bad = |config: EngineConfig| Engine::new(config).unwrap_err().to_string();
    assert_eq!(
        bad(EngineConfig { max_model_len: 65, ..small() }),
        "max_model_len is 65: must be from 2 to 64"
    );
    assert!(bad(EngineConfig { block_size: 0, ..small() }).starts_with("block_size is 0"));
    assert!(bad(EngineConfig { num_blocks: 1, ..small() }).starts_with("num_blocks is 1"));
    assert!(bad(EngineConfig { watermark: 1.0, ..small() }).starts_with("watermark is 1"));
    assert!(bad(EngineConfig { watermark: f64::NAN, ..small() }).starts_with("watermark"));
    let cost = CostModel { per_token: -1.0, ..CostModel::MID_GPU };
    assert_eq!(bad(EngineConfig { cost, ..small() }), "cost.per_token is -1");
    let version = Version::release(0, 33, 0);
    let contract = Contract::new(version, Algorithm::Sha256Cbor, None).unwrap();
    let hashing = Hashing::Contract(contract.with_lookahead(1).unwrap());
    assert!(bad(EngineConfig { hashing, ..small() }).starts_with("lookahead"));
}

#[test]
fn requests_end_at_their_limit_the_context_length_or_a_stop_token() {
    let source = |request: &TokenRequest<'_>| match request.output.len() {
        4 => NextToken::Stop(2),
        index => NextToken::Token(100 + index as u32),
    };
    let mut engine = Engine::with_source(small(), Box::new(source)).unwrap();
    let mut serve = |request: Request| {
        engine.submit(request).unwrap();
        let outcomes = drain(&mut engine);
        let last = outcomes.last().unwrap().outputs[0];
        (outcomes.len(), last.token, last.finished)
    };
    let (stop, length) = (Some(FinishReason::Stop), Some(FinishReason::Length));
    assert_eq!(serve(request(1, 8, 3)), (3, 102, length));
    assert_eq!(serve(request(1, 8, 9)), (5, 2, stop));
    assert_eq!(serve(Request { ignore_eos: true, ..request(1, 8, 9) }), (9, 108, length));
    assert_eq!(serve(request(1, 61, 100)), (3, 102, length));
    assert_eq!(serve(request(1, 8, 5)), (5, 2, stop), "a stop token counts before the limit");
}

#[test]
fn aborted_requests_give_their_blocks_back() {
    let mut engine = Engine::new(EngineConfig { max_num_seqs: 1, ..small() }).unwrap();
    engine.submit(request(1, 20, 9)).unwrap();
    engine.submit(request(2, 30, 9)).unwrap();
    engine.step().unwrap();
    assert_eq!((engine.stats().running, engine.stats().waiting), (1, 1));
    assert!(engine.stats().kv_usage() > 0.3);
    assert!(engine.abort(RequestId(2)));
    assert!(engine.abort(RequestId(1)));
    assert!(!engine.abort(RequestId(1)));
    assert_eq!((engine.stats().running, engine.stats().waiting), (0, 0));
    assert_eq!(engine.stats().kv_usage(), 0.0);
    assert!(engine.step().is_none());
    // What was computed can still be hit.
    engine.submit(request(3, 20, 1)).unwrap();
    assert_eq!(engine.step().unwrap().outputs[0].cached_tokens, 16);
    assert_eq!(engine.stats().finished, 1);
}

#[test]
fn a_reset_is_refused_while_blocks_are_used_and_published_with_the_next_step() {
    let mut engine = Engine::new(small()).unwrap();
    engine.submit(request(1, 9, 2)).unwrap();
    engine.step().unwrap();
    assert!(!engine.reset_prefix_cache());
    engine.step().unwrap();
    assert!(engine.reset_prefix_cache());
    assert_eq!(engine.cached_blocks().count(), 0);
    assert!(engine.step().is_none(), "an event alone makes no step");
    // A prompt that fills no block: the event comes alone.
    engine.submit(request(2, 3, 1)).unwrap();
    assert_eq!(engine.step().unwrap().events, [Event::Cleared]);
    assert!(engine.reset_prefix_cache());
    engine.submit(request(3, 9, 1)).unwrap();
    let outcome = engine.step().unwrap();
    assert_eq!(outcome.outputs[0].cached_tokens, 0);
    assert!(matches!(outcome.events.as_slice(), [Event::Cleared, Event::Stored(_)]));
}

#[test]
fn a_reset_can_make_running_requests_start_over_in_their_order() {
    let mut engine = Engine::new(small()).unwrap();
    (1..=3).for_each(|id| engine.submit(request(id, 9, 3)).unwrap());
    engine.step().unwrap();
    assert!(engine.reset_prefix_cache_and_requests());
    assert_eq!((engine.stats().running, engine.stats().waiting), (0, 3));
    let outcome = engine.step().unwrap();
    assert_eq!(outcome.events.first(), Some(&Event::Cleared));
    let next: Vec<_> = outcome.outputs.iter().map(|o| (o.id.0, o.index)).collect();
    assert_eq!(next, [(1, 1), (2, 1), (3, 1)]);
}

#[test]
fn a_restart_forgets_everything_and_says_nothing() {
    let random = Hashing::Opaque(OpaqueHashing { seed: 1, per_life: true });
    for (hashing, same) in [(Hashing::default(), true), (random, false)] {
        let mut engine = Engine::new(EngineConfig { hashing, ..small() }).unwrap();
        let names = engine.block_hashes(request(9, 9, 1)).unwrap();
        engine.submit(request(2, 9, 1)).unwrap();
        engine.step().unwrap();
        assert_eq!(engine.resident_prefix(&names), 2);
        engine.submit(request(7, 9, 5)).unwrap();
        engine.submit(request(5, 9, 5)).unwrap();
        assert_eq!(engine.restart(), [RequestId(5), RequestId(7)]);
        assert!(engine.is_idle());
        assert_eq!(engine.resident_prefix(&names), 0);
        let fresh = EngineStats { usable_blocks: 16, ..EngineStats::default() };
        assert_eq!(*engine.stats(), fresh);
        assert_eq!(engine.block_hashes(request(9, 9, 1)).unwrap() == names, same);
        engine.submit(request(5, 9, 1)).unwrap();
        let outcome = engine.step().unwrap();
        assert_eq!((outcome.events.len(), outcome.outputs[0].cached_tokens), (1, 0));
    }
}

#[test]
fn the_same_calls_give_the_same_outcomes() {
    let run = || {
        let mut engine = Engine::new(small()).unwrap();
        (0..6).for_each(|id| engine.submit(request(id, 5 + 3 * id as u32, 12)).unwrap());
        drain(&mut engine)
    };
    assert_eq!(run(), run());
}

#[test]
fn adapter_salt_session_and_images_are_published_as_each_release_does() {
    let image = MmItem { identifier: "cafe".into(), offset: 3, length: 3 };
    let lora = Lora { name: "sql".into(), path: Some("/sql".into()), int_id: Some(7) };
    let text = |text: &str| ExtraKey::Text(text.into());
    let item = |offset| ExtraKey::Item { identifier: "cafe".into(), offset };
    for (version, items) in [
        (Version::release(0, 18, 1), [text("cafe"), text("cafe")]),
        (Version::release(0, 32, 0), [item(3), item(-1)]),
    ] {
        let hashing = Hashing::of_engine(version, Algorithm::Sha256Cbor, Some("0")).unwrap();
        assert!(matches!(hashing, Hashing::Contract(_)));
        let mut engine = Engine::new(EngineConfig { version, hashing, ..small() }).unwrap();
        let plain = request(1, 12, 1);
        let special = Request {
            lora: Some(lora.clone()),
            cache_salt: Some("tenant".into()),
            session_id: Some("s".into()),
            items: vec![image.clone()],
            ..request(2, 12, 1)
        };
        engine.submit(plain).unwrap();
        engine.submit(special).unwrap();
        let outcome = engine.step().unwrap();
        assert_eq!(outcome.outputs[1].cached_tokens, 0, "another cache scope");
        let [plain, special] = stored(&outcome)[..] else { panic!("{outcome:?}") };
        assert_eq!(plain.extra_keys, Some(vec![vec![]; 3]));
        assert_eq!((plain.lora_id, plain.lora_name.as_deref()), (None, None));
        let [first, second] = items;
        assert_eq!(
            special.extra_keys,
            Some(vec![
                vec![text("sql"), first, text("tenant")],
                vec![text("sql"), second],
                vec![text("sql")]
            ])
        );
        assert_eq!((special.lora_id, special.lora_name.as_deref()), (Some(7), Some("sql")));
        assert_eq!(special.session_id.as_deref(), Some("s"));
        assert_eq!(special.token_ids, (0..12).collect::<Vec<_>>());
    }
}

#[test]
fn opaque_hashes_separate_what_real_ones_do() {
    let engine = Engine::new(small()).unwrap();
    let lora = |name: &str| Lora { name: name.into(), ..Lora::default() };
    let image = |offset| MmItem { identifier: "cafe".into(), offset, length: 2 };
    let requests = [
        request(1, 8, 1),
        Request { lora: Some(lora("a")), ..request(1, 8, 1) },
        Request { lora: Some(lora("b")), ..request(1, 8, 1) },
        Request { cache_salt: Some("a".into()), ..request(1, 8, 1) },
        Request { items: vec![image(1)], ..request(1, 8, 1) },
        Request { items: vec![image(0)], ..request(1, 8, 1) },
    ];
    let mut all: Vec<_> =
        requests.into_iter().flat_map(|r| engine.block_hashes(r).unwrap()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 12);
    let salted = Request { cache_salt: Some(String::new()), ..request(1, 8, 1) };
    assert_eq!(
        engine.block_hashes(salted).unwrap(),
        engine.block_hashes(request(1, 8, 1)).unwrap()
    );
    let other = Hashing::Opaque(OpaqueHashing { seed: 5, per_life: false });
    let other = Engine::new(EngineConfig { hashing: other, ..small() }).unwrap();
    assert_ne!(
        other.block_hashes(request(1, 8, 1)).unwrap(),
        engine.block_hashes(request(1, 8, 1)).unwrap()
    );
}

#[test]
fn an_adapter_without_its_path_cannot_be_hashed_where_the_path_is_hashed() {
    let version = Version::release(0, 32, 0);
    let hashing = Hashing::of_engine(version, Algorithm::Sha256Cbor, None).unwrap();
    let mut engine = Engine::new(EngineConfig { version, hashing, ..small() }).unwrap();
    let lora = Lora { name: "sql".into(), ..Lora::default() };
    let refused = engine.submit(Request { lora: Some(lora), ..request(1, 8, 1) });
    assert!(matches!(refused, Err(SubmitError::Unhashable(ContractError::LoraPartMissing { .. }))));
    assert!(engine.is_idle());
    assert_eq!(engine.submit(request(1, 8, 1)), Ok(()), "the number is free");
}

#[test]
fn engines_that_draw_their_seed_hash_opaquely_and_anew_in_every_life() {
    let of = |version, algorithm, seed| Hashing::of_engine(version, algorithm, seed).unwrap();
    let (old, new) = (Version::release(0, 20, 2), Version::release(0, 32, 0));
    for known in [of(new, Algorithm::Sha256Cbor, None), of(old, Algorithm::Sha256Cbor, Some("0"))] {
        assert!(matches!(known, Hashing::Contract(_)), "{known:?}");
    }
    for random in [of(old, Algorithm::Sha256Cbor, None), of(new, Algorithm::XxhashCbor, None)] {
        let opaque = Hashing::Opaque(OpaqueHashing { seed: 0, per_life: true });
        assert_eq!(random, opaque);
    }
    assert!(Hashing::of_engine(old, Algorithm::Builtin, None).is_err());
    let builtin = |seed| of(Version::release(0, 10, 0), Algorithm::Builtin, Some(seed));
    assert_ne!(builtin("1"), builtin("2"));
}

#[test]
fn counters_add_up() {
    let mut engine = Engine::new(small()).unwrap();
    for id in 0..3 {
        engine.submit(request(id, 10, 4)).unwrap();
        drain(&mut engine);
    }
    let stats = *engine.stats();
    assert_eq!((stats.prefix_queries, stats.prefix_hits), (30, 16));
    assert_eq!((stats.prompt_tokens, stats.generation_tokens), (30, 12));
    assert_eq!((stats.finished, stats.steps, stats.preemptions), (3, 12, 0));
}
