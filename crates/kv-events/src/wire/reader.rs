//! A `MessagePack` reader over borrowed bytes that cannot be made to recurse or over-allocate.
//!
//! Lengths are checked against the bytes that are left (an element takes at least one), so nothing
//! allocated for a container exceeds a small multiple of the payload, and values of no interest
//! are skipped in a loop, however deep they nest.

use super::Problem;

/// A value's head: scalars whole, containers by the number of their elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    Nil,
    Bool,
    Uint(u64),
    /// A negative integer.
    Int(i64),
    Float(f64),
    Str(&'a [u8]),
    Bin(&'a [u8]),
    Array(usize),
    /// Pairs.
    Map(usize),
    Ext,
}

#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Result<T> = std::result::Result<T, Problem>;

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Bytes not yet read.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Reads one head.
    pub(crate) fn next(&mut self) -> Result<Token<'a>> {
        let [head] = self.fixed::<1>()?;
        Ok(match head {
            0x00..=0x7f => Token::Uint(u64::from(head)),
            0xe0..=0xff => Token::Int(i64::from(head.cast_signed())),
            0x80..=0x8f => Token::Map(self.pairs(usize::from(head & 0x0f))?),
            0x90..=0x9f => Token::Array(self.elements(usize::from(head & 0x0f))?),
            0xa0..=0xbf => Token::Str(self.take(usize::from(head & 0x1f))?),
            0xc0 => Token::Nil,
            0xc1 => return Err(Problem::Reserved),
            0xc2 | 0xc3 => Token::Bool,
            0xc4 | 0xd9 => {
                let len = usize::from(self.fixed::<1>()?[0]);
                self.text_or_bin(head == 0xd9, len)?
            }
            0xc5 | 0xda => {
                let len = usize::from(u16::from_be_bytes(self.fixed()?));
                self.text_or_bin(head == 0xda, len)?
            }
            0xc6 | 0xdb => {
                let len = self.len32()?;
                self.text_or_bin(head == 0xdb, len)?
            }
            0xca => Token::Float(f64::from(f32::from_be_bytes(self.fixed()?))),
            0xcb => Token::Float(f64::from_be_bytes(self.fixed()?)),
            0xcc => Token::Uint(u64::from(self.fixed::<1>()?[0])),
            0xcd => Token::Uint(u64::from(u16::from_be_bytes(self.fixed()?))),
            0xce => Token::Uint(u64::from(u32::from_be_bytes(self.fixed()?))),
            0xcf => Token::Uint(u64::from_be_bytes(self.fixed()?)),
            0xd0 => signed(i64::from(i8::from_be_bytes(self.fixed()?))),
            0xd1 => signed(i64::from(i16::from_be_bytes(self.fixed()?))),
            0xd2 => signed(i64::from(i32::from_be_bytes(self.fixed()?))),
            0xd3 => signed(i64::from_be_bytes(self.fixed()?)),
            0xd4..=0xd8 => self.ext(1 << (head - 0xd4))?,
            0xc7 => {
                let len = usize::from(self.fixed::<1>()?[0]);
                self.ext(len)?
            }
            0xc8 => {
                let len = usize::from(u16::from_be_bytes(self.fixed()?));
                self.ext(len)?
            }
            0xc9 => {
                let len = self.len32()?;
                self.ext(len)?
            }
            0xdc | 0xde => {
                let len = usize::from(u16::from_be_bytes(self.fixed()?));
                self.container(head == 0xde, len)?
            }
            0xdd | 0xdf => {
                let len = self.len32()?;
                self.container(head == 0xdf, len)?
            }
        })
    }

    /// Reads one value and drops it.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let mut open = 1_usize;
        while open > 0 {
            open -= 1;
            open += match self.next()? {
                Token::Array(n) => n,
                Token::Map(n) => n * 2,
                _ => 0,
            };
        }
        Ok(())
    }

    /// Drops what was opened: `count` more values.
    pub(crate) fn skip_many(&mut self, count: usize) -> Result<()> {
        (0..count).try_for_each(|_| self.skip())
    }

    /// Reads an unsigned integer that fits 32 bits: the hot path of token ids.
    #[inline]
    pub(crate) fn small(&mut self) -> Option<u32> {
        let rest = self.bytes.get(self.at..)?;
        let (value, used) = match *rest {
            [b @ 0..=0x7f, ..] => (u32::from(b), 1),
            [0xcd, a, b, ..] => (u32::from(u16::from_be_bytes([a, b])), 3),
            [0xce, a, b, c, d, ..] => (u32::from_be_bytes([a, b, c, d]), 5),
            [0xcc, a, ..] => (u32::from(a), 2),
            _ => return None,
        };
        self.at += used;
        Some(value)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(len).ok_or(Problem::Truncated)?;
        let bytes = self.bytes.get(self.at..end).ok_or(Problem::Truncated)?;
        self.at = end;
        Ok(bytes)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Problem::Truncated)
    }

    fn len32(&mut self) -> Result<usize> {
        usize::try_from(u32::from_be_bytes(self.fixed()?)).map_err(|_| Problem::Truncated)
    }

    fn text_or_bin(&mut self, text: bool, len: usize) -> Result<Token<'a>> {
        let bytes = self.take(len)?;
        Ok(if text { Token::Str(bytes) } else { Token::Bin(bytes) })
    }

    fn ext(&mut self, len: usize) -> Result<Token<'a>> {
        self.take(len.checked_add(1).ok_or(Problem::Truncated)?)?;
        Ok(Token::Ext)
    }

    fn container(&mut self, map: bool, len: usize) -> Result<Token<'a>> {
        Ok(if map { Token::Map(self.pairs(len)?) } else { Token::Array(self.elements(len)?) })
    }

    fn elements(&self, count: usize) -> Result<usize> {
        if count <= self.left() { Ok(count) } else { Err(Problem::Truncated) }
    }

    fn pairs(&self, count: usize) -> Result<usize> {
        if count <= self.left() / 2 { Ok(count) } else { Err(Problem::Truncated) }
    }
}

fn signed<'a>(value: i64) -> Token<'a> {
    u64::try_from(value).map_or(Token::Int(value), Token::Uint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rmpv::Value;

    use super::{Problem, Reader, Token};

    type Result<T> = std::result::Result<T, Problem>;

    fn one(bytes: &[u8]) -> Result<Token<'_>> {
        Reader::new(bytes).next()
    }

    #[test]
    fn integers_of_every_width() {
        assert_eq!(one(&[0x7f]), Ok(Token::Uint(127)));
        assert_eq!(one(&[0xcc, 0x80]), Ok(Token::Uint(128)));
        assert_eq!(one(&[0xcd, 1, 0]), Ok(Token::Uint(256)));
        assert_eq!(one(&[0xce, 0, 1, 0, 0]), Ok(Token::Uint(65536)));
        assert_eq!(one(&[0xcf, 0xff, 0, 0, 0, 0, 0, 0, 0]), Ok(Token::Uint(0xff << 56)));
        assert_eq!(one(&[0xff]), Ok(Token::Int(-1)));
        assert_eq!(one(&[0xe0]), Ok(Token::Int(-32)));
        assert_eq!(one(&[0xd0, 0x80]), Ok(Token::Int(-128)));
        assert_eq!(one(&[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]), Ok(Token::Int(i64::MIN)));
        // A positive value in a signed form is an unsigned one.
        assert_eq!(one(&[0xd1, 0, 5]), Ok(Token::Uint(5)));
    }

    #[test]
    fn lengths_beyond_the_payload_are_refused_before_anything_is_allocated() {
        for bytes in [
            &[0xdd, 0xff, 0xff, 0xff, 0xff][..],
            &[0xdf, 0xff, 0xff, 0xff, 0xff],
            &[0xdb, 0xff, 0xff, 0xff, 0xff],
            &[0xc6, 0xff, 0xff, 0xff, 0xff],
            &[0xc9, 0xff, 0xff, 0xff, 0xff],
            &[0x82, 1, 2, 3],
            &[0x92, 1],
            &[0xa2, b'x'],
            &[0xcb, 0],
            &[],
        ] {
            let outcome = Reader::new(bytes).skip();
            assert_eq!(outcome, Err(Problem::Truncated), "{bytes:02x?}");
        }
        assert_eq!(one(&[0xc1]), Err(Problem::Reserved));
    }

    /// A value of every kind, nested to some depth.
    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f32>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-zé]{0,40}".prop_map(Value::from),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::from),
            (any::<i8>(), prop::collection::vec(any::<u8>(), 0..40))
                .prop_map(|(kind, bytes)| Value::Ext(kind, bytes)),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_skipped_the_next_value_is_read(
            many in prop::collection::vec(values(), 0..4),
            last in any::<u64>(),
        ) {
            let mut bytes = Vec::new();
            for value in &many {
                rmpv::encode::write_value(&mut bytes, value).expect("a vector takes all");
            }
            rmpv::encode::write_value(&mut bytes, &last.into()).expect("a vector takes all");
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.skip_many(many.len()), Ok(()));
            prop_assert_eq!(reader.next(), Ok(Token::Uint(last)));
            prop_assert_eq!((reader.left(), reader.position()), (0, bytes.len()));
        }
    }

    #[test]
    fn deep_nesting_is_skipped_without_recursion() {
        let mut bytes = vec![0x91; 1_000_000];
        bytes.push(0xc0);
        bytes.push(0x07);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.skip(), Ok(()));
        assert_eq!(reader.next(), Ok(Token::Uint(7)));
        assert_eq!(reader.left(), 0);
    }
}
