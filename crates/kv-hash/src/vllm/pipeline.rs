//! The blocks of plain text requests, faster than one by one.
//!
//! Only a block's parent has to wait for the hash before it. So the rest of each block is
//! serialised early, in pieces between the compressions of that hash: SHA-256 is one long chain of
//! dependent instructions, which leaves most of a processor idle. And all blocks of a size share
//! the bytes around their tokens.

use std::mem;
use std::slice::{self, ChunksExact};

use sha2::block_api::compress256;
use twox_hash::XxHash3_128;

use super::algorithm::{Function, Serialiser};
use super::cbor::Cbor;
use super::encode::Encode;
use super::hasher::BlockHasher;
use super::pickle::{self, Pickle};
use crate::buffer::{
    MAX_PADDING, SHA256_PADDING, SHA256_START, SLACK, Words, padded_len, put_big_endian,
    put_length, put_tokens,
};
use crate::digest::Digest;

/// The most bytes around a block's tokens.
const MAX_BEFORE: usize = 64;
const MAX_AFTER: usize = 8;

/// The bytes around the tokens of a plain block of one size, under one contract.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    block_size: usize,
    serialiser: Serialiser,
    before: [u8; MAX_BEFORE],
    before_len: usize,
    /// Where the parent lies.
    parent: usize,
    after_len: usize,
    /// What follows the tokens, and SHA-256's padding but for the length.
    after: [u8; MAX_AFTER + MAX_PADDING],
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
    let hash = match (hasher.algorithm.function(), frame.serialiser) {
        (Function::Sha256, Serialiser::Cbor) => sha256::<Cbor<'_>>,
        (Function::Sha256, Serialiser::Pickle) => sha256::<Pickle<'_>>,
        (Function::Xxh3, Serialiser::Cbor) => xxh3::<Cbor<'_>>,
        (Function::Xxh3, Serialiser::Pickle) => xxh3::<Pickle<'_>>,
        (Function::Sha256Low64, _) => return None,
    };
    let mut blocks = tokens.chunks_exact(block_size);
    let Some(first) = blocks.next() else { return Some(()) };
    let room = MAX_BEFORE + block_size * 8 + SLACK;
    let (now, ahead) = (hasher.preimage.room(room), hasher.ahead.room(room));
    for buffer in [&mut *now, &mut *ahead] {
        *buffer.first_chunk_mut()? = frame.before;
    }
    let parent = parent.as_bytes();
    now[frame.parent..frame.parent + parent.len()].copy_from_slice(parent);
    let (len, swapped) = hash(&frame, [now, ahead], first, blocks, digests);
    if swapped {
        mem::swap(&mut hasher.preimage, &mut hasher.ahead);
    }
    hasher.preimage.set_len(len);
    Some(())
}

/// Hashes a block whose frame and parent lie in the first buffer, and then those after it. Gives
/// the last message's length, and whether it lies in the second buffer.
fn sha256<W: Words>(
    frame: &Frame,
    [mut this, mut next]: [&mut [u8]; 2],
    first: &[u32],
    blocks: ChunksExact<'_, u32>,
    digests: &mut Vec<Digest>,
) -> (usize, bool) {
    let mut len = frame.write::<W>(this, frame.before_len, first);
    let mut swapped = false;
    for mut tokens in blocks {
        let mut state = SHA256_START;
        let (message, _) = this[..padded_len(len)].as_chunks();
        // Whole groups of tokens, so many that the rest is written before the last compression:
        // what comes after that one delays the next hash.
        let share = frame.block_size.div_ceil(message.len()).next_multiple_of(8);
        let mut at = frame.before_len;
        for (index, block) in message.iter().enumerate() {
            if index + 1 < message.len() {
                let (now, later) = tokens.split_at(share.min(tokens.len()));
                at = put_tokens::<W>(next, at, now);
                tokens = later;
            } else {
                len = frame.write::<W>(next, at, tokens);
            }
            compress256(&mut state, slice::from_ref(block));
        }
        let parent = &mut next[frame.parent..frame.parent + 32];
        put_big_endian(parent, &state);
        digests.push(Digest::of_words(&state));
        mem::swap(&mut this, &mut next);
        swapped = !swapped;
    }
    let mut state = SHA256_START;
    compress256(&mut state, this[..padded_len(len)].as_chunks().0);
    digests.push(Digest::of_words(&state));
    (len, swapped)
}

/// [`sha256`] with XXH3-128, whose state is short enough for a processor to look past it.
fn xxh3<W: Words>(
    frame: &Frame,
    [mut this, mut next]: [&mut [u8]; 2],
    first: &[u32],
    blocks: ChunksExact<'_, u32>,
    digests: &mut Vec<Digest>,
) -> (usize, bool) {
    let mut len = frame.write::<W>(this, frame.before_len, first);
    let mut swapped = false;
    for tokens in blocks {
        let next_len = frame.write::<W>(next, frame.before_len, tokens);
        let digest = XxHash3_128::oneshot(&this[..len]).to_be_bytes();
        next[frame.parent..frame.parent + 16].copy_from_slice(&digest);
        digests.push(Digest::new16(digest));
        len = next_len;
        mem::swap(&mut this, &mut next);
        swapped = !swapped;
    }
    digests.push(Digest::new16(XxHash3_128::oneshot(&this[..len]).to_be_bytes()));
    (len, swapped)
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
        let (mut before, mut after) = ([0; MAX_BEFORE], [0; MAX_AFTER + MAX_PADDING]);
        let (head, tail) = hasher.preimage.as_slice().split_at_checked(before_len)?;
        before.get_mut(..before_len)?.copy_from_slice(head);
        after.get_mut(..MAX_AFTER)?.get_mut(..tail.len())?.copy_from_slice(tail);
        after[tail.len()] = SHA256_PADDING;
        // Behind `80 05`, the frame's header and `43 20`; or behind `83 58 20` or `83 50`.
        let parent = match serialiser {
            Serialiser::Pickle => 13,
            Serialiser::Cbor => 2 + usize::from(digest_len >= 24),
        };
        let after_len = whole_len - before_len;
        Some(Self { block_size, serialiser, before, before_len, parent, after, after_len })
    }

    /// Writes a block's last tokens and its end, padded for SHA-256; gives its length.
    #[inline]
    fn write<W: Words>(&self, out: &mut [u8], at: usize, tokens: &[u32]) -> usize {
        let at = put_tokens::<W>(out, at, tokens);
        out[at..at + self.after.len()].copy_from_slice(&self.after);
        let len = at + self.after_len;
        put_length(out, len);
        if self.serialiser == Serialiser::Pickle {
            pickle::put_frame_length(out, len);
        }
        len
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
