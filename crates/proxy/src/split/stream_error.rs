//! Streams that begin with an error: an engine has sent the head of success before it failed. So does vLLM
//! where a decode leg cannot fetch its blocks (seen with 0.32).

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use kvasir_prompt::ObjectText;
use kvasir_upstream::Started;

use crate::relay::{Source, is_event_stream};

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
    let data = started.first.as_ref()?.data_ref()?;
    let is_stream = started.head.status.is_success() && is_event_stream(&started.head);
    if is_stream && data.len() <= MOST_READ { stream_error(data) } else { None }
}

/// Whether it begins with one.
pub(crate) fn begins_with_error(started: &Started) -> bool {
    first(started).is_some()
}

/// A decode engine's answer as it began.
///
/// # Errors
/// It is a stream that begins with a server's error: that error, as the answer it would have been
/// had its head not been sent before.
#[expect(clippy::result_large_err, reason = "it is what the answer is made of")]
pub(crate) fn failed_fetch(started: Started) -> Result<Started, (Parts, Frame<Bytes>)> {
    let is_stream = started.head.status.is_success() && Source::is_open(&started.head);
    let data = started.first.as_ref().filter(|_| is_stream).and_then(Frame::data_ref);
    let Some(error) = data.and_then(|data| fetch_error(data)) else { return Ok(started) };
    let mut head = started.head;
    head.status = StatusCode::INTERNAL_SERVER_ERROR;
    head.headers.remove(TRANSFER_ENCODING);
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(error.len()));
    Err((head, Frame::data(error)))
}

/// Cause and code of the error.
fn stream_error(piece: &[u8]) -> Option<StreamError> {
    let ErrorEvent { error, .. } = ErrorEvent::read(piece)?;
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

/// The event, where it is an error that is not the request's own.
fn fetch_error(piece: &[u8]) -> Option<Bytes> {
    let ErrorEvent { event, data, error } = ErrorEvent::read(piece)?;
    if event.get("choices").is_some() {
        return None;
    }
    let error = ObjectText::parse(error.as_bytes()).ok();
    let code = error.and_then(|error| error.get("code")?.parse::<u16>().ok());
    let own = code.is_some_and(|code| (400..500).contains(&code));
    (!own).then(|| Bytes::copy_from_slice(data.as_bytes()))
}

/// The first event of a stream, where it has an `error`.
struct ErrorEvent<'a> {
    event: ObjectText<'a>,
    /// The event's data.
    data: &'a str,
    /// What stands under `error`, as raw JSON.
    error: &'a str,
}

impl<'a> ErrorEvent<'a> {
    fn read(piece: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(piece).ok()?;
        let data = text.lines().find_map(|line| line.strip_prefix("data:"))?.trim();
        let event = ObjectText::parse(data.as_bytes()).ok()?;
        let error = event.get("error").filter(|raw| *raw != "null")?;
        Some(Self { event, data, error })
    }
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
                assert_eq!(stream_error(event.as_bytes()), want, "{event}");
            }
        }
        assert_eq!(stream_error(b": comment\n\n"), None);
        assert_eq!(stream_error(b"\xff"), None);
    }

    fn error(text: &str) -> Option<String> {
        let error = fetch_error(&Bytes::copy_from_slice(text.as_bytes()))?;
        Some(String::from_utf8(error.to_vec()).unwrap())
    }

    #[test]
    fn an_error_that_begins_a_stream_is_told_from_what_else_does() {
        let of_vllm = r#"{"error": {"message": "", "type": "x", "param": null, "code": 500}}"#;
        for stream in [
            format!("data: {of_vllm}\n\ndata: [DONE]\n\n"),
            format!(": a comment\r\n\r\nevent: error\r\ndata:{of_vllm}\r\n\r\n"),
            format!("data: {of_vllm}"),
        ] {
            assert_eq!(error(&stream).as_deref(), Some(of_vllm), "{stream}");
        }
        assert!(error("data: {\"error\": \"no code\"}\n\n").is_some());
        for other in [
            "data: {\"choices\":[],\"error\":null}\n\n",
            "data: {\"choices\":[],\"error\":{\"code\":500}}\n\n",
            "data: {\"error\":null}\n\n",
            // The request's own: it fails everywhere.
            "data: {\"error\":{\"code\":400}}\n\n",
            "data: {\"choices\":[{\"text\":\"error\"}]}\n\ndata: {\"error\":{}}\n\n",
            "data: [DONE]\n\n",
            ": ping\n\n",
            "",
        ] {
            assert_eq!(error(other), None, "{other}");
        }
    }
}
