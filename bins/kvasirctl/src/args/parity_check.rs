//! Arguments of `kvasirctl parity-check`.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use kvasir_config::EngineUrl;
use kvasir_kv_hash::vllm::Algorithm;

use super::engine::{base_url, header};
use super::look::{LookArgs, STATUS_HELP};
use super::unshown::Unshown;

/// Asks an engine everything the gateway relies on, one line a leg: ok, off or unknown, and what to
/// do. Reads only, unless --probe gives leave to send prompts.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct ParityCheckArgs {
    /// The engine's base URL, http://host:port; several are compared with each other, too.
    #[arg(long = "base-url", value_name = "URL", required = true, value_parser = Unshown(base_url))]
    pub(crate) base_urls: Vec<EngineUrl>,
    /// Its event publisher, tcp://host:port; without it the engine is asked.
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) events: Option<String>,
    /// Its replay socket; likewise.
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) replay: Option<String>,
    /// The topic events are published under; all of them without it.
    #[arg(long, value_name = "TOPIC", default_value = "")]
    pub(crate) topic: String,
    /// The hash algorithm it should have, as in its --prefix-caching-hash-algo.
    #[arg(long, value_name = "A", value_parser = algorithm)]
    pub(crate) expect_algo: Option<String>,
    /// The PYTHONHASHSEED it should have; the word `unset` where there should be none.
    #[arg(long, value_name = "S", value_parser = seed)]
    pub(crate) expect_seed: Option<String>,
    /// Tokens per block it should have.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) expect_block_size: Option<u32>,
    /// Directory with the model's tokenizer.json, or of staged tokenizers (MODEL with `/` as `__`).
    /// Without it: where the engine loaded the model from, then the local Hugging Face cache.
    #[arg(long, value_name = "DIR", value_parser = directory)]
    pub(crate) tokenizer: Option<PathBuf>,
    /// The certificates of the authorities that are believed where the URL says https, PEM; those of
    /// the system without it.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The model's name in requests; the first one the engine names without it.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A header for every question, such as 'authorization: Bearer KEY'; may be given several times.
    #[arg(long = "header", value_name = "K:V", value_parser = Unshown(header))]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    #[command(flatten)]
    pub(crate) look: LookArgs,
}

impl ParityCheckArgs {
    /// What seed is expected; `Some(None)`: none.
    pub(crate) fn expected_seed(&self) -> Option<Option<String>> {
        self.expect_seed.clone().map(|seed| Some(seed).filter(|seed| seed != UNSET))
    }
}

const UNSET: &str = "unset";

fn seed(text: &str) -> Result<String, String> {
    if text == UNSET || kvasir_kv_hash::vllm::python_accepts(text) {
        return Ok(text.to_owned());
    }
    Err("Python takes `random`, a number from 0 to 4294967295, or nothing as PYTHONHASHSEED; \
         write `unset` where it should not be set"
        .to_owned())
}

/// As engines spell it: one that no engine has is a slip, and nothing an engine could be off by.
fn algorithm(text: &str) -> Result<String, String> {
    match text.parse::<Algorithm>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => {
            let names: Vec<&str> = Algorithm::ALL.into_iter().map(Algorithm::as_str).collect();
            Err(format!("no engine has it; there are {}", names.join(", ")))
        }
    }
}

fn directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.metadata() {
        Ok(meta) if meta.is_dir() => Ok(path),
        Ok(_) => Err("not a directory".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_python_would_refuse_are_refused() {
        for text in ["0", "42", "random", "unset", "0042"] {
            assert!(seed(text).is_ok(), "{text}");
        }
        assert!(seed("abc").is_err());
    }
}
