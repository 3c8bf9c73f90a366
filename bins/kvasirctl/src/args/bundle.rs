//! Arguments of `kvasirctl bundle`.

use std::path::PathBuf;

use super::connect::ConnectArgs;

/// What the end of `--help` says.
const HELP: &str = "In it: the effective configuration without its secrets, pools, endpoints, \
    inventory, parity, routing settings, counts, the last decisions, the metrics page, the API's \
    document, and what could not be had. No prompts and no tokens of any kind.

With --frames it also holds the event messages that engines publish meanwhile: the token ids of \
    prompts, in plain. Look at it before you share it; see docs/bug-reports.md.";

/// Puts what a gateway knows into one file, for a bug report.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct BundleArgs {
    /// The file to write; it must not exist.
    #[arg(long, value_name = "FILE.tar.gz")]
    pub(crate) out: PathBuf,
    /// Also record the events of every engine for so long, from this machine.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) frames: Option<u64>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}
