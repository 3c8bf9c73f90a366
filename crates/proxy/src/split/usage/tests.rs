use super::*;

const WHOLE: &str = r#"{"id":"x", "choices":[{"text":"\"cached_tokens\": 3"}],
 "usage": {"prompt_tokens":351, "total_tokens":352,
  "prompt_tokens_details":{"cached_tokens":0, "created_cache_tokens":null}}, "z":1.50}"#;

fn details(raw: &str) -> Details {
    Details(raw.into())
}

fn said(answer: &str) -> Option<String> {
    Details::of(&ObjectText::parse(answer.as_bytes()).unwrap()).map(|Details(raw)| raw.to_string())
}

#[test]
fn what_the_prefill_engine_says_is_taken_as_it_says_it() {
    let answer = ObjectText::parse(WHOLE.as_bytes()).unwrap();
    let want = Usage { cached_tokens: Some(0), prompt_tokens: Some(351), completion_tokens: None };
    assert_eq!(usage_of(&answer), want);
    let raw = "{\"cached_tokens\":0, \"created_cache_tokens\":null}";
    assert_eq!(said(WHOLE).as_deref(), Some(raw));
    // It has to fit into a line.
    let lines = WHOLE.replace("0, \"created", "0,\r\n\"created");
    assert_eq!(said(&lines).as_deref(), Some(&*raw.replace(' ', "  ")));
    let long = WHOLE.replace("null}", &format!("\"{}\"}}", "x".repeat(MOST_DETAILS)));
    assert_eq!(said(&long).as_deref(), Some("{\"cached_tokens\":0}"));
    // An engine that does not say, or has nothing to say: so would one engine alone.
    for silent in ["{\"cached_tokens\":null}", "null", "{}", "[]", "7"] {
        let text =
            format!("{{\"usage\":{{\"prompt_tokens\":1,\"prompt_tokens_details\":{silent}}}}}");
        assert_eq!(said(&text), None, "{silent}");
    }
    assert_eq!(said("{\"usage\":null}"), None);
}

#[test]
fn of_a_whole_answer_what_is_said_of_the_prompt_is_replaced() {
    let ours = details("{\"cached_tokens\":336}");
    let theirs = "{\"cached_tokens\":0, \"created_cache_tokens\":null}";
    let want = WHOLE.replace(theirs, &ours.0);
    assert_eq!(merged(WHOLE.as_bytes(), &ours).unwrap(), want);
    // The decode engine says nothing, but one engine that is set as the prefill engine would.
    let null = WHOLE.replace(theirs, "null");
    assert_eq!(merged(null.as_bytes(), &ours).unwrap(), want);
    let absent = r#"{"usage":{"prompt_tokens":1, "total_tokens":2 }}"#;
    let added = r#"{"usage":{"prompt_tokens":1, "total_tokens":2,"prompt_tokens_details":{"cached_tokens":336} }}"#;
    assert_eq!(merged(absent.as_bytes(), &ours).unwrap(), added);
}

#[test]
fn what_has_no_usage_stays() {
    for text in [
        r#"{"usage":null,"choices":[{"prompt_tokens":4}]}"#,
        r#"{"usage":{"cached_tokens":4}}"#,
        r#"{"usage":[{"prompt_tokens":4}]}"#,
        r#"{"error":"prompt_tokens"#,
        r#"{"error":"\"prompt_tokens\""}"#,
        "\u{1f}\u{8b}\"prompt_tokens\"",
        "",
    ] {
        assert_eq!(merged(text.as_bytes(), &details("{}")), None, "{text}");
    }
}

#[test]
fn of_a_stream_details_are_added_to_the_last_usage_only() {
    let ours = details("{\"cached_tokens\":16}");
    let merged = |data: &str| merged_event(data.as_bytes(), &ours);
    // `continuous_usage_stats`: no engine says it there.
    let running = r#" {"choices":[{"text":"a"}],"usage":{"prompt_tokens":5}}"#;
    assert_eq!(merged(running), None);
    let last = r#" {"choices":[ ],"usage":{"prompt_tokens":5,"prompt_tokens_details":null}}"#;
    assert_eq!(merged(last).unwrap(), last.replace("null", &ours.0));
    let told = r#" {"choices":[{"text":"a"}],"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}"#;
    assert_eq!(merged(told).unwrap(), told.replace(":0}", ":16}"));
    assert_eq!(merged(r#"{"error":{"prompt_tokens":1}}"#), None);
}

const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"cached_tokens\\\":1\"}}],\"usage\":null}\r\n\r\n\
    : a comment with cached_tokens\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n\
    data: [DONE]\n\n";

fn want() -> String {
    STREAM.replace("\"cached_tokens\":0", "\"cached_tokens\":4096")
}

fn through(pieces: &[&[u8]]) -> String {
    let mut merge = StreamMerge::new(details("{\"cached_tokens\":4096}"));
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&merge.push(Bytes::copy_from_slice(piece)));
    }
    out.extend_from_slice(&merge.end());
    String::from_utf8(out).unwrap()
}

#[test]
fn of_a_stream_the_usage_chunk_is_changed_wherever_it_is_cut() {
    let bytes = STREAM.as_bytes();
    for cut in 0..=bytes.len() {
        assert_eq!(through(&[&bytes[..cut], &bytes[cut..]]), want(), "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(through(&single), want());
    // Without the end of its last line.
    let end = bytes.len() - 2;
    assert_eq!(through(&[&bytes[..end]]), want()[..want().len() - 2]);
}

#[test]
fn an_event_passes_with_its_end() {
    let mut merge = StreamMerge::new(details("{\"cached_tokens\":1}"));
    let event = Bytes::from_static(b"data: {\"choices\":[]}\n\n");
    assert_eq!(merge.push(event.clone()), event);
    assert_eq!(merge.push(event.slice(..9)), "");
    assert_eq!(merge.push(event.slice(9..)), event);
}

#[test]
fn lines_without_end_are_not_kept() {
    let mut merge = StreamMerge::new(details("{\"cached_tokens\":1}"));
    let long = Bytes::from(vec![b'x'; LONGEST_LINE]);
    assert_eq!(merge.push(long.clone()).len(), 0);
    assert_eq!(merge.push(long.clone()).len(), 2 * LONGEST_LINE);
    assert_eq!(merge.push(long.clone()).len(), LONGEST_LINE);
    // From the next line on it is as before.
    let usage = "data: {\"usage\":{\"prompt_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n";
    let out = merge.push(Bytes::from(format!("{{\"cached_tokens\":0}}\n{usage}")));
    let want = format!("{{\"cached_tokens\":0}}\n{}", usage.replace(":0", ":1"));
    assert_eq!(out, want);
    assert!(merge.line.is_empty());
}
