//! What is known of a request besides its tokens.

use kvasir_balance::Blind;
use kvasir_prompt::PromptText;

/// What else is known of a request; of the default, nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The digest of the conversation the client names.
    pub session: Option<u64>,
    /// The prompt's text, for policies that go by it where its tokens are not known.
    pub text: Option<&'a PromptText>,
    /// Its first bytes as they came, where not even the text is known.
    pub head: &'a [u8],
    /// Whether tools are declared.
    pub tools: bool,
    /// Whether images are part of it.
    pub images: bool,
    /// Why its tokens are not known.
    pub blind: Option<Blind>,
    /// Whether it is only foreseen what would be chosen: how long that takes is not counted.
    pub foreseen: bool,
}
