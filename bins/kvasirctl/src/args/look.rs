//! How to look at engines and what to print: for `parity-check` and `doctor` alike.

use std::time::Duration;

/// What an exit status says; the end of both commands' `--help`.
pub(crate) const STATUS_HELP: &str = "Exit status: 0 all is ok; 1 something is off; 3 nothing is \
    off, but something could not be told; 2 wrong arguments or configuration; 130 interrupted \
    before the first round was through. See docs/parity.md for what each leg means.";

/// How to look and what to print.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LookArgs {
    /// Leave to send prompts: a few short ones with one token of answer each, to see their events
    /// and cached tokens. Without it nothing is sent that computes anything.
    #[arg(long)]
    pub(crate) probe: bool,
    /// How long to wait for an answer of a socket and for the events of a probe, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) patience: u64,
    /// Print JSON: one object, or with --watch one a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Look again and again until Ctrl-C, so many seconds apart (10 without a number): after the
    /// first report only legs that changed and a summary are printed.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) watch: Option<u64>,
}

impl LookArgs {
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }
}
