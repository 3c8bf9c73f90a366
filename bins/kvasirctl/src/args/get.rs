//! Arguments of `kvasirctl get` and `kvasirctl explain`.

use std::path::PathBuf;

use clap::Subcommand;

use super::connect::AskArgs;

/// Shows what a gateway knows.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GetArgs {
    #[command(subcommand)]
    pub(crate) what: GetWhat,
}

/// What is shown.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum GetWhat {
    /// Pools, one a line, or one with its endpoints.
    #[command(visible_alias = "pool")]
    Pools {
        /// One pool only.
        model: Option<String>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Endpoints, one a line, or all about one.
    #[command(visible_alias = "endpoint")]
    Endpoints {
        /// One endpoint only.
        #[arg(value_name = "HOST:PORT")]
        endpoint: Option<String>,
        /// Of this pool only.
        #[arg(long, value_name = "MODEL")]
        pool: Option<String>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// How much of the caches is known, or some blocks of one endpoint.
    Inventory {
        /// Blocks of this endpoint.
        #[arg(value_name = "HOST:PORT")]
        endpoint: Option<String>,
        /// How many blocks.
        #[arg(long, value_name = "N", requires = "endpoint",
              value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: Option<u32>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Whether prompts and caches are what they are taken for: each problem with its cause and remedy.
    Parity {
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Requests, hits and decisions, counted by pool.
    Stats {
        #[command(flatten)]
        ask: AskArgs,
    },
    /// The latest decisions, newest first.
    Decisions {
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 20,
              value_parser = clap::value_parser!(u32).range(1..=1024))]
        limit: u32,
        /// Of this model only.
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// The effective configuration, without its secrets; YAML as a table.
    Config {
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// Shows what would be decided about a request now, without sending it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The request's body; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "model"],
          required_unless_present = "prompt")]
    pub(crate) file: Option<PathBuf>,
    /// The text of a prompt: a user's message, or with `--path /v1/completions` all of it.
    #[arg(long, value_name = "TEXT", requires = "model")]
    pub(crate) prompt: Option<String>,
    /// The model that is asked.
    #[arg(long, value_name = "M", requires = "prompt")]
    pub(crate) model: Option<String>,
    /// The API's path. Without it `/v1/completions` for a body with a `prompt` and no `messages`, else
    /// `/v1/chat/completions`.
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}
