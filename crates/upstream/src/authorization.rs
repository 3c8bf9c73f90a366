//! What the other side is shown.

use http::HeaderValue;
use http::header::InvalidHeaderValue;

/// The value of `authorization` with a token, which is shown nowhere else.
///
/// # Errors
/// When the token cannot stand in a header.
pub fn bearer(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sensitive_and_a_header() {
        let value = bearer("abc").unwrap();
        assert_eq!(value, "Bearer abc");
        assert!(value.is_sensitive());
        assert!(bearer("a\nb").is_err());
    }
}
