//! One engine's way of hashing pages.

use super::chain::{Chain, PageHash};
use super::error::{ContractError, Unknowable};
use super::generation::Generation;
use super::namespace::{Namespace, salt_digest};
use super::request::Request;
use crate::spelled::spelled;
use crate::version::Version;

/// `format` in `--kv-events-config`. Parses from and prints as SGLang's own spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EventFormat {
    /// Not set.
    #[default]
    Default,
    /// `dynamo`, from 0.5.22: published hashes cover `extra_key` and `cache_salt`.
    Dynamo,
}

impl EventFormat {
    /// Every format.
    pub const ALL: [Self; 2] = [Self::Default, Self::Dynamo];

    /// SGLang's spelling; `default` for none.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Dynamo => "dynamo",
        }
    }
}

spelled!(EventFormat, ContractError::BadFormat);

/// How one SGLang engine hashes pages. Nothing of a request is in it; it is small and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    version: Version,
    generation: Generation,
    format: EventFormat,
    bigrams: bool,
}

/// What of a request shapes its hashes under one contract.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seeds {
    /// In place of the first page's parent.
    pub(super) parent: Option<[u8; 32]>,
    pub(super) namespace: Option<Namespace>,
}

impl Contract {
    /// The contract of an engine.
    ///
    /// # Errors
    /// [`ContractError::UnverifiedVersion`] as [`Generation::of`];
    /// [`ContractError::NoDynamoFormat`] before 0.5.22.
    pub fn new(version: Version, format: EventFormat) -> Result<Self, ContractError> {
        let generation = Generation::of(version)?;
        if format == EventFormat::Dynamo && generation < Generation::DynamoFormat {
            return Err(ContractError::NoDynamoFormat { version });
        }
        Ok(Self { version, generation, format, bigrams: false })
    }

    /// The contract of plain text pages, which are the same in every generation since they are
    /// chained.
    pub(crate) fn of_plain_pages() -> Self {
        let generation = Generation::Chained;
        let (version, format) = (generation.first_release(), EventFormat::Default);
        Self { version, generation, format, bigrams: false }
    }

    /// The same engine with EAGLE speculative decoding: a page is made of pairs of a token and
    /// the one after it, and is hashed once the token after its last one is known.
    #[must_use]
    pub fn with_bigrams(self, bigrams: bool) -> Self {
        Self { bigrams, ..self }
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

    /// Whether pages are made of bigrams.
    #[must_use]
    pub fn bigrams(&self) -> bool {
        self.bigrams
    }

    /// An empty chain for a plain text request, in pages of `--page-size` tokens.
    ///
    /// # Errors
    /// [`ContractError::ZeroPageSize`].
    pub fn chain(&self, page_size: usize) -> Result<Chain, ContractError> {
        self.chain_with(page_size, &Request::default())
    }

    /// An empty chain for a request with a salt, an extra key or an adapter.
    ///
    /// # Errors
    /// [`ContractError::ZeroPageSize`]; [`ContractError::Unknowable`] where the hashes cover an
    /// adapter's id and it is not given.
    pub fn chain_with(&self, page_size: usize, request: &Request) -> Result<Chain, ContractError> {
        if page_size == 0 {
            return Err(ContractError::ZeroPageSize);
        }
        Ok(Chain::new(*self, page_size, self.seeds(request)?))
    }

    /// The page of a plain request that follows a page of this digest, or begins a prompt; `None`
    /// for a parent of another size. With a token `ahead` it is a page of bigrams.
    pub(crate) fn page_after(
        &self,
        parent: Option<&[u8]>,
        tokens: &[u32],
        ahead: &[u32],
    ) -> Option<PageHash> {
        let parent = parent.map(<[u8; 32]>::try_from).transpose().ok()?;
        let contract = self.with_bigrams(!ahead.is_empty());
        let seeds = Seeds { parent, namespace: None };
        let mut chain = Chain::new(contract, tokens.len().max(1), seeds);
        chain.append(tokens);
        chain.append(ahead);
        chain.pages().first().copied()
    }

    fn seeds(&self, request: &Request) -> Result<Seeds, ContractError> {
        if self.generation < Generation::Salted {
            return Ok(Seeds::default());
        }
        let salt = request.cache_salt.as_deref();
        let parent = salt.map(salt_digest);
        let dynamo = self.format == EventFormat::Dynamo;
        let named_adapter = self.generation >= Generation::NamedAdapters && request.lora.is_some();
        if !dynamo && !named_adapter {
            return Ok(Seeds { parent, namespace: None });
        }
        let mut extra_key = request.extra_key.clone();
        if let Some(lora) = &request.lora {
            let id = lora.id.as_deref().ok_or(Unknowable::LoraId)?;
            extra_key.get_or_insert_default().push_str(id);
        }
        // The default format leaves the salt to the chain's seed.
        let namespace = Namespace::new(extra_key.as_deref(), salt.filter(|_| dynamo));
        Ok(Seeds { parent, namespace })
    }
}
