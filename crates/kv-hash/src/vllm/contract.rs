//! One engine's way of hashing blocks.

use super::algorithm::Algorithm;
use super::chain::Chain;
use super::encode::Shape;
use super::error::{ContractError, Unknowable};
use super::extras::{Extras, RequestExtras};
use super::generation::Generation;
use super::hasher::{BlockHasher, hash_text};
use crate::digest::{Digest, GroupHash};
use crate::version::Version;

/// What engines from 0.29 on hash for their first parent when no seed is set.
const DEFAULT_SEED: &str = "vllm-none-hash";

/// How one vLLM engine hashes blocks: its version, algorithm, seed and lookahead.
///
/// Everything in it is a property of the engine, nothing of a request. It is small and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    version: Version,
    generation: Generation,
    algorithm: Algorithm,
    none_hash: Digest,
    lookahead: usize,
    shared_identifiers: bool,
}

impl Contract {
    /// The contract of an engine.
    ///
    /// `seed` is the engine's `PYTHONHASHSEED`, letter by letter: `"42"` and `"042"` differ, and
    /// an empty string counts as set. `None` means that the variable is not set, which from
    /// 0.29.0 gives a fixed start (SHA-256 algorithms) and before that a random one. Python itself
    /// starts only with some values: see [`python_accepts`](super::python_accepts).
    ///
    /// # Errors
    /// [`ContractError::UnverifiedVersion`] as [`Generation::of`];
    /// [`ContractError::NotOffered`] if that version has no such algorithm;
    /// [`ContractError::Unknowable`] if the hashes depend on the engine's process.
    pub fn new(
        version: Version,
        algorithm: Algorithm,
        seed: Option<&str>,
    ) -> Result<Self, ContractError> {
        let generation = check(version, algorithm)?;
        let fixed_when_unset = generation >= Generation::F && algorithm.is_cryptographic();
        if seed.is_none() && !fixed_when_unset {
            return Err(ContractError::Unknowable(Unknowable::RandomNoneHash));
        }
        let none_hash = hash_text(algorithm, seed.unwrap_or(DEFAULT_SEED));
        Ok(Self::with(version, generation, algorithm, none_hash))
    }

    /// The contract of an engine whose `NONE_HASH`, the parent of every first block, is known.
    ///
    /// For engines that draw it at random, where the caller has a way to read it: 32 bytes up to
    /// 0.28, the size of a digest from 0.29. Before 0.10.2 it is an integer; give it big-endian.
    ///
    /// # Errors
    /// As [`Contract::new`], without the cause of the unset seed;
    /// [`ContractError::BadNoneHash`] unless there are 1 to 32 bytes.
    pub fn with_none_hash(
        version: Version,
        algorithm: Algorithm,
        none_hash: impl AsRef<[u8]>,
    ) -> Result<Self, ContractError> {
        let generation = check(version, algorithm)?;
        let bytes = none_hash.as_ref();
        let none_hash = Digest::from_bytes(bytes)
            .map_err(|_| ContractError::BadNoneHash { len: bytes.len() })?;
        Ok(Self::with(version, generation, algorithm, none_hash))
    }

    fn with(
        version: Version,
        generation: Generation,
        algorithm: Algorithm,
        none_hash: Digest,
    ) -> Self {
        let (lookahead, shared_identifiers) = (0, false);
        Self { version, generation, algorithm, none_hash, lookahead, shared_identifiers }
    }

    /// A contract of plain text blocks, which are the same in every generation since digests are
    /// bytes, after a first parent of any kind.
    pub(crate) fn of_plain_blocks(algorithm: Algorithm, first_parent: Digest) -> Self {
        let generation = Generation::B;
        Self::with(generation.first_release(), generation, algorithm, first_parent)
    }

    /// The same engine, where equal identifiers of multimodal items are one Python object.
    ///
    /// It matters to the pickling algorithms (`sha256`, `xxhash`) only, and only to a block that
    /// holds one identifier twice. By default they are two objects, as they are when requests
    /// reach the engine's core from another process. Set it for an engine core in the front end's
    /// own process whose client gives one uuid object for several items.
    #[must_use]
    pub fn with_shared_identifiers(self, shared: bool) -> Self {
        Self { shared_identifiers: shared, ..self }
    }

    /// The same engine with lookahead hashing: the `tokens` after a block enter its hash.
    ///
    /// vLLM 0.33.0 does it for EAGLE (1 token) and for MTP of several modules (as many as
    /// speculative tokens), unless `disable_lookahead_block_hashes` or a KV connector is
    /// configured. Events of such an engine carry `lookahead_token_ids`. 0 means off.
    ///
    /// # Errors
    /// [`ContractError::NoLookahead`] before 0.33.0, unless `tokens` is 0.
    pub fn with_lookahead(self, tokens: usize) -> Result<Self, ContractError> {
        if tokens > 0 && self.generation < Generation::H {
            return Err(ContractError::NoLookahead { version: self.version });
        }
        Ok(Self { lookahead: tokens, ..self })
    }

    /// The engine's version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The generation of the engine's version.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The engine's hash algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The engine's `NONE_HASH`: the parent of every first block.
    #[must_use]
    pub fn none_hash(&self) -> Digest {
        self.none_hash
    }

    /// How many tokens after a block enter its hash.
    #[must_use]
    pub fn lookahead(&self) -> usize {
        self.lookahead
    }

    /// An empty chain for a plain text request, in blocks of `block_size` tokens.
    ///
    /// The size is the engine's `hash_block_size`, usually its `--block-size`.
    ///
    /// # Errors
    /// [`ContractError::ZeroBlockSize`].
    pub fn chain(&self, block_size: usize) -> Result<Chain, ContractError> {
        self.chain_with(block_size, RequestExtras::default())
    }

    /// An empty chain for a request with an adapter, a salt, images or embeddings.
    ///
    /// # Errors
    /// [`ContractError::ZeroBlockSize`], or what is wrong with `extras` under this contract:
    /// [`LoraPartMissing`](ContractError::LoraPartMissing),
    /// [`NoPromptEmbeds`](ContractError::NoPromptEmbeds),
    /// [`BadItemLength`](ContractError::BadItemLength),
    /// [`ItemsOutOfOrder`](ContractError::ItemsOutOfOrder).
    pub fn chain_with(
        &self,
        block_size: usize,
        extras: RequestExtras,
    ) -> Result<Chain, ContractError> {
        if block_size == 0 {
            return Err(ContractError::ZeroBlockSize);
        }
        let extras = Extras::new(extras, self.version, self.shape())?;
        Ok(Chain::new(*self, block_size, extras))
    }

    /// A hasher of single blocks, for those who know parents and extra keys from events.
    #[must_use]
    pub fn hasher(&self) -> BlockHasher {
        BlockHasher::new(self)
    }

    pub(super) fn shape(&self) -> Shape {
        Shape { generation: self.generation, shared_identifiers: self.shared_identifiers }
    }

    /// A chain's hashes as a KV-cache group with a larger block names them.
    ///
    /// Hybrid models hash at one block size and cache some groups at a multiple of it, `factor`.
    /// 0.12 to 0.23 join the digests of a group's block, 0.24.0 and later take the last one; as
    /// integers both are the same. A trailing incomplete group block has no hash.
    ///
    /// # Errors
    /// [`ContractError::NoGroupView`] before 0.12.0; [`ContractError::ZeroGroup`].
    pub fn group_hashes(
        &self,
        digests: &[Digest],
        factor: usize,
    ) -> Result<Vec<GroupHash>, ContractError> {
        if self.version < Version::release(0, 12, 0) {
            return Err(ContractError::NoGroupView { version: self.version });
        }
        if factor == 0 {
            return Err(ContractError::ZeroGroup);
        }
        let joined = self.version < Version::release(0, 24, 0);
        let hash = |block: &[Digest]| {
            let counted = if joined { block } else { &block[factor - 1..] };
            GroupHash::new(counted.iter().flat_map(Digest::as_bytes).copied().collect())
        };
        Ok(digests.chunks_exact(factor).map(hash).collect())
    }
}

/// The generation, if that version has the algorithm and its hashes can be known at all.
fn check(version: Version, algorithm: Algorithm) -> Result<Generation, ContractError> {
    let generation = Generation::of(version)?;
    if !algorithm.offered_by(version) {
        return Err(ContractError::NotOffered { algorithm, version });
    }
    if algorithm == Algorithm::Builtin {
        return Err(ContractError::Unknowable(Unknowable::BuiltinHash));
    }
    Ok(generation)
}
