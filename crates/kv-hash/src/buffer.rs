//! The byte buffer that preimages are written to and hashed from.
//!
//! A `Vec` that keeps its length at its high-water mark, so that a token costs one fixed-size
//! store and no growth check, and SHA-256 can pad the message where it lies.

use sha2::block_api::compress256;
use twox_hash::XxHash3_128;

/// Eight tokens are written to a window of this size: no store that begins at the 8-bit offset of a
/// word leaves it, which spares a check for each.
const WINDOW: usize = 256 + 7;

/// Room kept after the message: for a window past the last token, and SHA-256's padding.
pub(crate) const SLACK: usize = 384;

pub(crate) const SHA256_START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The most bytes that SHA-256's padding takes.
pub(crate) const MAX_PADDING: usize = 72;

/// The first byte of the padding; zeros follow.
pub(crate) const SHA256_PADDING: u8 = 0x80;

/// What follows a message, but for its length.
const PADDING: [u8; MAX_PADDING] = {
    let mut bytes = [0; MAX_PADDING];
    bytes[0] = SHA256_PADDING;
    bytes
};

/// How integers are written one after the other.
pub(crate) trait Words {
    /// The most bytes that an integer takes, at most 8.
    const LONGEST: usize;

    /// The integer's bytes are the low ones of the word, as many as the number beside it. No branch
    /// should depend on the value: prompts mix widths at random.
    fn word(token: u32) -> (u64, usize);
}

/// Writes tokens at `at` of a buffer that holds [`SLACK`] bytes behind them; gives where they end.
#[inline]
pub(crate) fn put_tokens<W: Words>(out: &mut [u8], mut at: usize, tokens: &[u32]) -> usize {
    let (groups, rest) = tokens.as_chunks::<8>();
    for group in groups {
        at += put_group::<W>(out, at, group);
    }
    if !rest.is_empty() {
        at += put_group::<W>(out, at, rest);
    }
    at
}

/// Writes at most 8 tokens; gives how many bytes they took.
#[inline(always)]
fn put_group<W: Words>(out: &mut [u8], start: usize, tokens: &[u32]) -> usize {
    let Some(window) = out[start..].first_chunk_mut::<WINDOW>() else { return 0 };
    let mut at = 0u8;
    for &token in tokens {
        let (word, length) = W::word(token);
        let from = usize::from(at);
        window[from..from + 8].copy_from_slice(&word.to_le_bytes());
        at = at.wrapping_add(length as u8);
    }
    at.into()
}

/// The length of a message with SHA-256's padding.
#[inline]
pub(crate) fn padded_len(len: usize) -> usize {
    (len + MAX_PADDING) & !63
}

/// Writes the length of a message where SHA-256 looks for it, behind the padding.
#[inline]
pub(crate) fn put_length(out: &mut [u8], len: usize) {
    let padded = padded_len(len);
    let bits = (len as u64).wrapping_mul(8);
    out[padded - 8..padded].copy_from_slice(&bits.to_be_bytes());
}

/// Writes a digest's words.
#[inline]
pub(crate) fn put_big_endian(out: &mut [u8], words: &[u32; 8]) {
    for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *out = word.to_be_bytes();
    }
}

/// A reusable message buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    /// At least `len` and, after [`reserve`](Self::reserve), `SLACK` more.
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// All of the buffer, at least this large, to write a message to.
    pub(crate) fn room(&mut self, size: usize) -> &mut [u8] {
        if self.bytes.len() < size {
            self.grow(size);
        }
        &mut self.bytes
    }

    /// Takes what was written to the buffer's [`room`](Self::room) for the message.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Makes room for `more` bytes and the slack.
    #[inline]
    pub(crate) fn reserve(&mut self, more: usize) {
        let need = self.len + more + SLACK;
        if self.bytes.len() < need {
            self.grow(need);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, need: usize) {
        self.bytes.resize(need.next_power_of_two(), 0);
    }

    #[inline]
    pub(crate) fn push(&mut self, byte: u8) {
        self.put(&[byte]);
    }

    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    /// Appends the tokens as `W` writes them.
    #[inline]
    pub(crate) fn put_tokens<W: Words>(&mut self, tokens: &[u32]) {
        self.reserve(tokens.len() * W::LONGEST);
        self.len = put_tokens::<W>(&mut self.bytes, self.len, tokens);
    }

    /// Appends the tokens as 32-bit little-endian words.
    #[inline]
    pub(crate) fn put_words(&mut self, tokens: &[u32]) {
        self.reserve(tokens.len() * 4);
        let spare = &mut self.bytes[self.len..self.len + tokens.len() * 4];
        let (words, _) = spare.as_chunks_mut::<4>();
        for (word, token) in words.iter_mut().zip(tokens) {
            *word = token.to_le_bytes();
        }
        self.len += tokens.len() * 4;
    }

    /// Overwrites bytes written earlier.
    pub(crate) fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Takes out `count` bytes at `at`.
    pub(crate) fn remove(&mut self, at: usize, count: usize) {
        self.bytes.copy_within(at + count..self.len, at);
        self.len -= count;
    }

    /// SHA-256 of the message. Writes the padding behind it and leaves the message as it is.
    pub(crate) fn sha256(&mut self) -> [u8; 32] {
        self.reserve(0);
        // Zeros of a fixed size, which may reach beyond the padding and into the slack.
        self.bytes[self.len..self.len + MAX_PADDING].copy_from_slice(&PADDING);
        put_length(&mut self.bytes, self.len);
        let mut state = SHA256_START;
        compress256(&mut state, self.bytes[..padded_len(self.len)].as_chunks().0);
        let mut digest = [0; 32];
        put_big_endian(&mut digest, &state);
        digest
    }

    /// XXH3-128 of the message, seed 0, high half first.
    #[inline]
    pub(crate) fn xxh3_128(&self) -> [u8; 16] {
        XxHash3_128::oneshot(self.as_slice()).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn sha256_of_every_length_around_its_block_size() {
        let mut buffer = Buffer::default();
        for len in (0..300).chain([4095, 4096, 70_000]) {
            buffer.clear();
            let message: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
            buffer.put(&message);
            assert_eq!(buffer.sha256(), <[u8; 32]>::from(Sha256::digest(&message)), "{len}");
            assert_eq!(buffer.as_slice(), message);
        }
    }

    #[test]
    fn edits_move_what_follows() {
        let mut buffer = Buffer::default();
        buffer.put(b"abcdef");
        buffer.overwrite(1, b"XY");
        buffer.remove(0, 2);
        assert_eq!(buffer.as_slice(), b"Ydef");
        buffer.put_words(&[1, 0x0102_0304]);
        assert_eq!(buffer.as_slice(), b"Ydef\x01\0\0\0\x04\x03\x02\x01");
    }
}
