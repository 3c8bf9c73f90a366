//! Arguments of `kvasirctl replay`.

use std::path::PathBuf;

use kvasir_balance::{PolicyKind, PolicySpec};

/// What the end of `--help` says.
const HELP: &str = "Files of one pool are given in their order, which is that of their names; those of \
    several pools one pool after the other. See docs/policies.md.

Exit status: 0 every decision came out as it is in the log (with --policy or --explain: the log was \
    read); 1 some came out otherwise (with --explain: there is no such decision); 2 wrong arguments, or \
    a file that cannot be read.";

/// What to make again and how to print it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct ReplayArgs {
    /// Decision logs, of a gateway or of `kvasirctl simulate --decisions`.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// What another policy would have chosen: its name, or a JSON object of `name` and its options.
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub(crate) policy: Option<PolicySpec>,
    /// Show one decision: what was known of each endpoint, and what each stage did.
    #[arg(long, value_name = "ID", conflicts_with = "policy")]
    pub(crate) explain: Option<u64>,
    /// How many differences are shown.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) differences: usize,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn policy(text: &str) -> Result<PolicySpec, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    text.parse::<PolicyKind>().map(PolicySpec::from).map_err(|error| error.to_string())
}
