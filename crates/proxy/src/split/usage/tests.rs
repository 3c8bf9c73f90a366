use super::*;

const WHOLE: &str = r#"{"id":"x", "choices":[{"text":"\"cached_tokens\": 3"}],
 "usage": {"prompt_tokens":351, "total_tokens":352,
  "prompt_tokens_details":{"cached_tokens":0, "created_cache_tokens":null}}, "z":1.50}"#;

#[test]
fn of_a_whole_answer_one_number_is_replaced() {
    let want = WHOLE.replace("\"cached_tokens\":0", "\"cached_tokens\":336");
    assert_eq!(merged(WHOLE.as_bytes(), 336).unwrap(), want);
    let answer = ObjectText::parse(WHOLE.as_bytes()).unwrap();
    assert_eq!((cached_tokens(&answer), prompt_tokens(&answer)), (Some(0), Some(351)));
}

#[test]
fn what_reports_nothing_stays() {
    for text in [
        r#"{"usage":{"prompt_tokens":1,"prompt_tokens_details":null}}"#,
        r#"{"usage":null,"choices":[{"cached_tokens":4}]}"#,
        r#"{"usage":{"cached_tokens":4}}"#,
        r#"{"usage":{"prompt_tokens_details":{}}}"#,
        r#"{"error":"cached_tokens"#,
        "",
    ] {
        assert_eq!(merged(text.as_bytes(), 9), None, "{text}");
    }
}

const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"cached_tokens\\\":1\"}}],\"usage\":null}\r\n\r\n\
    : a comment with cached_tokens\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n\
    data: [DONE]\n\n";

fn want() -> String {
    STREAM.replace("\"cached_tokens\":0", "\"cached_tokens\":4096")
}

fn through(pieces: &[&[u8]]) -> String {
    let mut merge = StreamMerge::new(4096);
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
    let mut merge = StreamMerge::new(1);
    let event = Bytes::from_static(b"data: {\"choices\":[]}\n\n");
    assert_eq!(merge.push(event.clone()), event);
    assert_eq!(merge.push(event.slice(..9)), "");
    assert_eq!(merge.push(event.slice(9..)), event);
}

#[test]
fn lines_without_end_are_not_kept() {
    let mut merge = StreamMerge::new(1);
    let long = Bytes::from(vec![b'x'; LONGEST_LINE]);
    assert_eq!(merge.push(long.clone()).len(), 0);
    assert_eq!(merge.push(long.clone()).len(), 2 * LONGEST_LINE);
    assert_eq!(merge.push(long.clone()).len(), LONGEST_LINE);
    // From the next line on it is as before.
    let usage = "data: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n";
    let out = merge.push(Bytes::from(format!("{{\"cached_tokens\":0}}\n{usage}")));
    let want = format!("{{\"cached_tokens\":0}}\n{}", usage.replace(":0", ":1"));
    assert_eq!(out, want);
    assert!(merge.line.is_empty());
}
