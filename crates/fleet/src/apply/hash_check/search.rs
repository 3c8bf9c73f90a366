//! Plain events as detection takes them, and what it says of them in words.

use kvasir_inventory::{EngineHash, Tier};
use kvasir_kv_events::{BlockStored, Event};
use kvasir_kv_hash::detect::{
    Detector, EventHash, Expected, Found, Leg, Report, Seeds, StoredEvent,
};
use kvasir_kv_hash::verify::PublishedBlock;

use crate::identity::{EngineHashing, HashAlgorithm};

/// Seeds that are tried: the usual ones, so that a search takes a few milliseconds.
const SEEDS: &str = "unset,0..127,1234,1337,12345,2023..2027,random,";
/// Blocks that a search looks at.
const SEARCHED_BLOCKS: usize = 64;

/// The plain events of a batch from the first beginning of a prompt on, a bounded number.
pub(super) fn plain_events(events: &[Event]) -> Vec<&BlockStored> {
    let mut room = SEARCHED_BLOCKS;
    events
        .iter()
        .filter_map(|event| match event {
            Event::Stored(stored) if is_plain(stored) => Some(stored),
            _ => None,
        })
        .skip_while(|stored| stored.parent.is_some())
        .take_while(|stored| {
            let fits = room > 0;
            room = room.saturating_sub(stored.block_hashes.len());
            fits
        })
        .collect()
}

/// The contract behind these events, of which none is promised.
pub(super) fn search(events: &[&BlockStored]) -> Report {
    run(&Detector::new().seeds(seeds()).only_whole_blocks(), events)
}

/// Whether an event's tokens are those of its blocks: such blocks are known by their tokens.
pub(super) fn is_cut(stored: &BlockStored) -> bool {
    let blocks = stored.block_hashes.len();
    let whole = blocks.checked_mul(stored.block_size as usize) == Some(stored.token_ids.len());
    whole && !stored.token_ids.is_empty()
}

/// Whether an event's blocks look like those of a plain request, wherever they are.
pub(super) fn looks_plain(stored: &BlockStored) -> bool {
    let blocks = stored.block_hashes.len();
    let lists = stored.lookahead_token_ids.as_ref().map_or(blocks, Vec::len);
    let named = stored.lora_id.is_some() || stored.lora_name.is_some();
    let salted = stored.cache_salt.as_deref().is_some_and(|salt| !salt.is_empty());
    let keyed = stored.extra_keys.iter().flatten().any(|keys| !keys.is_empty());
    is_cut(stored) && lists == blocks && !named && !salted && !keyed
}

/// Whether a contract can be learned from an event: its blocks look plain and are what the engine
/// computes with, not copies or those of further groups.
pub(super) fn is_plain(stored: &BlockStored) -> bool {
    let here = stored.medium.tier() == Some(Tier::Device) && stored.group.unwrap_or(0) == 0;
    here && looks_plain(stored)
}

/// The blocks of a plain event.
pub(super) fn blocks(stored: &BlockStored) -> impl Iterator<Item = PublishedBlock<'_>> {
    let parents =
        std::iter::once(stored.parent).chain(stored.block_hashes.iter().copied().map(Some));
    let tokens = stored.token_ids.chunks_exact((stored.block_size as usize).max(1));
    let ahead = |at: usize| Some(stored.lookahead_token_ids.as_ref()?.get(at)?.as_slice());
    stored.block_hashes.iter().zip(parents).zip(tokens).enumerate().map(
        move |(at, ((hash, parent), tokens))| PublishedBlock {
            hash: hash.0,
            parent: parent.map(|parent| parent.0),
            tokens,
            ahead: ahead(at).unwrap_or_default(),
        },
    )
}

/// In what an engine differs from what is configured.
pub(super) fn explain(hashing: &EngineHashing, stored: &BlockStored) -> Report {
    let algorithm = match hashing.algorithm {
        HashAlgorithm::Vllm(algorithm) => Some(algorithm.as_str()),
        HashAlgorithm::Sglang => None,
    };
    let expected = Expected {
        engine: Some(if algorithm.is_some() { "vllm" } else { "sglang" }),
        version: hashing.version,
        algorithm,
        seed: algorithm.map(|_| hashing.seed.as_deref()),
        ..Expected::default()
    };
    run(&Detector::new().seeds(seeds()).expect(expected), &[stored])
}

fn seeds() -> Seeds {
    SEEDS.parse().unwrap_or_default()
}

/// Parts of an event in detection's form.
struct Lists<'a> {
    hashes: Vec<EventHash>,
    parent: Option<EventHash>,
    ahead: Vec<&'a [u32]>,
}

impl<'a> Lists<'a> {
    fn of(stored: &'a BlockStored) -> Self {
        let int = |hash: &EngineHash| EventHash::Int(hash.0);
        Self {
            hashes: stored.block_hashes.iter().map(int).collect(),
            parent: stored.parent.as_ref().map(int),
            ahead: stored.lookahead_token_ids.iter().flatten().map(Vec::as_slice).collect(),
        }
    }
}

fn run(detector: &Detector<'_>, events: &[&BlockStored]) -> Report {
    let lists: Vec<Lists<'_>> = events.iter().map(|event| Lists::of(event)).collect();
    let stored = events.iter().zip(&lists).map(|(event, lists)| StoredEvent {
        hashes: &lists.hashes,
        parent: lists.parent.as_ref(),
        tokens: &event.token_ids,
        block_size: event.block_size as usize,
        lookahead: &lists.ahead,
        ..StoredEvent::default()
    });
    detector.run(&stored.collect::<Vec<_>>())
}

/// A word for each difference.
pub(super) fn causes(report: &Report) -> String {
    let mut words: Vec<&str> = report
        .legs
        .iter()
        .filter_map(|leg| match leg {
            Leg::Engine { .. } => Some("engine"),
            Leg::Algorithm { .. } => Some("algorithm"),
            Leg::Seed { .. } => Some("seed"),
            Leg::SeedUnknown { .. } => Some("seed_not_found"),
            Leg::Generation { .. } => Some("generation"),
            Leg::NothingFits { .. } => Some("nothing_fits"),
            _ => None,
        })
        .collect();
    if let Some(Found::Vllm { hash_block_size: Some(_), .. }) =
        report.found.as_ref().map(|found| &found.found)
    {
        words.push("hash_block_size");
    }
    if words.is_empty() {
        words.push("unexplained");
    }
    words.join(",")
}

pub(super) fn text(report: &Report) -> String {
    let found = report.found.as_ref().map(|found| found.found.to_string());
    let legs = report.legs.iter().map(ToString::to_string);
    found.into_iter().chain(legs).collect::<Vec<_>>().join("; ")
}
