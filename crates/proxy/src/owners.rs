//! Which engine keeps which stored response: a conversation that goes on goes there.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use parking_lot::Mutex;

/// How many are remembered at least; at most twice as many.
const REMEMBERED: usize = 32_768;
/// Longest id.
const MAX_ID: usize = 128;
/// The id is the first of an answer; nothing is looked for behind this many bytes.
const LOOKED_AT: usize = 4 << 10;
const KEY: &[u8] = b"\"id\":";

/// Where a response is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The pool's model.
    pub(crate) model: Arc<str>,
    /// The engine's URL.
    pub(crate) url: Arc<str>,
}

/// Owners by the ids of responses. The oldest are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Owners(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<String, Owner>,
    old: HashMap<String, Owner>,
}

impl Owners {
    pub(crate) fn get(&self, id: &str) -> Option<Owner> {
        let known = self.0.lock();
        known.young.get(id).or_else(|| known.old.get(id)).cloned()
    }

    pub(crate) fn put(&self, id: String, owner: Owner) {
        let mut known = self.0.lock();
        if known.young.len() >= REMEMBERED {
            known.old = std::mem::take(&mut known.young);
        }
        known.young.insert(id, owner);
    }
}

/// Finds the id of a response in its answer as it passes.
#[derive(Debug, Default)]
pub(crate) struct IdTap {
    seen: Vec<u8>,
    ended: bool,
}

impl IdTap {
    /// Looks at the next bytes; the id, once, when it has come by.
    pub(crate) fn see(&mut self, data: &Bytes) -> Option<String> {
        if self.ended {
            return None;
        }
        let room = LOOKED_AT.saturating_sub(self.seen.len());
        self.seen.extend_from_slice(data.get(..room.min(data.len()))?);
        let id = first_id(&self.seen);
        if id.is_some() || self.seen.len() >= LOOKED_AT {
            self.ended = true;
            self.seen = Vec::new();
        }
        id
    }
}

/// The value of the first `"id"`, whole.
fn first_id(text: &[u8]) -> Option<String> {
    let at = memmem::find(text, KEY)? + KEY.len();
    let value = text.get(at..)?.trim_ascii_start().strip_prefix(b"\"")?;
    let end = value.iter().take(MAX_ID + 1).position(|b| *b == b'"')?;
    let id = value.get(..end)?;
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:".contains(b);
    if id.is_empty() || !id.iter().all(is_plain) {
        return None;
    }
    std::str::from_utf8(id).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(pieces: &[&[u8]]) -> Option<String> {
        let mut tap = IdTap::default();
        pieces.iter().find_map(|piece| tap.see(&Bytes::copy_from_slice(piece)))
    }

    #[test]
    fn the_first_id_is_found_wherever_the_answer_is_cut() {
        let event = b"event: response.created\ndata: {\"response\":{\"id\": \"resp_1\",\"output\":[{\"id\":\"x\"}]}}";
        for cut in 0..event.len() {
            assert_eq!(id(&[&event[..cut], &event[cut..]]).as_deref(), Some("resp_1"), "{cut}");
        }
        assert_eq!(
            id(&[b"{\"id\":\"resp_", b"2\",\"object\":\"response\"}"]).as_deref(),
            Some("resp_2")
        );
        for none in [&b"{\"id\":5}"[..], b"{\"id\":\"a b\"}", b"{\"id\":\"\"}", b"{\"error\":{}}"] {
            assert_eq!(id(&[none]), None);
        }
        let far = [b" ".repeat(LOOKED_AT), b"\"id\":\"resp_3\"".to_vec()].concat();
        assert_eq!(id(&[&far[..], &far[..]]), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let owners = Owners::default();
        let owner = |n: usize| Owner { model: "m".into(), url: n.to_string().into() };
        for n in 0..3 * REMEMBERED {
            owners.put(n.to_string(), owner(n));
        }
        assert_eq!(owners.get("0"), None);
        let last = 3 * REMEMBERED - 1;
        assert_eq!(owners.get(&last.to_string()), Some(owner(last)));
        let known = owners.0.lock();
        assert!(known.young.len() + known.old.len() <= 2 * REMEMBERED);
    }
}
