//! A workload's prompts as keys, made once for all policies, and what an infinite cache would hit.

use std::collections::HashSet;

use kvasir_fleet::pending::{Chain, PromptKeys};
use kvasir_kv_hash::{BlockKey, KeySpace, Scope};

use crate::workload::Workload;

/// A workload ready to be routed.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) block_size: u32,
    pub(crate) space: KeySpace,
    /// For every request the keys of all full blocks of its prompt.
    keys: Keys,
    pub(crate) prompt_tokens: Vec<u64>,
    /// The part of all prompt tokens that one infinite cache would hit, were the requests
    /// answered one after another.
    pub(crate) ideal_hit_rate: f64,
    /// Tokens of the longest prompt and answer together.
    pub(crate) longest: u64,
    /// Of each request, in their order; without any, none has one.
    salts: &'a [String],
}

/// Lists of keys, one after another.
#[derive(Debug, Default)]
struct Keys {
    all: Vec<BlockKey>,
    ends: Vec<usize>,
}

impl Keys {
    fn get(&self, place: usize) -> &[BlockKey] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[start..self.ends[place]]
    }
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(workload: &'a Workload, block_size: usize) -> Self {
        let space = KeySpace::fixed();
        let root = space.root(&Scope { model: "", lora: None, salt: None });
        let quoted: HashSet<usize> = workload
            .requests
            .iter()
            .flat_map(|asked| asked.prompt.iter().filter_map(|segment| segment.answered()))
            .collect();
        let mut keys = Keys::default();
        let mut known: HashSet<BlockKey> = HashSet::new();
        let (mut hit, mut total) = (0_u64, 0_u64);
        let mut prompt_tokens = Vec::with_capacity(workload.requests.len());
        for (place, asked) in workload.requests.iter().enumerate() {
            let mut tokens = asked.tokens();
            let length = tokens.len();
            prompt_tokens.push(length as u64);
            if quoted.contains(&place) {
                // The last token is never computed: nothing follows it.
                let answer = crate::workload::Segment::answer_to(place, asked.output_tokens - 1);
                answer.append(&mut tokens);
            }
            let chain = space.chain(root, &tokens, block_size);
            let usable = length.saturating_sub(1) / block_size;
            let own = chain.get(..length / block_size).unwrap_or_default();
            let held = own.iter().take(usable).take_while(|key| known.contains(*key)).count();
            hit += (held * block_size) as u64;
            total += length as u64;
            keys.all.extend_from_slice(own);
            keys.ends.push(keys.all.len());
            known.extend(&chain);
        }
        Self {
            workload,
            block_size: u32::try_from(block_size).unwrap_or(u32::MAX),
            space,
            keys,
            prompt_tokens,
            ideal_hit_rate: if total == 0 { 0.0 } else { hit as f64 / total as f64 },
            longest: workload.longest(),
            salts: &[],
        }
    }

    /// The same with a cache salt for each request: keys of their own, in engines and gateways.
    pub(crate) fn with_salts(mut self, salts: &'a [String]) -> Self {
        if salts.is_empty() {
            return self;
        }
        self.salts = salts;
        self.keys = Keys::default();
        for (place, asked) in self.workload.requests.iter().enumerate() {
            let scope = Scope { model: "", lora: None, salt: self.salt(place) };
            let root = self.space.root(&scope);
            let chain = self.space.chain(root, &asked.tokens(), self.block_size as usize);
            self.keys.all.extend_from_slice(&chain);
            self.keys.ends.push(self.keys.all.len());
        }
        self
    }

    /// A request's cache salt.
    pub(crate) fn salt(&self, request: usize) -> Option<&str> {
        self.salts.get(request).map(String::as_str)
    }

    /// A request's prompt as engines key it.
    pub(crate) fn keys(&self, request: usize) -> PromptKeys {
        // An engine never hits the last token.
        let tokens = self.prompt_tokens[request].saturating_sub(1);
        let usable = tokens.checked_div(u64::from(self.block_size)).unwrap_or(0) as usize;
        let chain = Chain { keys: self.keys.get(request).to_vec(), usable };
        PromptKeys { block_size: self.block_size, prompts: vec![chain] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Asked, Release, Segment};

    #[test]
    fn an_infinite_cache_hits_whole_blocks_but_never_the_last_token() {
        let asked = |prompt: &[(u64, u32)]| Asked {
            release: Release::At(0.0),
            prompt: prompt.iter().map(|&(id, tokens)| Segment { id, tokens }).collect(),
            output_tokens: 18,
        };
        let quote = Asked {
            release: Release::After { request: 2, pause: 0.0 },
            prompt: vec![
                Segment { id: 3, tokens: 15 },
                Segment::answer_to(2, 18),
                Segment { id: 4, tokens: 7 },
            ],
            output_tokens: 1,
        };
        // 32 tokens; the same again: the second block is left; 15; 40 whose first 32 are there.
        let requests = vec![asked(&[(1, 32)]), asked(&[(1, 32)]), asked(&[(3, 15)]), quote];
        let workload = Workload { name: "t".to_owned(), block_size: 16, requests };
        let prepared = Prepared::new(&workload, 16);
        let usable = |place| prepared.keys(place).prompts[0].usable().len();
        let lengths: Vec<usize> = (0..4).map(usable).collect();
        assert_eq!(lengths, [1, 1, 0, 2]);
        assert_eq!(prepared.prompt_tokens, [32, 32, 15, 40]);
        let expected = (16.0 + 32.0) / 119.0;
        assert!((prepared.ideal_hit_rate - expected).abs() < 1e-9, "{}", prepared.ideal_hit_rate);
    }
}
