//! The part of canonical CBOR (RFC 8949, core deterministic encoding) that block hashes use.
//!
//! Same bytes as Python's `cbor2.dumps(x, canonical=True)`, 5.4 to 6.3, for tuples, integers of 64
//! bits, byte strings, text and `None`. Everything is appended to a buffer the caller reuses.

const UINT: u8 = 0x00;
const NEGATIVE: u8 = 0x20;
const BYTES: u8 = 0x40;
const TEXT: u8 = 0x60;
const ARRAY: u8 = 0x80;
const NULL: u8 = 0xf6;

/// The most bytes a 32-bit unsigned integer takes.
pub(super) const MAX_U32: usize = 5;

/// Starts an array (Python tuple) of `len` items.
pub(super) fn array(out: &mut Vec<u8>, len: usize) {
    header(out, ARRAY, len as u64);
}

/// An integer of either sign.
pub(super) fn int(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        header(out, NEGATIVE, !value as u64);
    } else {
        header(out, UINT, value as u64);
    }
}

/// A non-negative integer.
pub(super) fn uint(out: &mut Vec<u8>, value: u64) {
    header(out, UINT, value);
}

/// A byte string.
pub(super) fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    header(out, BYTES, value.len() as u64);
    out.extend_from_slice(value);
}

/// A text string; its length is counted in UTF-8 bytes.
pub(super) fn text(out: &mut Vec<u8>, value: &str) {
    header(out, TEXT, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

/// Python's `None`.
pub(super) fn null(out: &mut Vec<u8>) {
    out.push(NULL);
}

/// A major type with its argument in the fewest bytes.
#[inline]
fn header(out: &mut Vec<u8>, major: u8, argument: u64) {
    if argument < 24 {
        out.push(major | argument as u8);
    } else if let Ok(n) = u8::try_from(argument) {
        out.extend_from_slice(&[major | 24, n]);
    } else if let Ok(n) = u16::try_from(argument) {
        let [a, b] = n.to_be_bytes();
        out.extend_from_slice(&[major | 25, a, b]);
    } else if let Ok(n) = u32::try_from(argument) {
        let [a, b, c, d] = n.to_be_bytes();
        out.extend_from_slice(&[major | 26, a, b, c, d]);
    } else {
        out.push(major | 27);
        out.extend_from_slice(&argument.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
