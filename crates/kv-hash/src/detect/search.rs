//! The search for a contract, and the comparison with an expectation.

use std::collections::BTreeSet;

use super::event::{EventBlock, Form, StoredEvent};
use super::others;
use super::report::{Found, Leg, Match, Report};
use super::seeds::{Seed, Seeds};
use super::vllm_search;
use crate::vllm;

/// The most blocks that are looked at.
const MAX_BLOCKS: usize = 256;

/// What an operator believes of an engine. Fields that are `None` are not compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected<'a> {
    /// `vllm`, `sglang` or `trtllm`.
    pub engine: Option<&'a str>,
    /// The engine's version, where it is vLLM.
    pub version: Option<vllm::Version>,
    /// The algorithm, as the engine spells it.
    pub algorithm: Option<&'a str>,
    /// The engine's `PYTHONHASHSEED`: `Some(None)` if it should not be set.
    pub seed: Option<Option<&'a str>>,
    /// The block size.
    pub block_size: Option<usize>,
    /// Integers or bytes.
    pub form: Option<Form>,
}

/// Finds the contract behind stored events.
#[derive(Clone, Debug, Default)]
pub struct Detector<'a> {
    seeds: Seeds,
    lora_paths: Vec<String>,
    expected: Expected<'a>,
    only_whole_blocks: bool,
}

impl<'a> Detector<'a> {
    /// A detector that tries the default [`Seeds`] and expects nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same detector with other seeds to try.
    #[must_use]
    pub fn seeds(self, seeds: Seeds) -> Self {
        Self { seeds, ..self }
    }

    /// The same detector with paths that adapters may have been loaded from: `root` of their
    /// entries in `GET /v1/models`. vLLM hashes them from 0.31. At most 64 are tried.
    #[must_use]
    pub fn lora_paths(self, paths: impl IntoIterator<Item = String>) -> Self {
        Self { lora_paths: paths.into_iter().take(64).collect(), ..self }
    }

    /// The same detector for events whose blocks are those that are hashed. Without it, where
    /// nothing fits, published blocks are tried as several hashed ones too (groups of hybrid
    /// models), which takes many times as long.
    #[must_use]
    pub fn only_whole_blocks(self) -> Self {
        Self { only_whole_blocks: true, ..self }
    }

    /// The same detector with an expectation to compare with. Its seed is tried first.
    #[must_use]
    pub fn expect(self, expected: Expected<'a>) -> Self {
        let mut seeds = self.seeds;
        if let Some(seed) = expected.seed {
            seeds.put_first(seed.into());
        }
        Self { seeds, expected, ..self }
    }

    /// Looks for the contract that computes most of these events' hashes.
    ///
    /// Looks at 256 blocks at most. Blocks that a contract cannot be checked on (without tokens,
    /// or after a parent that is known as an integer only) are left out.
    #[must_use]
    pub fn run(&self, events: &[StoredEvent<'_>]) -> Report {
        let blocks: Vec<EventBlock<'_>> =
            events.iter().flat_map(StoredEvent::blocks).take(MAX_BLOCKS).collect();
        let Some(first) = blocks.first() else {
            return Report { found: None, legs: vec![Leg::NoTokens] };
        };
        let candidates = vllm_search::candidates(
            &blocks,
            &self.seeds,
            &self.lora_paths,
            !self.only_whole_blocks,
        )
        .into_iter()
        .chain(others::candidates(&blocks));
        let best = candidates.filter(|found| found.verified > 0).max_by_key(|found| {
            // Of two that fit alike, the one with a known seed.
            let seeded = matches!(found.found, Found::Vllm { seed: Some(_), .. });
            (found.verified, seeded)
        });
        let mut legs = Vec::new();
        match &best {
            Some(best) => self.compare(best, &blocks, &mut legs),
            None if blocks.iter().all(|block| block.parent.is_some()) => legs.push(Leg::NoRoot),
            None => legs.push(Leg::NothingFits { tried: self.seeds.len() }),
        }
        self.compare_events(first, &mut legs);
        let kinds: BTreeSet<&str> = blocks.iter().flat_map(EventBlock::key_kinds).collect();
        if !kinds.is_empty() {
            legs.push(Leg::ExtraKeys { kinds: kinds.into_iter().collect() });
        }
        Report { found: best, legs }
    }

    /// What differs between the contract found and the expectation.
    fn compare(&self, best: &Match, blocks: &[EventBlock<'_>], legs: &mut Vec<Leg>) {
        let expected = &self.expected;
        let (engine, algorithm) = match &best.found {
            Found::Vllm { algorithm, .. } => ("vllm", Some(algorithm.to_string())),
            Found::Sglang { .. } => ("sglang", None),
            Found::TrtLlm { algorithm } => ("trtllm", Some(algorithm.to_string())),
        };
        if let Some(configured) = expected.engine.filter(|configured| *configured != engine) {
            legs.push(Leg::Engine { found: engine, configured: configured.to_owned() });
        }
        if let (Some(found), Some(configured)) = (algorithm, expected.algorithm)
            && found != configured
            && !(configured == "auto" && found == "v1_block_key")
        {
            legs.push(Leg::Algorithm { found, configured: configured.to_owned() });
        }
        if let Found::Vllm { seed, generations, .. } = &best.found {
            self.compare_vllm(seed.as_ref(), *generations, blocks, legs);
        }
        if best.verified < best.checked {
            legs.push(Leg::Unexplained { blocks: best.checked - best.verified });
        }
    }

    fn compare_vllm(
        &self,
        seed: Option<&Seed>,
        generations: (vllm::Generation, vllm::Generation),
        blocks: &[EventBlock<'_>],
        legs: &mut Vec<Leg>,
    ) {
        match (seed, self.expected.seed.map(Seed::from)) {
            (None, _) if blocks.iter().any(|block| block.parent.is_none()) => {
                legs.push(Leg::SeedUnknown { tried: self.seeds.len() });
            }
            (None, _) => legs.push(Leg::NoRoot),
            (Some(found), Some(configured)) if *found != configured => {
                legs.push(Leg::Seed { found: found.clone(), configured });
            }
            (Some(_), _) => {}
        }
        let (first, last) = generations;
        if let Some(configured) = self.expected.version
            && let Ok(generation) = vllm::Generation::of(configured)
            && !(first..=last).contains(&generation)
        {
            legs.push(Leg::Generation { configured, found: generations });
        }
    }

    /// What differs on the face of the events.
    fn compare_events(&self, first: &EventBlock<'_>, legs: &mut Vec<Leg>) {
        let (found, form) = (first.event.block_size, first.hash.form());
        if let Some(configured) = self.expected.block_size.filter(|size| *size != found) {
            legs.push(Leg::BlockSize { found, configured });
        }
        if let Some(configured) = self.expected.form.filter(|expected| *expected != form) {
            legs.push(Leg::Form { found: form, configured });
        }
    }
}
