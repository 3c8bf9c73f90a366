//! Keys of a prompt for policies that guess what engines hold from what they answered: where no engine
//! says how it cuts blocks, or no tokens are known.
//!
//! They are keyed with the process's secret and with all that keeps two requests from sharing cache
//! blocks: model, adapter, salt, and of texts the tools and the like. They are never looked for among
//! engines' blocks.

use kvasir_kv_hash::{BlockExtra, BlockKey, KeySpace, Scope};
use kvasir_prompt::PromptText;

use crate::evidence::PromptTokens;
use crate::pending::{Chain, PromptKeys};

/// Tokens behind each key.
const CHUNK_TOKENS: usize = 64;
/// Bytes of text behind each key: as many tokens, by the estimate that is made of bodies' sizes.
const CHUNK_BYTES: usize = CHUNK_TOKENS * 4;
/// Most keys of one prompt: 256k tokens.
const MAX_CHUNKS: usize = 4_096;
/// The most bytes of a prompt's text that keys are made of.
pub const MAX_TEXT_BYTES: usize = MAX_CHUNKS * CHUNK_BYTES;

/// No token is this.
const NO_TOKEN: u32 = u32::MAX;

/// Keys of the first prompt: of its tokens where they are known, else of its text. `None` where
/// neither is, or all of it is shorter than a chunk.
pub(crate) fn keys(
    space: &KeySpace,
    model: &str,
    tokens: &PromptTokens<'_>,
    text: Option<&PromptText>,
) -> Option<PromptKeys> {
    let lora = tokens.adapter.map(|name| (name, None));
    let root = space.root(&Scope { model, lora, salt: tokens.salt });
    let first = tokens.prompts.and_then(|prompts| prompts.first());
    let keys = match (first, text) {
        (Some(prompt), _) => {
            let prompt = prompt.get(..MAX_CHUNKS * CHUNK_TOKENS).unwrap_or(prompt);
            space.chain(space.next(root, &[NO_TOKEN, 0], &[]), prompt, CHUNK_TOKENS)
        }
        (None, Some(text)) => of_text(space, root, text),
        (None, None) => Vec::new(),
    };
    let chain = Chain { usable: keys.len(), keys };
    (chain.usable > 0).then(|| PromptKeys { block_size: CHUNK_TOKENS as u32, prompts: vec![chain] })
}

fn of_text(space: &KeySpace, root: BlockKey, text: &PromptText) -> Vec<BlockKey> {
    let setting = BlockExtra { identity: text.setting.as_bytes(), offset: 0 };
    let mut parent = space.next(root, &[NO_TOKEN, 1], &[setting]);
    let mut scratch = Vec::with_capacity(2 * CHUNK_BYTES);
    let (chunks, _) = text.text.as_chunks::<CHUNK_BYTES>();
    let key = |chunk: &[u8; CHUNK_BYTES]| {
        let mut words = [0; CHUNK_TOKENS];
        for (word, bytes) in words.iter_mut().zip(chunk.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        parent = space.next_with(&mut scratch, parent, &words, &[]);
        parent
    };
    chunks.iter().take(MAX_CHUNKS).map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: usize, setting: &str) -> PromptText {
        let text: Vec<u8> = (0..bytes).map(|at| (at / 7) as u8).collect();
        PromptText { bytes: text.len() as u64, text, setting: setting.to_owned() }
    }

    fn asked<'a>(adapter: Option<&'a str>, salt: Option<&'a str>) -> PromptTokens<'a> {
        PromptTokens { prompts: None, count: 1, exact: false, adapter, salt }
    }

    fn chain(tokens: &PromptTokens<'_>, text: Option<&PromptText>) -> Vec<BlockKey> {
        let found = keys(&KeySpace::fixed(), "m", tokens, text);
        found.map(|mut found| found.prompts.remove(0).keys).unwrap_or_default()
    }

    #[test]
    fn equal_beginnings_have_equal_keys_and_the_end_none() {
        let long = text(1_000, "");
        let found = chain(&asked(None, None), Some(&long));
        assert_eq!(found.len(), 3);
        let mut other = text(1_000, "");
        other.text[600] ^= 1;
        let others = chain(&asked(None, None), Some(&other));
        assert_eq!(others[..2], found[..2]);
        assert_ne!(others[2], found[2]);
        assert_eq!(chain(&asked(None, None), Some(&text(512, ""))), found[..2]);
        assert_eq!(chain(&asked(None, None), Some(&text(255, ""))), []);
        let endless = text(MAX_TEXT_BYTES + 1_000, "");
        assert_eq!(chain(&asked(None, None), Some(&endless)).len(), MAX_CHUNKS);
    }

    #[test]
    fn nothing_crosses_models_adapters_salts_or_tools() {
        let plain = text(256, "");
        let mut all = vec![
            chain(&asked(None, None), Some(&plain)),
            chain(&asked(Some("a"), None), Some(&plain)),
            chain(&asked(None, Some("a")), Some(&plain)),
            chain(&asked(None, Some("b")), Some(&plain)),
            chain(&asked(None, None), Some(&text(256, "tools[]"))),
            keys(&KeySpace::fixed(), "n", &asked(None, None), Some(&plain)).unwrap().prompts[0]
                .keys
                .clone(),
        ];
        // Nor do tokens that look like a text.
        let words = plain.text.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let prompts = [words.collect::<Vec<u32>>()];
        all.push(chain(&PromptTokens { prompts: Some(&prompts), ..asked(None, None) }, None));
        assert!(all.iter().all(|keys| keys.len() == 1));
        let count = all.len();
        all.sort_unstable_by_key(|keys| keys[0].0);
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn tokens_go_before_text() {
        let prompts = [(0..200).collect::<Vec<u32>>(), vec![7; 64]];
        let tokens = PromptTokens { prompts: Some(&prompts), ..asked(None, None) };
        let found = chain(&tokens, Some(&text(1_000, "")));
        assert_eq!(found.len(), 3);
        assert_eq!(chain(&tokens, None), found);
    }
}
