//! Arguments of `kvasirctl routing`: what `exa serve routing` takes.

use clap::{ArgAction, Subcommand, ValueEnum};

use super::connect::{AskArgs, OutputArgs};

/// Settings of a model's routing in the words of `ExaMLOps` E4, their counts, and E4's simulation.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RoutingArgs {
    #[command(subcommand)]
    pub(crate) what: RoutingWhat,
}

/// What is done.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RoutingWhat {
    /// Sets what is given and leaves the rest; a model without settings starts as `round_robin`.
    Set(SetArgs),
    /// Shows a model's settings, or those of all.
    Get {
        /// One model only.
        model: Option<String>,
        #[command(flatten)]
        tenant: TenantArgs,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Takes a model's settings away: it is routed as configured again.
    Delete {
        /// The model.
        model: String,
        #[command(flatten)]
        tenant: TenantArgs,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Shows a model's settings and its decisions, counted.
    Stats {
        /// The model.
        model: String,
        #[command(flatten)]
        tenant: TenantArgs,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Compares the hit rates of both modes for one prefix that all requests share; asks no gateway.
    Simulate(SimulateRoutingArgs),
}

/// Whose settings.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TenantArgs {
    /// The tenant; `default` is everybody.
    #[arg(long, value_name = "S")]
    pub(crate) tenant: Option<String>,
}

/// What to set.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// The model.
    pub(crate) model: String,
    /// How requests are routed.
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) mode: Option<ModeArg>,
    /// Above this latency a replica is avoided, in milliseconds.
    #[arg(long, value_name = "F", value_parser = latency)]
    pub(crate) slo_latency_ms: Option<f64>,
    /// Split requests into prefill and decode.
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) disaggregate: bool,
    /// Do not split requests.
    #[arg(long, conflicts_with = "disaggregate", action = ArgAction::SetTrue)]
    pub(crate) no_disaggregate: bool,
    /// The group of endpoints that compute prompts.
    #[arg(long, value_name = "S")]
    pub(crate) prefill_pool: Option<String>,
    /// The group of endpoints that generate.
    #[arg(long, value_name = "S")]
    pub(crate) decode_pool: Option<String>,
    /// Back to what is configured, for this setting; may be given several times.
    #[arg(long, value_name = "SETTING", value_enum)]
    pub(crate) reset: Vec<Setting>,
    #[command(flatten)]
    pub(crate) tenant: TenantArgs,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// How requests are routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ModeArg {
    /// Each replica in turn.
    RoundRobin,
    /// Where the most of the prompt is held.
    CacheAware,
}

impl ModeArg {
    /// The word in the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::CacheAware => "cache_aware",
        }
    }
}

/// A setting that can be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Setting {
    Mode,
    SloLatencyMs,
    Disaggregate,
    PrefillPool,
    DecodePool,
}

impl Setting {
    /// The key in the API.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::SloLatencyMs => "slo_latency_ms",
            Self::Disaggregate => "disaggregate",
            Self::PrefillPool => "prefill_pool",
            Self::DecodePool => "decode_pool",
        }
    }
}

/// What to simulate.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SimulateRoutingArgs {
    /// The model; a label only.
    pub(crate) model: String,
    /// Replicas.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = replicas)]
    pub(crate) replicas: u32,
    /// Requests that share one prefix.
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) shared_prefix_requests: u32,
    /// Both modes are simulated; this one is named in the JSON.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = ModeArg::CacheAware)]
    pub(crate) mode: ModeArg,
    #[command(flatten)]
    pub(crate) print: OutputArgs,
}

fn latency(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("must be above 0".to_owned()) }
}

fn replicas(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("there is nobody to send a request to: 1 replica at least".to_owned()),
        Ok(number @ 1..=1000) => Ok(number),
        _ => Err("must be 1 to 1000".to_owned()),
    }
}
