//! Arguments of `kvasirctl simulate`.

mod split;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use kvasir_engine_sim::CostModel;
use kvasir_sim::{Restart, SimPolicy, Synthetic};

pub(crate) use self::split::SplitArgs;

/// Engines, gateways and their news are simulated; the policies, and what gateways make of events
/// and metrics, are the real code. The same arguments give the same output.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct SimulateArgs {
    /// A trace: JSON lines with `hash_ids` (Mooncake) or CSV of lengths (Azure).
    #[arg(long, value_name = "FILE", group = "what")]
    pub(crate) trace: Option<PathBuf>,
    /// A made-up workload: `multi_turn`, `rag`, `agent` or `hot_prefix`.
    #[arg(long, value_name = "NAME", group = "what")]
    pub(crate) workload: Option<Synthetic>,
    /// Check instead whether a policy (`latency` unless told) keeps conversations where they are and
    /// tenants apart: 3 projects with a cache salt each, 4 conversations each, 5 turns each, one
    /// system prompt, and a control run without salts that must fail. Exit status 1 where it does
    /// not pass.
    #[arg(long, value_name = "POLICY", group = "what", num_args = 0..=1, require_equals = true,
          default_missing_value = "latency",
          conflicts_with_all = ["policies", "requests", "load", "find_saturation", "csv", "plot",
                                "decisions", "split"])]
    pub(crate) conformance: Option<SimPolicy>,
    /// How many requests: the first ones of a trace (default: all), or those of a made-up workload
    /// (default: 2000).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub(crate) requests: Option<u32>,
    /// Engine replicas that serve whole requests (default: 8; with `--split`: none).
    #[arg(long, value_name = "N")]
    pub(crate) replicas: Option<usize>,
    #[command(flatten)]
    pub(crate) split: SplitArgs,
    /// Gateways; requests go to a random one of them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) gateways: usize,
    /// The policies, in this order. Kvasir's own: `latency`, `ttft`, `precise_cache_aware`,
    /// `precise_pipeline`, `cache_aware`, `lmcache_aware`, `least_load`, `power_of_two`,
    /// `round_robin`, `weighted`, `random`, `consistent_hash`, `chwbl`, `session`; other routers':
    /// `lmetric`, `llm_d`, `dynamo`, `smg_cache_aware`, `longest_prefix`. One of Kvasir's own may also
    /// be a JSON object of `name` and its options (docs/policies.md):
    /// `'latency,{"name":"precise_cache_aware","blend":"soft"}'`. May be given several times.
    #[arg(long, value_name = "A,B", default_value = "round_robin,latency")]
    policies: Vec<Policies>,
    /// Arrivals, and pauses within sessions, are X times as fast.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = positive)]
    pub(crate) time_scale: f64,
    /// Set the time scale to this part of the one at which round robin saturates: 0.8 is 80 %. With
    /// `--split` that is of a fleet of unified replicas as many as all of the first fleet.
    #[arg(long, value_name = "PART", conflicts_with = "time_scale", value_parser = positive)]
    pub(crate) load: Option<f64>,
    /// What everything random is made from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) engines: EngineArgs,
    #[command(flatten)]
    pub(crate) news: NewsArgs,
    /// Kill a replica (from 0) at a second of simulated time; it is back, empty, after DOWN seconds
    /// (default: 30). May be given several times.
    #[arg(long = "restart", value_name = "REPLICA@SECOND[+DOWN]", value_parser = restart)]
    pub(crate) restarts: Vec<Restart>,
    /// Only find the time scale at which each policy saturates: above it, fewer than 95 % as many
    /// requests are answered as arrive.
    #[arg(long, conflicts_with_all = ["load", "csv", "plot", "decisions"])]
    pub(crate) find_saturation: bool,
    /// Print JSON instead of a table.
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print CSV instead of a table.
    #[arg(long)]
    pub(crate) csv: bool,
    /// Also log every decision into this file, for `kvasirctl replay`; for one policy of Kvasir's own
    /// and one gateway.
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    /// Also draw the comparison into this file, as SVG; its name ends with `.svg`. For a PNG convert
    /// it: `rsvg-convert FILE.svg -o FILE.png`, or with `cairosvg` or a browser.
    #[arg(long, value_name = "FILE.svg", value_parser = svg)]
    pub(crate) plot: Option<PathBuf>,
}

/// The engines of the fleet.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Engines")]
pub(crate) struct EngineArgs {
    /// Tokens per block (default: 512 for traces that tell blocks of 512, else 16).
    #[arg(long, value_name = "N")]
    pub(crate) block_size: Option<usize>,
    /// Tokens that a replica's cache holds; several numbers are given to the replicas in turn.
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "2048000")]
    pub(crate) cache_tokens: Vec<usize>,
    /// How many times as fast as `--cost` says a replica is; several numbers are given to the
    /// replicas in turn.
    #[arg(long, value_name = "X,Y", value_delimiter = ',', default_value = "1", value_parser = positive)]
    pub(crate) speeds: Vec<f64>,
    /// Seconds that a step takes, part by part: `step_overhead`, `weights`, `per_token`,
    /// `per_request`, `per_context_token`, `per_attention_pair`; `kvasirctl calibrate` prints those
    /// of a live engine. What is not given is that of an 8B model on a
    /// mid-size GPU: 10,000 prefill tokens and up to 100 steps a second.
    #[arg(long, value_name = "PART=S,PART=S", value_delimiter = ',', value_parser = cost)]
    pub(crate) cost: Vec<(CostPart, f64)>,
    /// Token budget of one step (vLLM's option).
    #[arg(long, value_name = "N", default_value_t = 8_192)]
    pub(crate) max_num_batched_tokens: usize,
    /// Most requests that run at once on a replica (vLLM's option).
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_num_seqs: usize,
}

/// How news of the engines reaches the gateways.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "News of the engines")]
pub(crate) struct NewsArgs {
    /// From a request's choice to its arrival at the engine, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0.5, value_parser = not_negative)]
    pub(crate) dispatch_delay: f64,
    /// Delay of KV events, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1.0, value_parser = not_negative)]
    pub(crate) event_delay: f64,
    /// Part of all event batches that is lost, 0 to 1.
    #[arg(long, value_name = "PART", default_value_t = 0.0, value_parser = not_negative)]
    pub(crate) event_loss: f64,
    /// Engines have no replay socket: what is lost stays lost.
    #[arg(long)]
    pub(crate) no_replay: bool,
    /// Engines publish no events.
    #[arg(long)]
    pub(crate) no_events: bool,
    /// Tell gateways the `--speeds` of engines as capacity weights.
    #[arg(long)]
    pub(crate) told_speeds: bool,
    /// Seconds between two readings of an engine's metrics.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = positive)]
    pub(crate) scrape_interval: f64,
}

impl SimulateArgs {
    /// All policies, in their order.
    pub(crate) fn policies(&self) -> Vec<SimPolicy> {
        self.policies.iter().flat_map(|policies| policies.0.clone()).collect()
    }
}

/// Policies with commas between them: names, and JSON objects that may have commas in them.
#[derive(Clone, Debug)]
struct Policies(Vec<SimPolicy>);

impl FromStr for Policies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut found = Vec::new();
        let mut rest = text;
        loop {
            let (policy, after) = split_policy(rest)?;
            found.push(policy.trim().parse::<SimPolicy>().map_err(|error| error.to_string())?);
            match after {
                Some(after) => rest = after,
                None => return Ok(Self(found)),
            }
        }
    }
}

/// The first policy, and what follows its comma.
fn split_policy(text: &str) -> Result<(&str, Option<&str>), String> {
    let end = if text.trim_start().starts_with('{') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
        values.next().transpose().map_err(|error| format!("not JSON: {error}"))?;
        values.byte_offset()
    } else {
        text.find(',').unwrap_or(text.len())
    };
    let (policy, after) = text.split_at_checked(end).unwrap_or((text, ""));
    match after.trim_start().strip_prefix(',') {
        Some(after) => Ok((policy, Some(after))),
        None if after.trim().is_empty() => Ok((policy, None)),
        None => Err(format!("expected a comma before `{}`", after.trim())),
    }
}

/// A part of [`CostModel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostPart {
    StepOverhead,
    Weights,
    PerToken,
    PerRequest,
    PerContextToken,
    PerAttentionPair,
}

impl CostPart {
    const ALL: [(&'static str, Self); 6] = [
        ("step_overhead", Self::StepOverhead),
        ("weights", Self::Weights),
        ("per_token", Self::PerToken),
        ("per_request", Self::PerRequest),
        ("per_context_token", Self::PerContextToken),
        ("per_attention_pair", Self::PerAttentionPair),
    ];

    pub(crate) fn set(self, model: &mut CostModel, seconds: f64) {
        *match self {
            Self::StepOverhead => &mut model.step_overhead,
            Self::Weights => &mut model.weights,
            Self::PerToken => &mut model.per_token,
            Self::PerRequest => &mut model.per_request,
            Self::PerContextToken => &mut model.per_context_token,
            Self::PerAttentionPair => &mut model.per_attention_pair,
        } = seconds;
    }
}

/// What is drawn is SVG: under another ending, viewers would not open it.
fn svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg")) {
        return Ok(path);
    }
    Err("only SVG can be drawn: give a name that ends with .svg, and convert that".to_owned())
}

fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() { Ok(number) } else { Err("not a finite number".to_owned()) }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = number(text)?;
    if number > 0.0 { Ok(number) } else { Err("must be above 0".to_owned()) }
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = number(text)?;
    if number >= 0.0 { Ok(number) } else { Err("must not be below 0".to_owned()) }
}

/// As a duration; one that is too long as the longest there is.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn cost(text: &str) -> Result<(CostPart, f64), String> {
    let (name, seconds) = text.split_once('=').ok_or("expected PART=SECONDS")?;
    let known = CostPart::ALL.into_iter().find(|(known, _)| *known == name);
    let Some((_, part)) = known else {
        let names = CostPart::ALL.map(|(name, _)| name).join(", ");
        return Err(format!("unknown part `{name}`, expected one of {names}"));
    };
    Ok((part, not_negative(seconds)?))
}

fn restart(text: &str) -> Result<Restart, String> {
    const FORM: &str = "expected REPLICA@SECOND or REPLICA@SECOND+DOWN";
    let (replica, when) = text.split_once('@').ok_or(FORM)?;
    let (at, down) = when.split_once('+').unwrap_or((when, "30"));
    let down = Duration::try_from_secs_f64(not_negative(down)?).map_err(|e| e.to_string())?;
    Ok(Restart { replica: replica.parse().map_err(|_| FORM)?, at: not_negative(at)?, down })
}

#[cfg(test)]
mod tests;
