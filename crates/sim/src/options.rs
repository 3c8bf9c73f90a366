//! What is simulated: how many replicas and gateways, how fast and how well informed.

mod fleet;

use std::time::Duration;

use kvasir_engine_sim::{ConfigError, CostModel, EngineConfig, MAX_BLOCK_SIZE, OpaqueHashing};
use kvasir_fleet::Advice;

pub use self::fleet::{Fleet, Split};

/// Most replicas of a fleet.
const MAX_REPLICAS: usize = 4_096;
/// Most gateways in front of it.
const MAX_GATEWAYS: usize = 64;

/// A fleet, its gateways and what goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Engine replicas that serve whole requests.
    pub replicas: usize,
    /// Those that serve requests in two legs. They come behind the others.
    pub split: Split,
    /// Gateways; each request goes to a random one of them, and none knows of the others.
    pub gateways: usize,
    /// Arrivals are so many times as fast as in the workload.
    pub time_scale: f64,
    /// What everything random is made from.
    pub seed: u64,
    /// The engine all replicas are like.
    pub engine: Engines,
    /// How news of the engines reaches the gateways.
    pub news: News,
    /// Engines that are killed.
    pub restarts: Vec<Restart>,
    /// Percents of its weight that a weight controller advises for each replica, 1 to 100; replicas take
    /// the numbers in turn. None by default.
    pub advised: Vec<u8>,
}

/// The engines of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Engines {
    /// Tokens per block.
    pub block_size: usize,
    /// Tokens that the cache of a replica holds; replicas take the numbers in turn.
    pub cache_tokens: Vec<usize>,
    /// How many times as fast as `cost` says a replica is; replicas take the numbers in turn.
    pub speeds: Vec<f64>,
    /// How long steps take.
    pub cost: CostModel,
    /// Token budget of one step.
    pub max_num_batched_tokens: usize,
    /// Most requests that run at once.
    pub max_num_seqs: usize,
    /// Most requests that wait at one engine.
    pub max_waiting: usize,
}

/// How news of the engines reaches the gateways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct News {
    /// From a request's choice to its arrival at the engine.
    pub dispatch_delay: Duration,
    /// From the end of a step to its events at a gateway.
    pub event_delay: Duration,
    /// The part of all event batches that is lost on the way, from 0 to 1.
    pub event_loss: f64,
    /// Whether engines have a replay socket.
    pub replay: bool,
    /// Batches that an engine keeps for replay (vLLM's `buffer_steps`).
    pub replay_batches: usize,
    /// Whether engines publish events at all.
    pub events: bool,
    /// How often a gateway reads an engine's metrics.
    pub scrape_interval: Duration,
    /// From reading the metrics to having them.
    pub scrape_delay: Duration,
    /// Whether gateways are told how fast engines are, as capacity weights.
    pub told_speeds: bool,
}

/// An engine that is killed and comes back empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restart {
    /// Which replica, from 0.
    pub replica: usize,
    /// When, in seconds of simulated time.
    pub at: f64,
    /// How long it is gone.
    pub down: Duration,
}

/// Options that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// A number out of its range.
    #[error("{name} is {value}: must be from {expected}")]
    Range {
        /// The option.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: String,
    },
    /// Nobody answers.
    #[error("fleet {0}: there is no unified and no decode replica to answer")]
    NobodyAnswers(Fleet),
    /// Another router's policy, which chooses one engine and no pairs.
    #[error(
        "`{policy}` is not a policy of Kvasir's own: it chooses no pairs for the fleet {fleet}"
    )]
    NoPairs {
        /// The policy.
        policy: String,
        /// The fleet.
        fleet: Fleet,
    },
    /// No engine is like that.
    #[error("engine: {0}")]
    Engine(ConfigError),
    /// The longest request fits no cache.
    #[error(
        "a request of the workload has {longest} tokens, prompt and answer together; the smallest \
         cache holds {cache}"
    )]
    CacheTooSmall {
        /// Tokens of the longest request.
        longest: u64,
        /// Tokens of the smallest cache.
        cache: u64,
    },
}

impl From<ConfigError> for OptionsError {
    fn from(error: ConfigError) -> Self {
        Self::Engine(error)
    }
}

impl Default for Options {
    /// Eight replicas behind one gateway, and nothing goes wrong.
    fn default() -> Self {
        Self {
            replicas: 8,
            split: Split::default(),
            gateways: 1,
            time_scale: 1.0,
            seed: 1,
            engine: Engines::default(),
            news: News::default(),
            restarts: Vec::new(),
            advised: Vec::new(),
        }
    }
}

impl Default for Engines {
    /// Blocks of 512 tokens as in the Mooncake traces, room for two million tokens, and a GPU that
    /// prefills 10,000 tokens a second.
    fn default() -> Self {
        Self {
            block_size: 512,
            cache_tokens: vec![2_048_000],
            speeds: vec![1.0],
            cost: CostModel::MID_GPU,
            max_num_batched_tokens: 8_192,
            max_num_seqs: 256,
            max_waiting: 65_536,
        }
    }
}

impl Default for News {
    /// One data centre: fractions of a millisecond, and nothing is lost.
    fn default() -> Self {
        Self {
            dispatch_delay: Duration::from_micros(500),
            event_delay: Duration::from_millis(1),
            event_loss: 0.0,
            replay: true,
            replay_batches: 1_000,
            events: true,
            scrape_interval: Duration::from_secs(1),
            scrape_delay: Duration::from_millis(5),
            told_speeds: false,
        }
    }
}

impl Options {
    /// Checks the options by themselves and against a workload whose longest request has
    /// `longest` tokens.
    ///
    /// # Errors
    /// The first option that cannot be.
    pub fn validate(&self, longest: u64) -> Result<(), OptionsError> {
        self.validate_fleet()?;
        count("gateways", self.gateways, 1, MAX_GATEWAYS)?;
        // A cache of blocks of nothing would be too small, whatever it holds.
        count("block-size", self.engine.block_size, 1, MAX_BLOCK_SIZE)?;
        number("time-scale", self.time_scale, 1e-3, 1e4)?;
        let Engines { cache_tokens, speeds, .. } = &self.engine;
        count("number of cache sizes", cache_tokens.len(), 1, MAX_REPLICAS)?;
        count("number of speeds", speeds.len(), 1, MAX_REPLICAS)?;
        speeds.iter().try_for_each(|speed| number("speed", *speed, 1e-3, 1e3))?;
        number("event-loss", self.news.event_loss, 0.0, 1.0)?;
        count("replay-batches", self.news.replay_batches, 1, 1_000_000)?;
        let interval = self.news.scrape_interval.as_secs_f64();
        number("scrape interval, s", interval, 1e-3, 86_400.0)?;
        for restart in &self.restarts {
            count("restart: replica", restart.replica, 0, self.all_replicas().saturating_sub(1))?;
            number("restart: second", restart.at, 0.0, 1e7)?;
            number("restart: down", restart.down.as_secs_f64(), 0.0, 1e6)?;
        }
        let kinds = cache_tokens.len().max(speeds.len()).min(self.all_replicas());
        for replica in 0..kinds {
            let config = self.config(replica, longest);
            let cache = (config.usable_blocks() * config.block_size) as u64;
            if longest.max(2) > cache {
                return Err(OptionsError::CacheTooSmall { longest, cache });
            }
            config.validate()?;
        }
        Ok(())
    }

    /// How many times as fast as the others' a replica's clock is.
    pub(crate) fn speed(&self, replica: usize) -> f64 {
        let speeds = &self.engine.speeds;
        let place = replica.checked_rem(speeds.len()).unwrap_or(0);
        speeds.get(place).copied().unwrap_or(1.0)
    }

    /// The capacity weights that gateways are told.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    pub(crate) fn weights(&self) -> Vec<u32> {
        let weight = |replica: usize| {
            let speed = if self.news.told_speeds { self.speed(replica) } else { 1.0 };
            (speed * 100.0).round().clamp(1.0, 1e6) as u32
        };
        (0..self.all_replicas()).map(weight).collect()
    }

    /// What is advised of a replica.
    pub(crate) fn advice(&self, replica: usize) -> Advice {
        let place = replica.checked_rem(self.advised.len());
        let percent = place.and_then(|place| self.advised.get(place).copied());
        percent.map_or(Advice::NEUTRAL, |percent| Advice { percent, ..Advice::NEUTRAL })
    }

    /// The engine of one replica, for requests of at most `longest` tokens.
    pub(crate) fn config(&self, replica: usize, longest: u64) -> EngineConfig {
        let Engines { block_size, cache_tokens, cost, .. } = &self.engine;
        let in_turn = |numbers: usize| replica.checked_rem(numbers).unwrap_or(0);
        let tokens = cache_tokens.get(in_turn(cache_tokens.len())).copied().unwrap_or(0);
        EngineConfig {
            block_size: *block_size,
            // One block holds nothing.
            num_blocks: tokens / (*block_size).max(1) + 1,
            // A prompt must leave room for a token more than the longest request has.
            max_model_len: usize::try_from(longest).unwrap_or(usize::MAX).max(2),
            max_num_batched_tokens: self.engine.max_num_batched_tokens,
            max_num_seqs: self.engine.max_num_seqs,
            max_waiting: self.engine.max_waiting,
            // Seeds differ from engine to engine and from life to life, as with no
            // PYTHONHASHSEED: gateways must not care.
            hashing: kvasir_engine_sim::Hashing::Opaque(OpaqueHashing {
                seed: replica as u64,
                per_life: true,
            }),
            enable_kv_cache_events: self.news.events,
            cost: cost.faster(self.speed(replica)),
            ..EngineConfig::default()
        }
    }
}

fn count(name: &'static str, value: usize, least: usize, most: usize) -> Result<(), OptionsError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let expected = format!("{least} to {most}");
    Err(OptionsError::Range { name, value: value.to_string(), expected })
}

fn number(name: &'static str, value: f64, least: f64, most: f64) -> Result<(), OptionsError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let expected = format!("{least} to {most}");
    Err(OptionsError::Range { name, value: value.to_string(), expected })
}
