//! Field values of events: what each may look like on the wire.

use super::Problem;
use super::reader::{Reader, Token};
use crate::event::{ExtraKey, Handle};

type Result<T> = std::result::Result<T, Problem>;

/// Seconds: msgspec writes a float64; integers are accepted.
pub(super) fn timestamp(reader: &mut Reader<'_>) -> Result<f64> {
    match reader.next()? {
        Token::Float(value) => Ok(value),
        #[expect(clippy::cast_precision_loss, reason = "a time stamp")]
        Token::Uint(value) => Ok(value as f64),
        _ => Err(Problem::Type),
    }
}

pub(super) fn u32(reader: &mut Reader<'_>) -> Result<u32> {
    narrow(reader.next()?)
}

pub(super) fn opt_u32(reader: &mut Reader<'_>) -> Result<Option<u32>> {
    match reader.next()? {
        Token::Nil => Ok(None),
        token => narrow(token).map(Some),
    }
}

pub(super) fn opt_u64(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    match reader.next()? {
        Token::Nil => Ok(None),
        Token::Uint(value) => Ok(Some(value)),
        Token::Int(_) => Err(Problem::Range),
        _ => Err(Problem::Type),
    }
}

pub(super) fn opt_i64(reader: &mut Reader<'_>) -> Result<Option<i64>> {
    match reader.next()? {
        Token::Nil => Ok(None),
        token => integer(token).map(Some),
    }
}

pub(super) fn opt_text<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a str>> {
    match reader.next()? {
        Token::Nil => Ok(None),
        Token::Str(bytes) => text(bytes).map(Some),
        _ => Err(Problem::Type),
    }
}

pub(super) fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Problem::Utf8)
}

/// A block's handle: vLLM's unsigned integer or digest, SGLang's signed integer.
fn hash<H: Handle>(token: Token<'_>) -> Result<H> {
    match token {
        Token::Uint(value) => Ok(H::from_int(value)),
        Token::Int(value) => Ok(H::from_int(value.cast_unsigned())),
        Token::Bin([]) => Err(Problem::Range),
        Token::Bin(digest) => Ok(H::from_digest(digest)),
        _ => Err(Problem::Type),
    }
}

pub(super) fn opt_hash<H: Handle>(reader: &mut Reader<'_>) -> Result<Option<H>> {
    match reader.next()? {
        Token::Nil => Ok(None),
        token => hash(token).map(Some),
    }
}

pub(super) fn hashes<H: Handle>(reader: &mut Reader<'_>) -> Result<Vec<H>> {
    let count = array(reader)?;
    let mut hashes = Vec::with_capacity(count);
    for _ in 0..count {
        hashes.push(hash(reader.next()?)?);
    }
    Ok(hashes)
}

/// The tokens of a stored event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) ids: Vec<u32>,
    /// The second of each pair, where the engine sends pairs (SGLang with EAGLE); else empty.
    pub(super) followers: Vec<u32>,
}

pub(super) fn tokens(reader: &mut Reader<'_>) -> Result<Tokens> {
    let count = array(reader)?;
    let mut tokens = Tokens { ids: Vec::with_capacity(count), followers: Vec::new() };
    while tokens.ids.len() < count {
        if let Some(id) = reader.small() {
            tokens.ids.push(id);
            continue;
        }
        match reader.next()? {
            Token::Array(2) => {
                tokens.ids.push(u32(reader)?);
                tokens.followers.push(u32(reader)?);
            }
            token => tokens.ids.push(narrow(token)?),
        }
    }
    // All pairs or none.
    if !tokens.followers.is_empty() && tokens.followers.len() != count {
        return Err(Problem::Type);
    }
    Ok(tokens)
}

pub(super) fn opt_token_lists(reader: &mut Reader<'_>) -> Result<Option<Vec<Vec<u32>>>> {
    let Some(count) = opt_array(reader)? else { return Ok(None) };
    let mut lists = Vec::with_capacity(count);
    for _ in 0..count {
        let mut list = Vec::new();
        for _ in 0..opt_array(reader)?.unwrap_or(0) {
            list.push(u32(reader)?);
        }
        lists.push(list);
    }
    Ok(Some(lists))
}

pub(super) fn opt_extra_keys(reader: &mut Reader<'_>) -> Result<Option<Vec<Vec<ExtraKey>>>> {
    let Some(count) = opt_array(reader)? else { return Ok(None) };
    let mut blocks = Vec::with_capacity(count);
    for _ in 0..count {
        let mut keys = Vec::new();
        for _ in 0..opt_array(reader)?.unwrap_or(0) {
            keys.push(extra_key(reader)?);
        }
        blocks.push(keys);
    }
    Ok(Some(blocks))
}

/// One key. A shape that is not known is kept as such: it matters only to who credits the block.
fn extra_key(reader: &mut Reader<'_>) -> Result<ExtraKey> {
    let start = reader.clone();
    let key = match reader.next()? {
        Token::Str(bytes) => ExtraKey::Text(text(bytes)?.to_owned()),
        Token::Bin(bytes) => ExtraKey::Bytes(bytes.to_vec()),
        Token::Array(2) => match (reader.next()?, reader.next()?) {
            (Token::Str(identifier), offset @ (Token::Uint(_) | Token::Int(_))) => ExtraKey::Item {
                identifier: text(identifier)?.to_owned(),
                offset: integer(offset)?,
            },
            _ => ExtraKey::Unknown,
        },
        _ => ExtraKey::Unknown,
    };
    if key == ExtraKey::Unknown {
        *reader = start;
        reader.skip()?;
    }
    Ok(key)
}

fn array(reader: &mut Reader<'_>) -> Result<usize> {
    opt_array(reader)?.ok_or(Problem::Type)
}

fn opt_array(reader: &mut Reader<'_>) -> Result<Option<usize>> {
    match reader.next()? {
        Token::Nil => Ok(None),
        Token::Array(count) => Ok(Some(count)),
        _ => Err(Problem::Type),
    }
}

fn narrow(token: Token<'_>) -> Result<u32> {
    match token {
        Token::Uint(value) => u32::try_from(value).map_err(|_| Problem::Range),
        Token::Int(_) => Err(Problem::Range),
        _ => Err(Problem::Type),
    }
}

fn integer(token: Token<'_>) -> Result<i64> {
    match token {
        Token::Uint(value) => i64::try_from(value).map_err(|_| Problem::Range),
        Token::Int(value) => Ok(value),
        _ => Err(Problem::Type),
    }
}
