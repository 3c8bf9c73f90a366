//! Text to token ids. The one place that knows the tokenizer library.

mod plain;

use std::path::Path;

use tokenizers::{AddedToken, Tokenizer as Library, TruncationDirection};

use crate::fields::Truncation;

/// A loaded `tokenizer.json`.
#[derive(Debug)]
pub(crate) struct Tokenizer(Library);

impl Tokenizer {
    /// Loads the file and adds what a model's configuration adds to it: tokens it lists that are
    /// missing or have other properties in the file, and special tokens it names that the file
    /// does not have. Truncation and padding of the file are switched off, as the engine does.
    pub(crate) fn load(
        path: &Path,
        listed: Vec<AddedToken>,
        named: &[(String, String)],
        split_special: bool,
    ) -> Result<Self, String> {
        let mut library = Library::from_file(path).map_err(|e| e.to_string())?;
        library.with_truncation(None).map_err(|e| e.to_string())?;
        library.with_padding(None);
        library.set_encode_special_tokens(split_special);
        let known = library.get_added_tokens_decoder();
        let mut missing: Vec<AddedToken> =
            listed.into_iter().filter(|t| !known.values().any(|k| k == t)).collect();
        for (_, text) in named {
            if !known.values().chain(&missing).any(|t| t.content == *text) {
                missing.push(AddedToken::from(text.as_str(), true));
            }
        }
        if !missing.is_empty() {
            library.add_tokens(missing).map_err(|e| e.to_string())?;
        }
        let tokenizer = Self(library);
        // A file can load and still fail on every text; better to know now.
        tokenizer.encode("a 1 é\n", true, Truncation::None)?;
        Ok(tokenizer)
    }

    /// The ids of a text.
    pub(crate) fn encode(
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
        let added = if special { self.added_by_post_processor() } else { 0 };
        let Some(room) = keep.checked_sub(added) else {
            return Err(format!("no room for {added} special tokens in {keep}"));
        };
        encoding.truncate(room, 0, side);
        let finished = self.0.post_process(encoding, None, special).map_err(|e| e.to_string())?;
        Ok(finished.get_ids().to_vec())
    }

    fn added_by_post_processor(&self) -> usize {
        use tokenizers::PostProcessor as _;
        self.0.get_post_processor().map_or(0, |p| p.added_tokens(false))
    }
}
