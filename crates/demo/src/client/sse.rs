//! Server-sent events, as far as OpenAI-style streams use them: one `data:` line each.

use super::ChatError;

/// No line of a chat stream is longer.
const MAX_LINE: usize = 1 << 20;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// What follows `data:`.
    Data(Vec<u8>),
    /// `data: [DONE]`.
    Done,
}

/// Bytes until they are lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    /// Appends what arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), ChatError> {
        if self.buffer.len() + bytes.len() > MAX_LINE {
            return Err(ChatError::Stream(format!("a line of more than {MAX_LINE} bytes")));
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The next event that is complete; lines of other kinds are passed over.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        loop {
            let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let Some(data) = line.trim_ascii().strip_prefix(b"data:") else { continue };
            return Some(match data.trim_ascii_start() {
                b"[DONE]" => Event::Done,
                data => Event::Data(data.to_vec()),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b": ping\n\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:{}\n\ndata: [DONE]\n\n";

    #[test]
    fn events_are_found_however_they_are_cut() {
        let expected = [Event::Data(b"{\"a\":1}".into()), Event::Data(b"{}".into()), Event::Done];
        for size in 1..=STREAM.len() {
            let mut lines = Lines::default();
            let mut events = Vec::new();
            for piece in STREAM.chunks(size) {
                lines.push(piece).unwrap();
                events.extend(std::iter::from_fn(|| lines.next_event()));
            }
            assert_eq!(events, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; MAX_LINE / 2];
        lines.push(&piece).unwrap();
        lines.push(&piece).unwrap();
        assert_eq!(lines.next_event(), None);
        assert!(matches!(lines.push(b"x"), Err(ChatError::Stream(_))));
    }
}
