//! One request, as far as routing cares.
//!
//! It holds digests and numbers, no texts: a query can be written into a decision log as it is.

use kvasir_kv_hash::BlockKey;
use twox_hash::XxHash3_64;

use crate::miss::Blind;

/// One request.
///
/// What a policy does not ask for ([`Needs`]) may be left out by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query<'a> {
    /// Prompt tokens, all prompts of a batch together: exact where the prompt was tokenised, else
    /// an estimate from the body's size.
    pub prompt_tokens: u64,
    /// [`SessionSource::digest`](crate::SessionSource::digest) of the conversation the client says
    /// this is part of: a session header, the body's `user`, a cookie. Never an id of the request
    /// itself.
    pub session: Option<u64>,
    /// Why engines' blocks cannot be known by [`Prefix::keys`]; `None` where they can.
    pub blind: Option<Blind>,
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
    /// [`digest_of_tokens`] of the (first) prompt; `None` where they are not known.
    pub token_head: Option<u64>,
    /// [`digest_of_text`] of the (first) prompt; `None` where there is none.
    pub text_head: Option<u64>,
    /// The LoRA adapter.
    pub adapter: Option<&'a str>,
    /// [`digest`] of the cache salt.
    pub salt: Option<u64>,
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
    /// [`Prefix::token_head`], [`Prefix::text_head`] and what stands beside them.
    pub head: bool,
    /// [`Prefix::images`].
    pub images: bool,
    /// [`Candidate::resident_blocks`](crate::Candidate) and `capacity_blocks`.
    pub blocks: bool,
}

impl Query<'_> {
    /// What the conversation is remembered by: its name and the cache salt. Two tenants who give
    /// their conversations one name share no cache, and must not move each other's.
    #[must_use]
    pub fn pin(&self) -> Option<u64> {
        let session = self.session?;
        Some(match self.prefix.salt {
            None => session,
            Some(salt) => XxHash3_64::oneshot_with_seed(session, &salt.to_le_bytes()),
        })
    }
}

/// So many tokens at the beginning of a prompt tell it apart from others for hashing policies.
const HEAD_TOKENS: usize = 256;
/// So many bytes of text at the beginning of a prompt tell it apart likewise, as `LoxiLB` takes them.
pub const HEAD_BYTES: usize = 511;

/// A digest that is the same in every gateway, on every machine and in every release. Whoever wants
/// to can find texts with equal digests: they share an endpoint then, and nothing else.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The digest of a prompt's first 256 token ids; `None` for none.
#[must_use]
pub fn digest_of_tokens(tokens: &[u32]) -> Option<u64> {
    let head = &tokens[..tokens.len().min(HEAD_TOKENS)];
    let bytes: Vec<u8> = head.iter().flat_map(|id| id.to_le_bytes()).collect();
    (!bytes.is_empty()).then(|| digest(&bytes))
}

/// The digest of a prompt's first 511 bytes of text; `None` for none.
#[must_use]
pub fn digest_of_text(text: &[u8]) -> Option<u64> {
    let head = &text[..text.len().min(HEAD_BYTES)];
    (!head.is_empty()).then(|| digest(head))
}
