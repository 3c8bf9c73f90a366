//! Arguments of `kvasirctl tokenize`.

use std::path::PathBuf;

/// Reads a request's body as the gateway does and prints how far its prompts are known: `tokens`
/// (exact), `text` (approximate, or only the beginning) or `none`, with the reason.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TokenizeArgs {
    /// The model's directory with its tokenizer.json.
    #[arg(long, value_name = "DIR")]
    pub(crate) model_dir: PathBuf,
    /// The path the request is sent to.
    #[arg(long, value_name = "PATH", default_value = "/v1/chat/completions")]
    pub(crate) path: String,
    /// File with the request's body; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) body: PathBuf,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    pub(crate) json: bool,
    /// Render a chat by the model's own template even where engines render it otherwise.
    #[arg(long)]
    pub(crate) by_template: bool,
}
