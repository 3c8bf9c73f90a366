//! Arguments of `kvasirctl hash`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use kvasir_kv_hash::{Engine, vllm};

const AFTER_HELP: &str = "\
Exit status: 0 with the hashes; 1 where they cannot be computed outside the engine, or the file of
tokens cannot be read; 2 for arguments that cannot be, among them a version or an algorithm that is
not known. The message says why and what to do instead. Flags that the engine does not hash are
named on standard error.";

/// Computes the block hashes an engine gives a prompt, from its token ids: what its events carry.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct HashArgs {
    /// The engine.
    #[arg(long, value_name = "ENGINE",
          value_parser = PossibleValuesParser::new(Engine::ALL.map(Engine::as_str)))]
    pub(crate) engine: String,
    /// Its version; for TensorRT-LLM v1 or v2, the cache manager. LoxiLB needs none.
    #[arg(long, value_name = "VERSION", required_if_eq_any = [
        ("engine", "vllm"), ("engine", "sglang"), ("engine", "trtllm")])]
    pub(crate) engine_version: Option<String>,
    /// The hash algorithm as the engine spells it (vLLM: --prefix-caching-hash-algo; SGLang: the
    /// event format); without it, the default of that version.
    #[arg(long, value_name = "A", default_value = "")]
    pub(crate) algo: String,
    /// vLLM's `PYTHONHASHSEED`, LoxiLB's `LLB_KV_NONE_HASH_SEED`; leave out where it is not set.
    /// SGLang and TensorRT-LLM have none.
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<String>,
    /// Tokens per block.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) block_size: u32,
    /// The request's `cache_salt`.
    #[arg(long, value_name = "S")]
    pub(crate) cache_salt: Option<String>,
    /// The request's LoRA adapter: vLLM hashes its name from 0.11.1 on, from 0.31 on its path too.
    #[arg(long, value_name = "NAME[=PATH]", value_parser = lora)]
    pub(crate) lora: Option<vllm::Lora>,
    /// The adapter's number: TensorRT-LLM's task id, which needs no --lora; vLLM's `lora_int_id`,
    /// hashed up to 0.11.0, beside --lora.
    #[arg(long, value_name = "N")]
    pub(crate) lora_id: Option<u64>,
    /// An image or the like: vLLM's identifier of it, the index of its first placeholder token and
    /// their number; may be given several times, in prompt order.
    #[arg(long, value_name = "ID@OFFSET+LENGTH", value_parser = item)]
    pub(crate) item: Vec<vllm::MmItem>,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Show the bytes that each block's hash was made from.
    #[arg(long)]
    pub(crate) preimage: bool,
    /// Print JSON instead of a line a block.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PromptArgs {
    /// The prompt's token ids.
    #[arg(long, value_name = "1,2,3", value_delimiter = ',')]
    pub(crate) tokens: Vec<u32>,
    /// A file with the prompt's token ids as a JSON array; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens_file: Option<PathBuf>,
}

fn lora(text: &str) -> Result<vllm::Lora, String> {
    let (name, path) = match text.split_once('=') {
        Some((name, path)) => (name, Some(path)),
        None => (text, None),
    };
    if name.is_empty() || path.is_some_and(str::is_empty) {
        return Err("expected NAME or NAME=PATH".to_owned());
    }
    Ok(vllm::Lora { name: name.to_owned(), int_id: None, path: path.map(str::to_owned) })
}

fn item(text: &str) -> Result<vllm::MmItem, String> {
    let parts = text.rsplit_once('@').and_then(|(identifier, place)| {
        let (offset, length) = place.split_once('+')?;
        let (offset, length) = (offset.parse().ok()?, length.parse().ok()?);
        (!identifier.is_empty() && length > 0).then_some((identifier, offset, length))
    });
    let (identifier, offset, length) = parts.ok_or("expected ID@OFFSET+LENGTH")?;
    Ok(vllm::MmItem { identifier: identifier.to_owned(), offset, length })
}
