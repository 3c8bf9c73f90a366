//! The token that turns decision headers on for one request.

use http::{HeaderMap, HeaderName};

use crate::app::Settings;

/// The header that shows it.
const DEBUG: HeaderName = HeaderName::from_static("x-kvasir-debug");

/// Whether the request shows a token that is known. It is taken out in any case: it is for the gateway
/// alone, and engines must not learn it.
pub(crate) fn take_out(headers: &mut HeaderMap, settings: &Settings) -> bool {
    let Some(shown) = headers.remove(DEBUG) else { return false };
    settings.debug_tokens.as_ref().is_some_and(|tokens| tokens.holds(shown.as_bytes()))
}
