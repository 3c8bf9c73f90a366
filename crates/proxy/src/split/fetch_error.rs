//! A stream whose first event is an error: vLLM sends the head of a stream before a decode leg has
//! fetched its blocks (seen with 0.32), so that a fetch that fails comes with status 200.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use kvasir_prompt::ObjectText;
use kvasir_upstream::Started;

use crate::relay::Source;

/// A decode engine's answer as it began.
///
/// # Errors
/// It is a stream that begins with a server's error: that error, as the answer it would have been
/// had its head not been sent before.
#[expect(clippy::result_large_err, reason = "it is what the answer is made of")]
pub(crate) fn failed_fetch(started: Started) -> Result<Started, (Parts, Frame<Bytes>)> {
    let is_stream = started.head.status.is_success() && Source::is_open(&started.head);
    let data = started.first.as_ref().filter(|_| is_stream).and_then(Frame::data_ref);
    let Some(error) = data.and_then(error_of) else { return Ok(started) };
    let mut head = started.head;
    head.status = StatusCode::INTERNAL_SERVER_ERROR;
    head.headers.remove(TRANSFER_ENCODING);
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(error.len()));
    Err((head, Frame::data(error)))
}

/// The data of the first event, where it is an error that is not the request's own.
fn error_of(frame: &Bytes) -> Option<Bytes> {
    let text = std::str::from_utf8(frame).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("data:"))?.trim();
    let event = ObjectText::parse(line.as_bytes()).ok()?;
    if event.get("choices").is_some() {
        return None;
    }
    let error = event.get("error").filter(|raw| *raw != "null")?;
    let error = ObjectText::parse(error.as_bytes()).ok();
    let code = error.and_then(|error| error.get("code")?.parse::<u16>().ok());
    let own = code.is_some_and(|code| (400..500).contains(&code));
    (!own).then(|| Bytes::copy_from_slice(line.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Option<String> {
        let error = error_of(&Bytes::copy_from_slice(text.as_bytes()))?;
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
