//! Text without special tokens, and single tokens by name: what a conversation that is put together
//! from tokens needs.

use tokenizers::{
    Model as _, NormalizedString, Normalizer as _, OffsetType, PreTokenizedString,
    PreTokenizer as _,
};

use super::Tokenizer;

impl Tokenizer {
    /// The ids of a text in which nothing is an added token, even where it looks like one.
    pub(crate) fn encode_plain(&self, text: &str) -> Result<Vec<u32>, String> {
        let fail = |e: tokenizers::Error| e.to_string();
        let mut normalized = NormalizedString::from(text);
        if let Some(normalizer) = self.engines.library.0.get_normalizer() {
            normalizer.normalize(&mut normalized).map_err(fail)?;
        }
        let mut pieces = PreTokenizedString::from(normalized);
        if let Some(pre_tokenizer) = self.engines.library.0.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(fail)?;
        }
        let model = self.engines.library.0.get_model();
        pieces.tokenize(|piece| model.tokenize(piece.get())).map_err(fail)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).map_err(fail)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The id of one token, special ones included.
    pub(crate) fn id_of(&self, token: &str) -> Option<u32> {
        self.engines.library.0.token_to_id(token)
    }
}
