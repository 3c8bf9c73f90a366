//! Hexadecimal text, as digests are written in logs and configuration.

use std::fmt;

/// Writes bytes in lower case.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

/// Reads text of either case into `out`; gives the number of bytes, or `None` for anything that
/// is not whole bytes of hex or does not fit.
pub(crate) fn read(text: &str, out: &mut [u8]) -> Option<usize> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() / 2 > out.len() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(digits.len() / 2)
}
