//! SGLang's page hashes against vectors made by SGLang's own published code, release by release.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test helpers")]

use std::collections::{BTreeMap, BTreeSet};

use kvasir_kv_hash::sglang::{
    Chain, Contract, ContractError, EventFormat, Generation, Lora, PageHash, Request, Version,
};
use serde_json::Value;

#[path = "support/golden.rs"]
mod golden;

use golden::{assert_all_read, files_on_disk, json, size, strings, text};

/// What the generator ran.
const LORA_ID: &str = "0123456789abcdef0123456789abcdef";

#[derive(Default)]
struct Tally {
    chains: usize,
    pages: usize,
    tuple_hashes: usize,
    recorded: usize,
    /// Batches of made-up hashes, which serve the decoder's tests.
    wire_only: usize,
}

#[test]
fn every_release_of_the_index() {
    let index = json("sglang", "index.json");
    let releases = index["sglang"].as_object().unwrap();
    let named: BTreeSet<&str> = releases.values().map(text).collect();
    assert_eq!(named, files_on_disk("sglang", "sglang-").iter().map(String::as_str).collect());
    let docs: BTreeMap<&str, Value> = named.iter().map(|&f| (f, json("sglang", f))).collect();
    let mut generations = BTreeSet::new();
    for (release, file) in releases {
        let version: Version = release.parse().unwrap();
        generations.insert(Generation::of(version).unwrap());
        // "struct" is the wire format, which the decoder's tests read.
        let read = ["pages", "builtin_page_hash", "batches", "struct"];
        assert_all_read(text(file), &docs[text(file)], &read);
        let tally = check_file(version, &docs[text(file)]);
        println!(
            "SGLang {release:7} {file}: {} chains ({} pages), {} tuple hashes, {} recorded events; \
             {} batches are wire format only",
            tally.chains, tally.pages, tally.tuple_hashes, tally.recorded, tally.wire_only
        );
        assert!(tally.pages > 60, "{release}");
        assert_eq!(tally.tuple_hashes > 0, version < Version::release(0, 5, 6), "{release}");
        assert_eq!(tally.recorded > 0, version >= Version::release(0, 5, 19), "{release}");
    }
    assert_eq!(generations.len(), 5);
}

fn check_file(version: Version, doc: &Value) -> Tally {
    let mut tally = Tally::default();
    for entry in doc["pages"].as_array().unwrap() {
        tally.pages += check_pages(version, doc, entry);
        tally.chains += 1;
    }
    for entry in doc["builtin_page_hash"]["cases"].as_array().into_iter().flatten() {
        let contract = Contract::new(version, EventFormat::Default).unwrap();
        let pages = all_pages(&contract, &Request::default(), entry, &golden_tokens(doc, entry));
        let expected: Vec<_> = strings(&entry["i64"]).collect();
        let ours: Vec<_> = pages.iter().map(|page| page.to_i64().to_string()).collect();
        assert_eq!(ours, expected, "SGLang {version}, tuple hash of {}", entry["tokens"]);
        assert!(pages.iter().all(|page| page.digest().is_none()));
        tally.tuple_hashes += pages.len();
    }
    let batches = doc["batches"].as_array().unwrap();
    let mut batches = batches.iter();
    while let Some(batch) = batches.next() {
        if batch.get("recorder").is_none() {
            tally.wire_only += 1;
            continue;
        }
        let removed = batches.next().unwrap();
        check_recorded(version, batch, removed);
        tally.recorded += 2;
    }
    tally
}

fn golden_tokens(doc: &Value, entry: &Value) -> Vec<u64> {
    match text(&entry["tokens"]) {
        "mixed40[:17] as 16 bigrams" => wide(&golden::tokens(doc, "mixed40")[..17]),
        "[1, 8589934592, 3, 4]" => vec![1, 8_589_934_592, 3, 4],
        name => wide(&golden::tokens(doc, name)),
    }
}

fn wide(tokens: &[u32]) -> Vec<u64> {
    tokens.iter().map(|&token| token.into()).collect()
}

/// One chain of digests; gives its number of pages.
fn check_pages(version: Version, doc: &Value, entry: &Value) -> usize {
    let at = format!("SGLang {version}, {} in pages of {}", entry["tokens"], entry["page_size"]);
    // Up to 0.5.5 events carry tuple hashes, and this chain names pages in storage.
    let chained = version.max(Generation::Chained.first_release());
    let bigrams = entry["bigram"] == true;
    let contract = Contract::new(chained, EventFormat::Default).unwrap().with_bigrams(bigrams);
    let tokens = golden_tokens(doc, entry);
    if entry.get("error").is_some() {
        let mut chain = contract.chain(size(&entry["page_size"])).unwrap();
        let error = chain.append_wide(&tokens).unwrap_err();
        assert!(matches!(error, ContractError::WideToken { index: 1, .. }), "{at}: {error}");
        return 0;
    }
    let pages = all_pages(&contract, &Request::default(), entry, &tokens);
    let digests: Vec<_> = pages.iter().map(|page| hex(page.digest().unwrap())).collect();
    assert_eq!(digests, strings(&entry["digests"]).collect::<Vec<_>>(), "{at}");
    if entry.get("i64").is_some() {
        let signed: Vec<_> = pages.iter().map(|page| page.to_i64().to_string()).collect();
        assert_eq!(signed, strings(&entry["i64"]).collect::<Vec<_>>(), "{at}");
        let unsigned: Vec<_> = pages.iter().map(|page| page.to_u64().to_string()).collect();
        assert_eq!(unsigned, strings(&entry["u64"]).collect::<Vec<_>>(), "{at}");
    }
    pages.len()
}

/// The pages of tokens, the partial one too, fed token by token and at once.
fn all_pages(
    contract: &Contract,
    request: &Request,
    entry: &Value,
    tokens: &[u64],
) -> Vec<PageHash> {
    let page_size = size(&entry["page_size"]);
    let pages = |chain: &Chain| -> Vec<PageHash> {
        chain.pages().iter().copied().chain(chain.partial()).collect()
    };
    let mut whole = contract.chain_with(page_size, request).unwrap();
    let mut pieces = whole.clone();
    whole.append_wide(tokens).unwrap();
    for &token in tokens {
        assert!(pieces.append_wide(&[token]).unwrap().len() <= 1);
    }
    assert_eq!(pages(&whole), pages(&pieces));
    assert_eq!(whole.token_count(), tokens.len());
    let narrow: Option<Vec<u32>> = tokens.iter().map(|&t| u32::try_from(t).ok()).collect();
    if let Some(narrow) = narrow {
        let mut narrow_chain = contract.chain_with(page_size, request).unwrap();
        narrow.chunks(5).for_each(|piece| assert!(narrow_chain.append(piece).len() <= 5));
        assert_eq!(pages(&whole), pages(&narrow_chain));
    }
    pages(&whole)
}

/// What the engine's own recorder published for a request, and for its removal.
fn check_recorded(version: Version, stored: &Value, removed: &Value) {
    let info = &stored["recorder"];
    let at = format!("SGLang {version}, {}", stored["name"]);
    let string = |name: &str| info[name].as_str().map(str::to_owned);
    let dynamo = info["dynamo_format"] == true;
    let format = if dynamo { EventFormat::Dynamo } else { EventFormat::Default };
    let contract = Contract::new(version, format).unwrap().with_bigrams(info["bigram"] == true);
    let named = string("lora_name").is_some();
    let extra_key = string("extra_key");
    let (extra_key, lora) = match extra_key.as_deref().and_then(|key| key.strip_suffix(LORA_ID)) {
        Some(own) if named => {
            let lora = Lora { id: Some(LORA_ID.to_owned()) };
            (Some(own.to_owned()).filter(|own| !own.is_empty()), Some(lora))
        }
        _ => (extra_key, None),
    };
    let request = Request { cache_salt: string("cache_salt"), extra_key, lora };
    let tokens: Vec<u64> =
        info["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect();
    let pages = all_pages(&contract, &request, info, &tokens);
    let ours: Vec<i64> = pages.iter().map(PageHash::to_i64).collect();
    assert_eq!(published(stored), ours, "{at}");
    assert_eq!(published(removed), ours, "{at}, removal");
}

/// The hashes of a batch's events, as arrays (up to 0.5.19) or maps.
fn published(batch: &Value) -> Vec<i64> {
    let events = batch["decoded"][1].as_array().unwrap();
    let hashes = events.iter().flat_map(|event| {
        let hashes = if event.is_array() { &event[1] } else { &event["block_hashes"] };
        hashes.as_array().unwrap()
    });
    hashes.map(|hash| hash.as_i64().unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
