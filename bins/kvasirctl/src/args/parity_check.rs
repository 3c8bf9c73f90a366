//! Arguments of `kvasirctl parity-check`.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use kvasir_config::EngineUrl;

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
    #[arg(long, value_name = "A")]
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

/// The URL of an engine, as clients of OpenAI's API write it, too: with `/v1` or a final slash.
fn base_url(text: &str) -> Result<EngineUrl, String> {
    if text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://")) {
        return Err("https is not spoken here: give the engine's own address, http://host:port, \
                    behind whatever ends TLS"
            .to_owned());
    }
    // These may hold a password or a key: not repeated.
    if text.contains(['@', '?']) {
        return Err("give http://host:port alone, without a user or a query; a key goes into \
                    --header 'authorization: Bearer KEY'"
            .to_owned());
    }
    let bare = text.trim_end_matches('/');
    bare.strip_suffix("/v1").unwrap_or(bare).trim_end_matches('/').parse()
}

fn seed(text: &str) -> Result<String, String> {
    if text == UNSET || kvasir_kv_hash::vllm::python_accepts(text) {
        return Ok(text.to_owned());
    }
    Err("Python takes `random`, a number from 0 to 4294967295, or nothing as PYTHONHASHSEED; \
         write `unset` where it should not be set"
        .to_owned())
}

fn directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.metadata() {
        Ok(meta) if meta.is_dir() => Ok(path),
        Ok(_) => Err("not a directory".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    let name: HeaderName = name.trim().parse().map_err(|_| "not the name of a header")?;
    let mut value: HeaderValue = value.trim().parse().map_err(|_| "not the value of a header")?;
    // Most of them are keys.
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_as_clients_write_them() {
        for text in ["http://h:8000", "http://h:8000/", "http://h:8000/v1", "http://h:8000/v1/"] {
            assert_eq!(base_url(text).unwrap().to_string(), "http://h:8000", "{text}");
        }
        assert_eq!(base_url("http://[::1]:8000/v1").unwrap().to_string(), "http://[::1]:8000");
        assert!(base_url("HTTPS://h").unwrap_err().contains("https is not spoken"));
        for text in [
            "h:8000",
            "http://",
            "http://h/v1/models",
            "ftp://h",
            "é",
            "/v1",
            "http://h:",
            "http://h:99999",
        ] {
            assert!(base_url(text).is_err(), "{text}");
        }
        for text in ["http://a:secret@h", "http://h?key=secret"] {
            assert!(!base_url(text).unwrap_err().contains("secret"), "{text}");
        }
    }

    #[test]
    fn headers_in_two_spellings() {
        for text in ["authorization: Bearer a:b", "Authorization:Bearer a:b"] {
            let (name, value) = header(text).unwrap();
            assert_eq!((name.as_str(), value.as_bytes()), ("authorization", &b"Bearer a:b"[..]));
            assert!(value.is_sensitive());
        }
        for text in ["authorization", "a b: c", ": x", "a: b\nc: d"] {
            assert!(header(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn seeds_python_would_refuse_are_refused() {
        for text in ["0", "42", "random", "unset", "0042"] {
            assert!(seed(text).is_ok(), "{text}");
        }
        assert!(seed("abc").is_err());
    }
}
