use http::{HeaderName, HeaderValue, StatusCode};
use kvasir_testkit::engine::{EngineConfig, FakeEngine, RawEnd, RawStep, Reply, SseChunk};

use super::*;

const ROLE: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"content":" guided"}}]}"#;
const MORE: &str = r#"{"choices":[{"delta":{"content":"11"},"finish_reason":"length"}]}"#;
const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":120,"total_tokens":122,
    "prompt_tokens_details":{"cached_tokens":96}}}"#;
const NO_DETAILS: &str =
    r#"{"choices":[],"usage":{"prompt_tokens":15,"prompt_tokens_details":null}}"#;

async fn ask(reply: Reply) -> Result<Answer, ChatError> {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.push([reply]);
    let messages = [Message { role: "user", content: "Hello".to_owned() }];
    let answer = ChatClient::new(&engine.url()).ask(&Chat::new("tiny", &messages, 2)).await;
    let requests = engine.requests();
    assert_eq!(requests[0].path, "/v1/chat/completions");
    let expected = serde_json::json!({
        "model": "tiny",
        "messages": [{ "role": "user", "content": "Hello" }],
        "max_tokens": 2,
        "temperature": 0.0,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    assert_eq!(requests[0].json(), expected);
    answer
}

#[tokio::test]
async fn an_answer_is_read_and_timed() {
    let chunk = |ms, data: &str| SseChunk { gap: Duration::from_millis(ms), data: data.to_owned() };
    let chunks =
        vec![chunk(0, ROLE), chunk(80, TEXT), chunk(80, MORE), chunk(0, &USAGE.replace('\n', ""))];
    let head_delay = Duration::ZERO;
    let answer = ask(Reply::Sse { head_delay, chunks, done: true }).await.unwrap();
    assert_eq!(answer.text, " guided11");
    assert_eq!((answer.prompt_tokens, answer.cached_tokens), (120, 96));
    assert_eq!((answer.predicted_tokens, &answer.endpoint), (None, &None));
    // The role comes at once, and is no text.
    assert!(answer.ttft >= Duration::from_millis(80), "{:?}", answer.ttft);
    assert!(answer.e2e >= answer.ttft + Duration::from_millis(60), "{answer:?}");
}

#[tokio::test]
async fn the_gateways_headers_are_read() {
    let headers = [
        ("content-type", "text/event-stream"),
        ("x-kvasir-endpoint", "http://e:1"),
        ("x-kvasir-reason", "policy=latency; reason=x; overlap=112; prompt=120; trust=exact"),
    ]
    .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    let body: String =
        [TEXT, NO_DETAILS, "[DONE]"].iter().map(|data| format!("data: {data}\n\n")).collect();
    let reply = Reply::Status(StatusCode::OK, headers.into_iter().collect(), body.into());
    let answer = ask(reply).await.unwrap();
    assert_eq!(answer.endpoint.as_deref(), Some("http://e:1"));
    assert_eq!((answer.predicted_tokens, answer.cached_tokens), (Some(112), 0));
}

#[tokio::test]
async fn what_is_no_whole_answer_is_an_error() {
    let body = r#"{"error":{"message":"no engine"}}"#;
    let reply = Reply::Status(StatusCode::SERVICE_UNAVAILABLE, HeaderMap::new(), body.into());
    assert_eq!(ask(reply).await, Err(ChatError::Status { status: 503, body: body.to_owned() }));

    let incomplete = |what| Err(ChatError::Incomplete(what));
    assert_eq!(ask(Reply::sse([ROLE, TEXT])).await, incomplete("usage"));
    assert_eq!(ask(Reply::sse([ROLE, NO_DETAILS])).await, incomplete("text"));
    let cut = [TEXT, NO_DETAILS].map(|data| SseChunk { gap: Duration::ZERO, data: data.into() });
    let cut = Reply::Sse { head_delay: Duration::ZERO, chunks: cut.into(), done: false };
    assert_eq!(ask(cut).await, incomplete("[DONE]"));

    let failed = ask(Reply::sse([TEXT, r#"{"error":{"message":"engine died"}}"#])).await;
    assert!(matches!(&failed, Err(ChatError::Stream(why)) if why.contains("died")), "{failed:?}");
    let garbage = ask(Reply::sse(["nonsense"])).await;
    assert!(matches!(&garbage, Err(ChatError::Stream(_))), "{garbage:?}");
    let reset = ask(Reply::ResetMidBody(vec![TEXT.to_owned()])).await;
    assert!(matches!(&reset, Err(ChatError::Http(_))), "{reset:?}");
    let raw = Reply::Raw(vec![RawStep::Write("no http\r\n\r\n".into())], RawEnd::Close);
    assert!(matches!(ask(raw).await, Err(ChatError::Http(_))));
}

#[test]
fn overlaps_are_found_wherever_they_are() {
    assert_eq!(overlap("overlap=5"), Some(5));
    assert_eq!(overlap("a=1;overlap=0;b=2"), Some(0));
    for reason in ["", "overlap=", "overlap=x", "myoverlap=5", "overlap=-1"] {
        assert_eq!(overlap(reason), None, "{reason}");
    }
}
