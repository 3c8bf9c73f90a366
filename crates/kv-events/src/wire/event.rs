//! Events by position (arrays) and by name (maps).

use super::fields::{self, Tokens};
use super::reader::{Reader, Token};
use super::{Fault, Problem};
use crate::event::{BlockRemoved, BlockStored, Event, ExtraKey, Handle, Medium, Schema, SpecKind};

const STORED: &str = "BlockStored";
const REMOVED: &str = "BlockRemoved";
const CLEARED: &str = "AllBlocksCleared";

/// Fields of `BlockStored` after the tag, in the order of the array form. SGLang's arrays have
/// the same first six; what follows there is told apart by its type.
const STORED_FIELDS: [&str; 15] = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
    "ownership",
    "session_id",
    "lookahead_token_ids",
];

/// Fields of `BlockRemoved` after the tag, in the order of the array form.
const REMOVED_FIELDS: [&str; 5] = ["block_hashes", "medium", "group_idx", "locality", "ownership"];

/// Elements of the longest array whose `extra_keys` may hold bare identifiers.
const EARLY_WIDTH: usize = 9;

/// How the fields of an event are laid out, and how many follow.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// By position, after the tag.
    Array(usize),
    /// By name.
    Map(usize),
}

/// Reads one event; `None` is one of an unknown kind.
pub(super) fn read<H: Handle>(reader: &mut Reader<'_>) -> Result<Option<Event<H>>, Fault> {
    let fault = |problem| Fault { kind: "event", field: "type", problem };
    let (tag, layout) = match reader.next().map_err(fault)? {
        Token::Array(width) => {
            let tag = if width == 0 { Token::Nil } else { reader.next().map_err(fault)? };
            (tag, Layout::Array(width.saturating_sub(1)))
        }
        Token::Map(pairs) => {
            (find_type(&mut reader.clone(), pairs).map_err(fault)?, Layout::Map(pairs))
        }
        _ => return Err(fault(Problem::Type)),
    };
    // An event that does not say what it is may be anything, a removal too.
    let Token::Str(tag) = tag else { return Err(fault(Problem::Missing)) };
    match fields::text(tag).map_err(fault)? {
        STORED => Stored::read(reader, layout).map(|e| Some(Event::Stored(e))),
        REMOVED => Removed::read(reader, layout).map(|e| Some(Event::Removed(e))),
        CLEARED => skip(reader, layout).map_err(fault).map(|()| Some(Event::Cleared)),
        _ => skip(reader, layout).map_err(fault).map(|()| None),
    }
}

/// The value of the key `type`: the first one in what engines write, wherever it stands.
fn find_type<'a>(reader: &mut Reader<'a>, pairs: usize) -> Result<Token<'a>, Problem> {
    for _ in 0..pairs {
        if reader.clone().next()? == Token::Str(b"type") {
            reader.skip()?;
            return reader.next();
        }
        reader.skip_many(2)?;
    }
    Ok(Token::Nil)
}

fn skip(reader: &mut Reader<'_>, layout: Layout) -> Result<(), Problem> {
    match layout {
        Layout::Array(count) => reader.skip_many(count),
        Layout::Map(pairs) => reader.skip_many(pairs * 2),
    }
}

/// Calls `set` for each field the event has and the contract knows; skips the others.
fn each_field<'a>(
    reader: &mut Reader<'a>,
    layout: Layout,
    (kind, names): (&'static str, &[&'static str]),
    mut set: impl FnMut(&'static str, &mut Reader<'a>) -> Result<(), Problem>,
) -> Result<(), Fault> {
    let at = |field| move |problem| Fault { kind, field, problem };
    match layout {
        Layout::Array(count) => {
            for name in names.iter().take(count).copied() {
                set(name, reader).map_err(at(name))?;
            }
            let extra = count.saturating_sub(names.len());
            reader.skip_many(extra).map_err(at("unknown"))
        }
        Layout::Map(pairs) => {
            for _ in 0..pairs {
                let mut key = reader.clone();
                reader.skip().map_err(at("key"))?;
                let known = match key.next().map_err(at("key"))? {
                    Token::Str(b"cache_salt") if kind == STORED => Some("cache_salt"),
                    Token::Str(key) => names.iter().copied().find(|n| n.as_bytes() == key),
                    _ => None,
                };
                match known {
                    Some(name) => set(name, reader).map_err(at(name))?,
                    None => reader.skip().map_err(at("unknown"))?,
                }
            }
            Ok(())
        }
    }
}

/// A `BlockStored` being read.
#[derive(Debug)]
struct Stored<'a, H> {
    hashes: Option<Vec<H>>,
    /// Nil is a value here; absence is not.
    parent: Option<Option<H>>,
    tokens: Option<Tokens>,
    block_size: Option<u32>,
    lora_id: Option<i64>,
    lora_name: Option<&'a str>,
    medium: Option<&'a str>,
    locality: Option<&'a str>,
    extra_keys: Option<Vec<Vec<ExtraKey>>>,
    cache_salt: Option<&'a str>,
    group: Option<u32>,
    spec_kind: Option<&'a str>,
    sliding_window: Option<u64>,
    lookahead: Option<Vec<Vec<u32>>>,
}

impl<'a, H: Handle> Stored<'a, H> {
    fn read(reader: &mut Reader<'a>, layout: Layout) -> Result<BlockStored<H>, Fault> {
        let schema = match layout {
            Layout::Array(count) if count < EARLY_WIDTH => Schema::Early,
            _ => Schema::Paired,
        };
        let mut stored = Self::new();
        each_field(reader, layout, (STORED, &STORED_FIELDS), |name, value| {
            stored.set(name, value)
        })?;
        stored.finish(schema).map_err(|(field, problem)| Fault { kind: STORED, field, problem })
    }

    fn new() -> Self {
        Self {
            hashes: None,
            parent: None,
            tokens: None,
            block_size: None,
            lora_id: None,
            lora_name: None,
            medium: None,
            locality: None,
            extra_keys: None,
            cache_salt: None,
            group: None,
            spec_kind: None,
            sliding_window: None,
            lookahead: None,
        }
    }

    fn set(&mut self, name: &str, value: &mut Reader<'a>) -> Result<(), Problem> {
        match name {
            "block_hashes" => self.hashes = Some(fields::hashes(value)?),
            "parent_block_hash" => self.parent = Some(fields::opt_hash(value)?),
            "token_ids" => self.tokens = Some(fields::tokens(value)?),
            "block_size" => self.block_size = Some(fields::u32(value)?),
            "lora_id" => self.lora_id = fields::opt_i64(value)?,
            "medium" => self.medium = fields::opt_text(value)?,
            "lora_name" => self.set_lora_name(value)?,
            "extra_keys" => self.extra_keys = fields::opt_extra_keys(value)?,
            "cache_salt" => self.cache_salt = fields::opt_text(value)?,
            "group_idx" => self.group = fields::opt_u32(value)?,
            "kv_cache_spec_kind" => self.spec_kind = fields::opt_text(value)?,
            "kv_cache_spec_sliding_window" => self.sliding_window = fields::opt_u64(value)?,
            "locality" => self.locality = fields::opt_text(value)?,
            "lookahead_token_ids" => self.lookahead = fields::opt_token_lists(value)?,
            _ => value.skip()?,
        }
        Ok(())
    }

    /// SGLang 0.5.18 and 0.5.19 put a map `{cache_salt}` where vLLM puts the adapter's name.
    fn set_lora_name(&mut self, value: &mut Reader<'a>) -> Result<(), Problem> {
        let mut ahead = value.clone();
        let Token::Map(pairs) = ahead.next()? else {
            self.lora_name = fields::opt_text(value)?;
            return Ok(());
        };
        for _ in 0..pairs {
            if ahead.clone().next()? == Token::Str(b"cache_salt") {
                ahead.skip()?;
                self.cache_salt = fields::opt_text(&mut ahead)?;
            } else {
                ahead.skip_many(2)?;
            }
        }
        *value = ahead;
        Ok(())
    }

    fn finish(self, schema: Schema) -> Result<BlockStored<H>, (&'static str, Problem)> {
        let missing = |field| move || (field, Problem::Missing);
        let block_hashes = self.hashes.ok_or_else(missing("block_hashes"))?;
        let parent = self.parent.ok_or_else(missing("parent_block_hash"))?;
        let tokens = self.tokens.ok_or_else(missing("token_ids"))?;
        let block_size = self.block_size.ok_or_else(missing("block_size"))?;
        let lookahead_token_ids =
            self.lookahead.or_else(|| pair_lookahead(&tokens.followers, block_size));
        Ok(BlockStored {
            block_hashes,
            parent,
            token_ids: tokens.ids,
            block_size,
            lora_id: self.lora_id,
            lora_name: self.lora_name.map(str::to_owned),
            medium: Medium::read(self.medium, self.locality),
            extra_keys: self.extra_keys,
            cache_salt: self.cache_salt.map(str::to_owned),
            group: self.group,
            spec_kind: self.spec_kind.map(SpecKind::read),
            sliding_window: self.sliding_window,
            lookahead_token_ids,
            schema,
        })
    }
}

/// SGLang's pairs `(t_j, t_j+1)`: each block is its first halves, and the last second half is the
/// token after the block.
fn pair_lookahead(followers: &[u32], block_size: u32) -> Option<Vec<Vec<u32>>> {
    let size = usize::try_from(block_size).ok().filter(|size| *size > 0)?;
    if followers.is_empty() {
        return None;
    }
    Some(
        followers
            .chunks_exact(size)
            .map(|block| block.last().copied().into_iter().collect())
            .collect(),
    )
}

/// A `BlockRemoved` being read.
#[derive(Debug)]
struct Removed<'a, H> {
    hashes: Option<Vec<H>>,
    medium: Option<&'a str>,
    locality: Option<&'a str>,
    group: Option<u32>,
}

impl<'a, H: Handle> Removed<'a, H> {
    fn read(reader: &mut Reader<'a>, layout: Layout) -> Result<BlockRemoved<H>, Fault> {
        let mut removed = Self { hashes: None, medium: None, locality: None, group: None };
        each_field(reader, layout, (REMOVED, &REMOVED_FIELDS), |name, value| {
            match name {
                "block_hashes" => removed.hashes = Some(fields::hashes(value)?),
                "medium" => removed.medium = fields::opt_text(value)?,
                "locality" => removed.locality = fields::opt_text(value)?,
                "group_idx" => removed.group = fields::opt_u32(value)?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        let block_hashes = removed.hashes.ok_or(Fault {
            kind: REMOVED,
            field: "block_hashes",
            problem: Problem::Missing,
        })?;
        Ok(BlockRemoved {
            block_hashes,
            medium: Medium::read(removed.medium, removed.locality),
            group: removed.group,
        })
    }
}
