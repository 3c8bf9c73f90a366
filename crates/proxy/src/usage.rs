//! Reads numbers out of an answer as it passes: what the engine says of its prompt cache, and how many tokens it made.

use bytes::Bytes;
use kvasir_prompt::Api;
use memchr::memmem::Finder;

const CACHED: &[u8] = b"\"cached_tokens\":";
const PROMPT: &[u8] = b"\"prompt_tokens\":";
const COMPLETION: &[u8] = b"\"completion_tokens\":";
/// The same in answers of `/v1/responses`.
const INPUT: &[u8] = b"\"input_tokens\":";
const OUTPUT: &[u8] = b"\"output_tokens\":";
/// The longest key, blanks, and the digits of a number.
const CARRY: usize = 48;

/// Finds `cached_tokens`, `prompt_tokens` and `completion_tokens` in the bytes of an answer, without parsing it. Inside
/// a JSON string the quotes of such a key would be escaped, so generated text cannot imitate one.
#[derive(Debug)]
pub(crate) struct UsageTap {
    cached: Finder<'static>,
    prompt: Finder<'static>,
    prompt_key: usize,
    completion: Finder<'static>,
    completion_key: usize,
    /// The end of what was seen, for keys cut in two.
    carry: Vec<u8>,
    found: Usage,
}

/// What was found; the last mention counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cached_tokens: Option<u64>,
    pub(crate) prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    pub(crate) completion_tokens: Option<u64>,
}

impl UsageTap {
    pub(crate) fn new(api: Option<Api>) -> Self {
        let (key, made) = match api {
            Some(Api::Responses) => (INPUT, OUTPUT),
            Some(Api::Messages) => (PROMPT, OUTPUT),
            _ => (PROMPT, COMPLETION),
        };
        Self {
            cached: Finder::new(CACHED),
            prompt: Finder::new(key),
            prompt_key: key.len(),
            completion: Finder::new(made),
            completion_key: made.len(),
            carry: Vec::with_capacity(2 * CARRY),
            found: Usage::default(),
        }
    }

    /// Looks at the next bytes of the answer.
    pub(crate) fn see(&mut self, data: &Bytes) {
        // The seam: the end of what came before and the beginning of this piece.
        let mut seam = std::mem::take(&mut self.carry);
        seam.extend_from_slice(&data[..data.len().min(CARRY)]);
        self.look(&seam);
        self.carry = seam;
        if data.len() > CARRY {
            self.look(data);
            self.carry.clear();
            self.carry.extend_from_slice(&data[data.len() - CARRY..]);
        }
        let surplus = self.carry.len().saturating_sub(CARRY);
        self.carry.drain(..surplus);
    }

    pub(crate) fn found(&self) -> Usage {
        self.found
    }

    fn look(&mut self, bytes: &[u8]) {
        if let Some(number) = last_number(&self.cached, CACHED.len(), bytes) {
            self.found.cached_tokens = Some(number);
        }
        if let Some(number) = last_number(&self.prompt, self.prompt_key, bytes) {
            self.found.prompt_tokens = Some(number);
        }
        if let Some(number) = last_number(&self.completion, self.completion_key, bytes) {
            self.found.completion_tokens = Some(number);
        }
    }
}

fn last_number(finder: &Finder<'_>, key_len: usize, bytes: &[u8]) -> Option<u64> {
    finder.find_iter(bytes).filter_map(|at| number(&bytes[at + key_len..])).last()
}

/// The number at the beginning of `bytes`, only if its end is seen too.
fn number(bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.trim_ascii_start();
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == bytes.len() {
        return None;
    }
    std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"choices":[{"text":"say \"cached_tokens\": 7 please"}],"usage":
        {"prompt_tokens":230,"total_tokens":231,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens": 192}}}"#;

    fn read(pieces: &[&[u8]]) -> Usage {
        read_as(None, pieces)
    }

    fn read_as(api: Option<Api>, pieces: &[&[u8]]) -> Usage {
        let mut tap = UsageTap::new(api);
        for piece in pieces {
            tap.see(&Bytes::copy_from_slice(piece));
        }
        tap.found()
    }

    const FOUND: Usage =
        Usage { cached_tokens: Some(192), prompt_tokens: Some(230), completion_tokens: Some(1) };

    #[test]
    fn numbers_are_found_wherever_the_answer_is_cut() {
        let bytes = ANSWER.as_bytes();
        assert_eq!(read(&[bytes]), FOUND);
        for cut in 0..=bytes.len() {
            assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), FOUND, "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), FOUND);
    }

    #[test]
    fn responses_have_words_of_their_own() {
        let answer =
            br#"{"usage":{"input_tokens":230,"output_tokens":1,"input_tokens_details":{"cached_tokens":192}}}"#;
        assert_eq!(read_as(Some(Api::Responses), &[answer]), FOUND);
        assert_eq!(read(&[answer]).prompt_tokens, None);
    }

    #[test]
    fn null_and_text_are_no_numbers_and_the_last_mention_counts() {
        assert_eq!(read(&[br#"{"cached_tokens":null}"#]), Usage::default());
        assert_eq!(read(&[br#"{"a":"\"cached_tokens\":5 "}"#]), Usage::default());
        let twice = br#"{"cached_tokens":1} {"cached_tokens":2}"#;
        assert_eq!(read(&[twice]).cached_tokens, Some(2));
    }
}
