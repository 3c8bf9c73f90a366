//! Arguments of `kvasirctl residency`.

use std::path::PathBuf;

/// What the end of `--help` says.
const HELP: &str =
    "The recording is played through the code that follows live engines. Per recorded \
    step: how far its events can be believed, and the blocks resident in each tier. Per request of \
    one prompt: the cached tokens predicted before its own events, and those the engine reported.

Exit status: 0 it was played, whatever it shows; 1 it cannot be read; 2 wrong arguments. See \
    docs/bug-reports.md.";

/// What to play and how to print it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct ResidencyArgs {
    /// A recording, as `kvasirctl record` makes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: PathBuf,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}
