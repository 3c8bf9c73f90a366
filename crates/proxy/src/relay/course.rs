//! How far a stream of events has come, as its API shows it: whether its answer is finished, and the
//! number of its last event.
//!
//! Looks for words in the bytes as they pass. Inside a JSON string quotes and line ends are escaped, so
//! generated text cannot imitate words that have quotes, or that begin a line.

use kvasir_prompt::Api;
use memchr::memmem::{self, Finder};

/// Longer than any of the words with what is looked at behind it.
const CARRY: usize = 64;

const FINISH: &[u8] = b"\"finish_reason\":";
const DONE: &[u8] = b"data: [DONE]";
const EVENT: &[u8] = b"event: response.";
const SEQUENCE: &[u8] = b"\"sequence_number\":";
const STOP: &[u8] = b"event: message_stop";

/// What was seen of one stream.
#[derive(Debug)]
pub(super) struct Course {
    api: Api,
    /// Finds the word that is looked for in every piece.
    finder: Finder<'static>,
    /// The end of what was seen, for words cut in two and for what ends a stream; a line's end comes
    /// before the first line too.
    carry: Vec<u8>,
    finished: bool,
    ended: bool,
    sequence: Option<u64>,
}

impl Course {
    /// Of an API that says when its answers are complete; `None` for every other.
    pub(super) fn of(api: Option<Api>) -> Option<Self> {
        let api = api.filter(|api| {
            matches!(api, Api::Chat | Api::Completions | Api::Responses | Api::Messages)
        })?;
        let mut carry = Vec::with_capacity(2 * CARRY);
        carry.push(b'\n');
        let finder = Finder::new(if api == Api::Responses { EVENT } else { FINISH });
        Some(Self { api, finder, carry, finished: false, ended: false, sequence: None })
    }

    /// Looks at the next bytes of the stream.
    pub(super) fn see(&mut self, data: &[u8]) {
        let mut seam = std::mem::take(&mut self.carry);
        seam.extend_from_slice(data.get(..CARRY).unwrap_or(data));
        self.look(&seam);
        if data.len() > CARRY {
            self.look(data);
            seam.clear();
            seam.extend_from_slice(&data[data.len() - CARRY..]);
        }
        let surplus = seam.len().saturating_sub(CARRY);
        seam.drain(..surplus);
        self.carry = seam;
    }

    /// Whether the event came that ends an answer.
    pub(super) fn has_ended(&self) -> bool {
        // What ends a stream is at its end: it need not be looked for in every piece.
        self.ended
            || match self.api {
                Api::Chat | Api::Completions => has_line(&self.carry, DONE),
                Api::Messages => has_line(&self.carry, STOP),
                _ => false,
            }
    }

    /// Whether the answer itself is complete, though the event that ends it did not come: an error
    /// would make a complete answer a failed one.
    pub(super) fn is_finished(&self) -> bool {
        self.finished || !matches!(self.api, Api::Chat | Api::Completions)
    }

    /// The number of the next event, where events have numbers.
    pub(super) fn next_sequence(&self) -> Option<u64> {
        self.sequence?.checked_add(1)
    }

    fn look(&mut self, bytes: &[u8]) {
        match self.api {
            Api::Chat | Api::Completions => {
                let is_value = |at: usize| {
                    let value = bytes.get(at + FINISH.len()..).unwrap_or_default();
                    value.trim_ascii_start().starts_with(b"\"")
                };
                self.finished = self.finished || self.finder.find_iter(bytes).any(is_value);
            }
            Api::Responses => {
                for at in self.finder.find_iter(bytes).filter(|at| begins_line(bytes, *at)) {
                    let kind = bytes.get(at + EVENT.len()..).unwrap_or_default();
                    let last = [&b"completed"[..], b"incomplete", b"failed", b"cancelled"];
                    self.ended |= last.iter().any(|word| kind.starts_with(word));
                }
                if let Some(number) = last_number(bytes) {
                    self.sequence = self.sequence.max(Some(number));
                }
            }
            _ => {}
        }
    }
}

/// Whether a line begins with `word`.
fn has_line(bytes: &[u8], word: &[u8]) -> bool {
    memmem::find_iter(bytes, word).any(|at| begins_line(bytes, at))
}

/// Whether a line begins there. What comes before the first byte is not known: it is seen with what
/// was carried over.
fn begins_line(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    matches!(before, Some(b'\n' | b'\r'))
}

/// The last number of an event whose end is seen too.
fn last_number(bytes: &[u8]) -> Option<u64> {
    let number = |at: usize| {
        let value = bytes.get(at + SEQUENCE.len()..)?.trim_ascii_start();
        let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = value.get(..digits).filter(|digits| digits.len() < value.len())?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    memmem::find_iter(bytes, SEQUENCE).filter_map(number).last()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(api: Api, text: &str, cut: usize) -> Course {
        let mut course = Course::of(Some(api)).unwrap();
        let (one, two) = text.as_bytes().split_at(cut);
        course.see(one);
        course.see(two);
        course
    }

    #[test]
    fn the_end_of_an_answer_is_seen_wherever_it_is_cut() {
        let chat = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":null}]}\n\n\
            data: {\"choices\":[{\"delta\":{},\"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n";
        let responses = "event: response.output_text.delta\n\
            data: {\"type\":\"response.output_text.delta\",\"sequence_number\":11}\n\n\
            event: response.completed\n\
            data: {\"type\":\"response.completed\",\"sequence_number\": 12,\"response\":{}}\n\n";
        let messages = "event: message_delta\ndata: {\"type\":\"message_delta\"}\n\n\
            event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        for (api, text) in
            [(Api::Chat, chat), (Api::Responses, responses), (Api::Messages, messages)]
        {
            for cut in 0..=text.len() {
                let course = after(api, text, cut);
                assert!(course.has_ended() && course.is_finished(), "{api:?} cut at {cut}");
                let next = (api == Api::Responses).then_some(13);
                assert_eq!(course.next_sequence(), next, "{api:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn words_that_end_streams_do_not_in_generated_text() {
        let chat = "data: {\"choices\":[{\"delta\":{\"content\":\"\\ndata: [DONE]\"}}]}\n\n";
        let responses = "event: response.output_text.delta\n\
            data: {\"delta\":\"\\nevent: response.completed\",\"sequence_number\":3}\n\n";
        let messages = "event: content_block_delta\n\
            data: {\"delta\":{\"text\":\"\\nevent: message_stop\"}}\n\n";
        for (api, text) in
            [(Api::Chat, chat), (Api::Responses, responses), (Api::Messages, messages)]
        {
            for cut in 0..=text.len() {
                assert!(!after(api, text, cut).has_ended(), "{api:?} cut at {cut}");
            }
        }
        // The first line of a stream is one too.
        for (api, text) in [
            (Api::Chat, "data: [DONE]\r\r"),
            (Api::Responses, "event: response.failed\n"),
            (Api::Messages, "event: message_stop\n"),
        ] {
            assert!(after(api, text, 0).has_ended(), "{api:?}");
        }
    }

    #[test]
    fn what_is_generated_or_null_is_no_end() {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"finish_reason\\\":\\\"stop\\\" \
            data: [DON\"},\"finish_reason\":null}]}\n\n";
        let course = after(Api::Chat, text, 10);
        assert!(!course.has_ended() && !course.is_finished());
        let text = "event: response.created\ndata: {\"sequence_number\":0}\n\n";
        let course = after(Api::Responses, text, 0);
        assert_eq!((course.has_ended(), course.next_sequence()), (false, Some(1)));
        assert!(Course::of(Some(Api::Rerank)).is_none() && Course::of(None).is_none());
    }
}
