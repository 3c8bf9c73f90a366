//! A plain reading of events: whole token prefixes in a set, no hashing, no sharing.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// A prefix of some prompt, and what separates it from the same tokens elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Chain {
    pub(crate) lora: Option<String>,
    pub(crate) salt: Option<String>,
    pub(crate) tokens: Vec<u32>,
}

/// One endpoint's cache as its events tell it.
#[derive(Debug, Default)]
pub(crate) struct Naive {
    /// Which prefix a handle stands for. Knowledge, not residency: it outlives removals.
    named: HashMap<String, Chain>,
    resident: HashSet<Chain>,
}

impl Naive {
    pub(crate) fn apply(&mut self, events: &[Value]) {
        for event in events {
            match field(event, 0, "type").as_str().unwrap() {
                "BlockStored" => self.store(event),
                "BlockRemoved" => {
                    for hash in field(event, 1, "block_hashes").as_array().unwrap() {
                        self.resident.remove(&self.named[&hash.to_string()]);
                    }
                }
                "AllBlocksCleared" => self.resident.clear(),
                other => panic!("unexpected event {other}"),
            }
        }
    }

    /// Every prefix ever named.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &Chain> {
        self.named.values()
    }

    /// Resident tokens of a prompt, from its beginning to the first hole.
    pub(crate) fn resident(&self, chain: &Chain, block_size: usize) -> usize {
        let blocks = chain.tokens.len() / block_size;
        let held = (1..=blocks).take_while(|count| {
            let tokens = chain.tokens[..count * block_size].to_vec();
            self.resident.contains(&Chain { tokens, ..chain.clone() })
        });
        held.count() * block_size
    }

    fn store(&mut self, event: &Value) {
        let hashes = field(event, 1, "block_hashes").as_array().unwrap();
        let tokens: Vec<u32> = field(event, 3, "token_ids")
            .as_array()
            .unwrap()
            .iter()
            .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
            .collect();
        let size = usize::try_from(field(event, 4, "block_size").as_u64().unwrap()).unwrap();
        let parent = field(event, 2, "parent_block_hash");
        let mut chain = if parent.is_null() {
            let lora = field(event, 7, "lora_name").as_str().map(str::to_owned);
            let first = field(event, 8, "extra_keys")[0].as_array().cloned().unwrap_or_default();
            let mut keys = first.iter().filter_map(Value::as_str).map(str::to_owned);
            let salt = keys.rfind(|key| Some(key) != lora.as_ref());
            Chain { lora, salt, tokens: Vec::new() }
        } else {
            self.named[&parent.to_string()].clone()
        };
        for (hash, block) in hashes.iter().zip(tokens.chunks_exact(size)) {
            chain.tokens.extend_from_slice(block);
            self.named.insert(hash.to_string(), chain.clone());
            self.resident.insert(chain.clone());
        }
    }
}

/// A field by its place in the array form, or its name in the map form.
fn field<'a>(event: &'a Value, place: usize, name: &str) -> &'a Value {
    if event.is_array() { &event[place] } else { &event[name] }
}
