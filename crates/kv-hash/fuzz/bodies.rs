//! What every parser must do with any bytes: answer, never panic, keep messages short, and read
//! back what it prints.
//!
//! Run by `cargo fuzz run <body>` here, and on random text by `tests/fuzz_bodies.rs`.

#![allow(dead_code, reason = "each fuzz target runs one body")]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use kvasir_kv_hash::detect::Seeds;
use kvasir_kv_hash::vllm::{self, python_accepts};
use kvasir_kv_hash::{Engine, loxilb, sglang, trtllm};

/// Parses, and checks the error or that the value's text is read back as the value.
fn parse<T>(text: &str) -> Option<T>
where
    T: FromStr + PartialEq + Debug + Display,
    T::Err: Display,
{
    match text.parse::<T>() {
        Ok(value) => {
            let again = value.to_string().parse::<T>().ok();
            assert_eq!(again.as_ref(), Some(&value), "{text:?}");
            Some(value)
        }
        Err(error) => {
            // Escapes make at most ten characters of one.
            assert!(error.to_string().len() < 1024, "a flooded message: {error}");
            None
        }
    }
}

/// Version numbers: each is placed among the generations of vLLM's and SGLang's contracts, or
/// refused.
pub(crate) fn versions(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some(version) = parse::<vllm::Version>(&text) else { return };
    match vllm::Generation::of(version) {
        Ok(generation) => assert!(generation.first_release() <= version),
        Err(error) => assert!(error.to_string().contains("not known")),
    }
    match sglang::Generation::of(version) {
        Ok(generation) => assert!(generation.first_release() <= version),
        Err(error) => assert!(error.to_string().contains("not known")),
    }
}

/// Hex of digests.
pub(crate) fn digests(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(digest) = parse::<vllm::Digest>(&text) {
        assert_eq!(digest.to_string(), text.to_ascii_lowercase());
        assert_eq!(vllm::Digest::from_bytes(digest.as_bytes()), Ok(digest));
        let version = vllm::Version::release(0, 28, 0);
        let algorithm = vllm::Algorithm::Sha256;
        let contract = vllm::Contract::with_none_hash(version, algorithm, digest.as_bytes());
        assert_eq!(contract.map(|contract| contract.none_hash()), Ok(digest));
    }
    let from_bytes = vllm::Digest::from_bytes(data);
    assert_eq!(from_bytes.is_ok(), (1..=32).contains(&data.len()));
}

/// Seeds: values of `PYTHONHASHSEED`, and lists of them.
pub(crate) fn seeds(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if python_accepts(&text) && !text.is_empty() && text != "random" {
        assert!(text.bytes().any(|byte| byte.is_ascii_digit()));
    }
    // Any text is a seed of the contract itself.
    let version = vllm::Version::release(0, 33, 0);
    for algorithm in [vllm::Algorithm::Sha256, vllm::Algorithm::XxhashCbor] {
        assert!(vllm::Contract::new(version, algorithm, Some(&text)).is_ok());
    }
    match text.parse::<Seeds>() {
        Ok(seeds) => {
            assert!(!seeds.is_empty() && seeds.len() <= Seeds::MAX);
            let unique: std::collections::HashSet<_> = seeds.iter().collect();
            assert_eq!(unique.len(), seeds.len());
        }
        Err(error) => assert!(error.to_string().len() < 1024),
    }
}

/// Names of engines, algorithms and formats.
pub(crate) fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let known = [
        parse::<Engine>(&text).map(|name| name.to_string()),
        parse::<vllm::Algorithm>(&text).map(|name| name.to_string()),
        parse::<sglang::EventFormat>(&text).map(|name| name.to_string()),
        parse::<trtllm::Algorithm>(&text).map(|name| name.to_string()),
        parse::<loxilb::Algorithm>(&text).map(|name| name.to_string()),
    ];
    known.into_iter().flatten().for_each(|name| assert_eq!(name, text));
}
