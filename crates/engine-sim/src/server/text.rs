//! Text in and out.
//!
//! Text becomes tokens through the model's own tokenizer and chat template. Tokens become text
//! through no tokenizer at all: each is written as a made-up word that depends on its number only,
//! so that equal tokens read equal. Such words are not what the model's tokenizer would decode,
//! and tokenising them again does not give the tokens back.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvasir_prompt::{Api, Level, LoadError, Prompts, Renderer, Unrouted};

use super::refusal::Refusal;

/// Bodies longer than this are tokenised on a thread for blocking work.
const INLINE: usize = 2 << 10;

/// The model's tokenizer, if there is one.
#[derive(Clone, Debug)]
pub(super) struct Text(Option<Arc<Renderer>>);

impl Text {
    /// Loads the tokenizer of a model's directory.
    pub(super) async fn load(root: Option<&Path>) -> Result<Self, LoadError> {
        let Some(root) = root.map(Path::to_owned) else { return Ok(Self(None)) };
        let loaded = tokio::task::spawn_blocking(move || Renderer::load(&root)).await;
        match loaded {
            Ok(renderer) => Ok(Self(Some(Arc::new(renderer?)))),
            Err(_) => Ok(Self(None)), // the runtime is shutting down
        }
    }

    /// Whether there is a tokenizer.
    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// The prompts of a body.
    pub(super) async fn prompts(&self, api: Api, body: Bytes) -> Result<Vec<Vec<u32>>, Refusal> {
        let Some(renderer) = self.0.clone() else {
            return Err(Refusal::bad(
                "This server has no tokenizer: only completions of token ids are served.",
            ));
        };
        let inline = body.len() <= INLINE;
        let read = move || match renderer.prompts(api, &body)? {
            Prompts { level: Level::Tokens, prompts, .. } => Ok(prompts),
            Prompts { why, .. } => Err(why.unwrap_or(Unrouted::NoTemplate)),
        };
        let read = if inline {
            read()
        } else {
            tokio::task::spawn_blocking(read)
                .await
                .map_err(|_| Refusal::bad("The prompt could not be tokenised."))?
        };
        read.map_err(|why| Refusal::bad(why.to_string()))
    }
}

/// The text of one generated token.
pub(super) fn word(token: u32) -> String {
    const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
    const VOWELS: &[u8; 4] = b"aeio";
    let mut text = String::from(" ");
    let mut rest = token;
    loop {
        let consonant = CONSONANTS[(rest & 15) as usize];
        let vowel = VOWELS[(rest >> 4 & 3) as usize];
        text.extend([char::from(consonant), char::from(vowel)]);
        rest >>= 6;
        if rest == 0 {
            return text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words_tell_tokens_apart() {
        let words: HashSet<String> = (0..100_000).chain([u32::MAX]).map(word).collect();
        assert_eq!(words.len(), 100_001);
        assert_eq!((word(0).as_str(), word(1).as_str()), (" ba", " da"));
        assert!(words.iter().all(|w| w.starts_with(' ') && w.len() <= 13));
    }
}
