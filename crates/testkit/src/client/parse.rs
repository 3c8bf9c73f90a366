//! HTTP/1.1 response heads and body framing, as far as a strict test client needs.

use super::{MAX_BODY, invalid};
use std::io;

/// The head of a response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// Names as sent, and values, in order.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The first value of a header, whatever its case; `None` when absent.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let same = move |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.headers.iter().filter(same).map(|(_, value)| value.as_str())
    }
}

/// Where the body ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Framing {
    /// No body, or its end has been reached.
    None,
    /// Bytes left, at least one.
    Length(u64),
    Chunked,
    UntilClose,
}

impl Framing {
    pub(super) fn length(n: u64) -> Self {
        if n == 0 { Self::None } else { Self::Length(n) }
    }

    /// The framing that RFC 9112 section 6.3 gives this response.
    pub(super) fn of(head: &Head, to_head_request: bool) -> io::Result<Self> {
        if to_head_request || matches!(head.status, 100..200 | 204 | 304) {
            return Ok(Self::None);
        }
        let lengths: Vec<&str> = head.all("content-length").collect();
        if let Some(encoding) = head.header("transfer-encoding") {
            if !encoding.eq_ignore_ascii_case("chunked") {
                return Err(invalid("unknown transfer-encoding"));
            }
            if !lengths.is_empty() {
                return Err(invalid("both content-length and transfer-encoding"));
            }
            return Ok(Self::Chunked);
        }
        match lengths.as_slice() {
            [] => Ok(Self::UntilClose),
            [one] if one.bytes().all(|b| b.is_ascii_digit()) => match one.parse() {
                Ok(n) if n <= MAX_BODY => Ok(Self::length(n)),
                _ => Err(invalid("bad content-length")),
            },
            _ => Err(invalid("bad content-length")),
        }
    }
}

/// The head at the start of `buf` and its length with the blank line; `None` when
/// more bytes are needed.
pub(super) fn parse_head(buf: &[u8]) -> io::Result<Option<(Head, usize)>> {
    // Garbage must not pass for an unfinished head.
    let start = b"HTTP/1.".iter().zip(buf).all(|(want, have)| want == have);
    if !start {
        return Err(invalid("the answer does not start with HTTP/1."));
    }
    let Some(end) = buf.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&buf[..end]).map_err(|_| invalid("the head is not UTF-8"))?;
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.split(' ').nth(1).filter(|s| s.len() == 3);
    let status = status.and_then(|s| s.parse().ok()).ok_or_else(|| invalid("bad status line"))?;
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| invalid("bad header line"))?;
        if name.is_empty() || name.contains([' ', '\t', '\n']) {
            return Err(invalid("bad header name"));
        }
        headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
    Ok(Some((Head { status, headers }, end + 4)))
}

/// The size in a chunk's first line; extensions are allowed and left out.
pub(super) fn chunk_size(line: &[u8]) -> io::Result<u64> {
    let digits = line.split(|b| *b == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).map_err(|_| invalid("bad chunk size"))?;
    if !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(invalid("bad chunk size"));
    }
    u64::from_str_radix(text, 16).map_err(|_| invalid("bad chunk size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        parse_head(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn reads_a_head_and_says_how_long_it_is() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nx-a:  b \r\n\r\nabc";
        let (head, length) = parse_head(text).unwrap().unwrap();
        assert_eq!((head.status, &text[length..]), (200, b"abc".as_slice()));
        assert_eq!((head.header("content-length"), head.header("X-A")), (Some("3"), Some("b")));
        assert_eq!(head.header("x-b"), None);
        for cut in 0..length {
            assert_eq!(parse_head(&text[..cut]).unwrap(), None, "cut at {cut}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_head() {
        for text in [
            "garbage",
            "SSH-2.0",
            "HTTP/1.1 OK\r\n\r\n",
            "HTTP/1.1 20\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n",
        ] {
            assert!(parse_head(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn framing_follows_the_rfc() {
        let of = |text: &str, to_head| Framing::of(&head(text), to_head).unwrap();
        let length = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
        assert_eq!(of(length, false), Framing::Length(5));
        assert_eq!(of(length, true), Framing::None);
        assert_eq!(of("HTTP/1.1 204 No\r\ncontent-length: 5\r\n\r\n", false), Framing::None);
        assert_eq!(of("HTTP/1.1 200 OK\r\n\r\n", false), Framing::UntilClose);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";
        assert_eq!(of(chunked, false), Framing::Chunked);
    }

    #[test]
    fn refuses_contradictory_framing() {
        for headers in [
            "content-length: 5\r\ntransfer-encoding: chunked",
            "content-length: 5\r\ncontent-length: 6",
            "content-length: -5",
            "content-length: +5",
            "content-length: 99999999999999999999",
            "transfer-encoding: gzip",
        ] {
            let head = head(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n"));
            assert!(Framing::of(&head, false).is_err(), "{headers}");
        }
    }

    #[test]
    fn chunk_sizes() {
        assert_eq!(chunk_size(b"1aF").unwrap(), 0x1af);
        assert_eq!(chunk_size(b"5;name=value").unwrap(), 5);
        for line in [b"".as_slice(), b"+5", b"xyz", b"fffffffffffffffff", b" 5"] {
            assert!(chunk_size(line).is_err(), "{line:?}");
        }
    }
}
