//! Forms (`multipart/form-data`), as audio is sent: only the model's name is looked for.

/// Largest name of a model.
const MAX_NAME: usize = 1024;

/// The value of the field `model` of a form, the last one; `None` where there is none, or the body is no
/// such form. `content_type` is the request's header.
#[must_use]
pub fn model_of_form(content_type: &str, body: &[u8]) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameter(parameters, "boundary")?;
    if boundary.is_empty() || boundary.len() > 70 {
        return None;
    }
    let delimiter = format!("--{boundary}");
    let mut found = None;
    let mut rest = after_delimiter(body, delimiter.as_bytes())?;
    loop {
        let end = find(rest, format!("\r\n{delimiter}").as_bytes());
        let part = rest.get(..end.unwrap_or(rest.len()))?;
        if let Some(value) = value_of(part, "model") {
            found = Some(value);
        }
        let Some(end) = end else { break };
        let next = rest.get(end + 2 + delimiter.len()..)?;
        if next.starts_with(b"--") {
            break;
        }
        rest = line_after(next)?;
    }
    found
}

fn after_delimiter<'a>(body: &'a [u8], delimiter: &[u8]) -> Option<&'a [u8]> {
    let start = if body.starts_with(delimiter) {
        0
    } else {
        // Text before the first part does not count.
        find(body, &[b"\r\n", delimiter].concat())? + 2
    };
    line_after(body.get(start + delimiter.len()..)?)
}

/// What follows the line break that ends a delimiter.
fn line_after(rest: &[u8]) -> Option<&[u8]> {
    let blanks = rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    rest.get(blanks..)?.strip_prefix(b"\r\n")
}

/// The value of a part, if it is the field `name`.
fn value_of(part: &[u8], name: &str) -> Option<String> {
    let end = if part.starts_with(b"\r\n") { 0 } else { find(part, b"\r\n\r\n")? + 2 };
    let headers = std::str::from_utf8(part.get(..end)?).ok()?;
    let value = part.get(end + 2..)?;
    let disposition = headers.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let (kind, parameters) = disposition.split_once(';')?;
    let is_field = kind.trim().eq_ignore_ascii_case("form-data")
        && parameter(parameters, "name").as_deref() == Some(name)
        && parameter(parameters, "filename").is_none();
    if !is_field || value.len() > MAX_NAME {
        return None;
    }
    std::str::from_utf8(value).ok().map(str::to_owned)
}

/// A parameter of a header's value, out of its quotes.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let (key, value) = rest.split_once('=')?;
        let key = key.trim_start_matches([';', ' ', '\t']).trim();
        let (value, after) = match value.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, after) = value.split_once(';').unwrap_or((value, ""));
                (value.trim().to_owned(), after)
            }
        };
        if key.eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = after;
    }
}

/// The text up to the closing quote, and what follows it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, text.get(at + 1..)?)),
            '\\' => out.push(chars.next()?.1),
            _ => out.push(c),
        }
    }
    None
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; charset=utf-8; boundary=\"x y\"";

    #[test]
    fn the_model_is_found_wherever_it_is() {
        let form = |parts: &[&str]| {
            let parts: String = parts.iter().map(|p| format!("--x y\r\n{p}\r\n")).collect();
            format!("preamble\r\n{parts}--x y--\r\n")
        };
        let file = "Content-Disposition: form-data; name=\"file\"; filename=\"model\"\r\n\
                    Content-Type: audio/wav\r\n\r\nRIFF\0\r\nname=\"model\"\r\n\r\nno";
        let model = "content-disposition: form-data; name=\"model\"\r\n\r\nwhisper";
        let other = "Content-Disposition: form-data; name=model\r\n\r\nlast";
        let named = |parts: &[&str]| model_of_form(TYPE, form(parts).as_bytes());
        assert_eq!(named(&[file, model]).as_deref(), Some("whisper"));
        assert_eq!(named(&[model, file]).as_deref(), Some("whisper"));
        assert_eq!(named(&[model, other]).as_deref(), Some("last"));
        assert_eq!(named(&[file]), None);
        let fake = "Content-Disposition: form-data; name=\"model\"; filename=\"m\"\r\n\r\nno";
        assert_eq!(named(&[fake]), None);
        assert_eq!(named(&["\r\nmodel"]), None);
    }

    #[test]
    fn what_is_no_form_has_no_model() {
        let body = b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--";
        assert_eq!(model_of_form("multipart/form-data; boundary=b", body).as_deref(), Some("m"));
        for kind in ["application/json", "multipart/form-data", "multipart/mixed; boundary=b"] {
            assert_eq!(model_of_form(kind, body), None, "{kind}");
        }
        for cut in 0..body.len() {
            let _ = model_of_form("multipart/form-data; boundary=b", &body[..cut]);
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(kind in ".{0,60}", body in proptest::collection::vec(0_u8.., 0..200)) {
            let _ = model_of_form(&kind, &body);
            let _ = model_of_form("multipart/form-data; boundary=-", &body);
        }
    }
}
