//! Streams that begin with an error: an engine has sent the head of success before it failed.

use http::header::CONTENT_TYPE;
use kvasir_prompt::ObjectText;
use kvasir_upstream::Started;

/// Errors are short: what is longer is none.
const MOST_READ: usize = 64 << 10;

/// What an engine says in the first event of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StreamError {
    pub(super) why: String,
    /// Whether it is the request's fault: its code is a 4xx other than 429.
    pub(super) is_clients: bool,
}

/// The error that a stream of success begins with; `None` where it does not, or it is no stream of
/// events.
pub(super) fn first(started: &Started) -> Option<StreamError> {
    let kind = started.head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_stream = kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"));
    let data = started.first.as_ref()?.data_ref()?;
    if !started.head.status.is_success() || !is_stream || data.len() > MOST_READ {
        return None;
    }
    of_event(data)
}

/// The object `error` in the data of the first event: `message`, and a number or text `code`.
fn of_event(piece: &[u8]) -> Option<StreamError> {
    let text = std::str::from_utf8(piece).ok()?;
    let data = text.lines().find_map(|line| line.strip_prefix("data:"))?.trim();
    let event = ObjectText::parse(data.as_bytes()).ok()?;
    let error = event.get("error").filter(|raw| *raw != "null")?;
    let parts = ObjectText::parse(error.as_bytes()).ok();
    let code = parts.as_ref().and_then(|parts| parts.get("code"));
    let code = code.and_then(|raw| raw.trim_matches('"').parse::<u16>().ok());
    let message = parts.as_ref().and_then(|parts| parts.get("message")).unwrap_or(error);
    let message = serde_json::from_str(message).unwrap_or_else(|_| message.to_owned());
    Some(StreamError {
        why: format!("its stream began with an error: {message}"),
        is_clients: code.is_some_and(|code| (400..500).contains(&code) && code != 429),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_data() {
        let table = [
            (r#"{"error":{"message":"boom","code":500}}"#, Some(("boom", false))),
            (
                r#"{"error": {"message":"bad","type":"BadRequest","code":"400"}}"#,
                Some(("bad", true)),
            ),
            (r#"{"error":{"message":"wait","code":429}}"#, Some(("wait", false))),
            (r#"{"error":"lost"}"#, Some(("lost", false))),
            (r#"{"error":null,"choices":[]}"#, None),
            (r#"{"choices":[{"text":"{\"error\":{}}"}]}"#, None),
            ("[DONE]", None),
            (r#"{"error":{"mess"#, None),
        ];
        for (data, want) in table {
            for event in
                [format!("data: {data}\n\n"), format!("event: error\r\ndata:{data}\r\n\r\n")]
            {
                let want = want.map(|(why, is_clients)| StreamError {
                    why: format!("its stream began with an error: {why}"),
                    is_clients,
                });
                assert_eq!(of_event(event.as_bytes()), want, "{event}");
            }
        }
        assert_eq!(of_event(b": comment\n\n"), None);
        assert_eq!(of_event(b"\xff"), None);
    }
}
