//! What detection finds.

use std::fmt;

use super::event::Form;
use super::seeds::Seed;
use crate::{sglang, trtllm, vllm};

/// A contract that computes the events' hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// vLLM.
    Vllm {
        /// The algorithm.
        algorithm: vllm::Algorithm,
        /// The seed; `None` if no event shows a chain's first block, or its seed is not among the
        /// candidates.
        seed: Option<Seed>,
        /// The first and the last generation whose hashes these can be.
        generations: (vllm::Generation, vllm::Generation),
        /// The size of the hashed block, where it is smaller than the published one (groups of
        /// hybrid models).
        hash_block_size: Option<usize>,
    },
    /// SGLang.
    Sglang {
        /// The first and the last generation whose hashes these can be.
        generations: (sglang::Generation, sglang::Generation),
        /// The event format, if the events tell.
        format: Option<sglang::EventFormat>,
    },
    /// TensorRT-LLM.
    TrtLlm {
        /// The algorithm.
        algorithm: trtllm::Algorithm,
    },
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vllm { algorithm, seed, generations: (first, last), hash_block_size } => {
                write!(f, "vLLM {algorithm}, ")?;
                match seed {
                    Some(seed) => write!(f, "seed {seed}")?,
                    None => f.write_str("seed unknown")?,
                }
                match first == last {
                    true => write!(f, ", generation {first:?}")?,
                    false => write!(f, ", generations {first:?} to {last:?}")?,
                }
                match hash_block_size {
                    Some(size) => write!(f, ", hashed in blocks of {size}"),
                    None => Ok(()),
                }
            }
            Self::Sglang { generations: (first, last), format } => {
                let newest = sglang::Generation::newest();
                match first == last {
                    true => write!(f, "SGLang {first:?}")?,
                    false if *last == newest => {
                        write!(f, "SGLang {} and later", first.first_release())?;
                    }
                    false => write!(f, "SGLang {first:?} to {last:?}")?,
                }
                match format {
                    Some(format) => write!(f, ", {format} event format"),
                    None => Ok(()),
                }
            }
            Self::TrtLlm { algorithm } => write!(f, "TensorRT-LLM {algorithm}"),
        }
    }
}

/// A contract that fits, and how well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The contract.
    pub found: Found,
    /// Integers or bytes.
    pub form: Form,
    /// The published block size.
    pub block_size: usize,
    /// Blocks whose hash it computes.
    pub verified: usize,
    /// Blocks that could be checked: those with tokens and a known parent.
    pub checked: usize,
}

/// One way in which the events differ from an expectation, or stay unexplained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leg {
    /// Another engine's hashes.
    Engine {
        /// The engine that makes such hashes.
        found: &'static str,
        /// The one configured.
        configured: String,
    },
    /// Another algorithm.
    Algorithm {
        /// The algorithm found.
        found: String,
        /// The one configured.
        configured: String,
    },
    /// Another seed.
    Seed {
        /// The seed found.
        found: Seed,
        /// The one configured.
        configured: Seed,
    },
    /// The algorithm is certain, and no candidate is its seed.
    SeedUnknown {
        /// How many were tried.
        tried: usize,
    },
    /// No block that begins a chain: the seed cannot be told.
    NoRoot,
    /// Another block size.
    BlockSize {
        /// The published one.
        found: usize,
        /// The one configured.
        configured: usize,
    },
    /// Integers instead of bytes, or bytes instead of integers.
    Form {
        /// The form found.
        found: Form,
        /// The one configured.
        configured: Form,
    },
    /// The version configured is of another generation.
    Generation {
        /// The version configured.
        configured: vllm::Version,
        /// The generations found.
        found: (vllm::Generation, vllm::Generation),
    },
    /// Blocks carry extra keys, which plain hashes lack.
    ExtraKeys {
        /// Their kinds, each once: `lora`, `cache_salt`, `multimodal`, `prompt_embeds`.
        kinds: Vec<&'static str>,
    },
    /// Some blocks do not fit a contract that others fit.
    Unexplained {
        /// How many.
        blocks: usize,
    },
    /// Nothing fits.
    NothingFits {
        /// How many seeds were tried.
        tried: usize,
    },
    /// There is nothing to check: no block with tokens.
    NoTokens,
}

impl fmt::Display for Leg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine { found, configured } => {
                write!(f, "engine is {found}, you configured {configured}")
            }
            Self::Algorithm { found, configured } => {
                write!(f, "algorithm is {found}, you configured {configured}")
            }
            Self::Seed { found, configured } => {
                write!(f, "seed is {found}, you configured {configured}")
            }
            Self::SeedUnknown { tried } => write!(f, "seed differs: not among {tried} candidates"),
            Self::NoRoot => f.write_str(
                "seed not checked: no event begins a chain; send a prompt that begins as no other \
                 did",
            ),
            Self::BlockSize { found, configured } => {
                write!(f, "block size is {found}, you configured {configured}")
            }
            Self::Form { found, configured } => write!(
                f,
                "hashes are {found}s, you configured {configured}s \
                 (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES)"
            ),
            Self::Generation { configured, found: (first, last) } => write!(
                f,
                "version {configured} does not hash so: generations {first:?} to {last:?} do"
            ),
            Self::ExtraKeys { kinds } => write!(f, "extra keys present: {}", kinds.join(", ")),
            Self::Unexplained { blocks } => write!(
                f,
                "{blocks} blocks do not fit: extra keys that their events do not carry, or an \
                 adapter's path that is not among the candidates"
            ),
            Self::NothingFits { tried } => write!(
                f,
                "no known contract computes these hashes: seed not among {tried} candidates, \
                 algorithm builtin, or extra keys that the events do not carry"
            ),
            Self::NoTokens => f.write_str("no block with tokens to check"),
        }
    }
}

/// The outcome of a detection. Prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The contract that fits best.
    pub found: Option<Match>,
    /// What differs from the expectation, or stays unexplained.
    pub legs: Vec<Leg>,
}

impl Report {
    /// Whether a contract fits, and nothing differs from what was expected.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        self.found.is_some() && self.legs.iter().all(|leg| matches!(leg, Leg::ExtraKeys { .. }))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            None => f.write_str("unknown contract")?,
            Some(Match { found, form, block_size, verified, checked }) => write!(
                f,
                "{found}, {form} hashes, block size {block_size} \
                 ({verified} of {checked} blocks verified)"
            )?,
        }
        self.legs.iter().try_for_each(|leg| write!(f, "; {leg}"))
    }
}
