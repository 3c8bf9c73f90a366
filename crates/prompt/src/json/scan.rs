//! The scanner: walks over JSON text, checking it and skipping values without recursion.

use std::borrow::Cow;

/// What is wrong with a text, and at which byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonError {
    pub(crate) message: &'static str,
    pub(crate) offset: usize,
    /// False where Python's parser would take the text, but something after it would not.
    pub(crate) malformed: bool,
}

impl JsonError {
    pub(crate) fn malformed(message: &'static str, offset: usize) -> Self {
        Self { message, offset, malformed: true }
    }

    pub(crate) fn refused(message: &'static str, offset: usize) -> Self {
        Self { message, offset, malformed: false }
    }
}

/// Line and column (from 1, columns in characters) of a byte offset.
pub(crate) fn position(body: &[u8], offset: usize) -> (usize, usize) {
    let before = body.get(..offset.min(body.len())).unwrap_or_default();
    let line = 1 + before.iter().filter(|b| **b == b'\n').count();
    let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    let rest = before.get(start..).unwrap_or_default();
    // Continuation bytes are no characters of their own.
    (line, 1 + rest.iter().filter(|b| **b & 0xC0 != 0x80).count())
}

/// Whether the first thing in the body opens an object.
pub(crate) fn is_object(body: &[u8]) -> bool {
    body.iter().find(|b| !is_space(**b)) == Some(&b'{')
}

/// Whether the text is one JSON value.
pub(crate) fn is_valid(text: &str) -> bool {
    let mut scanner = Scanner::new(text);
    scanner.skip().and_then(|()| scanner.end()).is_ok()
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | b'\r')
}

/// Calls `field` with key and raw text of each top-level field, in order, duplicates included.
/// The whole text is checked, whatever `field` does with it.
pub(crate) fn top_level<'a>(
    text: &'a str,
    mut field: impl FnMut(&str, &'a str) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    walk(text, |s, key, _| {
        let start = s.pos;
        s.skip()?;
        field(key, text.get(start..s.pos).unwrap_or_default())
    })
}

/// Calls `value` at the value of each top-level field, with its key and where that begins: it must
/// move the scanner behind the value.
pub(crate) fn walk<'a>(
    text: &'a str,
    mut value: impl FnMut(&mut Scanner<'a>, &str, usize) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    let mut s = Scanner::new(text);
    s.space();
    s.expect(b'{', "expected an object")?;
    s.space();
    if s.eat(b'}') {
        return s.end();
    }
    loop {
        s.space();
        let at = s.pos;
        let key = s.key()?;
        s.value_start()?;
        value(&mut s, &key, at)?;
        s.space();
        if s.eat(b',') {
            continue;
        }
        s.expect(b'}', "expected `,` or `}`")?;
        return s.end();
    }
}

/// How many bytes of a string's text stand for themselves, eight at a time: long prompts are mostly
/// such text, broken by a `\n` a line.
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // The high bit of every byte that is 0; bytes above the lowest such one may be wrong.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let mut run = 0;
    for block in bytes.as_chunks::<8>().0 {
        let word = u64::from_le_bytes(*block);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let ends = zeros(word ^ (ONES * u64::from(b'"')))
            | zeros(word ^ (ONES * u64::from(b'\\')))
            | control;
        if ends != 0 {
            return run + ends.trailing_zeros() as usize / 8;
        }
        run += 8;
    }
    let is_plain = |b: &&u8| !matches!(**b, b'"' | b'\\' | 0..=0x1F);
    run + bytes.get(run..).unwrap_or_default().iter().take_while(is_plain).count()
}

/// A cursor over JSON text.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    pub(crate) pos: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, pos: 0 }
    }

    pub(crate) fn error<T>(&self, message: &'static str) -> Result<T, JsonError> {
        Err(JsonError::malformed(message, self.pos))
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    pub(crate) fn eat(&mut self, b: u8) -> bool {
        let hit = self.peek() == Some(b);
        self.pos += usize::from(hit);
        hit
    }

    pub(crate) fn expect(&mut self, b: u8, message: &'static str) -> Result<(), JsonError> {
        if self.eat(b) { Ok(()) } else { self.error(message) }
    }

    pub(crate) fn space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.pos += 1;
        }
    }

    /// Nothing but white space may follow.
    pub(crate) fn end(&mut self) -> Result<(), JsonError> {
        self.space();
        if self.peek().is_none() { Ok(()) } else { self.error("extra data after the JSON value") }
    }

    fn value_start(&mut self) -> Result<usize, JsonError> {
        self.space();
        self.expect(b':', "expected `:` after a key")?;
        self.space();
        Ok(self.pos)
    }

    pub(crate) fn key(&mut self) -> Result<Cow<'a, str>, JsonError> {
        if self.peek() != Some(b'"') {
            return self.error("expected a key in double quotes");
        }
        // A key with half a surrogate pair matches nothing; its exact text does not matter.
        Ok(self.string()?.0)
    }

    /// Skips one value, checking its grammar. Open brackets are kept on the heap.
    pub(crate) fn skip(&mut self) -> Result<(), JsonError> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            self.space();
            match self.peek() {
                Some(b'{') => {
                    self.pos += 1;
                    self.space();
                    if !self.eat(b'}') {
                        open.push(b'}');
                        self.skip_key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.pos += 1;
                    self.space();
                    if !self.eat(b']') {
                        open.push(b']');
                        continue;
                    }
                }
                Some(b'"') => self.skip_string()?,
                _ => {
                    self.scalar()?;
                }
            }
            if self.close(&mut open)? {
                return Ok(());
            }
        }
    }

    /// After a value: closes what ends here. True when the outermost value is complete.
    fn close(&mut self, open: &mut Vec<u8>) -> Result<bool, JsonError> {
        while let Some(end) = open.last().copied() {
            self.space();
            if self.eat(b',') {
                if end == b'}' {
                    self.skip_key()?;
                }
                return Ok(false);
            }
            self.expect(
                end,
                if end == b'}' { "expected `,` or `}`" } else { "expected `,` or `]`" },
            )?;
            open.pop();
        }
        Ok(true)
    }

    fn skip_key(&mut self) -> Result<(), JsonError> {
        self.space();
        if self.peek() != Some(b'"') {
            return self.error("expected a key in double quotes");
        }
        self.skip_string()?;
        self.value_start().map(drop)
    }

    /// A literal or number; its text.
    pub(crate) fn scalar(&mut self) -> Result<&'a str, JsonError> {
        let start = self.pos;
        let rest = self.text.get(start..).unwrap_or_default();
        for word in ["true", "false", "null", "NaN", "Infinity", "-Infinity"] {
            if rest.starts_with(word) {
                self.pos += word.len();
                return Ok(word);
            }
        }
        self.eat(b'-');
        if !self.eat(b'0') && self.digits() == 0 {
            self.pos = start;
            return self.error(if rest.is_empty() {
                "the text ends where a value should be"
            } else {
                "expected a value"
            });
        }
        self.fraction();
        Ok(self.text.get(start..self.pos).unwrap_or_default())
    }

    fn digits(&mut self) -> usize {
        let start = self.pos;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.pos += 1;
        }
        self.pos - start
    }

    /// Fraction and exponent, each only as far as it is complete: what is left over is refused
    /// as extra text afterwards, as in Python.
    fn fraction(&mut self) {
        let before = self.pos;
        if self.eat(b'.') && self.digits() == 0 {
            self.pos = before;
            return;
        }
        let before = self.pos;
        if self.eat(b'e') || self.eat(b'E') {
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            if self.digits() == 0 {
                self.pos = before;
            }
        }
    }

    /// Skips a string: long prompts are read here first, so the common escapes have a short way.
    fn skip_string(&mut self) -> Result<(), JsonError> {
        match self.common_string(|_, _| {}) {
            Some(end) => {
                self.pos = end;
                Ok(())
            }
            None => self.string_body(|_| {}),
        }
    }

    /// Walks over a string with no escapes but the common ones: `each` is given every run of plain
    /// text and the character that follows it. The place behind the closing quote; `None` for what
    /// is rare or wrong.
    fn common_string(&self, mut each: impl FnMut(&'a str, Option<char>)) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let mut pos = self.pos + 1;
        loop {
            let start = pos;
            pos += plain_run(bytes.get(pos..)?);
            let run = self.text.get(start..pos)?;
            if *bytes.get(pos)? == b'"' {
                each(run, None);
                return Some(pos + 1);
            }
            if *bytes.get(pos)? != b'\\' {
                return None;
            }
            let escaped = match bytes.get(pos + 1)? {
                b'n' => '\n',
                b'"' => '"',
                b'\\' => '\\',
                b't' => '\t',
                b'r' => '\r',
                b'/' => '/',
                _ => return None,
            };
            each(run, Some(escaped));
            pos += 2;
        }
    }

    /// A string, and whether it holds half a surrogate pair (kept as U+FFFD).
    pub(crate) fn string(&mut self) -> Result<(Cow<'a, str>, bool), JsonError> {
        let start = self.pos + 1;
        let mut owned: Option<String> = None;
        let mut whole = "";
        let end = self.common_string(|run, escaped| match (&mut owned, escaped) {
            (None, None) => whole = run,
            (Some(out), None) => out.push_str(run),
            (_, Some(escaped)) => {
                let out = owned.get_or_insert_with(|| String::with_capacity(2 * run.len() + 32));
                out.push_str(run);
                out.push(escaped);
            }
        });
        if let Some(end) = end {
            self.pos = end;
            return Ok((owned.map_or(Cow::Borrowed(whole), Cow::Owned), false));
        }
        owned = None;
        let text = self.text;
        let mut plain = start;
        let mut lone = false;
        self.string_body(|escape| {
            let out = owned.get_or_insert_with(String::new);
            out.push_str(text.get(plain..escape.at).unwrap_or_default());
            plain = escape.after;
            lone |= escape.value.is_none();
            out.push(escape.value.unwrap_or(char::REPLACEMENT_CHARACTER));
        })?;
        let rest = text.get(plain..self.pos - 1).unwrap_or_default();
        Ok(match owned {
            None => (Cow::Borrowed(rest), lone),
            Some(mut out) => {
                out.push_str(rest);
                (Cow::Owned(out), lone)
            }
        })
    }

    /// Walks over a string from its opening to behind its closing quote.
    fn string_body(&mut self, mut on_escape: impl FnMut(Escape)) -> Result<(), JsonError> {
        let start = self.pos;
        self.pos += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(());
                }
                Some(b'\\') => on_escape(self.escape()?),
                Some(0..=0x1F) => return self.error("control character in a string"),
                Some(_) => {
                    let rest = self.text.as_bytes().get(self.pos..).unwrap_or_default();
                    self.pos += plain_run(rest).max(1);
                }
                None => {
                    return Err(JsonError::malformed(
                        "a string that starts here does not end",
                        start,
                    ));
                }
            }
        }
    }

    fn escape(&mut self) -> Result<Escape, JsonError> {
        let at = self.pos;
        self.pos += 1;
        let value = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.pos += 1;
                let value = self.unicode()?;
                return Ok(Escape { at, after: self.pos, value });
            }
            _ => {
                self.pos = at;
                return self.error("invalid escape in a string");
            }
        };
        self.pos += 1;
        Ok(Escape { at, after: self.pos, value: Some(value) })
    }

    /// The code point of `\u` and its digits, and of the second half of a pair if one follows.
    fn unicode(&mut self) -> Result<Option<char>, JsonError> {
        let first = self.hex4()?;
        if (0xD800..0xDC00).contains(&first) && self.text.get(self.pos..self.pos + 2) == Some("\\u")
        {
            let back = self.pos;
            self.pos += 2;
            let second = self.hex4()?;
            if (0xDC00..0xE000).contains(&second) {
                return Ok(char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)));
            }
            self.pos = back;
        }
        Ok(char::from_u32(first))
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.pos..self.pos + 4).unwrap_or_default();
        let mut value = 0;
        if digits.len() < 4 {
            return self.error("invalid \\u escape");
        }
        for b in digits {
            let Some(digit) = char::from(*b).to_digit(16) else {
                return self.error("invalid \\u escape");
            };
            value = value * 16 + digit;
        }
        self.pos += 4;
        Ok(value)
    }
}

/// One escape sequence: where it starts, where it ends, what it stands for (`None`: half a
/// surrogate pair).
struct Escape {
    at: usize,
    after: usize,
    value: Option<char>,
}
