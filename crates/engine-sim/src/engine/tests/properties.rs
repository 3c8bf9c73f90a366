//! Random lives of random engines: the pool stays sound, and whoever replays the events by the
//! simplest rules knows after every step exactly what the cache holds.

use std::collections::HashMap;

use kvasir_kv_hash::vllm::Version;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Leg {
    Whole,
    Prefill,
    Decode,
}

#[derive(Clone, Debug)]
enum Call {
    Submit {
        family: u32,
        length: usize,
        max_tokens: usize,
        salted: bool,
        leg: Leg,
    },
    /// The kept blocks of one of the requests that left some, in their order.
    Release(usize),
    Step,
    Abort(u64),
    Reset,
    ResetAll,
    Restart,
}

fn call() -> impl Strategy<Value = Call> {
    let leg = prop_oneof![4 => Just(Leg::Whole), 1 => Just(Leg::Prefill), 1 => Just(Leg::Decode)];
    let submit = (0_u32..3, 1_usize..40, 1_usize..20, any::<bool>(), leg).prop_map(
        |(family, length, max_tokens, salted, leg)| Call::Submit {
            family,
            length,
            max_tokens,
            salted,
            leg,
        },
    );
    prop_oneof![
        8 => submit,
        20 => Just(Call::Step),
        2 => (0_usize..4).prop_map(Call::Release),
        1 => (0_u64..60).prop_map(Call::Abort),
        1 => Just(Call::Reset),
        1 => Just(Call::ResetAll),
        1 => Just(Call::Restart),
    ]
}

fn config() -> impl Strategy<Value = EngineConfig> {
    let version = prop_oneof![
        Just(Version::release(0, 20, 2)),
        Just(Version::release(0, 26, 0)),
        Just(Version::release(0, 32, 0)),
    ];
    (version, 1_usize..5, 2_usize..24, 1_usize..40, 1_usize..6, any::<bool>(), 0.0..0.4).prop_map(
        |(version, block_size, num_blocks, budget, seqs, reserve, watermark)| EngineConfig {
            version,
            block_size,
            num_blocks: num_blocks.max(2 + 2 / block_size),
            max_model_len: (num_blocks.max(2 + 2 / block_size) - 1) * block_size,
            max_num_batched_tokens: budget,
            max_num_seqs: seqs,
            reserve_full_prompt: reserve,
            watermark,
            ..EngineConfig::default()
        },
    )
}

/// An engine, and what somebody who reads its events believes it holds.
struct Watched {
    engine: Engine,
    believed: HashMap<BlockHash, usize>,
    /// Tokens each unfinished request has shown so far.
    shown: HashMap<RequestId, usize>,
    /// Those whose blocks are kept, and how many.
    held: Vec<(RequestId, usize)>,
    next_id: u64,
}

impl Watched {
    fn new(config: EngineConfig) -> Self {
        let engine = Engine::new(config).unwrap();
        let (believed, shown) = (HashMap::new(), HashMap::new());
        Self { engine, believed, shown, held: Vec::new(), next_id: 0 }
    }

    fn call(&mut self, call: &Call) {
        match *call {
            Call::Submit { family, length, max_tokens, salted, leg } => {
                let id = RequestId(self.next_id);
                self.next_id += 1;
                // Families share prefixes; lengths make them end anywhere.
                let prompt = (0..length as u32).map(|i| family * i).collect();
                let request = Request {
                    hold: leg == Leg::Prefill,
                    remote_prefill: leg == Leg::Decode,
                    cache_salt: salted.then(|| "salt".to_owned()),
                    ..Request::new(id, prompt, max_tokens)
                };
                let fits = length < self.engine.config().max_model_len;
                assert_eq!(self.engine.submit(request).is_ok(), fits);
                if fits {
                    self.shown.insert(id, 0);
                }
            }
            Call::Release(index) => {
                let id = self.held.get(index).map_or(RequestId(u64::MAX), |held| held.0);
                let known = index < self.held.len();
                assert_eq!(self.engine.release_held(id), known);
                self.held.retain(|held| held.0 != id);
                assert!(!self.engine.release_held(id), "once only");
            }
            Call::Step => self.step(),
            Call::Abort(id) => {
                let known = self.shown.remove(&RequestId(id)).is_some();
                assert_eq!(self.engine.abort(RequestId(id)), known);
            }
            Call::Reset => {
                let unused = self.engine.stats().used_blocks == 0;
                assert_eq!(self.engine.reset_prefix_cache(), unused);
            }
            Call::ResetAll => {
                let all = self.engine.reset_prefix_cache_and_requests();
                assert_eq!(all, self.held.is_empty());
            }
            Call::Restart => {
                assert_eq!(self.engine.restart().len(), self.shown.len());
                self.shown.clear();
                self.held.clear();
                self.believed.clear();
            }
        }
        self.audit();
    }

    fn step(&mut self) {
        let idle = self.engine.is_idle();
        assert_eq!(idle, self.shown.is_empty());
        let Some(outcome) = self.engine.step() else {
            assert!(idle);
            return;
        };
        let config = self.engine.config();
        let block_size = config.block_size;
        let load = outcome.load;
        let tokens = load.prefill_tokens + load.decode_requests;
        // With blocks kept for others there may be no room for anybody.
        let least = usize::from(self.held.is_empty());
        assert!((least..=config.max_num_batched_tokens).contains(&tokens), "{load:?}");
        assert!(load.prefill_requests + load.decode_requests <= config.max_num_seqs);
        for event in &outcome.events {
            self.believe(event);
        }
        for output in &outcome.outputs {
            let shown = self.shown.get_mut(&output.id).unwrap();
            assert_eq!(output.index, *shown, "{:?}", output.id);
            *shown += 1;
            if output.finished.is_some() {
                self.shown.remove(&output.id);
            }
        }
        for held in &outcome.held {
            assert_eq!(held.blocks.len(), held.tokens.div_ceil(block_size));
            self.held.push((held.id, held.blocks.len()));
        }
        let cached: HashMap<_, _> = self.engine.cached_blocks().collect();
        assert_eq!(cached, self.believed);
    }

    fn believe(&mut self, event: &Event) {
        match event {
            Event::Stored(stored) => {
                let blocks = stored.block_hashes.len();
                assert_eq!(stored.token_ids.len(), blocks * stored.block_size as usize);
                assert_eq!(stored.extra_keys.as_ref().map(Vec::len), Some(blocks));
                // A chain never hangs in the air.
                assert!(stored.parent_block_hash.is_none_or(|p| self.believed.contains_key(&p)));
                for hash in &stored.block_hashes {
                    *self.believed.entry(*hash).or_default() += 1;
                }
            }
            Event::Removed(removed) => {
                for hash in &removed.block_hashes {
                    let copies = self.believed.get_mut(hash).unwrap();
                    *copies -= 1;
                    if *copies == 0 {
                        self.believed.remove(hash);
                    }
                }
            }
            Event::Cleared => self.believed.clear(),
        }
    }

    fn audit(&self) {
        let scheduler = &self.engine.scheduler;
        let all = || scheduler.running.iter().chain(&scheduler.waiting);
        let held = self.engine.held.values().map(Vec::as_slice);
        self.engine.pool.audit(all().map(|sequence| sequence.table.as_slice()).chain(held));
        let mut kept: Vec<_> = self.engine.held.iter().map(|(id, b)| (*id, b.len())).collect();
        kept.sort_unstable();
        let mut known = self.held.clone();
        known.sort_unstable();
        assert_eq!(kept, known);
        assert!(scheduler.waiting.iter().all(|sequence| sequence.table.is_empty()));
        let stats = self.engine.stats();
        assert_eq!(stats.used_blocks + self.engine.pool.free_blocks(), stats.usable_blocks);
        assert_eq!(
            (stats.running, stats.waiting),
            (scheduler.running.len(), scheduler.waiting.len())
        );
        for sequence in all() {
            let block_size = self.engine.config().block_size;
            assert!(sequence.computed <= sequence.table.len() * block_size);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn the_pool_stays_sound_and_events_tell_all(
        config in config(),
        calls in prop::collection::vec(call(), 1..120),
    ) {
        let mut watched = Watched::new(config);
        calls.iter().for_each(|call| watched.call(call));
        // Whatever happened, everything still gets done, when those that are kept for are served.
        let mut steps = 0;
        while !watched.engine.is_idle() {
            watched.call(&Call::Step);
            watched.call(&Call::Release(0));
            steps += 1;
            prop_assert!(steps < 20_000);
        }
        prop_assert!(watched.shown.is_empty());
        while !watched.held.is_empty() {
            watched.call(&Call::Release(0));
        }
        prop_assert_eq!(watched.engine.stats().used_blocks, 0);
        let stats = *watched.engine.stats();
        prop_assert!(stats.external_hits <= stats.external_queries);
    }
}
