//! Whether a body that is not read further may have images or the like in it.

use memchr::{memchr, memchr2};

use crate::json::{self, Json};

/// Keys, and values of `type`, that come with media (vLLM 0.32: chats, responses and messages).
const KINDS: [&str; 8] = [
    "image_url",
    "input_image",
    "image",
    "image_embeds",
    "input_audio",
    "audio_url",
    "video_url",
    "prompt_embeds",
];
/// No name takes more as JSON text: quotes, and every character escaped.
const LONGEST: usize = 2 + 13 * r"\u0000".len();

/// Whether a key anywhere in the JSON text names media, or a `type` does. What is no JSON is read as
/// far as it looks like it. One pass, without building anything.
#[must_use]
pub fn names_media(body: &[u8]) -> bool {
    let (mut at, mut after_type) = (0, false);
    while let Some(start) = memchr(b'"', body.get(at..).unwrap_or_default()) {
        let start = at + start;
        let Some(end) = string_end(body, start + 1) else { return false };
        let rest = body.get(end..).unwrap_or_default();
        let is_key = rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
        let name =
            body.get(start..end).filter(|raw| (is_key || after_type) && raw.len() <= LONGEST);
        let is = |wanted: &[&str]| name.is_some_and(|raw| is_one_of(raw, wanted));
        if is(&KINDS) {
            return true;
        }
        after_type = is_key && is(&["type"]);
        at = end;
    }
    false
}

/// Where the string whose text begins at `at` ends, its closing quote included.
fn string_end(body: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let found = at + memchr2(b'"', b'\\', body.get(at..)?)?;
        if body.get(found) == Some(&b'"') {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// Whether a string in quotes is one of these.
fn is_one_of(raw: &[u8], wanted: &[&str]) -> bool {
    let Ok(raw) = std::str::from_utf8(raw) else { return false };
    if !raw.contains('\\') {
        return wanted.contains(&raw.trim_matches('"'));
    }
    matches!(json::parse(raw), Ok(Json::Str(text)) if wanted.contains(&&*text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_however_they_are_spelled() {
        for body in [
            r#"{"messages":[{"content":[{"type":"image_url","x":1}]}]}"#,
            r#"{"messages":[{"content":[{ "image_url" : {"url":"data:"}}]}]}"#,
            r#"{"a":"\\","ty\u0070e":"\u0069mage"}"#,
            r#"{"\u0070\u0072\u006f\u006d\u0070\u0074\u005f\u0065\u006d\u0062\u0065\u0064\u0073":1}"#,
        ] {
            assert!(names_media(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn texts_about_media_are_none() {
        for body in [
            r#"{"prompt":"image_url"}"#,
            r#"{"prompt":"say \"image_url\": please"}"#,
            r#"{"prompt":["type","image"],"type":"text"}"#,
            r#"{"type":["x"],"a":"image"}"#,
            r#"{"a":"\"}"#,
            "\"",
            "\"\\",
            "",
        ] {
            assert!(!names_media(body.as_bytes()), "{body}");
        }
    }
}
