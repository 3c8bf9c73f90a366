//! What whatever takes text, events or requests from outside must do with any of them: answer,
//! never panic, keep messages short, and read back what it prints.
//!
//! Run by `cargo fuzz run <body>` here, and on random text by `tests/fuzz_bodies.rs`.

#![allow(dead_code, reason = "each fuzz target runs one body")]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use kvasir_kv_hash::detect::{Detector, EventHash, EventKey, Seeds, StoredEvent};
use kvasir_kv_hash::vllm::{self, MmItem, PromptEmbeds, RequestExtras, python_accepts};
use kvasir_kv_hash::{Engine, Spec, loxilb, sglang, trtllm};

/// Values taken from the front of the data; zeros once it is used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// Mostly small, sometimes anything.
    fn size(&mut self) -> usize {
        match self.byte() {
            small @ ..=0xf0 => (small % 24).into(),
            _ => self.long() as usize,
        }
    }

    fn long(&mut self) -> u64 {
        (0..8).fold(0, |n, _| n << 8 | u64::from(self.byte()))
    }

    /// Tokens of every width.
    fn tokens(&mut self) -> Vec<u32> {
        self.bytes().iter().map(|&byte| u32::from(byte).pow(u32::from(byte) % 4 + 1)).collect()
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::from(self.byte()) % values.len()]
    }
}

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

/// Requests under any engine's contract: refused, or hashed alike however the tokens are cut.
pub(crate) fn requests(data: &[u8]) {
    let input = &mut Input(data);
    let (version, algorithm, seed) = (input.text(), input.text(), input.text());
    let known = [
        ("0.9.2", "sha256"),
        ("0.10.0", "sha256_cbor_64bit"),
        ("0.16.0", "xxhash"),
        ("0.33.0", "sha256_cbor"),
        ("0.5.5", ""),
        ("0.5.23", "dynamo"),
        ("v1", "auto"),
        ("v2", "v2_sha256"),
        (version.as_str(), algorithm.as_str()),
    ];
    let engine = input.pick(&Engine::ALL);
    let (version, algorithm) = input.pick(&known);
    let block_size = input.size();
    let spec = Spec { engine, version, algorithm, seed: Some(&seed), block_size };
    let mut request = RequestExtras::default();
    if input.byte() % 2 == 0 {
        request.cache_salt = Some(input.text());
    }
    if input.byte() % 2 == 0 {
        let (name, path) = (input.text(), Some(input.text()));
        request.lora = Some(vllm::Lora { name, path, int_id: Some(input.long()) });
    }
    for _ in 0..input.byte() % 4 {
        let (identifier, offset, length) = (input.text(), input.size(), input.size());
        request.items.push(MmItem { identifier, offset, length });
    }
    request.prompt_embeds = match input.byte() % 4 {
        0 => PromptEmbeds::new(input.bytes(), input.size()).ok(),
        _ => None,
    };
    let tokens = input.tokens();
    match spec.blocks_with(&request) {
        Ok(mut blocks) => {
            tokens.chunks(3).for_each(|piece| assert!(blocks.append(piece).len() <= 3));
            let explained = spec.explain(&request, &tokens).expect("it was no error before");
            let keys: Vec<u64> = explained.blocks.iter().map(|block| block.key).collect();
            assert_eq!(blocks.keys(), keys);
            assert_eq!(keys.len(), tokens.len() / block_size);
        }
        Err(error) => assert!(error.to_string().len() < 1024, "a flooded message: {error}"),
    }
}

/// Stored events, made up or an engine's with something changed: a report, whatever they hold.
pub(crate) fn events(data: &[u8]) {
    let input = &mut Input(data);
    let (block_size, tokens, ahead) = (input.size(), input.tokens(), input.tokens());
    let spec = Spec {
        engine: input.pick(&Engine::ALL),
        version: input.pick(&["0.20.0", "0.33.0", "0.5.5", "0.5.20", "v1", "v2"]),
        algorithm: "",
        seed: Some("0"),
        block_size,
    };
    // Real hashes, so that the search goes on behind its first step.
    let mut hashes: Vec<EventHash> = match spec.blocks() {
        Ok(mut blocks) => blocks.append(&tokens).iter().map(|key| (*key).into()).collect(),
        Err(_) => Vec::new(),
    };
    for _ in 0..input.byte() % 4 {
        let hash = match input.byte() % 2 {
            0 => EventHash::Int(input.long()),
            _ => EventHash::Bytes(input.bytes().to_vec()),
        };
        let at = usize::from(input.byte()) % (hashes.len() + 1);
        match hashes.get_mut(at) {
            Some(old) => *old = hash,
            None => hashes.push(hash),
        }
    }
    let (text, item) = (input.text(), input.text());
    let keys = [
        EventKey::Int(input.long() as i64),
        EventKey::Text(&text),
        EventKey::Item(&item, input.long() as i64),
        EventKey::Bytes(input.bytes()),
    ];
    let keys = &keys[usize::from(input.byte()) % 5..];
    let parent = EventHash::Bytes(input.bytes().to_vec());
    let (extra_keys, lookahead) = ([keys, &[]], [&ahead[..]]);
    let event = StoredEvent {
        hashes: &hashes,
        parent: (input.byte() % 2 == 0).then_some(&parent),
        tokens: &tokens,
        block_size,
        lora_name: (input.byte() % 4 == 0).then_some(&text),
        extra_keys: &extra_keys[usize::from(input.byte()) % 3..],
        cache_salt: (input.byte() % 4 == 0).then_some(&item),
        lookahead: &lookahead[usize::from(input.byte()) % 2..],
    };
    let seeds: Seeds = "unset,0,1".parse().expect("three seeds");
    let detector = Detector::new().seeds(seeds).lora_paths([input.text()]);
    let report = detector.run(&[event, StoredEvent { parent: None, ..event }]);
    if let Some(found) = &report.found {
        assert!(0 < found.verified && found.verified <= found.checked);
    }
    assert!(report.to_string().len() < 1024, "a flooded report: {report}");
}
