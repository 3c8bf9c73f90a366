//! Requests that two servers could read differently: refused, or made into one that nobody can.

use std::io::ErrorKind;
use std::time::Duration;

use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use serde_json::json;

use crate::harness::{Gateway, SOON, pool};

const LINE: &str = "POST /v1/completions HTTP/1.1\r\n";

/// An engine that answers with what it got.
async fn scene() -> (FakeEngine, Gateway) {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.set_default(Reply::Echo);
    let config = json!({"pools": [pool("tiny", &[&engine])], "forward_paths": ["/any/*"]});
    (engine, Gateway::start(config).await)
}

/// All statuses that come until the gateway ends the connection.
async fn until_ended(gateway: &Gateway, sent: &str) -> Vec<u16> {
    let mut client = gateway.connect().await;
    client.write(sent.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    loop {
        match client.response().await {
            Ok(response) => seen.push(response.status),
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::TimedOut, "it goes on after {sent:?}");
                return seen;
            }
        }
    }
}

/// All statuses that come until the connection ends. Where it does not end by itself, the client
/// leaves.
async fn statuses(gateway: &Gateway, sent: &str) -> Vec<u16> {
    let mut client = gateway.connect().await;
    client.write(sent.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    loop {
        match client.response().await {
            Ok(response) => {
                seen.push(response.status);
                client = client.with_deadline(Duration::from_secs(3));
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                client.close_write().await.unwrap();
            }
            Err(_) => return seen,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_clear_head_is_refused_and_ends_the_connection() {
    let (engine, gateway) = scene().await;
    for (what, sent, status) in [
        ("two lengths", "host: g\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}}", None),
        ("a list of lengths", "host: g\r\ncontent-length: 2, 3\r\n\r\n{}}", None),
        ("a signed length", "host: g\r\ncontent-length: +2\r\n\r\n{}", None),
        ("a length beyond all", "host: g\r\ncontent-length: 18446744073709551616\r\n\r\n{}", None),
        ("a hexadecimal length", "host: g\r\ncontent-length: 0x2\r\n\r\n{}", None),
        (
            "a folded header",
            "host: g\r\nx-a: 1\r\n folded: 2\r\ncontent-length: 2\r\n\r\n{}",
            Some(400),
        ),
        (
            "a folded coding",
            "host: g\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
            Some(400),
        ),
        ("a blank before the colon", "host: g\r\ncontent-length : 2\r\n\r\n{}", Some(400)),
        (
            "a tab before the colon",
            "host: g\r\ntransfer-encoding\t: chunked\r\n\r\n0\r\n\r\n",
            Some(400),
        ),
        ("a blank in a name", "host: g\r\nx y: 1\r\ncontent-length: 2\r\n\r\n{}", Some(400)),
        ("an empty name", "host: g\r\n: 1\r\ncontent-length: 2\r\n\r\n{}", Some(400)),
        ("a line without colon", "host: g\r\nbogus\r\ncontent-length: 2\r\n\r\n{}", Some(400)),
        ("a zero byte in a value", "host: g\r\nx-a: \0\r\ncontent-length: 2\r\n\r\n{}", Some(400)),
        (
            "a carriage return in a value",
            "host: g\r\nx-a: 1\rb: 2\r\ncontent-length: 2\r\n\r\n{}",
            Some(400),
        ),
        (
            "chunked is not last",
            "host: g\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
            None,
        ),
        (
            "chunked twice",
            "host: g\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
            Some(501),
        ),
        (
            "two codings",
            "host: g\r\ntransfer-encoding: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Some(501),
        ),
        (
            "a body coded twice",
            "host: g\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            Some(501),
        ),
        ("an unknown coding", "host: g\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n", None),
        ("no host", "content-length: 2\r\n\r\n{}", Some(400)),
        ("two hosts", "host: g\r\nhost: g\r\ncontent-length: 2\r\n\r\n{}", Some(400)),
        ("a host that is none", "host: g/x\r\ncontent-length: 2\r\n\r\n{}", Some(400)),
        ("a user in the host", "host: u@g\r\ncontent-length: 2\r\n\r\n{}", Some(400)),
    ] {
        let seen = until_ended(&gateway, &format!("{LINE}{sent}")).await;
        match (status, &*seen) {
            // Some are answered by closing the connection.
            (None, [] | [400]) => {}
            (Some(status), [one]) if status == *one => {}
            _ => panic!("{what}: {seen:?}"),
        }
    }
    for line in [
        "POST /v1/completions\r\n",
        "POST  /v1/completions HTTP/1.1\r\n",
        "POST /v1/completions HTTP/9.9\r\n",
        "P\0ST /v1/completions HTTP/1.1\r\n",
    ] {
        let seen =
            statuses(&gateway, &format!("{line}host: g\r\ncontent-length: 2\r\n\r\n{{}}")).await;
        assert!(matches!(*seen, [] | [400]), "{line:?}: {seen:?}");
    }
    assert_eq!(engine.requests().len(), 0, "engines saw none of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_chunks_never_become_a_request() {
    let (engine, gateway) = scene().await;
    let head = format!(
        "{LINE}host: g\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    for (what, body) in [
        ("no number", "z\r\n{}\r\n0\r\n\r\n"),
        ("a sign", "+2\r\n{}\r\n0\r\n\r\n"),
        ("a prefix", "0x2\r\n{}\r\n0\r\n\r\n"),
        ("nothing", "\r\n{}\r\n0\r\n\r\n"),
        ("a blank before", " 2\r\n{}\r\n0\r\n\r\n"),
        ("more than there can be", "fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
        ("too short", "1\r\n{}\r\n0\r\n\r\n"),
        ("a bare line feed behind the size", "2\n{}\r\n0\r\n\r\n"),
        ("a bare line feed behind the data", "2\r\n{}\n0\r\n\r\n"),
        ("a line feed in an extension", "2;a\nb\r\n{}\r\n0\r\n\r\n"),
        ("no end", "2\r\n{}\r\n"),
        ("an extension without end", &format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(20_000))),
    ] {
        let seen = statuses(&gateway, &format!("{head}{body}")).await;
        assert!(matches!(*seen, [] | [400]), "{what}: {seen:?}");
    }
    assert_eq!(engine.requests().len(), 0, "engines saw none of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_passes_reaches_the_engine_as_one_request_with_one_framing() {
    let (engine, gateway) = scene().await;
    let smuggled = "GET /any/smuggled HTTP/1.1\r\nhost: g\r\n\r\n";
    let chunk = format!("{:x}\r\n{{}}{}\r\n0\r\n\r\n", 2 + 20, " ".repeat(20));
    for (what, sent, body) in [
        (
            "both framings",
            format!(
                "{LINE}host: g\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"
            ),
            "{}                    ",
        ),
        (
            "both, the other way round",
            format!(
                "{LINE}host: g\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n{chunk}"
            ),
            "{}                    ",
        ),
        (
            "an extension",
            format!(
                "{LINE}host: g\r\ntransfer-encoding: chunked\r\n\r\n2;a=\"b\"\r\n{{}}\r\n0\r\n\r\n"
            ),
            "{}",
        ),
        (
            "trailers",
            format!(
                "{LINE}host: g\r\ntransfer-encoding: chunked\r\ntrailer: content-length\r\n\r\n2\r\n{{}}\r\n0\r\ncontent-length: 9\r\nx-late: 1\r\n\r\n"
            ),
            "{}",
        ),
        (
            "the same length twice",
            format!(
                "{LINE}host: g\r\ncontent-length: 2\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
            ),
            "{}",
        ),
        (
            "bare line feeds",
            "POST /v1/completions HTTP/1.1\nhost: g\ncontent-length: 2\nconnection: close\n\n{}"
                .to_owned(),
            "{}",
        ),
    ] {
        let before = engine.requests().len();
        let seen = until_ended(&gateway, &format!("{sent}{smuggled}")).await;
        assert_eq!(seen, [200], "{what}: what follows is not read as a request");
        let requests = engine.wait_for(before + 1, SOON).await;
        assert_eq!(requests.len(), before + 1, "{what}");
        let got = requests.last().unwrap();
        assert_eq!(
            (&*got.method, &*got.path, &got.body[..]),
            ("POST", "/v1/completions", body.as_bytes()),
            "{what}"
        );
        let lengths: Vec<_> = got.headers.get_all("content-length").iter().collect();
        assert_eq!(lengths, [&*body.len().to_string()], "{what}");
        for name in ["transfer-encoding", "trailer", "x-late"] {
            assert_eq!(got.header(name), "", "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_in_absolute_form_names_the_host() {
    let (engine, gateway) = scene().await;
    let rest = "content-length: 2\r\nconnection: close\r\n\r\n{}";
    for (target, host, status) in [
        ("http://g/v1/completions", "host: g\r\n", 200),
        ("http://G:80/v1/completions", "host: g\r\n", 200),
        ("http://g/v1/completions", "", 200),
        ("http://g/v1/completions", "host: other\r\n", 400),
        ("http://g:81/v1/completions", "host: g\r\n", 400),
        ("http://u@g/v1/completions", "host: g\r\n", 400),
    ] {
        let seen = statuses(&gateway, &format!("POST {target} HTTP/1.1\r\n{host}{rest}")).await;
        assert_eq!(seen, [status], "{target} {host:?}");
    }
    for got in engine.wait_for(3, SOON).await {
        assert_eq!(got.path, "/v1/completions");
        assert_eq!(got.header("host"), engine.addr().to_string(), "the engine's own name");
        assert!(
            got.header("x-forwarded-host").eq_ignore_ascii_case("g")
                || got.header("x-forwarded-host") == "G:80"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_answered_in_order_each_with_its_own() {
    let (engine, gateway) = scene().await;
    let mut sent = String::new();
    for n in 0..20 {
        let body = format!("{{\"n\":{n}}}");
        sent.push_str(&format!("{LINE}host: g\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    }
    let mut client = gateway.connect().await;
    client.write(sent.as_bytes()).await.unwrap();
    for n in 0..20 {
        assert_eq!(client.response().await.unwrap().text(), format!("{{\"n\":{n}}}"));
    }
    assert_eq!(engine.requests().len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_upgrades_and_echoes_are_not_for_engines() {
    let (engine, gateway) = scene().await;
    for (line, status) in [
        ("CONNECT g:80 HTTP/1.1\r\n", 405),
        ("TRACE /any/thing HTTP/1.1\r\n", 405),
        ("TRACE /health HTTP/1.1\r\n", 405),
    ] {
        let host = if line.starts_with("CONNECT") { "host: g:80\r\n" } else { "host: g\r\n" };
        let seen = statuses(&gateway, &format!("{line}{host}\r\n")).await;
        assert_eq!(seen, [status], "{line}");
    }
    let upgrade = "connection: upgrade, http2-settings, close\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n";
    let seen =
        statuses(&gateway, &format!("{LINE}host: g\r\n{upgrade}content-length: 2\r\n\r\n{{}}"))
            .await;
    assert_eq!(seen, [200], "an upgrade is an offer, and is not taken");
    let got = engine.wait_for(1, SOON).await.pop().unwrap();
    for name in ["upgrade", "http2-settings", "connection"] {
        assert_eq!(got.header(name), "", "{name}");
    }
    assert_eq!(engine.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_expectation_is_known() {
    let (engine, gateway) = scene().await;
    for expect in ["200-maybe", "100-continue, x"] {
        let mut client = gateway.connect().await;
        let head = format!("{LINE}host: g\r\nexpect: {expect}\r\ncontent-length: 2\r\n\r\n");
        client.write(head.as_bytes()).await.unwrap();
        let response = client.response().await.unwrap();
        assert_eq!(
            (response.status, &response.json()["error"]["code"]),
            (417, &json!("unknown_expectation"))
        );
    }
    // Who asks first is told no before it sends, where there is nothing to be sent for.
    let mut client = gateway.connect().await;
    let head =
        "POST /nowhere HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
    client.write(head.as_bytes()).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 404, "not 100");
    assert_eq!(engine.requests().len(), 0);
}

/// All that comes back for these bytes, to the end of the connection.
async fn whole_answer(gateway: &Gateway, sent: &str) -> String {
    let mut client = gateway.connect().await;
    // It may be refused before it is read to its end.
    let _ = client.write(sent.as_bytes()).await;
    let mut seen = Vec::new();
    while let Ok(bytes) = client.read_raw().await
        && !bytes.is_empty()
    {
        seen.extend_from_slice(&bytes);
    }
    String::from_utf8(seen).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_as_a_head_is_answered_without_a_body() {
    let (engine, gateway) = scene().await;
    let lines: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    let target = "x".repeat(70_000);
    for (what, sent, status) in [
        ("no HTTP", "what is this?\r\n\r\n".to_owned(), 400),
        ("TLS", "\x16\x03\x01\x02\r\n\r\n".to_owned(), 400),
        (
            "two lengths",
            format!("{LINE}host: g\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n"),
            400,
        ),
        ("no framing", format!("{LINE}host: g\r\ntransfer-encoding: gzip\r\n\r\n"), 400),
        ("target", format!("GET /{target} HTTP/1.1\r\nhost: g\r\n\r\n"), 414),
        ("lines", format!("GET / HTTP/1.1\r\nhost: g\r\n{lines}\r\n"), 431),
    ] {
        let answer = whole_answer(&gateway, &sent).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, "no head"));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer:?}");
        assert!(head.contains("connection: close\r\ncontent-length: 0"), "{what}: {answer:?}");
        assert_eq!(body, "", "{what}");
    }
    assert_eq!(engine.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_are_bounded() {
    let (engine, gateway) = scene().await;
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    let long = format!("x-long: {}\r\n", "y".repeat(500 << 10));
    for (what, headers, status) in [("lines", many, 431), ("bytes", long, 431)] {
        let mut client = gateway.connect().await;
        // It may be refused before it is read to its end.
        let _ = client
            .write(format!("{LINE}host: g\r\n{headers}content-length: 2\r\n\r\n{{}}").as_bytes())
            .await;
        assert_eq!(client.head().await.map(|head| head.status).unwrap(), status, "{what}");
    }
    let target = format!("GET /{} HTTP/1.1\r\nhost: g\r\n\r\n", "x".repeat(70_000));
    assert_eq!(statuses(&gateway, &target).await, [414]);
    // With `host` 90 lines, the most there may be.
    let most: String = (0..89).map(|n| format!("x-{n}: 1\r\n")).collect();
    let most = format!("GET /health HTTP/1.1\r\nhost: g\r\n{most}\r\n");
    assert_eq!(statuses(&gateway, &most).await, [200]);
    assert_eq!(engine.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_chunks_is_said() {
    let (engine, gateway) = scene().await;
    for (body, wanted) in [
        ("1z\r\n{}\r\n0\r\n\r\n", "invalid chunk size line: invalid size"),
        ("\r\n{}\r\n0\r\n\r\n", "invalid chunk size line: missing size digit"),
        ("2\r\n{}0\r\n\r\n", "invalid chunk body cr"),
        ("ffffffffffffffff0\r\n{}\r\n0\r\n\r\n", "invalid chunk size: overflow"),
    ] {
        let head = format!("{LINE}host: g\r\ntransfer-encoding: chunked\r\n\r\n");
        let mut client = gateway.connect().await;
        client.write(format!("{head}{body}").as_bytes()).await.unwrap();
        let answer = client.response().await.unwrap();
        assert_eq!((answer.status, answer.head.header("connection")), (400, Some("close")));
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "invalid_framing", "{body:?}");
        let message = format!("the request body's chunks cannot be read: {wanted}");
        assert_eq!(error["message"], message, "{body:?}");
    }
    // One that ends early is another thing.
    let head = format!("{LINE}host: g\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{{");
    let mut client = gateway.connect().await;
    client.write(head.as_bytes()).await.unwrap();
    client.close_write().await.unwrap();
    let answer = client.response().await.unwrap();
    assert_eq!(answer.json()["error"]["code"], "incomplete_body");
    assert!(engine.requests().is_empty());
}
