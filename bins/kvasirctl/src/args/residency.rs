//! Arguments of `kvasirctl residency`.

use std::path::PathBuf;

/// Plays the recording through the code that follows live engines and prints, per recorded step,
/// how far the events can be believed and how many blocks were resident, and for every request of
/// one prompt the cached tokens that were predicted before its own events beside those the engine
/// reported.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Exit status: 0 it was played, whatever it shows; 1 it cannot be read; 2 \
    wrong arguments. See docs/bug-reports.md.")]
pub(crate) struct ResidencyArgs {
    /// A recording, as `kvasirctl record` makes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: PathBuf,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}
