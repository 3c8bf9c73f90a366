//! Pickle protocol 5 as `CPython`'s C pickler writes it, for what block hashes use.
//!
//! Same bytes as `pickle.dumps(x, protocol=5)` on `CPython` 3.8 to 3.13 for nested tuples of
//! integers, `bytes`, `str` and `None`. Three things make the bytes depend on more than values:
//!
//! * *Frames*: the stream is cut into length-prefixed frames. Before each object, a frame of at
//!   least 64 KiB is closed; strings and bytes of 64 KiB and more are written outside frames.
//! * *Memo*: strings, bytes and non-empty tuples are numbered in the order they are written.
//! * *Identity*: an object met again is written as its number. That concerns objects, not values:
//!   equal strings of two requests are two objects. See [`Sharing`].

use super::encode::{Encode, Sharing};
use crate::buffer::{Buffer, Words};

const PROTO: u8 = 0x80;
const FRAME: u8 = 0x95;
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const EMPTY_TUPLE: u8 = b')';
const TUPLE: u8 = b't';
const TUPLE1: u8 = 0x85;
const NONE: u8 = b'N';
const MEMOIZE: u8 = 0x94;
const GET: u8 = b'h';
const LONG_GET: u8 = b'j';
const INT8: u8 = b'K';
const INT16: u8 = b'M';
const INT32: u8 = b'J';
const LONG1: u8 = 0x8a;
const BYTES8: u8 = b'C';
const BYTES32: u8 = b'B';
const BYTES64: u8 = 0x8e;
const TEXT8: u8 = 0x8c;
const TEXT32: u8 = b'X';
const TEXT64: u8 = 0x8d;

const FRAME_HEADER: usize = 9;
/// A frame is closed before the next object once it holds this much.
pub(super) const FRAME_TARGET: usize = 64 * 1024;
/// Shorter frames are written without header.
const FRAME_MIN: usize = 4;
/// The most bytes a 32-bit unsigned integer takes.
pub(super) const MAX_U32: usize = 7;

/// A string that a later equal one can refer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    constant: bool,
    /// Where its UTF-8 lies in the buffer.
    start: usize,
    len: usize,
    memo: u32,
}

/// Writes a pickle to a buffer.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    out: &'a mut Buffer,
    /// Where the open frame's header is.
    frame: Option<usize>,
    memo: u32,
    seen: &'a mut Vec<Seen>,
}

/// Writes the length of the only frame of a pickle of `len` bytes, behind `80 05 95`.
#[inline]
pub(super) fn put_frame_length(out: &mut [u8], len: usize) {
    let frame = (len - 2 - FRAME_HEADER) as u64;
    out[3..11].copy_from_slice(&frame.to_le_bytes());
}

impl<'a> Pickle<'a> {
    /// Starts a pickle; `seen` is scratch space.
    pub(super) fn new(out: &'a mut Buffer, seen: &'a mut Vec<Seen>) -> Self {
        seen.clear();
        out.put(&[PROTO, 5]);
        Self { out, frame: None, memo: 0, seen }
    }

    /// Opens a frame if none is open; must come before whatever is written.
    #[inline]
    fn open(&mut self) -> usize {
        if let Some(start) = self.frame {
            return start;
        }
        let start = self.out.len();
        self.out.put(&[0; FRAME_HEADER]);
        self.frame = Some(start);
        start
    }

    fn close(&mut self) {
        let Some(start) = self.frame.take() else { return };
        let len = self.out.len() - start - FRAME_HEADER;
        if len >= FRAME_MIN {
            self.out.overwrite(start, &[FRAME]);
            self.out.overwrite(start + 1, &(len as u64).to_le_bytes());
            return;
        }
        self.out.remove(start, FRAME_HEADER);
        for seen in self.seen.iter_mut().filter(|seen| seen.start > start) {
            seen.start -= FRAME_HEADER;
        }
    }

    /// The boundary in front of an object.
    #[inline]
    fn object(&mut self) {
        if let Some(start) = self.frame
            && self.out.len() - start - FRAME_HEADER >= FRAME_TARGET
        {
            self.close();
        }
        self.open();
    }

    #[inline]
    fn memoize(&mut self) -> u32 {
        self.open();
        self.out.push(MEMOIZE);
        let number = self.memo;
        self.memo += 1;
        number
    }

    /// A length-prefixed payload; gives where the payload lies.
    #[inline]
    fn payload(&mut self, opcodes: [u8; 3], value: &[u8]) -> usize {
        let outside = value.len() >= FRAME_TARGET;
        if outside {
            self.close();
        } else {
            self.open();
        }
        let [short, medium, long] = opcodes;
        if let Ok(len) = u8::try_from(value.len()) {
            self.out.put(&[short, len]);
        } else if let Ok(len) = u32::try_from(value.len()) {
            self.out.push(medium);
            self.out.put(&len.to_le_bytes());
        } else {
            self.out.push(long);
            self.out.put(&(value.len() as u64).to_le_bytes());
        }
        let start = self.out.len();
        self.out.put(value);
        start
    }

    /// An integer of more than 32 bits: little-endian two's complement, with a sign bit to spare.
    fn long(&mut self, little_endian: &[u8]) {
        self.out.put(&[LONG1, little_endian.len() as u8]);
        self.out.put(little_endian);
    }

    /// An integer that fits 32 signed bits.
    fn short(&mut self, value: i32) {
        let bytes = value.to_le_bytes();
        match bytes {
            [low, 0, 0, 0] => self.out.put(&[INT8, low]),
            [low, high, 0, 0] => self.out.put(&[INT16, low, high]),
            _ => {
                self.out.push(INT32);
                self.out.put(&bytes);
            }
        }
    }

    fn seen(&self, value: &str, constant: bool) -> Option<u32> {
        let same = |seen: &&Seen| {
            seen.constant == constant
                && self.out.as_slice().get(seen.start..seen.start + seen.len)
                    == Some(value.as_bytes())
        };
        self.seen.iter().find(same).map(|seen| seen.memo)
    }
}

/// Whether `CPython` keeps one object for all strings of this value: the empty one and single
/// Latin-1 characters.
fn is_one_object(value: &str) -> bool {
    let mut chars = value.chars();
    chars.next().is_none_or(|c| u32::from(c) < 256 && chars.next().is_none())
}

/// How an integer of each width is written: 8, 16, 31 and 32 bits.
const LEAD: [u64; 4] = [INT8 as u64, INT16 as u64, INT32 as u64, LONG1 as u64 | 5 << 8];
const LEAD_BITS: [u32; 4] = [8, 8, 8, 16];
const LENGTH: [usize; 4] = [2, 3, 5, MAX_U32];

impl Words for Pickle<'_> {
    const LONGEST: usize = MAX_U32;

    #[inline]
    fn word(token: u32) -> (u64, usize) {
        let width = usize::from(token > 0xff)
            + usize::from(token > 0xffff)
            + usize::from(token > i32::MAX as u32);
        (u64::from(token) << LEAD_BITS[width] | LEAD[width], LENGTH[width])
    }
}

impl Encode for Pickle<'_> {
    #[inline]
    fn begin_tuple(&mut self, len: usize) {
        self.object();
        if len > 3 {
            self.out.push(MARK);
        }
    }

    #[inline]
    fn end_tuple(&mut self, len: usize) {
        self.open();
        match len {
            0 => return self.out.push(EMPTY_TUPLE),
            1..=3 => self.out.push(TUPLE1 + (len as u8 - 1)),
            _ => self.out.push(TUPLE),
        }
        self.memoize();
    }

    fn uint(&mut self, value: u64) {
        self.object();
        if let Ok(value) = i32::try_from(value) {
            return self.short(value);
        }
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        let len = (u64::BITS - value.leading_zeros()) as usize / 8 + 1;
        self.long(&bytes[..len]);
    }

    fn int(&mut self, value: i64) {
        if let Ok(value) = u64::try_from(value) {
            return self.uint(value);
        }
        self.object();
        if let Ok(value) = i32::try_from(value) {
            return self.short(value);
        }
        // The sign bit and the bits that differ from it.
        let bits = 1 + i64::BITS - (!value).leading_zeros();
        self.long(&value.to_le_bytes()[..bits.div_ceil(8) as usize]);
    }

    fn big_uint(&mut self, big_endian: &[u8]) {
        let zeros = big_endian.iter().take_while(|b| **b == 0).count();
        let significant = &big_endian[zeros..];
        if significant.len() <= 8 {
            return self.uint(significant.iter().fold(0, |n, &b| (n << 8) | u64::from(b)));
        }
        self.object();
        let sign_byte = usize::from(significant.first().is_some_and(|top| *top >= 0x80));
        self.out.put(&[LONG1, (significant.len() + sign_byte) as u8]);
        significant.iter().rev().for_each(|byte| self.out.push(*byte));
        if sign_byte == 1 {
            self.out.push(0);
        }
    }

    #[inline]
    fn tokens(&mut self, mut tokens: &[u32]) {
        while !tokens.is_empty() {
            self.object();
            let start = self.open();
            let held = self.out.len() - start - FRAME_HEADER;
            // As many as cannot fill the frame need no check in between; the rest one by one.
            let unchecked = (FRAME_TARGET.saturating_sub(held) / MAX_U32).max(1);
            let (now, later) = tokens.split_at(unchecked.min(tokens.len()));
            self.out.put_tokens::<Self>(now);
            tokens = later;
        }
    }

    #[inline]
    fn bytes(&mut self, value: &[u8]) {
        self.object();
        self.payload([BYTES8, BYTES32, BYTES64], value);
        self.memoize();
    }

    fn text(&mut self, value: &str, sharing: Sharing) {
        self.object();
        let constant = sharing == Sharing::Constant;
        let shared = sharing != Sharing::Own || is_one_object(value);
        if shared && let Some(memo) = self.seen(value, constant) {
            match u8::try_from(memo) {
                Ok(memo) => self.out.put(&[GET, memo]),
                Err(_) => {
                    self.out.push(LONG_GET);
                    self.out.put(&memo.to_le_bytes());
                }
            }
            return;
        }
        let start = self.payload([TEXT8, TEXT32, TEXT64], value.as_bytes());
        let memo = self.memoize();
        if shared {
            self.seen.push(Seen { constant, start, len: value.len(), memo });
        }
    }

    #[inline]
    fn none(&mut self) {
        self.object();
        self.out.push(NONE);
    }

    fn finish(mut self) {
        self.open();
        self.out.push(STOP);
        self.close();
    }
}

#[cfg(test)]
mod tests;
