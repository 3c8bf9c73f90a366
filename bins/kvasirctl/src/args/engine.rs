//! Arguments about one engine: its address, headers to send.

use http::{HeaderName, HeaderValue};
use kvasir_config::EngineUrl;

/// The URL of an engine, as clients of OpenAI's API write it, too: with `/v1` or a final slash.
pub(super) fn base_url(text: &str) -> Result<EngineUrl, String> {
    // These may hold a password or a key: not repeated.
    if text.contains(['@', '?']) {
        return Err("give http://host:port alone, without a user or a query; a key goes into \
                    --header 'authorization: Bearer KEY'"
            .to_owned());
    }
    let bare = text.trim_end_matches('/');
    bare.strip_suffix("/v1").unwrap_or(bare).trim_end_matches('/').parse()
}

/// A header to send.
pub(super) fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    let name: HeaderName = name.trim().parse().map_err(|_| "not the name of a header")?;
    let mut value: HeaderValue = value.trim().parse().map_err(|_| "not the value of a header")?;
    // Most of them are keys.
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_as_clients_write_them() {
        for text in ["http://h:8000", "http://h:8000/", "http://h:8000/v1", "http://h:8000/v1/"] {
            assert_eq!(base_url(text).unwrap().to_string(), "http://h:8000", "{text}");
        }
        assert_eq!(base_url("http://[::1]:8000/v1").unwrap().to_string(), "http://[::1]:8000");
        assert_eq!(base_url("HTTPS://h/v1").unwrap().to_string(), "https://h");
        for text in [
            "h:8000",
            "http://",
            "http://h/v1/models",
            "ftp://h",
            "é",
            "/v1",
            "http://h:",
            "http://h:99999",
        ] {
            assert!(base_url(text).is_err(), "{text}");
        }
        for text in ["http://a:secret@h", "http://h?key=secret"] {
            assert!(!base_url(text).unwrap_err().contains("secret"), "{text}");
        }
    }

    #[test]
    fn headers_in_two_spellings() {
        for text in ["authorization: Bearer a:b", "Authorization:Bearer a:b"] {
            let (name, value) = header(text).unwrap();
            assert_eq!((name.as_str(), value.as_bytes()), ("authorization", &b"Bearer a:b"[..]));
            assert!(value.is_sensitive());
        }
        for text in ["authorization", "a b: c", ": x", "a: b\nc: d"] {
            assert!(header(text).is_err(), "{text:?}");
        }
    }
}
