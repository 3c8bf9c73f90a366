//! Prompts above the size limit: what they begin with.

use super::Renderer;
use crate::completion::{Completion, Prompt};
use crate::fields::Truncation;
use crate::{Prompts, Unrouted};

/// Bytes of text per token, where none was tokenized.
const BYTES_PER_TOKEN: u64 = 4;

impl Renderer {
    /// Of a text above the limit, what it begins with.
    pub(super) fn head(
        &self,
        text: String,
        special: bool,
        cut: Truncation,
        salt: Option<&str>,
    ) -> Result<Prompts, Unrouted> {
        let add_special_tokens = special;
        let bytes = text.len();
        let prompts = vec![Prompt::Text(text)];
        self.heads(Completion { prompts, add_special_tokens, truncation: cut }, bytes, salt)
    }

    /// Of prompts that have more than the limit together, those below it, and the beginning of the
    /// one that passes it.
    pub(super) fn heads(
        &self,
        request: Completion,
        bytes: usize,
        salt: Option<&str>,
    ) -> Result<Prompts, Unrouted> {
        let limit = self.limits.prompt_bytes;
        if request.truncation != Truncation::None {
            return Err(Unrouted::TooLong { bytes, limit });
        }
        let special = request.add_special_tokens;
        let mut room = limit;
        let (mut prompts, mut texts, mut tokens) = (Vec::new(), Vec::new(), 0);
        for prompt in request.prompts {
            let size = prompt.size();
            let fits = size <= room;
            let (ids, text) = match prompt {
                Prompt::Ids(mut ids) => {
                    tokens += ids.len() as u64;
                    ids.truncate(room / size_of::<u32>());
                    (ids, None)
                }
                Prompt::Text(text) if fits => {
                    let ids = self.encode(&text, special, Truncation::None, salt)?;
                    tokens += ids.len() as u64;
                    (ids, Some(text))
                }
                Prompt::Text(mut text) => {
                    let head = self
                        .clocks
                        .tokenize
                        .time(|| self.tokenizer.encode_head(&text, room, special, salt));
                    let head = head.map_err(Unrouted::Tokenizer)?;
                    let head = head.ok_or(Unrouted::TooLong { bytes, limit })?;
                    tokens += estimate(&head.ids, head.bytes, size - head.bytes);
                    text.truncate(head.bytes);
                    (head.ids, Some(text))
                }
            };
            room = if fits { room - size } else { 0 };
            prompts.push(ids);
            texts.push(text);
        }
        Ok(Prompts::heads(prompts, texts, tokens, (bytes, limit)))
    }
}

/// Tokens of a text whose first `bytes` bytes have these, and which has so many more.
pub(super) fn estimate(ids: &[u32], bytes: usize, rest: usize) -> u64 {
    let (ids, bytes, all) = (ids.len() as u64, bytes as u64, (bytes + rest) as u64);
    if ids == 0 { all / BYTES_PER_TOKEN } else { all.saturating_mul(ids) / bytes.max(1) }
}
