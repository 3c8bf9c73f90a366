//! The blocks of plain text requests, faster than one by one.
//!
//! Only a block's parent has to wait for the hash before it. So the rest of each block is
//! serialised early, between the two halves of that hash: SHA-256 is one long chain of dependent
//! instructions, which leaves most of a processor idle. And all blocks of a size share the bytes
//! around their tokens.

use std::mem;

use sha2::block_api::compress256;

use super::algorithm::{Function, Serialiser};
use super::cbor::{self, Cbor};
use super::encode::Encode;
use super::hasher::BlockHasher;
use super::pickle::{self, Pickle};
use crate::buffer::{Buffer, SHA256_START, put_big_endian};
use crate::digest::Digest;

/// The bytes around the tokens of a plain block of one size, under one contract.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    block_size: usize,
    serialiser: Serialiser,
    before: [u8; 64],
    before_len: usize,
    /// Where the parent lies.
    parent: usize,
    after: [u8; 8],
    after_len: usize,
}

/// Hashes the plain blocks that `tokens` fills, after a parent of a digest's size.
///
/// Gives `None`, having done nothing, for contracts and sizes whose blocks have no fixed frame.
pub(super) fn hash_blocks(
    hasher: &mut BlockHasher,
    parent: &Digest,
    tokens: &[u32],
    block_size: usize,
    digests: &mut Vec<Digest>,
) -> Option<()> {
    let frame = match hasher.frame {
        Some(frame) if frame.block_size == block_size => frame,
        _ => {
            let frame = Frame::new(hasher, block_size)?;
            *hasher.frame.insert(frame)
        }
    };
    let mut blocks = tokens.chunks_exact(block_size);
    let Some(first) = blocks.next() else { return Some(()) };
    let (now, ahead) = (&mut hasher.preimage, &mut hasher.ahead);
    frame.begin(ahead);
    frame.begin(now);
    frame.put_tokens(now, first);
    frame.end(now);
    match hasher.algorithm.function() {
        Function::Sha256 | Function::Sha256Low64 => {
            now.pad_for_sha256();
            *now.slot(frame.parent)? = *parent.as_bytes().first_chunk::<32>()?;
            match frame.serialiser {
                Serialiser::Cbor => sha256(&frame, now, ahead, blocks, digests, cbor::put_tokens),
                Serialiser::Pickle => {
                    sha256(&frame, now, ahead, blocks, digests, pickle::put_tokens);
                }
            }
        }
        Function::Xxh3 => {
            *now.slot(frame.parent)? = *parent.as_bytes().first_chunk::<16>()?;
            xxh3(&frame, now, ahead, blocks, digests);
        }
    }
    Some(())
}

fn sha256<'a>(
    frame: &Frame,
    now: &mut Buffer,
    ahead: &mut Buffer,
    mut blocks: impl Iterator<Item = &'a [u32]>,
    digests: &mut Vec<Digest>,
    put_tokens: impl Fn(&mut Buffer, &[u32]) + Copy,
) {
    loop {
        let next = blocks.next();
        let (early, late) = next.map_or((&[][..], &[][..]), |next| next.split_at(next.len() / 2));
        let message = now.sha256_blocks();
        let (head, tail) = message.split_at(message.len() / 2);
        let mut state = SHA256_START;
        compress256(&mut state, head);
        frame.begin_again(ahead);
        put_tokens(ahead, early);
        compress256(&mut state, tail);
        put_tokens(ahead, late);
        frame.end(ahead);
        ahead.pad_for_sha256();

        // The next hash waits for this.
        if let Some(parent) = ahead.slot(frame.parent) {
            put_big_endian(parent, &state);
        }
        digests.push(Digest::of_words(&state));
        if next.is_none() {
            return;
        }
        mem::swap(now, ahead);
    }
}

fn xxh3<'a>(
    frame: &Frame,
    now: &mut Buffer,
    ahead: &mut Buffer,
    mut blocks: impl Iterator<Item = &'a [u32]>,
    digests: &mut Vec<Digest>,
) {
    loop {
        let next = blocks.next();
        if let Some(next) = next {
            frame.begin_again(ahead);
            frame.put_tokens(ahead, next);
            frame.end(ahead);
        }
        let digest = now.xxh3_128();
        digests.push(Digest::new16(digest));
        if next.is_none() {
            return;
        }
        if let Some(parent) = ahead.slot(frame.parent) {
            *parent = digest;
        }
        mem::swap(now, ahead);
    }
}

impl Frame {
    fn new(hasher: &mut BlockHasher, block_size: usize) -> Option<Self> {
        let serialiser = hasher.algorithm.serialiser();
        // Larger pickles are cut into several frames, whose ends depend on the tokens.
        let one_frame = block_size.saturating_mul(pickle::MAX_U32) < pickle::FRAME_TARGET / 2;
        if !hasher.shape.fixed_parents() || (serialiser == Serialiser::Pickle && !one_frame) {
            return None;
        }
        let digest_len = hasher.algorithm.digest_len();
        let parent = &[0; Digest::MAX_LEN][..digest_len];
        // A block without its tokens: up to where they belong, and then whole.
        let (out, seen) = (&mut hasher.preimage, &mut hasher.seen);
        let mut write = |whole| {
            out.clear();
            match serialiser {
                Serialiser::Cbor => around(Cbor::new(out), parent, block_size, whole),
                Serialiser::Pickle => around(Pickle::new(out, seen), parent, block_size, whole),
            }
            out.len()
        };
        let before_len = write(false);
        let whole_len = write(true);
        let (mut before, mut after) = ([0; 64], [0; 8]);
        let (head, tail) = hasher.preimage.as_slice().split_at_checked(before_len)?;
        before.get_mut(..before_len)?.copy_from_slice(head);
        after.get_mut(..tail.len())?.copy_from_slice(tail);
        // Behind `80 05`, the frame's header and `43 20`; or behind `83 58 20` or `83 50`.
        let parent = match serialiser {
            Serialiser::Pickle => 13,
            Serialiser::Cbor => 2 + usize::from(digest_len >= 24),
        };
        let after_len = whole_len - before_len;
        Some(Self { block_size, serialiser, before, before_len, parent, after, after_len })
    }

    /// Starts a block; its tokens follow.
    #[inline]
    fn begin(&self, out: &mut Buffer) {
        out.clear();
        out.put_fixed(&self.before, self.before_len);
    }

    /// Starts a block in a buffer that holds an earlier one.
    #[inline]
    fn begin_again(&self, out: &mut Buffer) {
        out.truncate(self.before_len);
    }

    /// Ends a block.
    #[inline]
    fn end(&self, out: &mut Buffer) {
        out.put_fixed(&self.after, self.after_len);
        if self.serialiser == Serialiser::Pickle {
            let at = pickle::FRAME_LENGTH_AT;
            let len = (out.len() - at - 8) as u64;
            if let Some(slot) = out.slot(at) {
                *slot = len.to_le_bytes();
            }
        }
    }

    #[inline]
    fn put_tokens(&self, out: &mut Buffer, tokens: &[u32]) {
        match self.serialiser {
            Serialiser::Cbor => cbor::put_tokens(out, tokens),
            Serialiser::Pickle => pickle::put_tokens(out, tokens),
        }
    }
}

/// Writes a block as if it had no tokens.
fn around<E: Encode>(mut out: E, parent: &[u8], block_size: usize, whole: bool) {
    out.begin_tuple(3);
    out.bytes(parent);
    out.begin_tuple(block_size);
    if whole {
        out.end_tuple(block_size);
        out.none();
        out.end_tuple(3);
        out.finish();
    }
}
