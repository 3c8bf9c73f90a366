//! One test for each rule of scheduling, seen from outside the engine.

use std::ops::Range;

use kvasir_kv_hash::vllm::Version;

use crate::{Engine, EngineConfig, Event, Request, RequestId, StepOutcome};

/// Blocks of 4 tokens, 8 of them usable.
fn small() -> EngineConfig {
    EngineConfig { block_size: 4, num_blocks: 9, max_model_len: 32, ..EngineConfig::default() }
}

fn engine(config: EngineConfig) -> Engine {
    Engine::new(config).unwrap()
}

fn submit(engine: &mut Engine, id: u64, prompt: Range<u32>, max_tokens: usize) {
    engine.submit(Request::new(RequestId(id), prompt.collect(), max_tokens)).unwrap();
    audit(engine);
}

fn step(engine: &mut Engine) -> StepOutcome {
    let outcome = engine.step().unwrap();
    audit(engine);
    outcome
}

fn audit(engine: &Engine) {
    let scheduler = &engine.scheduler;
    let all = scheduler.running.iter().chain(&scheduler.waiting);
    engine.pool.audit(all.map(|sequence| sequence.table.as_slice()));
}

fn drain(engine: &mut Engine) -> Vec<StepOutcome> {
    std::iter::from_fn(|| engine.step()).collect()
}

/// `S3`: three blocks stored, `R1`: one removed, `C`: cleared.
fn shape(outcome: &StepOutcome) -> Vec<String> {
    let one = |event: &Event| match event {
        Event::Stored(stored) => format!("S{}", stored.block_hashes.len()),
        Event::Removed(removed) => format!("R{}", removed.block_hashes.len()),
        Event::Cleared => "C".to_owned(),
    };
    outcome.events.iter().map(one).collect()
}

fn ids(outcome: &StepOutcome) -> Vec<u64> {
    outcome.outputs.iter().map(|output| output.id.0).collect()
}

#[test]
fn the_last_token_is_always_computed() {
    for (tokens, hit) in [(8, 4), (9, 8), (11, 8), (12, 8), (13, 12)] {
        let mut engine = engine(small());
        submit(&mut engine, 1, 0..tokens, 1);
        drain(&mut engine);
        submit(&mut engine, 2, 0..tokens, 1);
        let outcome = step(&mut engine);
        assert_eq!(outcome.outputs[0].cached_tokens, hit, "{tokens} tokens");
        assert_eq!(outcome.load.prefill_tokens, tokens as usize - hit);
    }
}

#[test]
fn a_prompt_that_is_all_whole_blocks_is_stored_twice() {
    // The last block is computed again, into a block of its own.
    let mut engine = engine(small());
    for id in [1, 2] {
        submit(&mut engine, id, 0..8, 1);
        drain(&mut engine);
    }
    let mut copies: Vec<_> = engine.cached_blocks().map(|(_, copies)| copies).collect();
    copies.sort_unstable();
    assert_eq!(copies, [1, 2]);
}

#[test]
fn equal_prompts_of_one_step_are_stored_once() {
    let mut engine = engine(small());
    (0..3).for_each(|id| submit(&mut engine, id, 0..10, 1));
    let outcome = step(&mut engine);
    assert_eq!(shape(&outcome), ["S2"]);
    let cached: Vec<_> = outcome.outputs.iter().map(|output| output.cached_tokens).collect();
    assert_eq!(cached, [0, 8, 8]);
    assert_eq!(outcome.load.prefill_tokens, 10 + 2 + 2);
}

#[test]
fn evictions_come_before_what_is_stored_in_their_place() {
    let mut engine = engine(small());
    submit(&mut engine, 1, 0..31, 1); // all 8 blocks, 7 of them full
    drain(&mut engine);
    submit(&mut engine, 2, 100..113, 1);
    assert_eq!(shape(&step(&mut engine)), ["R1", "R1", "R1", "S3"]);
}

#[test]
fn a_long_prompt_is_computed_in_chunks_beside_others() {
    let config = EngineConfig { max_num_batched_tokens: 6, ..small() };
    let mut engine = engine(config);
    submit(&mut engine, 1, 0..14, 2);
    submit(&mut engine, 2, 50..52, 1);
    let first = step(&mut engine);
    assert_eq!((ids(&first), shape(&first)), (vec![], vec!["S1".to_owned()]));
    let second = step(&mut engine);
    assert_eq!((ids(&second), shape(&second)), (vec![], vec!["S2".to_owned()]));
    // The rest of the first prompt, and the second one.
    let third = step(&mut engine);
    assert_eq!((ids(&third), third.load.prefill_tokens), (vec![1, 2], 4));
    let fourth = step(&mut engine);
    assert_eq!((ids(&fourth), fourth.load.decode_requests), (vec![1], 1));
    assert!(engine.is_idle());
}

#[test]
fn running_requests_come_first_and_waiting_ones_in_order() {
    let config = EngineConfig { max_num_seqs: 2, ..small() };
    let mut engine = engine(config);
    submit(&mut engine, 1, 0..3, 3);
    submit(&mut engine, 2, 10..13, 1);
    submit(&mut engine, 3, 20..23, 1);
    submit(&mut engine, 4, 30..33, 1);
    let served: Vec<_> = drain(&mut engine).iter().map(ids).collect();
    assert_eq!(served, [vec![1, 2], vec![1, 3], vec![1, 4]]);
}

#[test]
fn decoding_fills_and_publishes_blocks_one_by_one() {
    let mut engine = engine(small());
    submit(&mut engine, 1, 0..6, 8);
    let shapes: Vec<_> = drain(&mut engine).iter().map(shape).collect();
    // 14 tokens, of which the last one is never computed.
    let at: Vec<_> = (0..shapes.len()).filter(|&i| shapes[i] == ["S1"]).collect();
    assert_eq!((at, shapes.concat().len()), (vec![0, 2, 6], 3));
}

#[test]
fn the_newest_request_is_put_back_when_blocks_run_out() {
    let mut engine = engine(EngineConfig { num_blocks: 5, max_model_len: 16, ..small() });
    submit(&mut engine, 1, 0..7, 9);
    submit(&mut engine, 2, 50..57, 3);
    assert_eq!(ids(&step(&mut engine)), [1, 2]);
    assert_eq!(ids(&step(&mut engine)), [1, 2]); // 8 tokens each: 4 full blocks
    submit(&mut engine, 3, 90..91, 1);
    let outcome = step(&mut engine);
    assert_eq!((ids(&outcome), &outcome.preempted), (vec![1], &vec![RequestId(2)]));
    assert_eq!(engine.stats().preemptions, 1);
    assert_eq!(engine.stats().waiting, 2, "nobody is admitted in such a step");
    let served: Vec<_> = drain(&mut engine).iter().map(ids).collect();
    // The second cannot start over (9 tokens, 3 blocks) until the first is done: the third, who
    // came later, waits behind it.
    assert_eq!(served.concat(), [1, 1, 1, 1, 1, 1, 2, 3]);
    assert_eq!(engine.stats().finished, 3);
}

#[test]
fn a_request_put_back_hits_what_is_left_of_it_and_keeps_its_cached_tokens() {
    let mut engine = engine(EngineConfig { num_blocks: 9, ..small() });
    submit(&mut engine, 1, 0..15, 10);
    submit(&mut engine, 2, 50..62, 10);
    let mut preempted = 0;
    let mut seconds = Vec::new();
    for outcome in std::iter::from_fn(|| engine.step()) {
        preempted += outcome.preempted.len();
        seconds.extend(outcome.outputs.into_iter().filter(|output| output.id.0 == 2));
    }
    assert!(preempted > 0);
    assert_eq!(
        seconds.iter().map(|output| output.index).collect::<Vec<_>>(),
        Vec::from_iter(0..10)
    );
    assert!(seconds.iter().all(|output| output.cached_tokens == 0));
    // Its second lookup is not counted.
    assert_eq!(engine.stats().prefix_queries, 15 + 12);
}

#[test]
fn a_prompt_is_admitted_only_if_all_of_it_fits() {
    for (reserve, admitted) in [(true, 1), (false, 2)] {
        let config =
            EngineConfig { max_num_batched_tokens: 8, reserve_full_prompt: reserve, ..small() };
        let mut engine = engine(config);
        submit(&mut engine, 1, 0..4, 8);
        submit(&mut engine, 2, 50..81, 1); // 8 blocks
        step(&mut engine);
        assert_eq!(engine.stats().running, admitted);
    }
}

#[test]
fn the_watermark_holds_only_beside_running_requests() {
    let config = EngineConfig { watermark: 0.5, ..small() }; // 4 blocks
    let mut engine = engine(config);
    submit(&mut engine, 1, 0..12, 2); // 3 blocks of 8
    submit(&mut engine, 2, 50..55, 1); // 2 blocks and 4 are more than the 5 left
    step(&mut engine);
    assert_eq!((engine.stats().running, engine.stats().waiting), (1, 1));
    step(&mut engine);
    assert_eq!((engine.stats().running, engine.stats().waiting), (0, 1));
    assert_eq!(ids(&step(&mut engine)), [2]);
}

#[test]
fn free_blocks_that_are_hit_are_no_room_for_others() {
    let mut engine = engine(EngineConfig { num_blocks: 5, max_model_len: 16, ..small() });
    submit(&mut engine, 1, 0..9, 1);
    drain(&mut engine);
    submit(&mut engine, 2, 50..55, 9); // 2 of 4 blocks
    step(&mut engine);
    submit(&mut engine, 3, 0..9, 1); // hits both free blocks and needs a third
    let outcome = step(&mut engine);
    assert_eq!((ids(&outcome), engine.stats().waiting), (vec![2], 1));
}

#[test]
fn attempts_to_admit_are_counted_up_to_0_26_admissions_from_0_27() {
    for (version, queries) in
        [(Version::release(0, 26, 0), 30 + 3 * 20), (Version::release(0, 27, 0), 30 + 20)]
    {
        let mut engine = engine(EngineConfig { version, ..small() });
        submit(&mut engine, 1, 0..30, 2);
        submit(&mut engine, 2, 50..70, 1);
        drain(&mut engine);
        assert_eq!(engine.stats().prefix_queries, queries, "{version}");
    }
}

#[test]
fn nothing_is_cached_where_caching_is_off() {
    let config = EngineConfig { enable_prefix_caching: false, ..small() };
    let mut engine = engine(config);
    for id in [1, 2] {
        submit(&mut engine, id, 0..9, 3);
        let outcomes = drain(&mut engine);
        assert!(outcomes.iter().all(|o| o.events.is_empty() && o.outputs[0].cached_tokens == 0));
    }
    assert_eq!(engine.stats().prefix_queries, 0);
    assert_eq!(engine.cached_blocks().count(), 0);
}

#[test]
fn a_request_may_ask_not_to_read_the_cache() {
    let mut engine = engine(small());
    submit(&mut engine, 1, 0..9, 1);
    drain(&mut engine);
    let request = Request::new(RequestId(2), (0..9).collect(), 1);
    engine.submit(Request { skip_cache_read: true, ..request }).unwrap();
    let outcome = step(&mut engine);
    assert_eq!((outcome.outputs[0].cached_tokens, outcome.load.prefill_tokens), (0, 9));
    assert_eq!(shape(&outcome), ["S2"], "what it computes is cached all the same");
    assert_eq!(engine.stats().prefix_queries, 9);
}
