//! The part of canonical CBOR (RFC 8949, core deterministic encoding) that block hashes use.
//!
//! Same bytes as Python's `cbor2.dumps(x, canonical=True)`, 5.4 to 6.3, for tuples, integers, byte
//! strings, text and `None`. Everything is appended to a buffer the caller reuses.

use super::encode::{Encode, Sharing};
use crate::buffer::{Buffer, Words};

const UINT: u8 = 0x00;
const NEGATIVE: u8 = 0x20;
const BYTES: u8 = 0x40;
const TEXT: u8 = 0x60;
const ARRAY: u8 = 0x80;
const TAG: u8 = 0xc0;
const NULL: u8 = 0xf6;
/// The tag of an unsigned bignum.
const BIGNUM: u64 = 2;

/// The most bytes a 32-bit unsigned integer takes.
const MAX_U32: usize = 5;

/// Writes canonical CBOR to a buffer.
#[derive(Debug)]
pub(super) struct Cbor<'a> {
    out: &'a mut Buffer,
}

impl<'a> Cbor<'a> {
    pub(super) fn new(out: &'a mut Buffer) -> Self {
        Self { out }
    }

    /// A major type with its argument in the fewest bytes.
    #[inline]
    fn header(&mut self, major: u8, argument: u64) {
        if argument < 24 {
            self.out.push(major | argument as u8);
        } else if let Ok(n) = u8::try_from(argument) {
            self.out.put(&[major | 24, n]);
        } else if let Ok(n) = u16::try_from(argument) {
            let [a, b] = n.to_be_bytes();
            self.out.put(&[major | 25, a, b]);
        } else if let Ok(n) = u32::try_from(argument) {
            let [a, b, c, d] = n.to_be_bytes();
            self.out.put(&[major | 26, a, b, c, d]);
        } else {
            self.out.push(major | 27);
            self.out.put(&argument.to_be_bytes());
        }
    }
}

/// How an integer of each width is written (below 24, then 8, 16 and 32 bits): its lead byte above
/// its digits, and the shift that brings the lead byte to the top.
const LEAD: [u64; 4] = [0, 24 << 8, 25 << 16, 26 << 32];
const SHIFT: [u32; 4] = [56, 48, 40, 24];
const LENGTH: [usize; 4] = [1, 2, 3, MAX_U32];

impl Words for Cbor<'_> {
    const LONGEST: usize = MAX_U32;

    #[inline]
    fn word(token: u32) -> (u64, usize) {
        let width =
            usize::from(token > 23) + usize::from(token > 0xff) + usize::from(token > 0xffff);
        (((u64::from(token) | LEAD[width]) << SHIFT[width]).swap_bytes(), LENGTH[width])
    }
}

impl Encode for Cbor<'_> {
    #[inline]
    fn begin_tuple(&mut self, len: usize) {
        self.header(ARRAY, len as u64);
    }

    #[inline]
    fn end_tuple(&mut self, _len: usize) {}

    fn uint(&mut self, value: u64) {
        self.header(UINT, value);
    }

    fn int(&mut self, value: i64) {
        if value < 0 {
            self.header(NEGATIVE, !value as u64);
        } else {
            self.header(UINT, value as u64);
        }
    }

    fn big_uint(&mut self, big_endian: &[u8]) {
        let zeros = big_endian.iter().take_while(|b| **b == 0).count();
        let significant = &big_endian[zeros..];
        if significant.len() <= 8 {
            let value = significant.iter().fold(0, |n, &b| (n << 8) | u64::from(b));
            self.header(UINT, value);
        } else {
            self.header(TAG, BIGNUM);
            self.bytes(significant);
        }
    }

    #[inline]
    fn tokens(&mut self, tokens: &[u32]) {
        self.out.put_tokens::<Self>(tokens);
    }

    #[inline]
    fn bytes(&mut self, value: &[u8]) {
        self.header(BYTES, value.len() as u64);
        self.out.put(value);
    }

    fn text(&mut self, value: &str, _sharing: Sharing) {
        self.header(TEXT, value.len() as u64);
        self.out.put(value.as_bytes());
    }

    #[inline]
    fn none(&mut self) {
        self.out.push(NULL);
    }

    fn finish(self) {}
}

#[cfg(test)]
mod tests;
