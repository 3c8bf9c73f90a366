//! Batches as a given release publishes them, byte for byte.
//!
//! A batch is an array of time stamp, events and data-parallel rank. Events are arrays up to
//! 0.23 and maps from 0.24 on, in which a field that has a default is left out when it is unset.
//! An event type of more than 15 keys (`BlockStored` of 0.33) gets a wide map header however many
//! of them it writes.

use kvasir_kv_hash::vllm::Version;

use super::msgpack::Writer;
use super::{BlockRemoved, BlockStored, Event, ExtraKey};
use crate::block_hash::BlockHash;

/// How a release shows block hashes (`VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashForm {
    /// The last 8 bytes as an integer; the default.
    Int,
    /// The last so many bytes, 32 at most: 32 for the SHA-256 algorithms, 16 for xxhash.
    Bytes(usize),
}

/// How one engine encodes its event batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFormat {
    version: Version,
    hashes: HashForm,
    tokens: bool,
}

/// A field of an event: its name, the first release that has it, and whether it has a default.
struct Field<E> {
    name: &'static str,
    since: (u16, u16, u16),
    optional: bool,
    is_set: fn(&E) -> bool,
    write: fn(&mut Writer, &E, &EventFormat),
}

impl EventFormat {
    /// The format of a release.
    #[must_use]
    pub fn new(version: Version, hashes: HashForm) -> Self {
        Self { version, hashes, tokens: true }
    }

    /// The same without tokens: stored blocks are told by their hashes alone.
    #[must_use]
    pub(crate) fn without_tokens(self) -> Self {
        Self { tokens: false, ..self }
    }

    /// The payload of one batch.
    ///
    /// `ts` is the engine's time in seconds since the epoch. The engine's publisher fills in its
    /// rank, 0 if there is only one.
    #[must_use]
    pub fn encode(&self, ts: f64, events: &[Event], rank: Option<u32>) -> Vec<u8> {
        let mut out = Writer::default();
        out.array(3);
        out.float(ts);
        out.array(events.len());
        for event in events {
            match event {
                Event::Stored(stored) => self.event(&mut out, "BlockStored", STORED, stored),
                Event::Removed(removed) => self.event(&mut out, "BlockRemoved", REMOVED, removed),
                Event::Cleared => self.event(&mut out, "AllBlocksCleared", &[], &()),
            }
        }
        optional(&mut out, rank, |out, rank| out.uint(rank.into()));
        out.into_bytes()
    }

    fn event<E>(&self, out: &mut Writer, tag: &str, fields: &[Field<E>], event: &E) {
        let known = |field: &&Field<E>| {
            let (major, minor, patch) = field.since;
            self.version >= Version::release(major, minor, patch)
        };
        let count = fields.iter().filter(known).count();
        if self.version < Version::release(0, 24, 0) {
            out.array(1 + count);
            out.text(tag);
            fields.iter().filter(known).for_each(|field| (field.write)(out, event, self));
            return;
        }
        let shown = |field: &&Field<E>| known(field) && (!field.optional || (field.is_set)(event));
        out.map(1 + fields.iter().filter(shown).count(), 1 + count > 15);
        out.text("type");
        out.text(tag);
        for field in fields.iter().filter(shown) {
            out.text(field.name);
            (field.write)(out, event, self);
        }
    }

    fn hash(&self, out: &mut Writer, hash: &BlockHash) {
        match self.hashes {
            HashForm::Int => out.uint(hash.to_u64()),
            HashForm::Bytes(length) => {
                out.bytes(&hash.as_bytes()[BlockHash::LEN.saturating_sub(length)..]);
            }
        }
    }

    fn hash_list(&self, out: &mut Writer, hashes: &[BlockHash]) {
        out.array(hashes.len());
        hashes.iter().for_each(|hash| self.hash(out, hash));
    }
}

fn extra_key(out: &mut Writer, key: &ExtraKey) {
    match key {
        ExtraKey::Text(text) => out.text(text),
        ExtraKey::Bytes(bytes) => out.bytes(bytes),
        ExtraKey::Item { identifier, offset } => {
            out.array(2);
            out.text(identifier);
            out.int(*offset);
        }
    }
}

fn optional<T>(out: &mut Writer, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
    match value {
        Some(value) => write(out, value),
        None => out.nil(),
    }
}

fn text(out: &mut Writer, value: Option<&str>) {
    optional(out, value, Writer::text);
}

fn tokens(out: &mut Writer, tokens: &[u32]) {
    out.array(tokens.len());
    tokens.iter().for_each(|&token| out.uint(token.into()));
}

/// A field that is always written.
macro_rules! required {
    ($name:literal, $since:expr, $write:expr) => {
        Field { name: $name, since: $since, optional: false, is_set: |_| true, write: $write }
    };
}

/// A field that has a default.
macro_rules! defaulted {
    ($name:ident, $since:expr, $write:expr) => {
        Field {
            name: stringify!($name),
            since: $since,
            optional: true,
            is_set: |event| event.$name.is_some(),
            write: $write,
        }
    };
}

const STORED: &[Field<Box<BlockStored>>] = &[
    required!("block_hashes", (0, 9, 0), |out, e, format| format.hash_list(out, &e.block_hashes)),
    required!("parent_block_hash", (0, 9, 0), |out, e, format| {
        optional(out, e.parent_block_hash.as_ref(), |out, hash| format.hash(out, hash));
    }),
    required!("token_ids", (0, 9, 0), |out, e, format| {
        tokens(out, if format.tokens { &e.token_ids } else { &[] });
    }),
    required!("block_size", (0, 9, 0), |out, e, _| out.uint(e.block_size.into())),
    required!("lora_id", (0, 9, 0), |out, e, _| optional(out, e.lora_id, Writer::uint)),
    required!("medium", (0, 10, 2), |out, e, _| text(out, e.medium)),
    required!("lora_name", (0, 14, 0), |out, e, _| text(out, e.lora_name.as_deref())),
    defaulted!(extra_keys, (0, 17, 0), |out, e, _| {
        optional(out, e.extra_keys.as_ref(), |out, blocks| {
            out.array(blocks.len());
            for keys in blocks {
                optional(out, Some(keys).filter(|keys| !keys.is_empty()), |out, keys| {
                    out.array(keys.len());
                    keys.iter().for_each(|key| extra_key(out, key));
                });
            }
        });
    }),
    defaulted!(group_idx, (0, 20, 0), |out, e, _| {
        optional(out, e.group_idx, |out, group| out.uint(group.into()));
    }),
    defaulted!(kv_cache_spec_kind, (0, 22, 0), |out, e, _| text(out, e.kv_cache_spec_kind)),
    defaulted!(kv_cache_spec_sliding_window, (0, 22, 0), |out, e, _| {
        optional(out, e.kv_cache_spec_sliding_window, Writer::uint);
    }),
    defaulted!(locality, (0, 26, 0), |out, e, _| text(out, e.locality)),
    defaulted!(ownership, (0, 29, 0), |out, e, _| text(out, e.ownership.as_deref())),
    defaulted!(session_id, (0, 30, 0), |out, e, _| text(out, e.session_id.as_deref())),
    defaulted!(lookahead_token_ids, (0, 33, 0), |out, e, _| {
        optional(out, e.lookahead_token_ids.as_ref(), |out, blocks| {
            out.array(blocks.len());
            blocks.iter().for_each(|ahead| tokens(out, ahead));
        });
    }),
];

const REMOVED: &[Field<BlockRemoved>] = &[
    required!("block_hashes", (0, 9, 0), |out, e, format| format.hash_list(out, &e.block_hashes)),
    required!("medium", (0, 10, 2), |out, e, _| text(out, e.medium)),
    defaulted!(group_idx, (0, 20, 0), |out, e, _| {
        optional(out, e.group_idx, |out, group| out.uint(group.into()));
    }),
    defaulted!(locality, (0, 26, 0), |out, e, _| text(out, e.locality)),
    defaulted!(ownership, (0, 29, 0), |out, e, _| text(out, e.ownership.as_deref())),
];
