//! Bursts of one new prefix over engines that say nothing meanwhile.

use std::time::{Duration, Instant};

use kvasir_balance::{PolicyKind, SelectionSpec};
use kvasir_inventory::{Inventory, Limits};
use kvasir_kv_hash::KeySpace;

use super::trials::Trials;
use super::*;
use crate::breaker::{BreakerSettings, Verdict};
use crate::card::{Adapter, EngineCard, ServedModel};
use crate::exclusion::Exclusion;
use crate::identity::BlockIdentity;
use crate::ranks::Configured;
use crate::selecting::Selecting;
use crate::spec::RankAddressing;
use crate::spec::TokenSpec;

mod admission;
mod advice;
mod explain;
mod hand_over;
mod members;
mod split;

const BLOCK: u32 = 16;

struct Scene {
    engines: Vec<Arc<Ranks>>,
    shared: Shared,
}

impl Scene {
    /// Engines without events that say whether they cache prefixes.
    fn new(count: u16, prefix_caching: Option<bool>) -> Self {
        Self::with(count, prefix_caching, RankAddressing::None)
    }

    /// Engines whose ranks are reached so.
    fn addressed(count: u16, addressing: RankAddressing) -> Self {
        Self::with(count, None, addressing)
    }

    fn with(count: u16, prefix_caching: Option<bool>, addressing: RankAddressing) -> Self {
        let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
        let shared = Shared::new(inventory);
        let model = ServedModel { id: "m".to_owned(), root: None, max_model_len: None };
        let adapter = Adapter { name: "a".to_owned(), path: None };
        let (models, adapters) = (vec![model], vec![adapter]);
        let card = EngineCard { models, adapters, prefix_caching, ..EngineCard::default() };
        let engine = |port: u16| {
            let authority: http::uri::Authority = format!("engine:{port}").parse().unwrap();
            let configured = Configured::default();
            let identity = BlockIdentity::Tokens;
            let ranks =
                Ranks::new(authority.into(), addressing, configured, identity, shared.clone())
                    .unwrap();
            ranks.engine().set_card(card.clone());
            ranks.endpoints()[0].set_block_size(BLOCK);
            Arc::new(ranks)
        };
        Self { engines: (1..=count).map(engine).collect(), shared }
    }

    fn pool(&self, policy: PolicyKind) -> Pool {
        self.pool_of(&SelectionSpec::of(policy))
    }

    fn pool_of(&self, selection: &SelectionSpec) -> Pool {
        let prompts = ModelPrompts::new("m".to_owned(), None, kvasir_prompt::Limits::default());
        let selecting = Selecting::new(selection, 1, None);
        let state = PoolState::new(selecting, prompts, TokenSpec::default());
        let (timeouts, shared) = (crate::spec::Timeouts::default(), self.shared.clone());
        let pool = Pool::new("m".to_owned(), None, timeouts, self.engines.clone(), shared, state);
        pool.refresh();
        pool
    }

    fn endpoint(&self, place: usize) -> Arc<Endpoint> {
        Arc::clone(&self.engines[place].endpoints()[0])
    }
}

fn plain(prompts: &[Vec<u32>]) -> PromptTokens<'_> {
    let count = prompts.iter().map(|prompt| prompt.len() as u64).sum();
    PromptTokens { prompts: Some(prompts), count, exact: true, adapter: None, salt: None }
}

fn choose(pool: &Pool, tokens: &PromptTokens<'_>) -> Chosen {
    pool.choose(tokens.adapter.unwrap_or("m"), &pool.evidence(tokens), &[]).unwrap()
}

fn pending(pool: &Pool, tokens: &PromptTokens<'_>) -> u32 {
    choose(pool, tokens).decision.pending
}

fn burst(requests: u32) -> Vec<Vec<u32>> {
    let one = |n: u32| (0..2_000).chain(1_000_000 + 1_000 * n..1_000_200 + 1_000 * n).collect();
    (0..requests).map(one).collect()
}

/// Engines that compute what they got, one request after the other, and share all full blocks.
#[derive(Default)]
struct Naive {
    got: Vec<Vec<Vec<u32>>>,
}

impl Naive {
    fn compute(&mut self, engine: usize, prompt: &[u32]) -> u64 {
        self.got.resize_with(self.got.len().max(engine + 1), Vec::new);
        let shared =
            |known: &Vec<u32>| known.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let cached = self.got[engine].iter().map(shared).max().unwrap_or(0);
        self.got[engine].push(prompt.to_vec());
        (prompt.len() - cached / BLOCK as usize * BLOCK as usize) as u64
    }
}

/// Tokens computed, and requests of each engine.
fn play(scene: &Scene, policy: PolicyKind) -> (u64, Vec<usize>) {
    let pool = scene.pool(policy);
    let mut naive = Naive::default();
    let mut held = Vec::new();
    let mut computed = 0;
    for prompt in burst(64) {
        let chosen = choose(&pool, &plain(std::slice::from_ref(&prompt)));
        assert_eq!(chosen.decision.overlap.resident(), 0, "pending is no prediction");
        let endpoint = chosen.reservation.endpoint();
        let is_it = |place: &usize| Arc::ptr_eq(&scene.endpoint(*place), endpoint);
        let place = (0..scene.engines.len()).find(is_it).unwrap();
        computed += naive.compute(place, &prompt);
        held.push(chosen);
    }
    let queued = (0..scene.engines.len()).map(|n| scene.endpoint(n).queued_prefill_tokens());
    let queued: u64 = queued.sum();
    if scene.endpoint(0).card().unwrap().prefix_caching == Some(true) {
        assert_eq!(queued, computed, "what is queued is what will be computed");
    }
    (computed, naive.got.iter().map(Vec::len).collect())
}

const LEAST: u64 = 2_000 + 64 * 200;

#[test]
fn a_burst_of_one_prefix_is_computed_by_few_and_still_spreads() {
    let (computed, each) = play(&Scene::new(8, Some(true)), PolicyKind::Latency);
    assert!(computed <= 2 * LEAST, "{computed} of {LEAST}: {each:?}");
    let (busiest, used) = (each.iter().max().unwrap(), each.iter().filter(|n| **n > 0).count());
    assert!(used > 1 && *busiest <= 32, "when the queue costs more, others are used: {each:?}");
    // Fewer requests than engines could take in at once: one computes the prefix for all.
    let (computed, each) = play(&Scene::new(8, Some(true)), PolicyKind::PreciseCacheAware);
    assert_eq!(computed, LEAST, "{each:?}");
}

#[test]
fn a_short_burst_stays_together_where_no_other_engine_is_free() {
    let scene = Scene::new(8, Some(true));
    let pool = scene.pool(PolicyKind::Latency);
    let choose_one = |prompt: &Vec<u32>| choose(&pool, &plain(std::slice::from_ref(prompt)));
    let others: Vec<Vec<u32>> =
        (1..8).map(|n| (10_000_000 * n..10_000_000 * n + 12_000).collect()).collect();
    let busy: Vec<Chosen> = others.iter().map(choose_one).collect();
    let chosen: Vec<Chosen> = burst(6).iter().map(choose_one).collect();
    let first = chosen[0].reservation.endpoint();
    assert!(busy.iter().all(|one| !Arc::ptr_eq(one.reservation.endpoint(), first)));
    assert!(chosen.iter().all(|one| Arc::ptr_eq(one.reservation.endpoint(), first)));
    assert_eq!(first.queued_prefill_tokens(), 2_000 + 6 * 200);
    assert!(chosen[1..].iter().all(|one| one.decision.pending == 2_000));
}

#[test]
fn without_a_word_on_caching_there_is_no_credit() {
    for silent in [None, Some(false)] {
        let scene = Scene::new(8, silent);
        let (_, each) = play(&scene, PolicyKind::Latency);
        assert_eq!(each, [8; 8], "{silent:?}");
        assert_eq!(scene.endpoint(0).pending().prompts(Instant::now()), 0);
    }
}

#[test]
fn it_ends_with_the_request_and_outlives_its_first_token() {
    let scene = Scene::new(2, Some(true));
    let pool = scene.pool(PolicyKind::PreciseCacheAware);
    let [first, second]: [Vec<u32>; 2] = burst(2).try_into().unwrap();
    let (first, second) = ([first], [second]);
    drop(choose(&pool, &plain(&first)));
    assert_eq!(pending(&pool, &plain(&second)), 0, "it failed, or its client left");
    let mut refused = choose(&pool, &plain(&first));
    refused.reservation.not_computed();
    refused.reservation.first_data(false);
    assert_eq!(refused.reservation.endpoint().queued_prefill_tokens(), 0);
    assert_eq!(pending(&pool, &plain(&second)), 0, "the engine answered with an error");
    drop(refused);
    let mut done = choose(&pool, &plain(&first));
    done.reservation.first_data(true);
    let at = Arc::clone(done.reservation.endpoint());
    drop(done);
    assert_eq!(pending(&pool, &plain(&second)), 2_000, "its blocks may not be known yet");
    at.pending().end_computed();
    assert_eq!(pending(&pool, &plain(&second)), 0, "the engine emptied its cache");
    let held = choose(&pool, &plain(&first));
    held.reservation.endpoint().pending().end_computed();
    assert_eq!(pending(&pool, &plain(&second)), 2_000, "it is still to be computed");
    held.reservation.endpoint().pending().end_all();
    assert_eq!(pending(&pool, &plain(&second)), 0, "the engine is another process");
}

#[test]
fn pools_share_it_and_salts_adapters_and_block_sizes_do_not() {
    let scene = Scene::new(2, Some(true));
    let (pool, other) = (scene.pool(PolicyKind::Latency), scene.pool(PolicyKind::Latency));
    let prompts = [(0..1_000).collect::<Vec<u32>>()];
    let tokens = plain(&prompts);
    let held = choose(&pool, &tokens);
    // The last token is always computed; 1,000 tokens are 62 blocks and a half.
    assert_eq!(pending(&other, &tokens), 992);
    let full = [prompts[0][..992].to_vec()];
    assert_eq!(pending(&pool, &plain(&full)), 976);
    let salted = PromptTokens { salt: Some("s"), ..tokens };
    let adapted = PromptTokens { adapter: Some("a"), ..tokens };
    for apart in [salted, adapted] {
        assert_eq!(pending(&pool, &apart), 0);
        let held = choose(&pool, &apart);
        assert_eq!(pending(&pool, &apart), 992);
        drop(held);
    }
    let batch = [prompts[0].clone(), (5_000..5_100).collect(), prompts[0][..500].to_vec()];
    assert_eq!(pending(&pool, &plain(&batch)), 992 + 496, "prompts of a batch by themselves");
    held.reservation.endpoint().set_block_size(32);
    scene.engines.iter().for_each(|engine| engine.endpoints()[0].set_block_size(32));
    assert_eq!(pending(&pool, &tokens), 0);
}

/// In flight at the busiest and the idlest engine.
fn spread(scene: &Scene) -> (u32, u32) {
    let in_flight = (0..scene.engines.len()).map(|place| scene.endpoint(place).in_flight());
    let in_flight: Vec<u32> = in_flight.collect();
    (*in_flight.iter().max().unwrap(), *in_flight.iter().min().unwrap())
}

#[test]
fn every_choice_of_a_pool_sees_all_before() {
    let scene = Scene::new(3, None);
    let pool = scene.pool(PolicyKind::LeastLoad);
    let held = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let chosen = choose(&pool, &plain(&[vec![1; 20]]));
                    held.lock().unwrap().push(chosen);
                }
            });
        }
    });
    assert_eq!(spread(&scene), (400, 400));
}

/// See the documentation of [`Pool::choose`]: a choice may miss what other pools commit while it is
/// made, and nothing else.
#[test]
fn pools_that_share_engines_overcommit_by_what_others_decide_meanwhile() {
    use std::sync::atomic::AtomicU32;
    let scene = Scene::new(3, None);
    let pools: Vec<Pool> = (0..4).map(|_| scene.pool(PolicyKind::LeastLoad)).collect();
    let (begun, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let held = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for pool in &pools {
            let (begun, most, held) = (&begun, &most, &held);
            scope.spawn(move || {
                for _ in 0..300 {
                    let before = begun.fetch_add(1, Ordering::SeqCst);
                    let chosen = choose(pool, &plain(&[vec![1; 20]]));
                    let others = begun.load(Ordering::SeqCst) - before - 1;
                    most.fetch_max(others + 3, Ordering::SeqCst);
                    held.lock().unwrap().push(chosen);
                }
            });
        }
    });
    let (busiest, idlest) = spread(&scene);
    let most = most.into_inner();
    assert!(busiest - idlest <= 1 + most, "{busiest} {idlest}: {most} meanwhile");
    drop(held);
    assert_eq!(spread(&scene), (0, 0));
}

#[test]
fn an_answer_that_comes_as_a_whole_stops_queueing_when_its_prefill_should_be_over() {
    let scene = Scene::new(1, None);
    let pool = scene.pool(PolicyKind::LeastLoad);
    let prompts = [vec![1; 200]];
    let evidence = pool.evidence(&plain(&prompts)).answered_whole();
    let whole = pool.choose("m", &evidence, &[]).unwrap();
    let streamed = choose(&pool, &plain(&prompts));
    let endpoint = scene.endpoint(0);
    let end = Instant::now() + Duration::from_secs(10);
    while endpoint.decoding() == 0 {
        assert!(Instant::now() < end, "200 tokens take milliseconds");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((endpoint.in_flight(), endpoint.queued_prefill_tokens()), (2, 200));
    drop((whole, streamed));
    let seen = (endpoint.in_flight(), endpoint.queued_prefill_tokens(), endpoint.decoding());
    assert_eq!(seen, (0, 0, 0));
}

/// Whoever finds the only place of a trial taken chooses once all the same: no policy counts a choice
/// that was not made.
#[test]
fn many_at_once_make_one_trial_and_each_one_choice() {
    const THREADS: u64 = 8;
    let scene = Scene::new(2, None);
    let pool = scene.pool(PolicyKind::RoundRobin);
    let tokens = PromptTokens { prompts: None, count: 1, exact: false, adapter: None, salt: None };
    let engine = Arc::clone(scene.engines[0].engine());
    for round in 1..=200 {
        engine.set_breaker(BreakerSettings { failures: 1, ..BreakerSettings::default() });
        scene.endpoint(0).send().settle(Verdict::Fault, "broke");
        engine.mark_unreachable("refused");
        engine.mark_reachable();
        let evidence = pool.evidence(&tokens);
        let start = std::sync::Barrier::new(THREADS as usize);
        let chosen: Vec<Chosen> = std::thread::scope(|scope| {
            let one = || {
                start.wait();
                pool.choose("m", &evidence, &[]).unwrap()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(pool.state.selecting.lock().decisions(), THREADS * round, "round {round}");
        let tried =
            |chosen: &&Chosen| chosen.reservation.endpoint().same_engine(&scene.endpoint(0));
        assert_eq!(chosen.iter().filter(tried).count(), 1, "round {round}");
        drop(chosen);
        // Closed again by an answer, so that the next round opens it.
        scene.endpoint(0).send().settle(Verdict::Answered, "");
    }
}

#[test]
fn a_place_that_is_not_used_is_given_back_and_any_rank_may_be_tried() {
    let scene = Scene::new(2, None);
    let pool = scene.pool(PolicyKind::RoundRobin);
    let tokens = PromptTokens { prompts: None, count: 1, exact: false, adapter: None, salt: None };
    let engine = Arc::clone(scene.engines[0].engine());
    engine.set_breaker(BreakerSettings { failures: 1, ..BreakerSettings::default() });
    scene.endpoint(0).send().settle(Verdict::Fault, "broke");
    engine.mark_unreachable("refused");
    engine.mark_reachable();
    // In turn: one of two does not go there, and keeps no place.
    let places: Vec<bool> = (0..2)
        .map(|_| choose(&pool, &tokens).reservation.endpoint().same_engine(&scene.endpoint(0)))
        .collect();
    assert_eq!(places.iter().filter(|tried| **tried).count(), 1, "{places:?}");
    assert_eq!(pool.exclusion(&scene.endpoint(0), "m"), None);
    // Ranks of one engine share its breaker and one place.
    let one = scene.endpoint(0);
    let members = [Arc::clone(&one), Arc::clone(&one)];
    let mut exclusions = vec![None, Some(kvasir_balance::Exclusion::HalfOpen)];
    let mut trials = Trials::hold(&members, &mut exclusions[..1], &|_| None);
    assert_eq!(pool.exclusion(&one, "m"), Some(Exclusion::HalfOpen));
    assert!(trials.take(&one).is_some_and(|place| !place.is_surplus()));
    let mut trials = Trials::hold(&members, &mut exclusions, &|_| None);
    assert_eq!(exclusions, [None, None], "either rank");
    assert!(trials.take(&scene.endpoint(1)).is_none());
}
