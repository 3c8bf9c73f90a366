//! The conversation a client says its request is part of.

#[cfg(test)]
mod tests;

use http::{HeaderMap, header};
use kvasir_balance::{BodyName, MAX_SESSION_BYTES, SessionSource};
use kvasir_prompt::{Name, Names};

/// A name that does not count, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ignored {
    NotText,
    TooLong,
}

impl Ignored {
    fn as_str(self) -> &'static str {
        match self {
            Self::NotText => "not_text",
            Self::TooLong => "too_long",
        }
    }
}

// Names from bodies and from heads are held to one limit.
const _: () = assert!(MAX_SESSION_BYTES == kvasir_prompt::MAX_NAME_BYTES);

/// The digest of the first name in the places of `sources`, in their order. A name that does not
/// count is counted and passed over: no request fails for it.
pub(crate) fn of_request(
    model: &str,
    sources: &[SessionSource],
    headers: &HeaderMap,
    names: &Names,
) -> Option<u64> {
    if sources.is_empty() {
        return None;
    }
    let found = sources.iter().find_map(|source| match look(source, headers, names) {
        Ok(name) => Some((source, name?)),
        Err(why) => {
            metrics::counter!("kvasir_session_names_ignored_total", "model" => model.to_owned(),
                "source" => source.kind(), "reason" => why.as_str())
            .increment(1);
            None
        }
    });
    let kind = found.map_or("none", |(source, _)| source.kind());
    metrics::counter!("kvasir_sessions_total", "model" => model.to_owned(), "source" => kind)
        .increment(1);
    found.map(|(source, name)| source.digest(name))
}

/// The name in one place; `None` where there is none, or an empty one.
fn look<'a>(
    source: &SessionSource,
    headers: &'a HeaderMap,
    names: &'a Names,
) -> Result<Option<&'a [u8]>, Ignored> {
    let name = match source {
        SessionSource::Header(name) => {
            headers.get(name.as_str()).map(|value| value.as_bytes().trim_ascii())
        }
        SessionSource::Cookie(name) => cookie(headers, name),
        SessionSource::Body(field) => {
            let name = match field {
                BodyName::PromptCacheKey => &names.prompt_cache_key,
                BodyName::User => &names.user,
                BodyName::SafetyIdentifier => &names.safety_identifier,
            };
            match name {
                Name::Absent => None,
                Name::Text(text) => Some(text.as_bytes()),
                Name::NotText => return Err(Ignored::NotText),
                Name::TooLong => return Err(Ignored::TooLong),
            }
        }
    };
    match name.filter(|name| !name.is_empty()) {
        Some(name) if name.len() > MAX_SESSION_BYTES => Err(Ignored::TooLong),
        name => Ok(name),
    }
}

/// The first cookie of this name (RFC 6265, 4.2; HTTP/2 may send one a line).
fn cookie<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a [u8]> {
    let lines = headers.get_all(header::COOKIE).into_iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    for pair in pairs {
        let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = (pair.get(..at)?.trim_ascii(), pair.get(at + 1..)?.trim_ascii());
        if name == wanted.as_bytes() {
            let quoted = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
            return Some(quoted.unwrap_or(value));
        }
    }
    None
}
