use super::*;
use crate::identity::{BlockIdentity, EngineHashing, HashAlgorithm};

#[test]
fn a_batch_is_long_as_a_whole() {
    let algorithm = HashAlgorithm::Sglang;
    let hashing = EngineHashing { algorithm, seed: None, version: None };
    let engine = BlockIdentity::Engine(hashing).keying(None).unwrap();
    let batch = |prompts: usize| vec![vec![1_u32; LONG_TO_HASH / 4]; prompts];
    assert!(!is_long(&engine, &batch(4)));
    assert!(is_long(&engine, &batch(5)));
    assert!(!is_long(&Keying::Tokens, &batch(5)), "own keys are quick");
}
