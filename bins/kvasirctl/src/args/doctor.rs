//! Arguments of `kvasirctl doctor`.

use std::path::PathBuf;

use super::look::{LookArgs, STATUS_HELP};

/// Checks every engine of a gateway's configuration, with the key, tokenizer and event addresses
/// written there, and compares the engines of each pool.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct DoctorArgs {
    /// The gateway's configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Look at the pool of this model only.
    #[arg(long, value_name = "MODEL")]
    pub(crate) pool: Option<String>,
    #[command(flatten)]
    pub(crate) look: LookArgs,
}
