//! Arguments of the commands that change an endpoint.

use super::connect::AskArgs;

/// Which endpoint, and whether to wait.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StateArgs {
    /// The endpoint, as `kvasirctl get endpoints` names it. All ranks of an engine change together.
    #[arg(value_name = "HOST:PORT")]
    pub(crate) endpoint: String,
    /// Wait until it is so: nothing in flight any more, or requests taken again.
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait, in seconds; exit status 1 afterwards.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "wait",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Which endpoint, and its weight.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WeightArgs {
    /// The endpoint, as `kvasirctl get endpoints` names it.
    #[arg(value_name = "HOST:PORT")]
    pub(crate) endpoint: String,
    /// Its part of the load, relative to the others (0 to 10000; as a rule 100).
    #[arg(value_name = "N")]
    pub(crate) weight: u32,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}
