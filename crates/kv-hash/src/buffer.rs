//! The byte buffer that preimages are written to and hashed from.
//!
//! A `Vec` that keeps its length at its high-water mark, so that a token costs one fixed-size
//! store and no growth check, and SHA-256 can pad the message where it lies.

use sha2::block_api::compress256;
use twox_hash::XxHash3_128;

/// Room kept after the message: a whole word past the last token, and SHA-256's padding.
const SLACK: usize = 128;

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

/// What follows a message, but for its length.
const PADDING: [u8; 72] = {
    let mut bytes = [0; 72];
    bytes[0] = 0x80;
    bytes
};

/// The length of a message with its padding.
#[inline]
fn padded_len(len: usize) -> usize {
    (len + 9).next_multiple_of(64)
}

/// Writes a digest's words.
#[inline]
pub(crate) fn put_big_endian(out: &mut [u8; 32], words: &[u32; 8]) {
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

    /// Shortens the message, or lengthens it to what the buffer held before.
    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
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

    /// Appends the first `keep` bytes of `bytes`, by a copy of fixed size.
    #[inline]
    pub(crate) fn put_fixed<const N: usize>(&mut self, bytes: &[u8; N], keep: usize) {
        const { assert!(N <= SLACK, "must fit behind any message") };
        self.reserve(keep);
        self.bytes[self.len..self.len + N].copy_from_slice(bytes);
        self.len += keep.min(N);
    }

    /// Appends, for each token, the low `length` bytes of the word that `encode` gives for it.
    ///
    /// `longest` is the most that any token takes, at most 8.
    #[inline]
    pub(crate) fn put_tokens(
        &mut self,
        tokens: &[u32],
        longest: usize,
        encode: impl Fn(u32) -> (u64, usize) + Copy,
    ) {
        self.reserve(tokens.len() * longest);
        let (groups, rest) = tokens.as_chunks::<8>();
        for group in groups {
            self.put_group(group, encode);
        }
        if !rest.is_empty() {
            self.put_group(rest, encode);
        }
    }

    /// At most 8 tokens, for which there is room.
    #[inline]
    fn put_group(&mut self, tokens: &[u32], encode: impl Fn(u32) -> (u64, usize)) {
        // The mask changes nothing, and shows the compiler that no store leaves the window.
        let Some(window) = self.bytes[self.len..].first_chunk_mut::<72>() else { return };
        let mut at = 0;
        for &token in tokens {
            let (word, length) = encode(token);
            window[at & 63..(at & 63) + 8].copy_from_slice(&word.to_le_bytes());
            at += length;
        }
        self.len += at;
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

    /// Writes SHA-256's padding behind the message, which stays as it is.
    #[inline]
    pub(crate) fn pad_for_sha256(&mut self) {
        self.reserve(0);
        let len = self.len;
        let padded = padded_len(len);
        let bits = (len as u64).wrapping_mul(8);
        // Zeros of a fixed size, which may reach beyond the padding and into the slack.
        self.bytes[len..len + 72].copy_from_slice(&PADDING);
        self.bytes[padded - 8..padded].copy_from_slice(&bits.to_be_bytes());
    }

    /// The blocks of the message, which must have been [padded](Self::pad_for_sha256) at this
    /// length.
    #[inline]
    pub(crate) fn sha256_blocks(&self) -> &[[u8; 64]] {
        self.bytes[..padded_len(self.len)].as_chunks().0
    }

    /// SHA-256 of the message. Writes the padding behind it and leaves the message as it is.
    pub(crate) fn sha256(&mut self) -> [u8; 32] {
        self.pad_for_sha256();
        let mut state = SHA256_START;
        compress256(&mut state, self.sha256_blocks());
        let mut digest = [0; 32];
        put_big_endian(&mut digest, &state);
        digest
    }

    /// Bytes written earlier, to write them anew.
    #[inline]
    pub(crate) fn slot<const N: usize>(&mut self, at: usize) -> Option<&mut [u8; N]> {
        self.bytes.get_mut(at..)?.first_chunk_mut()
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
