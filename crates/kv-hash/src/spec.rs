//! One door to every engine's contract, for callers that take the engine from a configuration.

mod explain;

pub use self::explain::{Explained, ExplainedBlock};
use crate::spelled::spelled;
use crate::vllm::RequestExtras;
use crate::{loxilb, sglang, trtllm, vllm};

/// Whose block hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// vLLM: module [`vllm`].
    Vllm,
    /// SGLang: module [`sglang`].
    Sglang,
    /// TensorRT-LLM: module [`trtllm`].
    TrtLlm,
    /// LoxiLB's gateway: module [`loxilb`].
    LoxiLb,
}

impl Engine {
    /// Every engine.
    pub const ALL: [Self; 4] = [Self::Vllm, Self::Sglang, Self::TrtLlm, Self::LoxiLb];

    /// Its name: `vllm`, `sglang`, `trtllm`, `loxilb`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TrtLlm => "trtllm",
            Self::LoxiLb => "loxilb",
        }
    }
}

spelled!(Engine, SpecError::BadEngine);

/// Why a [`Spec`] has no hashes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The text is no engine's name.
    #[error("{text:?} is not an engine (vllm, sglang, trtllm, loxilb)")]
    BadEngine {
        /// The text, shortened.
        text: String,
    },
    /// The version is no version number.
    #[error(transparent)]
    BadVersion(#[from] vllm::BadVersion),
    /// vLLM's contract says why.
    #[error(transparent)]
    Vllm(#[from] vllm::ContractError),
    /// SGLang's contract says why.
    #[error(transparent)]
    Sglang(#[from] sglang::ContractError),
    /// TensorRT-LLM's contract says why.
    #[error(transparent)]
    TrtLlm(#[from] trtllm::ContractError),
    /// LoxiLB's contract says why.
    #[error(transparent)]
    LoxiLb(#[from] loxilb::ContractError),
    /// The request has a part that this engine's hashes cannot be computed for from here.
    #[error("{engine} requests with {part} need more than a Spec: use the engine's own module")]
    Extras {
        /// The engine.
        engine: Engine,
        /// The part.
        part: &'static str,
    },
}

/// An engine's way of hashing, as text.
///
/// ```
/// use kvasir_kv_hash::{Engine, Spec};
///
/// let spec = Spec {
///     engine: Engine::Vllm,
///     version: "0.32.0",
///     algorithm: "sha256_cbor",
///     seed: Some("0"),
///     block_size: 3,
/// };
/// let mut blocks = spec.blocks()?;
/// assert_eq!(blocks.append(&[5, 300, 70_000, 23]), [7_648_633_150_179_582_710]);
/// assert_eq!(blocks.digest(0).map(<[u8]>::len), Some(32));
///
/// let sglang = Spec { engine: Engine::Sglang, version: "0.5.23", algorithm: "", ..spec };
/// assert_eq!(sglang.blocks()?.append(&[1, 2, 3]).len(), 1);
/// # Ok::<(), kvasir_kv_hash::SpecError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// The engine.
    pub engine: Engine,
    /// Its version. TensorRT-LLM: `v1` or `v2`, the cache manager. LoxiLB: not used.
    pub version: &'a str,
    /// The algorithm, as the engine spells it. SGLang: the event format. Empty: the engine's
    /// default of that version.
    pub algorithm: &'a str,
    /// `PYTHONHASHSEED` of vLLM, `LLB_KV_NONE_HASH_SEED` of LoxiLB; `None` if not set. The others
    /// have none.
    pub seed: Option<&'a str>,
    /// Tokens per block.
    pub block_size: usize,
}

impl Spec<'_> {
    /// The blocks of a plain text request; none so far.
    ///
    /// # Errors
    /// [`SpecError`], with the engine's own error.
    pub fn blocks(&self) -> Result<Blocks, SpecError> {
        self.blocks_with(&RequestExtras::default())
    }

    /// The blocks of a request with an adapter, a salt, images or embeddings.
    ///
    /// # Errors
    /// [`SpecError`], with the engine's own error; [`SpecError::Extras`] for what only the
    /// engine's own module can take.
    pub fn blocks_with(&self, request: &RequestExtras) -> Result<Blocks, SpecError> {
        let chain = match self.engine {
            Engine::Vllm => Chain::Vllm(Box::new(self.vllm(request)?)),
            Engine::Sglang => Chain::Sglang(Box::new(self.sglang(request)?)),
            Engine::TrtLlm => Chain::TrtLlm(Box::new(self.trtllm(request)?)),
            Engine::LoxiLb => Chain::LoxiLb(Box::new(self.loxilb()?)),
        };
        Ok(Blocks { chain, keys: Vec::new() })
    }

    fn vllm(&self, request: &RequestExtras) -> Result<vllm::Chain, SpecError> {
        let version: vllm::Version = self.version.parse()?;
        let algorithm = match self.algorithm {
            "" if vllm::Generation::of(version)? == vllm::Generation::A => vllm::Algorithm::Builtin,
            "" => vllm::Algorithm::Sha256,
            text => text.parse()?,
        };
        let contract = vllm::Contract::new(version, algorithm, self.seed)?;
        Ok(contract.chain_with(self.block_size, request.clone())?)
    }

    fn sglang(&self, request: &RequestExtras) -> Result<sglang::Chain, SpecError> {
        self.refuse(&[
            ("multimodal items", !request.items.is_empty()),
            ("prompt embeddings", request.prompt_embeds.is_some()),
        ])?;
        let format = match self.algorithm {
            "" => sglang::EventFormat::Default,
            text => text.parse()?,
        };
        let contract = sglang::Contract::new(self.version.parse()?, format)?;
        let request = sglang::Request {
            cache_salt: request.cache_salt.clone(),
            extra_key: None,
            lora: request.lora.as_ref().map(|_| sglang::Lora::default()),
        };
        Ok(contract.chain_with(self.block_size, &request)?)
    }

    fn trtllm(&self, request: &RequestExtras) -> Result<trtllm::Chain, SpecError> {
        let lora_task_id = request.lora.as_ref().map(|lora| lora.int_id);
        self.refuse(&[
            ("multimodal items", !request.items.is_empty()),
            ("prompt embeddings", request.prompt_embeds.is_some()),
            ("an adapter of unknown task id", lora_task_id == Some(None)),
            ("a version that is not v1 or v2", !matches!(self.version, "v1" | "v2")),
        ])?;
        let algorithm = match self.algorithm {
            "" => trtllm::Algorithm::Auto,
            text => text.parse()?,
        };
        let manager = if self.version == "v1" { trtllm::Manager::V1 } else { trtllm::Manager::V2 };
        let contract = trtllm::Contract::new(algorithm, manager)?;
        let request = trtllm::Request {
            lora_task_id: lora_task_id.flatten(),
            salt: request.cache_salt.clone().map(trtllm::Salt::Text),
            ..trtllm::Request::default()
        };
        Ok(contract.chain_with(self.block_size, request)?)
    }

    fn loxilb(&self) -> Result<loxilb::Chain, SpecError> {
        let algorithm = match self.algorithm {
            "" => loxilb::Algorithm::Sha256Cbor,
            text => text.parse()?,
        };
        Ok(loxilb::Contract::new(algorithm, self.seed).chain(self.block_size)?)
    }

    fn refuse(&self, parts: &[(&'static str, bool)]) -> Result<(), SpecError> {
        match parts.iter().find(|(_, present)| *present) {
            Some((part, _)) => Err(SpecError::Extras { engine: self.engine, part }),
            None => Ok(()),
        }
    }
}

/// The block hashes of one request, whatever the engine.
///
/// [`append`](Self::append) takes tokens in pieces of any size; each block is hashed once.
#[derive(Clone, Debug)]
pub struct Blocks {
    chain: Chain,
    keys: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Chain {
    Vllm(Box<vllm::Chain>),
    Sglang(Box<sglang::Chain>),
    TrtLlm(Box<trtllm::Chain>),
    LoxiLb(Box<loxilb::Chain>),
}

impl Blocks {
    /// Adds tokens and returns the 64-bit hashes of the blocks they complete, as the engine's
    /// events carry them (SGLang: the same bits, signed).
    pub fn append(&mut self, tokens: &[u32]) -> &[u64] {
        let first_new = self.keys.len();
        let keys = &mut self.keys;
        match &mut self.chain {
            Chain::Vllm(chain) => {
                keys.extend(chain.append(tokens).iter().map(vllm::Digest::to_u64));
            }
            Chain::Sglang(chain) => {
                keys.extend(chain.append(tokens).iter().map(sglang::PageHash::to_u64));
            }
            Chain::TrtLlm(chain) => {
                keys.extend(chain.append(tokens).iter().map(trtllm::BlockHash::to_u64));
            }
            Chain::LoxiLb(chain) => {
                keys.extend(chain.append(tokens).iter().map(loxilb::BlockHash::to_u64));
            }
        }
        &self.keys[first_new..]
    }

    /// The 64-bit hashes of all full blocks so far.
    #[must_use]
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// The full digest of a block; none if there is no such block, or its hash has 64 bits.
    #[must_use]
    pub fn digest(&self, index: usize) -> Option<&[u8]> {
        match &self.chain {
            Chain::Vllm(chain) => {
                let digest = chain.digests().get(index)?.as_bytes();
                (digest.len() > size_of::<u64>()).then_some(digest)
            }
            Chain::Sglang(chain) => Some(chain.pages().get(index)?.digest()?),
            Chain::TrtLlm(chain) => Some(chain.blocks().get(index)?.digest()?),
            Chain::LoxiLb(chain) => Some(chain.blocks().get(index)?.digest().as_bytes()),
        }
    }
}
