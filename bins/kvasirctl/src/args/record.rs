//! Arguments of `kvasirctl record`.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use kvasir_config::EngineUrl;

use super::engine::{base_url, header};
use super::unshown::Unshown;

/// What the end of `--help` says.
const HELP: &str = "The recording holds, in plain, every prompt and answer of the requests it \
    sends, the token ids of every prompt the engine caches meanwhile, whoever sent it, cache salts, \
    and the engine's models and their paths: look at it before you share it. Headers are not in it.

The engine is asked for its event publishers unless --events names one, and its replay socket for \
    what it still holds. TensorRT-LLM's event queue, which has one consumer, is never touched.

Read the recording with `kvasirctl residency --capture FILE`; see docs/bug-reports.md.";

/// Whose traffic to record, where to, and what to send.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct RecordArgs {
    /// The engine's base URL, http://host:port.
    #[arg(long, value_name = "URL", value_parser = Unshown(base_url))]
    pub(crate) base_url: EngineUrl,
    /// The file to write, JSON lines; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Its event publisher, tcp://host:port; without it the engine is asked.
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) events: Option<String>,
    /// The replay socket of that publisher.
    #[arg(long, value_name = "ENDPOINT", requires = "events")]
    pub(crate) replay: Option<String>,
    /// The topic events are published under; all of them without it.
    #[arg(
        long,
        value_name = "TOPIC",
        default_value = "",
        requires = "events",
        hide_default_value = true
    )]
    pub(crate) topic: String,
    /// A header for every question, such as 'authorization: Bearer KEY'; may be given several
    /// times. Never written.
    #[arg(long = "header", value_name = "K:V", value_parser = Unshown(header))]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Requests to send, one after the other: JSON lines, each a request's body, or {"body": ..,
    /// "path": .., "step": .., "headers": ..}.
    #[arg(long, value_name = "FILE", conflicts_with = "probe")]
    pub(crate) prompts: Option<PathBuf>,
    /// Send a few short prompts of its own: new, repeated, salted, a chat; one token of answer each.
    #[arg(long)]
    pub(crate) probe: bool,
    /// How long to listen, after the requests if there are any. Without it: until Ctrl-C, or until
    /// the requests are answered.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
}
