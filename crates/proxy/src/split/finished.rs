//! A context engine's answer that is already the whole one, as its client wants it: as it is, or as the
//! one chunk of a stream.

use kvasir_prompt::{Api, Edit, ObjectText, first_entry};

use super::Request;

/// The state for another engine in a choice, which no client asked for.
const PARAMS: &str = "disaggregated_params";

/// The answer as JSON, without the state.
pub(super) fn whole(answer: &ObjectText<'_>) -> Option<String> {
    let choice = choice(answer)?.edited(&Edit::default().remove(PARAMS));
    Some(answer.edited(&Edit::default().set("choices", format!("[{choice}]"))))
}

/// The answer as a stream of events: one chunk, the usage where it is wanted, the end.
pub(super) fn streamed(api: Api, answer: &ObjectText<'_>, with_usage: bool) -> Option<String> {
    let choice = choice(answer)?;
    let mut edit = Edit::default().remove(PARAMS);
    let object = match api {
        Api::Chat => {
            // A whole message is a delta of everything.
            edit = edit.remove("message").set("delta", choice.get("message")?);
            "\"chat.completion.chunk\""
        }
        _ => "\"text_completion\"",
    };
    let choice = choice.edited(&edit);
    let head = Edit::default().set("object", object);
    let chunk = head.clone().set("choices", format!("[{choice}]"));
    let chunk = match with_usage {
        true => chunk.set("usage", "null"),
        false => chunk.remove("usage"),
    };
    let mut text = event(&answer.edited(&chunk));
    if with_usage && answer.has("usage") {
        text.push_str(&event(&answer.edited(&head.set("choices", "[]"))));
    }
    text.push_str("data: [DONE]\n\n");
    Some(text)
}

/// Whether a request asks for the usage at the end of its stream.
pub(super) fn wants_usage(request: &Request) -> bool {
    let options = request.get("stream_options").map(str::as_bytes);
    let options = options.and_then(|raw| ObjectText::parse(raw).ok());
    options.and_then(|options| options.get("include_usage")) == Some("true")
}

fn choice<'a>(answer: &ObjectText<'a>) -> Option<ObjectText<'a>> {
    ObjectText::parse(answer.get("choices").and_then(first_entry)?.as_bytes()).ok()
}

/// An event has one line: line ends inside JSON are white space.
fn event(json: &str) -> String {
    let line = json.replace(['\n', '\r'], " ");
    format!("data: {line}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = r#"{"id":"c-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"no"},"finish_reason":"stop","disaggregated_params":{"opaque_state":"AA"}}],"usage":{"prompt_tokens":3}}"#;

    #[test]
    fn a_chat_becomes_one_chunk_and_an_end() {
        let answer = ObjectText::parse(CHAT.as_bytes()).unwrap();
        let chunk = r#"data: {"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","delta":{"role":"assistant","content":"no"}}]}"#;
        let want = format!("{chunk}\n\ndata: [DONE]\n\n");
        assert_eq!(streamed(Api::Chat, &answer, false).unwrap(), want);
    }

    #[test]
    fn the_usage_has_a_chunk_of_its_own() {
        let answer = ObjectText::parse(CHAT.as_bytes()).unwrap();
        let text = streamed(Api::Chat, &answer, true).unwrap();
        let events: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(events.len(), 3, "{text}");
        assert!(events[0].ends_with(r#""usage":null}"#), "{text}");
        let usage = r#"data: {"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":3}}"#;
        assert_eq!(events[1..], [usage, "data: [DONE]"]);
    }

    #[test]
    fn a_completion_keeps_its_shape() {
        let text = "{\"object\":\"text_completion\",\n\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}],\"usage\":{}}";
        let answer = ObjectText::parse(text.as_bytes()).unwrap();
        let want = "data: {\"object\":\"text_completion\", \"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        assert_eq!(streamed(Api::Completions, &answer, false).unwrap(), want);
        assert_eq!(whole(&answer).unwrap(), text);
        assert!(streamed(Api::Chat, &answer, false).is_none(), "there is no message");
    }

    #[test]
    fn a_whole_answer_is_as_it_was_without_the_state() {
        let answer = ObjectText::parse(CHAT.as_bytes()).unwrap();
        let want = CHAT.replace(r#","disaggregated_params":{"opaque_state":"AA"}"#, "");
        assert_eq!(whole(&answer).unwrap(), want);
    }

    #[test]
    fn usage_is_wanted_where_it_is_said() {
        let wants = |text: &'static str| wants_usage(&Request::read(text.into()).unwrap());
        assert!(wants(r#"{"stream_options":{"include_usage":true}}"#));
        for not in [
            "{}",
            r#"{"stream_options":null}"#,
            r#"{"stream_options":{}}"#,
            r#"{"include_usage":true}"#,
        ] {
            assert!(!wants(not), "{not}");
        }
    }
}
