//! vLLM's contract against vectors made by vLLM's own published code, release by release.
//!
//! Every entry of every file is either checked here or counted as left to later, by algorithm,
//! after checking that this crate refuses its contract with the right reason.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ciborium::Value as Cbor;
use kvasir_kv_hash::vllm::{
    Algorithm, Chain, Contract, ContractError, Digest, Generation, GroupHash, Lora, MmItem,
    PromptEmbeds, RequestExtras, Unknowable, Unsupported, Version, token_ids,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What was done with one file under one release.
#[derive(Default)]
struct Tally {
    cases: usize,
    blocks: usize,
    none_hashes: usize,
    regroups: usize,
    later: BTreeMap<String, usize>,
}

#[test]
fn every_release_of_the_index() {
    let index = json("index.json");
    let releases = index["vllm_hash"].as_object().unwrap();
    let named: BTreeSet<&str> = releases.values().map(|f| f.as_str().unwrap()).collect();
    assert_eq!(named, files_on_disk("vllm-hash-").iter().map(String::as_str).collect());
    let docs: BTreeMap<&str, Value> = named.iter().map(|&f| (f, json(f))).collect();

    for (release, file) in releases {
        let file = file.as_str().unwrap();
        let version: Version = release.parse().unwrap();
        let tally = check_file(version, &docs[file], &format!("vLLM {release}, {file}"));
        println!(
            "vLLM {release:8} {file:22} sha256_cbor: {} cases ({} blocks), {} none_hash, {} \
             regroup; left to later: {:?}",
            tally.cases, tally.blocks, tally.none_hashes, tally.regroups, tally.later
        );
        if Generation::of(version).unwrap() >= Generation::B {
            assert!(tally.cases > 0 && tally.none_hashes > 0, "{release}: nothing was checked");
        } else {
            assert_eq!(tally.cases, 0, "generation A has no sha256_cbor");
            assert!(!tally.later.is_empty());
        }
        if version >= Version::release(0, 12, 0) {
            assert!(tally.regroups > 0, "{release}: no group view was checked");
        }
    }
}

/// Unusual inputs: overlapping items, edges, short embeddings, odd seeds, random mixtures.
#[test]
fn unusual_inputs() {
    let index = json("index.json");
    let releases = index["vllm_inputs"].as_object().unwrap();
    assert_eq!(releases.len(), files_on_disk("vllm-inputs-").len(), "index and files");
    let mut generations = BTreeSet::new();
    for (release, file) in releases {
        let version: Version = release.parse().unwrap();
        generations.insert(Generation::of(version).unwrap());
        let doc = json(text(file));
        let none_hashes = doc["none_hash"].as_array().unwrap();
        let cases = doc["cases"].as_array().unwrap();
        assert!(!none_hashes.is_empty() && !cases.is_empty());
        for entry in none_hashes {
            check_none_hash(version, entry, &format!("vLLM {release}, seed {}", entry["seed"]));
        }
        let mut blocks = 0;
        for case in cases {
            let at = format!("vLLM {release}, {}", case["id"]);
            let expected: Vec<&str> = strings(&case["digests"]).collect();
            let chain = hash_both_ways(version, &doc, case, &at, |_, _| {});
            let digests: Vec<_> = chain.digests().iter().map(Digest::to_string).collect();
            assert_eq!(digests, expected, "{at}");
            blocks += digests.len();
        }
        println!("vLLM {release:8} {file}: {} cases ({blocks} blocks)", cases.len());
    }
    // B, C, D, E, G and H; F differs from E in its unset seed only.
    assert_eq!(generations.len(), 6);
}

fn check_file(version: Version, doc: &Value, at: &str) -> Tally {
    let mut tally = Tally::default();
    for (section, entries) in ["none_hash", "cases", "regroup"].map(|s| (s, doc.get(s))) {
        let Some(entries) = entries else { continue };
        for entry in entries.as_array().unwrap() {
            let algorithm: Algorithm = text(&entry["algo"]).parse().unwrap();
            let at = format!("{at}, {section} {} seed {}", entry["id"], entry["seed"]);
            if algorithm != Algorithm::Sha256Cbor {
                check_refused(version, algorithm, entry["seed"].as_str(), &at);
                *tally.later.entry(format!("{algorithm} {section}")).or_default() += 1;
                continue;
            }
            match section {
                "none_hash" => {
                    check_none_hash(version, entry, &at);
                    tally.none_hashes += 1;
                }
                "cases" => {
                    tally.blocks += check_case(version, doc, entry, &at);
                    tally.cases += 1;
                }
                _ => {
                    check_regroup(version, doc, entry, &at);
                    tally.regroups += 1;
                }
            }
        }
    }
    tally
}

/// What this crate does not compute must be refused, and for the right reason.
fn check_refused(version: Version, algorithm: Algorithm, seed: Option<&str>, at: &str) {
    let generation = Generation::of(version).unwrap();
    let xxhash = matches!(algorithm, Algorithm::Xxhash | Algorithm::XxhashCbor);
    let expected = if seed.is_none() && (generation < Generation::F || xxhash) {
        ContractError::Unknowable(Unknowable::RandomNoneHash)
    } else if generation == Generation::A {
        ContractError::Unsupported(Unsupported::GenerationA)
    } else {
        ContractError::Unsupported(Unsupported::Algorithm(algorithm))
    };
    assert_eq!(Contract::new(version, algorithm, seed), Err(expected), "{at}");
}

fn check_none_hash(version: Version, entry: &Value, at: &str) {
    let contract = Contract::new(version, Algorithm::Sha256Cbor, entry["seed"].as_str());
    if entry["deterministic"] == true {
        let none_hash = contract.unwrap().none_hash();
        assert_eq!(none_hash.to_string(), text(&entry["none_hash"]), "{at}");
        if let Some(preimage) = entry["preimage"].as_str() {
            let digest = Sha256::digest(unhex(preimage));
            assert_eq!(none_hash.as_bytes(), &digest[..], "{at}");
        }
    } else {
        let unknowable = ContractError::Unknowable(Unknowable::RandomNoneHash);
        assert_eq!(contract, Err(unknowable), "{at}");
    }
}

/// The contract of an entry; a `NONE_HASH` drawn at random is taken from the recording.
fn contract(version: Version, entry: &Value, at: &str) -> Contract {
    let seed = entry["seed"].as_str();
    let contract = match Contract::new(version, Algorithm::Sha256Cbor, seed) {
        Err(ContractError::Unknowable(Unknowable::RandomNoneHash)) if seed.is_none() => {
            let recorded = unhex(text(&entry["none_hash"])).try_into().unwrap();
            Contract::with_none_hash(version, Algorithm::Sha256Cbor, recorded).unwrap()
        }
        other => other.unwrap(),
    };
    if let Some(none_hash) = entry["none_hash"].as_str() {
        assert_eq!(contract.none_hash().to_string(), none_hash, "{at}");
    }
    contract.with_lookahead(entry["lookahead"].as_u64().unwrap_or(0) as usize).unwrap()
}

/// Checks a case; gives its number of blocks.
fn check_case(version: Version, doc: &Value, case: &Value, at: &str) -> usize {
    let blocks = case["blocks"].as_array().unwrap();
    assert!(!blocks.is_empty(), "{at}: a case without blocks proves nothing");
    let mut seen = 0;
    hash_both_ways(version, doc, case, at, |chain, digest| {
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
    version: Version,
    doc: &Value,
    case: &Value,
    at: &str,
    mut each_block: impl FnMut(&Chain, Digest),
) -> Chain {
    let tokens = tokens(doc, text(&case["tokens"]));
    let block_size = case["block_size"].as_u64().unwrap() as usize;
    let contract = contract(version, case, at);
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
    let preimage = chain.preimage();
    match block["preimage"].as_str() {
        Some(hex) => assert_eq!(preimage, unhex(hex), "{at}: preimage"),
        None => {
            assert_eq!(preimage.len() as u64, block["preimage_len"].as_u64().unwrap(), "{at}");
            let sha256 = Sha256::digest(preimage);
            assert_eq!(&sha256[..], unhex(text(&block["preimage_sha256"])), "{at}: preimage");
        }
    }
    let decoded: Cbor = ciborium::from_reader(preimage).unwrap();
    let extra = decoded.as_array().and_then(|parts| parts.get(2)).unwrap();
    assert_eq!(&cbor(&block["extra_keys"]), extra, "{at}: extra keys");
    assert_eq!(digest.to_string(), text(&block["digest"]), "{at}: digest");
    assert_eq!(digest.to_u64().to_string(), text(&block["u64"]), "{at}: integer");
}

fn check_regroup(version: Version, doc: &Value, entry: &Value, at: &str) {
    let size = |name: &str| entry[name].as_u64().unwrap() as usize;
    let mut chain = contract(version, entry, at).chain(size("hash_block_size")).unwrap();
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

/// A named token set, or a formula of the file: `formula:<name>:<count>`.
fn tokens(doc: &Value, name: &str) -> Vec<u32> {
    let Some(formula) = name.strip_prefix("formula:") else {
        let ids = doc["token_sets"][name].as_array().unwrap();
        let ids: Vec<i64> = ids.iter().map(|t| t.as_i64().unwrap()).collect();
        return token_ids(&ids).unwrap();
    };
    let (name, count) = formula.split_once(':').unwrap();
    let formula = &doc["formulas"][name];
    assert_eq!(formula["kind"], "lcg", "{name}");
    let [mul, add, modulus] = ["mul", "add", "mod"].map(|k| formula[k].as_u64().unwrap());
    let token = |i: u64| u32::try_from((i * mul + add) % modulus).unwrap();
    (0..count.parse().unwrap()).map(token).collect()
}

fn extras(request: &Value) -> RequestExtras {
    let known = ["lora", "cache_salt", "mm", "prompt_embeds"];
    let fields = request.as_object().into_iter().flatten();
    fields.for_each(|(name, _)| assert!(known.contains(&name.as_str()), "unknown input {name}"));
    RequestExtras {
        lora: request.get("lora").map(|lora| Lora {
            name: text(&lora["name"]).to_owned(),
            int_id: lora["int_id"].as_u64(),
            path: lora["path"].as_str().map(str::to_owned),
        }),
        cache_salt: request["cache_salt"].as_str().map(str::to_owned),
        items: request["mm"].as_array().into_iter().flatten().map(item).collect(),
        prompt_embeds: request.get("prompt_embeds").map(|embeds| {
            let row = unhex(text(&embeds["row_hex"]));
            let data = row.repeat(embeds["rows"].as_u64().unwrap() as usize);
            PromptEmbeds::new(data, row.len()).unwrap()
        }),
    }
}

fn item(item: &Value) -> MmItem {
    MmItem {
        identifier: text(&item["identifier"]).to_owned(),
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

fn dir() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../testdata/golden/vllm-hash"].iter().collect()
}

fn json(file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(dir().join(file)).unwrap()).unwrap()
}

fn files_on_disk(prefix: &str) -> Vec<String> {
    let names = std::fs::read_dir(dir()).unwrap().map(|e| e.unwrap().file_name());
    names.map(|n| n.into_string().unwrap()).filter(|n| n.starts_with(prefix)).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not text: {value}"))
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().unwrap().iter().map(text)
}

fn unhex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2));
    let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}
