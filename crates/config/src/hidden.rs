//! What of any text or JSON nobody may read: the values of keys that name secrets, and what stands in a URL
//! where a password or a key may stand. One list of words for logs, answers and the audit.

use std::borrow::Cow;

use serde_json::Value;

use crate::secret::MASK;

/// A key is a secret's where its name ends with one of these words: `api_key` and `Write-Token` are,
/// `api_key_file`, `tokenizer_dir` and `token_parity` are not.
const SECRET: [&str; 12] = [
    "apikey",
    "apikeys",
    "authorization",
    "credentials",
    "key",
    "keys",
    "password",
    "passwords",
    "secret",
    "secrets",
    "seed",
    "token",
];

/// Whether the values of a key of this name are secrets, whatever their type.
#[must_use]
pub fn is_secret_key(name: &str) -> bool {
    let last = name.rsplit(['_', '-', '.']).next().unwrap_or(name);
    SECRET.iter().any(|word| last.eq_ignore_ascii_case(word))
}

/// Puts `***` in the place of every secret in a value. That there is none (`null`) shows.
pub fn hide_secrets(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::Null => {}
                    _ if is_secret_key(key) => *value = MASK.into(),
                    Value::String(text) if key == "url" => *text = without_user(text, 0),
                    _ => hide_secrets(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(hide_secrets),
        Value::String(text) => {
            if let Cow::Owned(hidden) = hide_in_url(text) {
                *text = hidden;
            }
        }
        _ => {}
    }
}

/// A text that may be a URL, without its user, password and query.
#[must_use]
pub fn hide_in_url(text: &str) -> Cow<'_, str> {
    match text.find("://") {
        Some(scheme) => without_user(text, scheme + 3).into(),
        None => text.into(),
    }
}

/// A URL whose user, if it has one, stands from a place on. A password may have any sign in it: the last
/// `@` ends it.
fn without_user(url: &str, from: usize) -> String {
    let from = url.find("://").map_or(from, |scheme| scheme + 3);
    let (scheme, rest) = url.split_at(from);
    let (user, rest) = match rest.rsplit_once('@') {
        Some((_, host)) => ("***@", host),
        None => ("", rest),
    };
    match rest.split_once('?') {
        Some((rest, _)) => format!("{scheme}{user}{rest}?{MASK}"),
        None => format!("{scheme}{user}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_secret_keys_are_hidden_whatever_their_type() {
        let mut value = json!({
            "api_key": {"a": 1}, "seed": 7, "Write-Token": ["t"], "x": [{"Authorization": "b"}],
            "api_key_env": "KEY", "tokenizer_dir": "/d", "token_parity": "off", "password": null,
            "max_tokens": 3,
        });
        hide_secrets(&mut value);
        let hidden = json!({
            "api_key": "***", "seed": "***", "Write-Token": "***", "x": [{"Authorization": "***"}],
            "api_key_env": "KEY", "tokenizer_dir": "/d", "token_parity": "off", "password": null,
            "max_tokens": 3,
        });
        assert_eq!(value, hidden);
    }

    #[test]
    fn users_and_queries_of_urls_are_hidden() {
        for (url, shown) in [
            ("http://u:pw@h:1", "http://***@h:1"),
            ("http://u:p/w@d@h:1/x", "http://***@h:1/x"),
            ("http://h:1/?key=s", "http://h:1/?***"),
            ("u:pw@h:1", "***@h:1"),
            ("http://h:1", "http://h:1"),
        ] {
            let mut value = json!({"endpoints": [{"url": url}]});
            hide_secrets(&mut value);
            assert_eq!(value, json!({"endpoints": [{"url": shown}]}));
        }
        // Elsewhere an `@` is one of a name.
        let mut value = json!({"model": "org/m@v1", "events": ["tcp://u:pw@h:1"]});
        hide_secrets(&mut value);
        assert_eq!(value, json!({"model": "org/m@v1", "events": ["tcp://***@h:1"]}));
    }
}
