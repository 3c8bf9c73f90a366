//! Arguments of `kvasirctl watch`.

use super::connect::ConnectArgs;

/// Shows pools, endpoints, hit rates and the last decisions, again and again until Ctrl-C.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WatchArgs {
    /// Show it once.
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds from one look to the next.
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) interval: u64,
    /// Decisions to show.
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) decisions: u32,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}
