//! What can be set of `precise_cache_aware`; the defaults are `LoxiLB`'s.

use serde::{Deserialize, Serialize};

use super::blend::At;

/// How load is weighed against overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blend {
    /// Not at all.
    Off,
    /// Endpoints at their cap do not count.
    #[default]
    Hard,
    /// Load is a penalty.
    Soft,
    /// As [`Blend::Hard`], with a cap that follows the load.
    Adaptive,
    /// As [`Blend::Soft`], with a penalty that follows the load.
    AdaptiveSoft,
}

/// When a holder at its cap gives way to an endpoint that holds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relief {
    /// Where prompts are computed and answered by one endpoint: always, here. (`LoxiLB`: not for
    /// disaggregated serving.)
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// What an endpoint's capacity is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// The same for all, as in `LoxiLB`'s single pools.
    #[default]
    Uniform,
    /// Blocks times weight / 100, where the blocks of all are known.
    Blocks,
}

/// How [`PreciseCacheAware`](super::PreciseCacheAware) decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreciseOptions {
    /// How load is weighed.
    pub blend: Blend,
    /// `f` of the cap, in percent: 100 to 1000.
    pub load_factor_percent: u32,
    /// `λ` of the penalty: 1 to 100,000.
    pub load_penalty: u32,
    /// The sum of capacities, in thousandths, that the laws of the adaptive blends are scaled to;
    /// `None` for the fleet they were fitted on.
    pub capacity_sum_milli: Option<u64>,
    /// When holders at their cap give way.
    pub relief: Relief,
    /// Every so many hits one goes to a cold endpoint; 0 for never.
    pub cold_seed_every: u32,
    /// Below so many blocks an endpoint is cold.
    pub cold_seed_blocks: u64,
    /// Prefixes shorter than this do not count, in tokens; 0 counts all.
    pub min_match_tokens: u32,
    /// So many requests in a row without a holder are worth a warning; 0 for never.
    pub zero_hit_requests: u32,
    /// What an endpoint's capacity is.
    pub capacity: Capacity,
}

impl Default for PreciseOptions {
    fn default() -> Self {
        Self {
            blend: Blend::default(),
            load_factor_percent: 175,
            load_penalty: 32,
            capacity_sum_milli: None,
            relief: Relief::default(),
            cold_seed_every: 16,
            cold_seed_blocks: 16,
            min_match_tokens: 16,
            zero_hit_requests: 50,
            capacity: Capacity::default(),
        }
    }
}

impl PreciseOptions {
    pub(super) fn relieves(&self) -> bool {
        self.blend != Blend::Off && self.relief != Relief::Off
    }
}

/// The fleet the adaptive laws were fitted on: the sum of its capacities, in thousandths.
const FITTED_CAPACITY_MILLI: u64 = 15_284_310;

impl Blend {
    /// The blend at a sum of loads.
    pub(super) fn at(self, total: u64, options: &PreciseOptions) -> At {
        match self {
            Self::Off => At::Off,
            Self::Hard | Self::Adaptive => At::Hard { percent: self.cap_percent(total, options) },
            Self::Soft => At::Soft { lambda: u64::from(options.load_penalty.clamp(1, 100_000)) },
            Self::AdaptiveSoft => {
                let over = scaled(total, options) - 16;
                let lambda = (50_000 + 5_000 * over).clamp(50_000, 100_000);
                At::Soft { lambda: lambda.unsigned_abs() }
            }
        }
    }

    /// `f` of the cap, in percent.
    pub(super) fn cap_percent(self, total: u64, options: &PreciseOptions) -> u64 {
        if self != Self::Adaptive {
            return u64::from(options.load_factor_percent.clamp(100, 1000));
        }
        let over = scaled(total, options) - 16;
        (175 + 125 * over / 10).clamp(175, 300).unsigned_abs()
    }
}

/// The sum of loads as it would be on the fleet the laws were fitted on. A factor that is not within
/// 1/8 and 8 is not believed.
fn scaled(total: u64, options: &PreciseOptions) -> i64 {
    // Beyond this both laws have long reached their ends.
    let total = total.min(1 << 20);
    let sum = options.capacity_sum_milli.filter(|sum| {
        *sum > 0
            && *sum <= FITTED_CAPACITY_MILLI * 8
            && FITTED_CAPACITY_MILLI <= sum.saturating_mul(8)
    });
    let total = sum.map_or(total, |sum| total * FITTED_CAPACITY_MILLI / sum);
    i64::try_from(total).unwrap_or(i64::MAX / 10_000)
}
