//! What a request brings besides tokens.

/// What a request brings besides tokens. The default is a plain text request.
///
/// Versions that do not hash a part ignore it, and so do their hashes here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `cache_salt`: hashed from 0.5.18. An empty string is a salt.
    pub cache_salt: Option<String>,
    /// The caller's `extra_key`, without an adapter's id: hashed in the Dynamo format.
    pub extra_key: Option<String>,
    /// The LoRA adapter: hashed in the Dynamo format, and from 0.5.23 in the default one.
    pub lora: Option<Lora>,
}

/// A LoRA adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lora {
    /// Its `lora_id`, 32 hex digits that the engine draws when it loads the adapter.
    ///
    /// Events do not carry it; without it the hashes of versions that cover it are unknowable.
    pub id: Option<String>,
}
