//! The page hashes of one request, grown as tokens arrive.

use std::fmt;
use std::mem;

use super::contract::{Contract, Seeds};
use super::error::ContractError;
use super::generation::Generation;
use super::tuple_hash::{int_hash, tuple_hash};
use crate::buffer::Buffer;
use crate::digest::first_eight;
use crate::hex;
use crate::windows::Windows;

/// The hash of one page: what events carry, and the digest it was cut from.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageHash {
    published: u64,
    /// The chain's digest; tuple hashes have none.
    digest: Option<[u8; 32]>,
}

impl PageHash {
    /// The hash as events carry it: a signed integer.
    #[must_use]
    pub fn to_i64(&self) -> i64 {
        self.published.cast_signed()
    }

    /// The same 64 bits, unsigned.
    #[must_use]
    pub fn to_u64(&self) -> u64 {
        self.published
    }

    /// The full digest the next page is chained to. There is none up to 0.5.5, and it is never
    /// published: a namespace changes what events carry, not this.
    #[must_use]
    pub fn digest(&self) -> Option<&[u8; 32]> {
        self.digest.as_ref()
    }
}

impl fmt::Debug for PageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageHash({}", self.to_i64())?;
        if let Some(digest) = &self.digest {
            f.write_str(", ")?;
            hex::write(f, digest)?;
        }
        f.write_str(")")
    }
}

/// The page hashes of one request under one [`Contract`].
///
/// [`append`](Self::append) takes tokens in pieces of any size; each page is hashed once, and
/// buffers are reused.
#[derive(Clone, Debug)]
pub struct Chain {
    contract: Contract,
    page_size: usize,
    seeds: Seeds,
    pages: Vec<PageHash>,
    /// Pages; with bigrams, and the token after them.
    windows: Windows<u64>,
    buffer: Buffer,
}

/// A token id as callers hold it.
trait Token: Copy + Into<u64> {
    /// Appends 32-bit little-endian words of tokens that fit them.
    fn put_words(tokens: &[Self], out: &mut Buffer);

    fn is_wide(self) -> bool {
        self.into() > u32::MAX.into()
    }
}

impl Token for u32 {
    fn put_words(tokens: &[Self], out: &mut Buffer) {
        out.put_words(tokens);
    }
}

impl Token for u64 {
    fn put_words(tokens: &[Self], out: &mut Buffer) {
        out.reserve(tokens.len() * 4);
        tokens.iter().for_each(|&token| out.put(&(token as u32).to_le_bytes()));
    }
}

impl Chain {
    pub(super) fn new(contract: Contract, page_size: usize, seeds: Seeds) -> Self {
        Self {
            contract,
            page_size,
            seeds,
            pages: Vec::new(),
            windows: Windows::new(page_size, contract.bigrams().into()),
            buffer: Buffer::default(),
        }
    }

    /// Adds tokens and returns the hashes of the pages they complete.
    pub fn append(&mut self, tokens: &[u32]) -> &[PageHash] {
        self.append_any(tokens)
    }

    /// [`append`](Self::append) for token ids that may be 2^32 and more (from 0.5.23).
    ///
    /// # Errors
    /// [`ContractError::WideToken`] where the engine would fail on such an id;
    /// [`ContractError::TokenOutOfRange`] for ids of 2^63 and more. No token is added then.
    pub fn append_wide(&mut self, tokens: &[u64]) -> Result<&[PageHash], ContractError> {
        let version = self.contract.version();
        let fails =
            (Generation::Chained..Generation::NamedAdapters).contains(&self.contract.generation());
        for (index, &token) in tokens.iter().enumerate() {
            if token > i64::MAX.cast_unsigned() {
                return Err(ContractError::TokenOutOfRange { index, token });
            }
            if fails && token.is_wide() {
                return Err(ContractError::WideToken { index, token, version });
            }
        }
        Ok(self.append_any(tokens))
    }

    fn append_any<T: Token>(&mut self, tokens: &[T]) -> &[PageHash] {
        let first_new = self.pages.len();
        let mut windows = mem::take(&mut self.windows);
        let mut rest = windows.fill(tokens, |window| self.hash_page(window));
        while let Some(window) = windows.first_of(rest) {
            self.hash_page(window);
            rest = &rest[self.page_size..];
        }
        windows.keep(rest);
        self.windows = windows;
        &self.pages[first_new..]
    }

    /// The hashes of all full pages so far.
    #[must_use]
    pub fn pages(&self) -> &[PageHash] {
        &self.pages
    }

    /// The hash of the page that is not yet full, if it holds anything.
    ///
    /// The radix tree keeps whole pages only, so events carry none of these.
    #[must_use]
    pub fn partial(&self) -> Option<PageHash> {
        let tail = self.windows.tail();
        let units = tail.len().checked_sub(self.contract.bigrams().into())?;
        (units > 0).then(|| self.page_hash(&mut Buffer::default(), tail))
    }

    /// How many tokens have been appended, hashed or not.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.pages.len() * self.page_size + self.windows.tail().len()
    }

    /// The exact bytes that were hashed for the newest page: the parent page's digest (or a
    /// salt's), and the tokens. None before the first page, and none for tuple hashes (up to
    /// 0.5.5), which mix integers.
    #[must_use]
    pub fn preimage(&self) -> Option<&[u8]> {
        self.pages.last()?.digest?;
        Some(self.buffer.as_slice())
    }

    /// Tokens per page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    fn hash_page<T: Token>(&mut self, window: &[T]) {
        let mut buffer = mem::take(&mut self.buffer);
        let page = self.page_hash(&mut buffer, window);
        self.buffer = buffer;
        self.pages.push(page);
    }

    /// The page after the hashed ones; with bigrams, `window` holds one token more.
    #[inline]
    fn page_hash<T: Token>(&self, buffer: &mut Buffer, window: &[T]) -> PageHash {
        let bigrams = self.contract.bigrams();
        if self.contract.generation() == Generation::TupleHash {
            let hash = |token: T| int_hash(token.into());
            let published = if bigrams {
                let pair = |pair: &[T]| tuple_hash([hash(pair[0]), hash(pair[1])].into_iter());
                tuple_hash(window.windows(2).map(pair))
            } else {
                tuple_hash(window.iter().map(|&token| hash(token)))
            };
            return PageHash { published, digest: None };
        }
        buffer.clear();
        let parent = match self.pages.last() {
            Some(page) => page.digest,
            None => self.seeds.parent,
        };
        if let Some(parent) = parent {
            buffer.put(&parent);
        }
        put_units(buffer, window, bigrams);
        let digest = buffer.sha256();
        let value = first_eight(&digest);
        let published = self.seeds.namespace.map_or(value, |namespace| namespace.apply(value));
        PageHash { published, digest: Some(digest) }
    }
}

/// The tokens or bigrams as the engine lays them out.
fn put_units<T: Token>(out: &mut Buffer, window: &[T], bigrams: bool) {
    if window.iter().any(|token| token.is_wide()) {
        // An odd byte count keeps wide pages apart from all others.
        out.push(0xff);
        let mut put = |token: T| out.put(&token.into().to_le_bytes());
        if bigrams {
            window.windows(2).flatten().for_each(|&token| put(token));
        } else {
            window.iter().for_each(|&token| put(token));
        }
    } else if bigrams {
        window.windows(2).for_each(|pair| T::put_words(pair, out));
    } else {
        T::put_words(window, out);
    }
}
