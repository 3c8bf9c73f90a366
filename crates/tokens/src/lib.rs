//! Bearer tokens: what one looks like, how it is shown in a header, and how it is compared.
//!
//! It knows no header maps and no roles: every port that lets in by a token has its own.

use std::hint::black_box;
use std::ops::RangeInclusive;

use sha2::{Digest as _, Sha256};

/// How many bytes a token of a port of ours has: shorter ones can be guessed by trying.
pub const BYTES: RangeInclusive<usize> = 8..=512;

/// Whether a token of such a port can be shown in a header, and not guessed.
#[must_use]
pub fn is_token(text: &str) -> bool {
    BYTES.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The token of `Bearer …`, the value of the header `authorization`.
#[must_use]
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// A token as it is kept: it cannot be read from this, and comparing two takes the same time wherever they
/// differ.
#[derive(Clone, Copy)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Of a token, whatever it looks like.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl PartialEq for TokenDigest {
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b));
        black_box(differing) == 0
    }
}

impl Eq for TokenDigest {}

impl std::fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenDigest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_guessed_or_not_be_shown_is_no_token() {
        for (text, is) in [
            ("12345678", true),
            ("1234567", false),
            ("1234 678", false),
            ("1234\u{e9}678", false),
            ("", false),
        ] {
            assert_eq!(is_token(text), is, "{text:?}");
        }
        assert!(is_token(&"x".repeat(512)) && !is_token(&"x".repeat(513)));
    }

    #[test]
    fn tokens_are_shown_as_bearers() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bEARER   abc  "), Some(&b"abc"[..]));
        for other in [&b"Bearer"[..], b"Basic abc", b"", b"Bearerabc"] {
            assert_eq!(bearer(other), None, "{other:?}");
        }
    }

    #[test]
    fn one_bit_is_a_difference_and_nothing_is_shown() {
        let one = TokenDigest::of(b"a token");
        assert_eq!(one, TokenDigest::of(b"a token"));
        for bit in 0..256 {
            let mut other = one;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(one, other, "{bit}");
        }
        assert_eq!(format!("{one:?}"), "TokenDigest");
    }
}
