//! What an engine's blocks are known by, and a prompt's hashes where these are the engine's own.

use kvasir_inventory::EngineHash;
use kvasir_kv_hash::verify::Contract;
use kvasir_kv_hash::{sglang, vllm};

use crate::card::EngineCard;

/// What an engine's blocks are known by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BlockIdentity {
    /// The tokens in its events: nothing has to agree with the engine.
    #[default]
    Tokens,
    /// Its own hashes, computed here as the engine does: events need no tokens.
    Engine(EngineHashing),
}

/// How an engine is said to hash blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineHashing {
    /// The algorithm.
    pub algorithm: HashAlgorithm,
    /// vLLM's `PYTHONHASHSEED`; `None` if it is not set.
    pub seed: Option<String>,
    /// The release whose contract it follows; `None` for what the engine says it is.
    pub version: Option<vllm::Version>,
}

/// A way of hashing that can be reproduced outside the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// A value of vLLM's `--prefix-caching-hash-algo`.
    Vllm(vllm::Algorithm),
    /// SGLang's page hashes.
    Sglang,
}

/// How prompts have to be keyed to be found among an engine's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keying {
    Tokens,
    Engine(Contract),
}

/// Why there is no contract to key prompts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoContract {
    /// Whether there is one depends on the engine's version, which it has not said yet.
    NotTold,
    /// There cannot be one: a word for metrics, and a sentence.
    Never(&'static str, String),
}

/// What of a request shapes the engine's hashes of its prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashed<'a> {
    pub(crate) block_size: usize,
    pub(crate) lookahead: usize,
    /// The adapter's name, and its path where the engine tells.
    pub(crate) lora: Option<(&'a str, Option<&'a str>)>,
    pub(crate) salt: Option<&'a str>,
}

impl BlockIdentity {
    /// How prompts are keyed for an engine that says this of itself; `None` while or where its
    /// hashes cannot be computed.
    pub(crate) fn keying(&self, card: Option<&EngineCard>) -> Option<Keying> {
        match self {
            Self::Tokens => Some(Keying::Tokens),
            Self::Engine(hashing) => hashing.contract(card).ok().map(Keying::Engine),
        }
    }
}

impl EngineHashing {
    /// The contract of an engine that says this of itself. Of a version that is not known the
    /// newest contract is taken: its events show whether that is right.
    pub(crate) fn contract(&self, card: Option<&EngineCard>) -> Result<Contract, NoContract> {
        let told = card.and_then(|card| card.version.as_deref()?.parse::<vllm::Version>().ok());
        match self.algorithm {
            HashAlgorithm::Sglang => {
                let known = |version: &vllm::Version| sglang::Generation::of(*version).is_ok();
                let version = self.version.or(told).filter(known);
                let version = version.unwrap_or(sglang::Generation::newest_release());
                sglang::Contract::new(version, sglang::EventFormat::Default)
                    .map(Contract::Sglang)
                    .map_err(|error| NoContract::Never("unknown", error.to_string()))
            }
            HashAlgorithm::Vllm(algorithm) => {
                let known = |version: &vllm::Version| vllm::Generation::of(*version).is_ok();
                let version = self.version.or(told).filter(known);
                if version.is_none() && card.is_none() && self.seed.is_none() {
                    return Err(NoContract::NotTold);
                }
                let assumed = match algorithm {
                    vllm::Algorithm::Sha256Cbor64Bit => vllm::Version::release(0, 10, 0),
                    _ => vllm::Generation::newest_release(),
                };
                let version = version.unwrap_or(assumed);
                vllm::Contract::new(version, algorithm, self.seed.as_deref())
                    .map(Contract::Vllm)
                    .map_err(|error| NoContract::Never(word(&error), error.to_string()))
            }
        }
    }
}

fn word(error: &vllm::ContractError) -> &'static str {
    use vllm::{ContractError as E, Unknowable};
    match error {
        E::Unknowable(Unknowable::RandomNoneHash) => "unseeded",
        E::Unknowable(_) => "builtin",
        E::NotOffered { .. } => "algorithm",
        _ => "unknown",
    }
}

impl Hashed<'_> {
    /// The engine's hashes of the full blocks of a prompt; `None` where they cannot be computed, or
    /// do not tell this request's blocks from others.
    pub(crate) fn hashes(&self, contract: &Contract, tokens: &[u32]) -> Option<Vec<EngineHash>> {
        match contract {
            Contract::Vllm(contract) => self.vllm(*contract, tokens),
            Contract::Sglang(contract) => self.sglang(*contract, tokens),
            Contract::TrtLlmV1 => None,
        }
    }

    fn vllm(&self, contract: vllm::Contract, tokens: &[u32]) -> Option<Vec<EngineHash>> {
        let lora = self.lora.map(|(name, path)| vllm::Lora {
            name: name.to_owned(),
            path: path.map(str::to_owned),
            int_id: None,
        });
        let cache_salt = self.salt.map(str::to_owned);
        let extras = vllm::RequestExtras { lora, cache_salt, ..vllm::RequestExtras::default() };
        let contract = contract.with_lookahead(self.lookahead).ok()?;
        let mut chain = contract.chain_with(self.block_size, extras).ok()?;
        Some(chain.append(tokens).iter().map(|digest| EngineHash(digest.to_u64())).collect())
    }

    fn sglang(&self, contract: sglang::Contract, tokens: &[u32]) -> Option<Vec<EngineHash>> {
        let salted = contract.generation() >= sglang::Generation::Salted;
        // Hashes that leave out what sets the request apart would find other requests' pages.
        if self.lora.is_some() || (self.salt.is_some() && !salted) || self.lookahead > 1 {
            return None;
        }
        let request = sglang::Request {
            cache_salt: self.salt.map(str::to_owned),
            ..sglang::Request::default()
        };
        let contract = contract.with_bigrams(self.lookahead == 1);
        let mut chain = contract.chain_with(self.block_size, &request).ok()?;
        Some(chain.append(tokens).iter().map(|page| EngineHash(page.to_u64())).collect())
    }
}

#[cfg(test)]
mod tests;
