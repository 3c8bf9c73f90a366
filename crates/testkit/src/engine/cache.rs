//! A naive prefix cache over token ids: it never evicts, so what it reports as
//! cached is easy to compute by hand.

use std::collections::HashMap;

/// Blocks that a request added to the cache, in the order of the prompt. Hashes are
/// opaque, as an engine's are; equal prefixes under one root give equal hashes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored {
    /// One hash per block.
    pub hashes: Vec<u64>,
    /// The block before the first one; `None` at the start of a prompt.
    pub parent: Option<u64>,
    /// The token ids of all blocks, `hashes.len() * block_size` of them.
    pub tokens: Vec<u32>,
    /// Tokens per block.
    pub block_size: usize,
    /// The adapter, when the request's model is one.
    pub lora_name: Option<String>,
    /// The request's `cache_salt`.
    pub cache_salt: Option<String>,
}

/// What separates two caches of equal tokens.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Root {
    pub(super) lora_name: Option<String>,
    pub(super) cache_salt: Option<String>,
}

/// The outcome for one prompt.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Lookup {
    /// Prompt tokens that were not computed again.
    pub(super) cached_tokens: usize,
    /// What was stored because of it.
    pub(super) stored: Option<Stored>,
}

#[derive(Debug)]
pub(super) struct PrefixCache {
    block_size: usize,
    /// Blocks at most; what does not fit is not cached.
    capacity: usize,
    /// Hash of each known prefix.
    prefixes: HashMap<(Root, Vec<u32>), u64>,
}

impl PrefixCache {
    pub(super) fn new(block_size: usize, capacity: usize) -> Self {
        Self { block_size: block_size.max(1), capacity, prefixes: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.prefixes.len()
    }

    pub(super) fn clear(&mut self) {
        self.prefixes.clear();
    }

    /// Looks a prompt up and stores its missing full blocks. As in vLLM, the last
    /// token is always computed, so a prompt that ends at a block's edge hits one
    /// block less than is stored.
    pub(super) fn admit(&mut self, root: &Root, prompt: &[u32]) -> Lookup {
        let size = self.block_size;
        let mut resident = 0;
        let mut parent = None;
        for end in (size..=prompt.len()).step_by(size) {
            let Some(hash) = self.prefixes.get(&(root.clone(), prompt[..end].to_vec())) else {
                break;
            };
            (resident, parent) = (end, Some(*hash));
        }
        let usable = prompt.len().saturating_sub(1) / size * size;
        Lookup {
            cached_tokens: resident.min(usable),
            stored: self.store(root, prompt, resident, parent),
        }
    }

    fn store(
        &mut self,
        root: &Root,
        prompt: &[u32],
        from: usize,
        parent: Option<u64>,
    ) -> Option<Stored> {
        let size = self.block_size;
        let mut hashes = Vec::new();
        let mut end = from;
        while end + size <= prompt.len() && self.prefixes.len() < self.capacity {
            end += size;
            let hash = hash_prefix(root, &prompt[..end]);
            self.prefixes.insert((root.clone(), prompt[..end].to_vec()), hash);
            hashes.push(hash);
        }
        (!hashes.is_empty()).then(|| Stored {
            hashes,
            parent,
            tokens: prompt[from..end].to_vec(),
            block_size: size,
            lora_name: root.lora_name.clone(),
            cache_salt: root.cache_salt.clone(),
        })
    }
}

/// FNV-1a over the root and the whole prefix: stable from run to run.
fn hash_prefix(root: &Root, prefix: &[u32]) -> u64 {
    let lora = root.lora_name.as_deref().unwrap_or_default().bytes();
    let salt = root.cache_salt.as_deref().unwrap_or_default().bytes();
    let ids = prefix.iter().flat_map(|id| id.to_le_bytes());
    lora.chain([0]).chain(salt).chain([0]).chain(ids).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> PrefixCache {
        PrefixCache::new(4, 100)
    }

    fn ids(n: u32) -> Vec<u32> {
        (1..=n).collect()
    }

    #[test]
    fn second_prompt_hits_full_blocks_only() {
        let mut cache = cache();
        let first = cache.admit(&Root::default(), &ids(10));
        assert_eq!(first.cached_tokens, 0);
        let stored = first.stored.unwrap();
        assert_eq!((stored.hashes.len(), stored.parent), (2, None));
        assert_eq!(stored.tokens, ids(8));

        let second = cache.admit(&Root::default(), &ids(13));
        assert_eq!(second.cached_tokens, 8);
        let more = second.stored.unwrap();
        assert_eq!((more.hashes.len(), more.parent), (1, Some(stored.hashes[1])));
        assert_eq!(more.tokens, vec![9, 10, 11, 12]);
    }

    #[test]
    fn the_last_token_is_always_computed() {
        let mut cache = cache();
        cache.admit(&Root::default(), &ids(8));
        let again = cache.admit(&Root::default(), &ids(8));
        assert_eq!(again, Lookup { cached_tokens: 4, stored: None });
        assert_eq!(cache.admit(&Root::default(), &ids(9)).cached_tokens, 8);
    }

    #[test]
    fn a_different_middle_breaks_the_prefix() {
        let mut cache = cache();
        cache.admit(&Root::default(), &ids(12));
        let mut other = ids(12);
        other[5] = 99;
        assert_eq!(cache.admit(&Root::default(), &other).cached_tokens, 4);
    }

    #[test]
    fn roots_do_not_share() {
        let mut cache = cache();
        let salted = Root { cache_salt: Some("s".into()), lora_name: None };
        let adapter = Root { lora_name: Some("s".into()), cache_salt: None };
        let plain = cache.admit(&Root::default(), &ids(9)).stored.unwrap();
        for root in [&salted, &adapter] {
            let other = cache.admit(root, &ids(9));
            assert_eq!(other.cached_tokens, 0);
            assert_ne!(other.stored.unwrap().hashes, plain.hashes);
        }
    }

    #[test]
    fn a_full_cache_stores_no_more_and_clear_empties_it() {
        let mut cache = PrefixCache::new(4, 2);
        assert_eq!(cache.admit(&Root::default(), &ids(20)).stored.unwrap().hashes.len(), 2);
        assert_eq!(cache.admit(&Root::default(), &ids(20)).cached_tokens, 8);
        assert_eq!(cache.len(), 2);
        cache.clear();
        assert_eq!(cache.admit(&Root::default(), &ids(20)).cached_tokens, 0);
    }

    #[test]
    fn short_and_empty_prompts_store_nothing() {
        for n in [0, 1, 3] {
            let lookup = cache().admit(&Root::default(), &ids(n));
            assert_eq!(lookup, Lookup { cached_tokens: 0, stored: None });
        }
    }
}
