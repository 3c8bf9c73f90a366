//! One request, as far as routing cares.

use kvasir_kv_hash::BlockKey;

/// One request.
///
/// What a policy does not ask for ([`crate::Needs`]) may be left out by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query<'a> {
    /// Prompt tokens, all prompts of a batch together: exact where the prompt was tokenised, else
    /// an estimate from the body's size.
    pub prompt_tokens: u64,
    /// The conversation the client says this is part of: a session header, the body's `user`, a
    /// cookie. Never an id of the request itself.
    pub session: Option<&'a str>,
    /// How the prompt begins.
    pub prefix: Prefix<'a>,
}

/// How a prompt begins, and what else decides whether two prompts can share cache blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix<'a> {
    /// Chained keys of the (first) prompt's full blocks of tokens, or of chunks of its text where
    /// its tokens are not known: equal keys mean equal prefixes. Adapter and salt are part of
    /// them. Empty where nothing is known.
    pub keys: &'a [BlockKey],
    /// Tokens behind each key; of text chunks an estimate. Above zero where there are keys.
    pub tokens_per_key: u32,
    /// The ids of the (first) prompt's first tokens; empty where they are not known.
    pub tokens: &'a [u32],
    /// The first bytes of the prompt's text, as far as the caller keeps them; empty where there is
    /// none.
    pub text: &'a [u8],
    /// The LoRA adapter.
    pub adapter: Option<&'a str>,
    /// The cache salt.
    pub salt: Option<&'a str>,
    /// Whether tools are declared: templates put them before the conversation.
    pub tools: bool,
    /// Whether images are part of it.
    pub images: bool,
}

/// What a policy reads of a [`Query`] besides the prompt's size, so that callers compute no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// [`Query::session`].
    pub session: bool,
    /// [`Prefix::keys`].
    pub keys: bool,
    /// [`Prefix::tokens`], [`Prefix::text`] and what stands beside them.
    pub text: bool,
}
