//! Arguments of `kvasirctl doctor`.

use std::path::PathBuf;

use super::connect::AddressArgs;
use super::look::{LookArgs, STATUS_HELP};

/// Checks a running gateway by what it knows of itself and its engines (`--admin`), or every engine of
/// a configuration (`--config`), with the key, tokenizer and event addresses written there, and compares
/// the engines of each pool. Without either the gateway is asked that the file of settings names.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct DoctorArgs {
    /// The gateway's configuration file (YAML): its engines are asked from here.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Look at the pool of this model only.
    #[arg(long, value_name = "MODEL")]
    pub(crate) pool: Option<String>,
    #[command(flatten)]
    pub(crate) look: LookArgs,
    #[command(flatten)]
    pub(crate) address: AddressArgs,
}
