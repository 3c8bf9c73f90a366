//! vLLM's contract against vectors made by vLLM's own published code, release by release.
//!
//! Every entry of every file is checked; a `NONE_HASH` drawn at random must be refused as unknowable
//! and is then taken from the recording.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test helpers")]

use std::collections::{BTreeMap, BTreeSet};

use ciborium::Value as Cbor;
use kvasir_kv_hash::vllm::{
    Algorithm, Chain, Contract, ContractError, Digest, Generation, GroupHash, Lora, MmItem,
    PromptEmbeds, RequestExtras, Unknowable, Version,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_128;

#[path = "support/golden.rs"]
mod golden;

use golden::{assert_all_read, files_on_disk, json, strings, text, tokens, unhex};

/// What was done with one file under one release.
#[derive(Default)]
struct Tally {
    cases: usize,
    blocks: usize,
    none_hashes: usize,
    regroups: usize,
    algorithms: BTreeSet<String>,
}

#[test]
fn every_release_of_the_index() {
    let index = json("vllm-hash", "index.json");
    let releases = index["vllm_hash"].as_object().unwrap();
    let named: BTreeSet<&str> = releases.values().map(|f| f.as_str().unwrap()).collect();
    assert_eq!(
        named,
        files_on_disk("vllm-hash", "vllm-hash-").iter().map(String::as_str).collect()
    );
    let docs: BTreeMap<&str, Value> = named.iter().map(|&f| (f, json("vllm-hash", f))).collect();

    for (release, file) in releases {
        let file = file.as_str().unwrap();
        let version: Version = release.parse().unwrap();
        let tally = check_file(version, &docs[file], &format!("vLLM {release}, {file}"));
        println!(
            "vLLM {release:8} {file:22} {} cases ({} blocks), {} none_hash, {} regroup; {:?}",
            tally.cases, tally.blocks, tally.none_hashes, tally.regroups, tally.algorithms
        );
        // Each algorithm but builtin that the release offers, and nothing besides.
        let offered = Algorithm::ALL.iter().filter(|a| a.offered_by(version));
        let offered = offered.filter(|a| **a != Algorithm::Builtin).map(Algorithm::to_string);
        assert_eq!(tally.algorithms, offered.collect(), "{release}");
        assert!(tally.cases > 0 && tally.none_hashes > 0, "{release}: nothing was checked");
        assert_eq!(tally.regroups > 0, version >= Version::release(0, 12, 0), "{release}");
        assert_eq!(tally.cases, docs[file]["cases"].as_array().unwrap().len(), "{release}");
    }
}

/// Unusual inputs: overlapping items, edges, short embeddings, odd seeds, random mixtures.
#[test]
fn unusual_inputs() {
    let index = json("vllm-hash", "index.json");
    let releases = index["vllm_inputs"].as_object().unwrap();
    assert_eq!(releases.len(), files_on_disk("vllm-hash", "vllm-inputs-").len(), "index and files");
    let mut generations = BTreeSet::new();
    for (release, file) in releases {
        let version: Version = release.parse().unwrap();
        generations.insert(Generation::of(version).unwrap());
        let doc = json("vllm-hash", text(file));
        assert_all_read(text(file), &doc, &["none_hash", "cases"]);
        let none_hashes = doc["none_hash"].as_array().unwrap();
        let cases = doc["cases"].as_array().unwrap();
        assert!(!none_hashes.is_empty() && !cases.is_empty());
        for entry in none_hashes {
            check_none_hash(
                version,
                Algorithm::Sha256Cbor,
                entry,
                &format!("vLLM {release}, seed {}", entry["seed"]),
            );
        }
        let mut blocks = 0;
        for case in cases {
            let at = format!("vLLM {release}, {}", case["id"]);
            let expected: Vec<&str> = strings(&case["digests"]).collect();
            let contract = contract(version, Algorithm::Sha256Cbor, case, &at);
            let chain = hash_both_ways(contract, &doc, case, &at, |_, _| {});
            let digests: Vec<_> = chain.digests().iter().map(Digest::to_string).collect();
            assert_eq!(digests, expected, "{at}");
            blocks += digests.len();
        }
        println!("vLLM {release:8} {file}: {} cases ({blocks} blocks)", cases.len());
    }
    // B, C, D, E, G and H; F differs from E in its unset seed only.
    assert_eq!(generations.len(), 6);
}

/// Strings, sizes and repetitions that are special to the pickler.
#[test]
fn edges_of_the_pickler() {
    let doc = json("vllm-hash", "pickle-edges.json");
    assert_all_read("pickle-edges.json", &doc, &["cases"]);
    let cases = doc["cases"].as_array().unwrap();
    let mut blocks = 0;
    for case in cases {
        let version: Version = text(&case["version"]).parse().unwrap();
        let at = format!("vLLM {version}, {}", case["id"]);
        blocks += check_case(contract(version, Algorithm::Sha256, case, &at), &doc, case, &at);
    }
    println!("pickle-edges.json: {} cases ({blocks} blocks)", cases.len());
    assert!(blocks > 80);
}

fn check_file(version: Version, doc: &Value, at: &str) -> Tally {
    assert_all_read(at, doc, &["none_hash", "cases", "regroup"]);
    let mut tally = Tally::default();
    for (section, entries) in ["none_hash", "cases", "regroup"].map(|s| (s, doc.get(s))) {
        let Some(entries) = entries else { continue };
        for entry in entries.as_array().unwrap() {
            let algorithm: Algorithm = text(&entry["algo"]).parse().unwrap();
            let at = format!("{at}, {section} {} seed {}", entry["id"], entry["seed"]);
            tally.algorithms.insert(algorithm.to_string());
            match section {
                "none_hash" => {
                    check_none_hash(version, algorithm, entry, &at);
                    tally.none_hashes += 1;
                }
                "cases" => {
                    tally.blocks +=
                        check_case(contract(version, algorithm, entry, &at), doc, entry, &at);
                    tally.cases += 1;
                }
                _ => {
                    check_regroup(contract(version, algorithm, entry, &at), doc, entry, &at);
                    tally.regroups += 1;
                }
            }
        }
    }
    tally
}

fn check_none_hash(version: Version, algorithm: Algorithm, entry: &Value, at: &str) {
    let contract = Contract::new(version, algorithm, entry["seed"].as_str());
    if entry["deterministic"] == true {
        let none_hash = contract.unwrap().none_hash();
        assert_eq!(none_hash.to_string(), text(&entry["none_hash"]), "{at}");
        if let Some(preimage) = entry["preimage"].as_str() {
            assert_eq!(none_hash.as_bytes(), digest_of(algorithm, &unhex(preimage)), "{at}");
        }
    } else {
        let unknowable = ContractError::Unknowable(Unknowable::RandomNoneHash);
        assert_eq!(contract, Err(unknowable), "{at}");
    }
}

/// The algorithm's digest of recorded bytes, by other crates' entry points.
fn digest_of(algorithm: Algorithm, preimage: &[u8]) -> Vec<u8> {
    match algorithm {
        Algorithm::Xxhash | Algorithm::XxhashCbor => {
            XxHash3_128::oneshot(preimage).to_be_bytes().to_vec()
        }
        Algorithm::Sha256Cbor64Bit => Sha256::digest(preimage)[24..].to_vec(),
        _ => Sha256::digest(preimage).to_vec(),
    }
}

/// The contract of an entry; a `NONE_HASH` drawn at random is taken from the recording.
fn contract(version: Version, algorithm: Algorithm, entry: &Value, at: &str) -> Contract {
    let seed = entry["seed"].as_str();
    let contract = match Contract::new(version, algorithm, seed) {
        Err(ContractError::Unknowable(Unknowable::RandomNoneHash)) if seed.is_none() => {
            let recorded = text(&entry["none_hash"]);
            // An integer in hex, up to 0.10.1: without leading zeros.
            let even = if recorded.len() % 2 == 1 { "0" } else { "" };
            Contract::with_none_hash(version, algorithm, unhex(&format!("{even}{recorded}")))
                .unwrap()
        }
        other => other.unwrap(),
    };
    if let Some(none_hash) = entry["none_hash"].as_str() {
        let ours = contract.none_hash().to_string();
        assert_eq!(ours.trim_start_matches('0'), none_hash.trim_start_matches('0'), "{at}");
    }
    let shared = entry["id"].as_str().is_some_and(|id| id.ends_with("shared_objects"));
    contract
        .with_shared_identifiers(shared)
        .with_lookahead(entry["lookahead"].as_u64().unwrap_or(0) as usize)
        .unwrap()
}

/// Checks a case; gives its number of blocks.
fn check_case(contract: Contract, doc: &Value, case: &Value, at: &str) -> usize {
    let blocks = case["blocks"].as_array().unwrap();
    assert!(!blocks.is_empty(), "{at}: a case without blocks proves nothing");
    let mut seen = 0;
    hash_both_ways(contract, doc, case, at, |chain, digest| {
        let at = format!("{at}, block {seen}");
        let block = blocks.get(seen).unwrap_or_else(|| panic!("{at}: one too many"));
        check_block(chain, digest, block, &at);
        seen += 1;
    });
    assert_eq!(seen, blocks.len(), "{at}: blocks");
    seen
}

/// The chain of a case: token by token, showing each block, and the same all at once.
fn hash_both_ways(
    contract: Contract,
    doc: &Value,
    case: &Value,
    at: &str,
    mut each_block: impl FnMut(&Chain, Digest),
) -> Chain {
    let tokens = tokens(doc, text(&case["tokens"]));
    let block_size = case["block_size"].as_u64().unwrap() as usize;
    let mut whole = contract.chain_with(block_size, extras(&case["request"])).unwrap();
    let mut chain = whole.clone();
    for token in &tokens {
        if let &[digest] = chain.append(&[*token]) {
            each_block(&chain, digest);
        }
    }
    assert_eq!(chain.token_count(), tokens.len());
    assert_eq!(whole.append(&tokens), chain.digests(), "{at}: at once");
    whole
}

fn check_block(chain: &Chain, digest: Digest, block: &Value, at: &str) {
    let preimage = chain.preimage().unwrap();
    match block["preimage"].as_str() {
        Some(hex) => assert_eq!(preimage, unhex(hex), "{at}: preimage"),
        None => {
            assert_eq!(preimage.len() as u64, block["preimage_len"].as_u64().unwrap(), "{at}");
            let sha256 = Sha256::digest(preimage);
            assert_eq!(&sha256[..], unhex(text(&block["preimage_sha256"])), "{at}: preimage");
        }
    }
    if preimage[0] != 0x80 {
        let decoded: Cbor = ciborium::from_reader(preimage).unwrap();
        let extra = decoded.as_array().and_then(|parts| parts.get(2)).unwrap();
        assert_eq!(&cbor(&block["extra_keys"]), extra, "{at}: extra keys");
    }
    assert_eq!(digest.to_string(), text(&block["digest"]), "{at}: digest");
    assert_eq!(digest.to_u64().to_string(), text(&block["u64"]), "{at}: integer");
}

fn check_regroup(contract: Contract, doc: &Value, entry: &Value, at: &str) {
    let size = |name: &str| entry[name].as_u64().unwrap() as usize;
    let mut chain = contract.chain(size("hash_block_size")).unwrap();
    chain.append(&tokens(doc, text(&entry["tokens"])));
    let factor = size("block_size") / size("hash_block_size");
    let hashes = chain.contract().group_hashes(chain.digests(), factor).unwrap();
    let internal: Vec<_> = strings(&entry["internal"]).map(unhex).collect();
    assert_eq!(hashes.iter().map(GroupHash::as_bytes).collect::<Vec<_>>(), internal, "{at}");
    let external: Vec<_> = strings(&entry["external_u64"]).collect();
    assert_eq!(hashes.iter().map(|h| h.to_u64().to_string()).collect::<Vec<_>>(), external, "{at}");
    let key = chain.digests()[0].with_group_id(3);
    assert_eq!(key, unhex(text(&entry["key_with_group_3"])), "{at}");
}

/// A string, which may be written as `{"repeat": [piece, times]}`.
fn string(value: &Value) -> String {
    match value.get("repeat") {
        Some(repeat) => text(&repeat[0]).repeat(golden::size(&repeat[1])),
        None => text(value).to_owned(),
    }
}

fn extras(request: &Value) -> RequestExtras {
    let known = ["lora", "cache_salt", "mm", "prompt_embeds"];
    let fields = request.as_object().into_iter().flatten();
    fields.for_each(|(name, _)| assert!(known.contains(&name.as_str()), "unknown input {name}"));
    RequestExtras {
        lora: request.get("lora").map(|lora| Lora {
            name: string(&lora["name"]),
            int_id: lora["int_id"].as_u64(),
            path: lora.get("path").map(string),
        }),
        cache_salt: request.get("cache_salt").map(string),
        items: request["mm"].as_array().into_iter().flatten().map(item).collect(),
        prompt_embeds: request.get("prompt_embeds").map(|embeds| {
            let row = unhex(&string(&embeds["row_hex"]));
            let data = row.repeat(embeds["rows"].as_u64().unwrap() as usize);
            PromptEmbeds::new(data, row.len()).unwrap()
        }),
    }
}

fn item(item: &Value) -> MmItem {
    MmItem {
        identifier: string(&item["identifier"]),
        offset: item["offset"].as_u64().unwrap() as usize,
        length: item["length"].as_u64().unwrap() as usize,
    }
}

/// The recorded extra keys as CBOR; byte strings are recorded as `{"hex": ..}`.
fn cbor(value: &Value) -> Cbor {
    match value {
        Value::Null => Cbor::Null,
        Value::Number(n) => Cbor::from(n.as_i64().unwrap()),
        Value::String(s) => Cbor::from(s.as_str()),
        Value::Array(items) => Cbor::Array(items.iter().map(cbor).collect()),
        Value::Object(o) => Cbor::Bytes(unhex(text(&o["hex"]))),
        Value::Bool(_) => panic!("no extra key is a boolean"),
    }
}
