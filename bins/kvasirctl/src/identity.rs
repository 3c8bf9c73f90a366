//! What a pool of a configuration says of its engines' hashes, in the words of the checks.

use kvasir_config::PoolConfig;
use kvasir_doctor::Expectations;
use kvasir_fleet::{BlockIdentity, EngineHashing, HashAlgorithm};

/// What the gateway would know the pool's blocks by.
pub(crate) fn of(pool: &PoolConfig) -> BlockIdentity {
    let kvasir_config::BlockIdentity::Engine(hashing) = &pool.identity else {
        return BlockIdentity::Tokens;
    };
    let algorithm = match hashing.algorithm {
        kvasir_config::HashAlgorithm::Vllm(algorithm) => HashAlgorithm::Vllm(algorithm),
        kvasir_config::HashAlgorithm::Sglang => HashAlgorithm::Sglang,
    };
    let (seed, version) = (hashing.seed.clone(), hashing.version);
    BlockIdentity::Engine(EngineHashing { algorithm, seed, version })
}

/// What is expected of the engines of a pool that goes by such hashes: nothing of those that go by
/// tokens, and of `SGLang`'s, which have no seed, what the gateway finds itself.
pub(crate) fn expectations(identity: &BlockIdentity) -> Expectations {
    match identity {
        BlockIdentity::Engine(EngineHashing {
            algorithm: HashAlgorithm::Vllm(algorithm),
            seed,
            ..
        }) => Expectations {
            algorithm: Some(algorithm.to_string()),
            seed: Some(seed.clone()),
            block_size: None,
        },
        _ => Expectations::default(),
    }
}
