//! The fuzz targets' bodies on random bytes, and on text half of which is what the parsers know.

#![allow(clippy::expect_used, reason = "bodies fail by panics")]

use proptest::prelude::*;

#[path = "../fuzz/bodies.rs"]
mod bodies;

const WORDS: [&str; 30] = [
    "0",
    "9",
    "33",
    "65535",
    "65536",
    "4294967295",
    ".",
    "..",
    ",",
    "v",
    "rc1",
    "dev",
    "post2",
    "+",
    "-",
    "cu129",
    " ",
    "unset",
    "random",
    "a",
    "Ff",
    "0g",
    "sha256",
    "_cbor",
    "xxhash",
    "auto",
    "vllm",
    "dynamo",
    "é",
    "\u{0}",
];

fn data() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::collection::vec(prop::sample::select(&WORDS[..]), 0..12);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        words.prop_map(|words| words.concat().into_bytes()),
        "[0-9a-fA-F]{0,70}".prop_map(String::into_bytes),
        (any::<u8>(), 0usize..10_000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

/// Bytes that bodies read values from.
fn structured() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..400),
        prop::collection::vec(0u8..40, 0..400),
        data(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn versions(data in data()) {
        bodies::versions(&data);
    }

    #[test]
    fn digests(data in data()) {
        bodies::digests(&data);
    }

    #[test]
    fn names(data in data()) {
        bodies::names(&data);
    }

    #[test]
    fn requests(data in structured()) {
        bodies::requests(&data);
    }

    #[test]
    fn events(data in structured()) {
        bodies::events(&data);
    }
}

proptest! {
    // Lists of seeds can be long.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn seeds(data in data()) {
        bodies::seeds(&data);
    }
}

#[test]
fn every_name_is_known() {
    for name in [
        "vllm",
        "sglang",
        "trtllm",
        "loxilb",
        "builtin",
        "sha256",
        "sha256_cbor_64bit",
        "sha256_cbor",
        "xxhash",
        "xxhash_cbor",
        "default",
        "dynamo",
        "auto",
        "v1_block_key",
        "v2_sha256",
        "v2_sha256_64",
        "sha256_sglang",
        "blockhash_trtllm",
    ] {
        bodies::names(name.as_bytes());
    }
}
