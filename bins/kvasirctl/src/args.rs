//! The command line.

mod bundle;
mod calibrate;
mod change;
pub(crate) mod connect;
mod doctor;
mod engine;
mod get;
mod hash;
mod look;
mod parity_check;
mod record;
mod replay;
mod residency;
mod routing;
mod sim_pd;
mod simulate;
pub(crate) mod tokenize;
mod unshown;
mod watch;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Parser, Subcommand};
use kvasir_balance::PolicyKind;
use kvasir_engine_sim::{Algorithm, Version};

pub(crate) use self::bundle::BundleArgs;
pub(crate) use self::calibrate::{CalibrateArgs, LimitArgs, Reading};
pub(crate) use self::change::{StateArgs, WeightArgs};
pub(crate) use self::connect::{AddressArgs, AskArgs, ConnectArgs, Output};
pub(crate) use self::doctor::DoctorArgs;
pub(crate) use self::get::{ExplainArgs, GetArgs, GetWhat};
pub(crate) use self::hash::HashArgs;
pub(crate) use self::look::LookArgs;
pub(crate) use self::parity_check::ParityCheckArgs;
pub(crate) use self::record::RecordArgs;
pub(crate) use self::replay::ReplayArgs;
pub(crate) use self::residency::ResidencyArgs;
pub(crate) use self::routing::{
    RoutingArgs, RoutingWhat, SetArgs, SimulateRoutingArgs, TenantArgs,
};
pub(crate) use self::sim_pd::SimPdArgs;
pub(crate) use self::simulate::{SimulateArgs, seconds};
pub(crate) use self::watch::WatchArgs;

/// Kvasir's tool for operators.
#[derive(Debug, Parser)]
#[command(name = "kvasirctl", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows what a gateway knows: pools, endpoints, inventory, parity, counts, decisions, configuration.
    Get(Box<GetArgs>),
    /// Shows what would be decided about a request now, without sending it.
    Explain(Box<ExplainArgs>),
    /// Gives an endpoint no new conversations; what is in flight goes on.
    Drain(Box<StateArgs>),
    /// Gives an endpoint requests again.
    Activate(Box<StateArgs>),
    /// Takes an endpoint out: no requests even where there is no other.
    Disable(Box<StateArgs>),
    /// Sets an endpoint's part of the load.
    Weight(Box<WeightArgs>),
    /// Shows pools, endpoints, hit rates and decisions of a gateway as they change.
    Watch(Box<WatchArgs>),
    /// Puts what a gateway knows into one file, for a bug report.
    Bundle(Box<BundleArgs>),
    /// Sets and shows a model's routing in the words of `ExaMLOps` E4, and simulates it.
    Routing(Box<RoutingArgs>),
    /// Prints the script that completes this command's arguments in a shell.
    Completions(CompletionsArgs),
    /// Fits the simulator's cost model to a live engine's times.
    Calibrate(Box<CalibrateArgs>),
    /// Plays one workload against simulated engines under several policies and compares them.
    Demo(DemoArgs),
    /// Checks live engines, leg by leg, against what the gateway needs of them.
    ParityCheck(Box<ParityCheckArgs>),
    /// Checks a running gateway, or every engine of a configuration.
    Doctor(DoctorArgs),
    /// Computes an engine's block hashes of a prompt.
    Hash(Box<HashArgs>),
    /// Records a live engine's traffic, for a bug report.
    Record(Box<RecordArgs>),
    /// Makes logged decisions again: the same, or another policy's, or explains one.
    Replay(Box<ReplayArgs>),
    /// Shows what an engine held in a recording, and predicted against reported cached tokens.
    Residency(ResidencyArgs),
    /// Runs one simulated engine.
    SimEngine(Box<SimEngineArgs>),
    /// Plays a workload under several policies in virtual time and compares them.
    Simulate(Box<SimulateArgs>),
    /// Shows the prompts a request would be routed by.
    Tokenize(tokenize::TokenizeArgs),
}

/// For which shell.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// Needs no configuration, no network and no GPU: engines, gateway and clients run in this
/// process, on loopback addresses.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Playing time in seconds, all policies and rounds together.
    #[arg(long, value_name = "N", default_value_t = 40,
          value_parser = clap::value_parser!(u64).range(2..=3_600))]
    pub(crate) seconds: u64,
    /// What the workload is made from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Simulated engines; the workload grows with them.
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) engines: u16,
    /// Base URL of a running engine to play against instead of simulated ones; may be given several
    /// times. It must serve the built-in model's tokenizer under the name `kvasir-demo`, and its
    /// prefix cache is reset before each policy.
    #[arg(long = "engine", value_name = "URL", conflicts_with = "engines")]
    pub(crate) running: Vec<String>,
    /// The policies to play under, in this order.
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "round_robin,latency")]
    pub(crate) policies: Vec<PolicyKind>,
    /// Play all of it so often, each time with another workload, and report the spread of the
    /// rounds, too.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    /// Also play `affine`: each tenant's users always at the same engine, the tenants dealt out
    /// evenly, each engine behind a gateway of its own. What is cached then is an ideal, for a load
    /// as even as this one.
    #[arg(long)]
    pub(crate) affine: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep engines and a gateway under `latency` running afterwards, and say how to ask them.
    #[arg(long)]
    pub(crate) hold: bool,
}

/// It answers like a vLLM server, but computes nothing: the text means nothing, and time passes
/// as on a mid-size GPU with a model of 8 billion parameters.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SimEngineArgs {
    /// Port to serve HTTP on; 0 picks one.
    #[arg(long, value_name = "P")]
    pub(crate) port: u16,
    /// Address to serve HTTP on.
    #[arg(long, value_name = "H", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) host: IpAddr,
    /// ZeroMQ endpoint to publish KV events on, such as `tcp://127.0.0.1:*`; none without it.
    #[arg(long, value_name = "ENDPOINT", value_parser = endpoint)]
    pub(crate) events: Option<String>,
    /// ZeroMQ endpoint to answer replay requests on; none without it.
    #[arg(long, value_name = "ENDPOINT", value_parser = endpoint, requires = "events")]
    pub(crate) replay: Option<String>,
    /// The model's name in requests.
    #[arg(long, value_name = "NAME", default_value = kvasir_demo::StagedModel::NAME)]
    pub(crate) model: String,
    /// The model's directory with its tokenizer.json; a small one is built in.
    #[arg(long, value_name = "DIR")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Tokens per block.
    #[arg(long, value_name = "N")]
    pub(crate) block_size: Option<usize>,
    /// Blocks of the cache.
    #[arg(long, value_name = "N")]
    pub(crate) blocks: Option<usize>,
    /// The vLLM release to behave like.
    #[arg(long, value_name = "VERSION", default_value = "0.32.0")]
    pub(crate) engine_version: EngineVersion,
    /// Whether events show block hashes as integers, or else as bytes.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(crate) int_hashes: bool,
    /// Leave tokens out of events, as nothing but a gateway that knows blocks by their hashes can
    /// follow.
    #[arg(long)]
    pub(crate) no_event_tokens: bool,
    /// Hash algorithm of blocks (`--prefix-caching-hash-algo`).
    #[arg(long, value_name = "A", default_value = "sha256")]
    pub(crate) algo: Algorithm,
    /// The engine's `PYTHONHASHSEED`; without it some releases draw a new one at each start.
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<String>,
    /// Data-parallel ranks.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) ranks: u32,
    /// How many times as fast as the simulated GPU.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// A LoRA adapter; may be given several times.
    #[arg(long, value_name = "NAME=PATH", value_parser = adapter)]
    pub(crate) lora: Vec<(String, String)>,
    /// Leave cached tokens out of usage, as vLLM does without `--enable-prompt-tokens-details`.
    #[arg(long)]
    pub(crate) no_report_cached_tokens: bool,
    #[command(flatten)]
    pub(crate) pd: SimPdArgs,
    /// Serve the `/sim/` paths, which make the engine fail on demand.
    #[arg(long)]
    pub(crate) faults: bool,
    /// Topic of event messages.
    #[arg(long, value_name = "T", default_value = "")]
    pub(crate) topic: String,
}

/// A release, and how it was written: `/version` repeats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineVersion {
    pub(crate) release: Version,
    pub(crate) text: String,
}

impl FromStr for EngineVersion {
    type Err = <Version as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { release: text.parse()?, text: text.to_owned() })
    }
}

fn endpoint(text: &str) -> Result<String, String> {
    let known = ["tcp://", "ipc://"].iter().any(|scheme| {
        text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty() && !rest.contains('\0'))
    });
    if known { Ok(text.to_owned()) } else { Err("expected tcp://HOST:PORT".to_owned()) }
}

fn speed(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=1_000_000.0).contains(&number) {
        Ok(number)
    } else {
        Err("must be from 0.001 to 1000000".to_owned())
    }
}

fn adapter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), path.to_owned()))
        }
        _ => Err("expected NAME=PATH".to_owned()),
    }
}

#[cfg(test)]
mod tests;
