//! The `tokenizers` crate: the reference for every token id.

use tokenizers::{
    AddedToken, Encoding, PostProcessor as _, Token, Tokenizer as Inner, TruncationDirection,
};

use super::Settings;
use super::engine::Encode;
use crate::fields::Truncation;

/// No vocabulary is that large.
const MARK: u32 = u32::MAX;

/// The ids that are put around those of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Around {
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
}

/// A tokenizer as the library loads it.
#[derive(Debug)]
pub(super) struct Library(pub(super) Inner);

impl Encode for Library {
    fn append_ids(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let encoding = self.0.encode_fast(text, false).map_err(|e| e.to_string())?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }
}

impl Library {
    /// Reads `tokenizer.json` and adds tokens the configuration lists that are missing or have
    /// other properties in the file, and special tokens it names that the file does not have.
    /// Truncation and padding of the file are switched off, as the engine does.
    pub(super) fn from_json(json: &[u8], settings: Settings) -> Result<Self, String> {
        let mut inner = Inner::from_bytes(json).map_err(|e| e.to_string())?;
        inner.with_truncation(None).map_err(|e| e.to_string())?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(settings.split_special);
        let known = inner.get_added_tokens_decoder();
        let mut missing: Vec<AddedToken> =
            settings.listed.into_iter().filter(|t| !known.values().any(|k| k == t)).collect();
        for text in &settings.named {
            if !known.values().chain(&missing).any(|t| t.content == *text) {
                missing.push(AddedToken::from(text.as_str(), true));
            }
        }
        if !missing.is_empty() {
            inner.add_tokens(missing).map_err(|e| e.to_string())?;
        }
        let library = Self(inner);
        // A file can load and still fail on every text; better to know now.
        library.finished_ids("a 1 é\n", true, Truncation::None)?;
        Ok(library)
    }

    /// The ids of a text and nothing around it.
    pub(super) fn ids(&self, text: &str) -> Result<Vec<u32>, String> {
        let mut ids = Vec::new();
        self.append_ids(text, &mut ids)?;
        Ok(ids)
    }

    /// The ids of a text with what the post-processor makes of them.
    pub(super) fn finished_ids(
        &self,
        text: &str,
        special: bool,
        cut: Truncation,
    ) -> Result<Vec<u32>, String> {
        let (keep, side) = match cut {
            Truncation::Last { keep } => (keep, TruncationDirection::Left),
            Truncation::First { keep } => (keep, TruncationDirection::Right),
            _ => {
                let ids = self.0.encode_fast(text, special).map_err(|e| e.to_string())?;
                return Ok(cut.cut(ids.get_ids().to_vec()));
            }
        };
        let mut encoding = self.0.encode_fast(text, false).map_err(|e| e.to_string())?;
        let processor = self.0.get_post_processor().filter(|_| special);
        let added = processor.map_or(0, |p| p.added_tokens(false));
        let Some(room) = keep.checked_sub(added) else {
            return Err(format!("no room for {added} special tokens in {keep}"));
        };
        encoding.truncate(room, 0, side);
        let finished = self.0.post_process(encoding, None, special).map_err(|e| e.to_string())?;
        Ok(finished.get_ids().to_vec())
    }

    /// What the post-processor puts around a text's ids; `None` where it does more than that.
    pub(super) fn around(&self) -> Option<Around> {
        let mark = || Encoding::from_tokens(vec![Token::new(MARK, String::new(), (0, 0))], 0);
        let plain = self.0.post_process(mark(), None, false).ok()?;
        if plain.get_ids() != [MARK] {
            return None;
        }
        let finished = self.0.post_process(mark(), None, true).ok()?;
        let mut parts = finished.get_ids().split(|id| *id == MARK);
        let (before, after) = (parts.next()?.to_vec(), parts.next()?.to_vec());
        parts.next().is_none().then_some(Around { before, after })
    }

    /// Whether a text always has the same ids: a model may be set to drop merges at random.
    pub(super) fn is_deterministic(&self) -> bool {
        match self.0.get_model() {
            tokenizers::ModelWrapper::BPE(bpe) => bpe.dropout.is_none_or(|rate| rate == 0.0),
            _ => true,
        }
    }

    /// The added tokens by id.
    pub(super) fn added_tokens(&self) -> Vec<(u32, AddedToken)> {
        let mut tokens: Vec<_> = self.0.get_added_tokens_decoder().into_iter().collect();
        tokens.sort_unstable_by_key(|(id, _)| *id);
        tokens
    }
}
