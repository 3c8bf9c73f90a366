//! What to check, and what is expected of it.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderMap;
use http::uri::Authority;
use kvasir_fleet::{BlockIdentity, Origin};

/// One engine to check.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its HTTP server, and how it is connected to.
    pub origin: Origin,
    /// The event publisher's address; `None`: the engine is asked (`GET /kv_event_sources`).
    pub events: Option<String>,
    /// The replay socket's address; `None`: the engine is asked.
    pub replay: Option<String>,
    /// The topic of events; empty for all.
    pub topic: String,
    /// The engine connects to the address in `events`, which is ours: then it cannot be listened
    /// to beside a running gateway, and is not.
    pub bind: bool,
    /// Headers sent with every question, such as `authorization`.
    pub headers: HeaderMap,
    /// The model's name in requests; `None`: the first one the engine names.
    pub model: Option<String>,
    /// The directory of staged tokenizers, as in the gateway's configuration. The model's is looked
    /// for there, then where the engine loaded it from, then in the local Hugging Face cache.
    pub tokenizer_dir: Option<PathBuf>,
    /// The one directory to take the tokenizer from: it holds `tokenizer.json`, or the model's
    /// directory as `tokenizer_dir` does. Then no other place is looked at.
    pub tokenizer: Option<PathBuf>,
    /// What its pool knows blocks by. Events are followed, and prompts predicted, as a gateway with
    /// such a pool does.
    pub identity: BlockIdentity,
    /// What the operator believes of the engine.
    pub expected: Expectations,
    /// Leave to send prompts to the engine: a few short ones, with one token of answer each.
    pub probe: bool,
    /// How long to wait for an answer of a socket, and for the events of a probe.
    pub patience: Duration,
}

impl Target {
    /// An engine of which nothing is expected, to be read only.
    #[must_use]
    pub fn new(authority: Authority) -> Self {
        Self {
            origin: authority.into(),
            events: None,
            replay: None,
            topic: String::new(),
            bind: false,
            headers: HeaderMap::new(),
            model: None,
            tokenizer_dir: None,
            tokenizer: None,
            identity: BlockIdentity::default(),
            expected: Expectations::default(),
            probe: false,
            patience: Duration::from_secs(5),
        }
    }

    /// `http://host:port` or `https://host:port`.
    #[must_use]
    pub fn base_url(&self) -> String {
        self.origin.url().to_owned()
    }

    /// Whether its pool knows blocks by the engine's own hashes.
    pub(crate) fn goes_by_hashes(&self) -> bool {
        matches!(self.identity, BlockIdentity::Engine(_))
    }

    /// What would have `algorithm` expected: a flag, or a key of the pool.
    pub(crate) fn to_expect_algorithm(&self, algorithm: &str) -> String {
        match self.identity {
            BlockIdentity::Tokens => format!("--expect-algo {algorithm}"),
            BlockIdentity::Engine(_) => format!("identity.engine.algorithm: {algorithm}"),
        }
    }

    /// What would have this `PYTHONHASHSEED` expected; `None`: that it is not set.
    pub(crate) fn to_expect_seed(&self, seed: Option<&str>) -> String {
        match (&self.identity, seed) {
            (BlockIdentity::Tokens, seed) => format!("--expect-seed {}", seed.unwrap_or("unset")),
            (BlockIdentity::Engine(_), Some(seed)) => format!("identity.engine.seed: '{seed}'"),
            (BlockIdentity::Engine(_), None) => "no identity.engine.seed".to_owned(),
        }
    }
}

/// What an operator believes of an engine. What is `None` is found out, not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectations {
    /// The hash algorithm, as the engine spells it (`--prefix-caching-hash-algo`).
    pub algorithm: Option<String>,
    /// The engine's `PYTHONHASHSEED`; `Some(None)`: it should not be set.
    pub seed: Option<Option<String>>,
    /// Tokens per block.
    pub block_size: Option<u32>,
}
