//! Arguments of `kvasirctl calibrate`.

use http::{HeaderName, HeaderValue};
use kvasir_config::EngineUrl;

use super::engine::{base_url, header};
use super::unshown::Unshown;

/// What the end of `--help` says.
const HELP: &str = "The engine must be idle: whatever else it does is measured, too. Prompts are \
    random token ids, so that nothing of them is cached; their answers are thrown away. Nothing is \
    changed at the engine, but its cache holds these prompts afterwards.

Exit status 0 when a model was fitted, however good: the numbers say how good, and notes what \
    they lack, such as a comparison that failed. See docs/simulation.md.";

/// Times an idle engine's answers, fits the simulator's cost model to them, and compares a small
/// workload on the engine with the same one simulated.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct CalibrateArgs {
    /// The engine's base URL, http://host:port.
    #[arg(long, value_name = "URL", value_parser = Unshown(base_url))]
    pub(crate) engine: EngineUrl,
    /// The model to ask for.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: String,
    /// A header for every question, such as 'authorization: Bearer KEY'; may be given several
    /// times. Never shown.
    #[arg(long = "header", value_name = "K:V", value_parser = Unshown(header))]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// How often every point is measured.
    #[arg(long, value_name = "N", default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeats: u32,
    /// Which of a point's readings is fitted.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Reading::Median)]
    pub(crate) fit: Reading,
    /// Lengths of the prompts, in tokens (default: seven, from 8 to as long as fits, at most 8192).
    #[arg(long, value_name = "N,M", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) prompts: Vec<u32>,
    /// How many answers at a time, for the time of a step that serves several; those above
    /// max-num-seqs count as that.
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "4,12",
          value_parser = clap::value_parser!(u32).range(2..=256))]
    pub(crate) batches: Vec<u32>,
    /// Tokens of each answer.
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(4..=4_096))]
    pub(crate) answer_tokens: u32,
    /// Token ids of prompts are below this and from 256 on; the model must know them all.
    #[arg(long, value_name = "N", default_value_t = 4_000,
          value_parser = clap::value_parser!(u32).range(512..=1_000_000))]
    pub(crate) vocabulary: u32,
    /// Do not compare a workload.
    #[arg(long)]
    pub(crate) no_check: bool,
    /// Requests of the workload that is compared.
    #[arg(long, value_name = "N", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(10..=5_000))]
    pub(crate) check_requests: u32,
    /// Its arrivals, as a part of what the fitted engine keeps up with.
    #[arg(long, value_name = "PART", default_value_t = 0.6, value_parser = part)]
    pub(crate) check_load: f64,
    /// What the order of measurements and the compared workload are made from. The tokens
    /// themselves are new each time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How long all of it may take, in seconds. Measuring ends early, at a point that all lengths
    /// have reached, if three quarters of it are over.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(5..=86_400))]
    pub(crate) time_limit: u64,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which of several readings of one time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reading {
    /// What is usual.
    Median,
    /// The shortest: what it takes when nothing else on the machine is in the way.
    Least,
}

/// What the engine was started with, where it does not say so itself.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "The engine's limits, where it does not tell them")]
pub(crate) struct LimitArgs {
    /// Token budget of one step (vLLM's option). vLLM tells it in development mode only; without
    /// it no prompt is longer than 2048 tokens, and chunks are taken to be of 2048.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_num_batched_tokens: Option<u32>,
    /// Most requests that run at once (vLLM's option).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_num_seqs: Option<u32>,
    /// Context length in tokens.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) max_model_len: Option<u32>,
    /// Tokens per block.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) block_size: Option<u32>,
    /// Tokens that its cache holds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) cache_tokens: Option<u32>,
}

fn part(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.05..=0.95).contains(&number) {
        Ok(number)
    } else {
        Err("must be from 0.05 to 0.95".to_owned())
    }
}
