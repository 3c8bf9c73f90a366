//! What names a conversation in a request, and in which order it is looked for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::query::digest;

/// One place a conversation's name may stand in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionSource {
    /// A header of this name.
    Header(String),
    /// A cookie of this name; it is read, never set.
    Cookie(String),
    /// A field at the top of the body.
    Body(BodyName),
}

/// A field at the top of a body that says who asks, or what belongs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyName {
    /// `OpenAI`'s `prompt_cache_key`: what the client wants kept together for the cache's sake.
    PromptCacheKey,
    /// `OpenAI`'s `user`.
    User,
    /// `OpenAI`'s `safety_identifier`, which replaces `user` in newer clients.
    SafetyIdentifier,
}

/// The most places that are looked at for one request.
pub(crate) const MAX_SESSION_SOURCES: usize = 16;
/// The longest name of a header or cookie, in bytes.
const MAX_PLACE_BYTES: usize = 128;
/// The longest name of a conversation, in bytes. Longer ones are tokens or documents that may be
/// others in each request; the fields' own limits are far below (`OpenAI`: 64).
pub const MAX_SESSION_BYTES: usize = 256;

/// Headers that are another one in each request, or a trace's: they would scatter what belongs
/// together.
const OF_ONE_REQUEST: [&str; 17] = [
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "x-trace-id",
    "traceparent",
    "tracestate",
    "b3",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "uber-trace-id",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-datadog-trace-id",
    "x-datadog-parent-id",
    "idempotency-key",
    "x-client-request-id",
];
/// Headers whose digest has no place in a decision log.
const SECRET: [&str; 3] = ["authorization", "proxy-authorization", "x-api-key"];

impl SessionSource {
    /// What is looked at unless told: the headers `x-session-id` and `x-conversation-id`, then the
    /// body's `prompt_cache_key`, `user` and `safety_identifier`. What is said for the cache's sake
    /// goes before who the user is.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        let header = |name: &str| Self::Header(name.to_owned());
        vec![
            header("x-session-id"),
            header("x-conversation-id"),
            Self::Body(BodyName::PromptCacheKey),
            Self::Body(BodyName::User),
            Self::Body(BodyName::SafetyIdentifier),
        ]
    }

    /// Whether these can be looked for.
    ///
    /// # Errors
    /// The place of the first that cannot, and why; `None` for the list as a whole.
    pub fn check(sources: &[Self]) -> Result<(), (Option<usize>, String)> {
        if sources.is_empty() || sources.len() > MAX_SESSION_SOURCES {
            return Err((None, format!("must have 1 to {MAX_SESSION_SOURCES} entries")));
        }
        for (place, source) in sources.iter().enumerate() {
            source.check_one().map_err(|why| (Some(place), why))?;
            if sources.iter().take(place).any(|other| other.is_same(source)) {
                return Err((Some(place), format!("{source} is there twice")));
            }
        }
        Ok(())
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Header(a), Self::Header(b)) => a.eq_ignore_ascii_case(b),
            _ => self == other,
        }
    }

    fn check_one(&self) -> Result<(), String> {
        let (name, what) = match self {
            Self::Header(name) => (name, "header"),
            Self::Cookie(name) => (name, "cookie"),
            Self::Body(_) => return Ok(()),
        };
        if name.is_empty() || name.len() > MAX_PLACE_BYTES || !name.bytes().all(is_token) {
            return Err(format!("{name:?} is no name of a {what}"));
        }
        if matches!(self, Self::Cookie(_)) {
            return Ok(());
        }
        let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
        if is(&OF_ONE_REQUEST) {
            return Err(format!(
                "`{name}` is another one in each request: it names no conversation, and would \
                 scatter what belongs together"
            ));
        }
        if is(&SECRET) {
            return Err(format!("`{name}` is a secret: its digest would stand in decision logs"));
        }
        if is(&["cookie"]) {
            return Err("all cookies together name nothing: use `cookie: NAME`".to_owned());
        }
        Ok(())
    }

    /// The word used in metrics: what kind of place it is.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Header(_) => "header",
            Self::Cookie(_) => "cookie",
            Self::Body(name) => name.as_str(),
        }
    }

    /// The digest of a name that stood here, for [`Query::session`](crate::Query::session). Equal
    /// names in places of different kinds are different conversations; all headers are of one kind,
    /// so that they can be renamed.
    #[must_use]
    pub fn digest(&self, name: &[u8]) -> u64 {
        let kind = match self {
            Self::Header(_) => return digest(name),
            other => other.kind().as_bytes(),
        };
        // No header has a NUL in it.
        digest(&[kind, b"\0", name].concat())
    }
}

impl BodyName {
    /// The field's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PromptCacheKey => "prompt_cache_key",
            Self::User => "user",
            Self::SafetyIdentifier => "safety_identifier",
        }
    }
}

impl fmt::Display for SessionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header `{name}`"),
            Self::Cookie(name) => write!(f, "cookie `{name}`"),
            Self::Body(name) => write!(f, "body field `{}`", name.as_str()),
        }
    }
}

/// RFC 9110, 5.6.2; cookies' names are of the same letters (RFC 6265).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str) -> SessionSource {
        SessionSource::Header(name.to_owned())
    }

    #[test]
    fn names_that_cannot_be_are_told() {
        let why = |source: SessionSource| {
            let (place, why) = SessionSource::check(&[header("a"), source]).unwrap_err();
            assert_eq!(place, Some(1));
            why
        };
        assert!(why(header("X-Request-Id")).contains("each request"));
        assert!(why(header("traceparent")).contains("each request"));
        assert!(why(header("Authorization")).contains("secret"));
        assert!(why(header("cookie")).contains("cookie: NAME"));
        assert!(why(header("A")).contains("twice"));
        for name in ["", "a b", "a:b", "ä", "a\r\n", &"x".repeat(129)] {
            assert!(why(header(name)).contains("no name of a header"), "{name:?}");
            assert!(why(SessionSource::Cookie(name.to_owned())).contains("no name of a cookie"));
        }
        assert_eq!(SessionSource::check(&SessionSource::defaults()), Ok(()));
        assert!(SessionSource::check(&[]).is_err());
        let many: Vec<_> = (0..17).map(|n| header(&format!("h{n}"))).collect();
        assert!(SessionSource::check(&many).is_err());
        assert_eq!(SessionSource::check(&many[..16]), Ok(()));
    }

    #[test]
    fn one_name_in_places_of_two_kinds_is_two_conversations() {
        let sources = [
            header("a"),
            SessionSource::Cookie("a".to_owned()),
            SessionSource::Body(BodyName::User),
            SessionSource::Body(BodyName::PromptCacheKey),
        ];
        let mut digests: Vec<u64> = sources.iter().map(|source| source.digest(b"7")).collect();
        assert_eq!(digests[0], header("b").digest(b"7"));
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 4);
    }
}
