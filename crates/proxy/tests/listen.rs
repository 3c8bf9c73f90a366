//! The listener through real sockets, without engines: several accept loops, and floods of HTTP/2.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_fleet::Fleet;
use kvasir_inventory::{Inventory, Limits};
use kvasir_kv_hash::KeySpace;
use kvasir_proxy::{App, ForwardedHeaders, ListenSettings, Listener, Settings, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

fn app() -> Arc<App> {
    let inventory =
        Arc::new(Inventory::new(KeySpace::new([7; KeySpace::SECRET_LEN]), Limits::default()));
    let settings = Settings {
        max_body_bytes: 1 << 20,
        max_head_bytes: kvasir_proxy::DEFAULT_HEAD_BYTES,
        decision_headers: false,
        debug_tokens: None,
        forward_paths: Vec::new(),
        retries: kvasir_proxy::Retries::default(),
        tokenizer_threads: 1,
        forwarded_headers: ForwardedHeaders::default(),
        client_keys: None,
    };
    Arc::new(App::new(settings, Fleet::empty(inventory), Arc::new(String::new)))
}

fn settings(max_connections: usize, reuse_port: bool) -> ListenSettings {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    ListenSettings { max_connections, reuse_port, ..ListenSettings::at(address) }
}

async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: g\r\n\r\n").await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"}") {
        let read = timeout(SOON, stream.read_buf(&mut seen)).await.unwrap().unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&seen));
    }
    String::from_utf8(seen).unwrap()
}

async fn opened(addr: SocketAddr) -> TcpStream {
    let mut stream = timeout(SOON, TcpStream::connect(addr)).await.unwrap().unwrap();
    assert!(ask(&mut stream).await.starts_with("HTTP/1.1 200"));
    stream
}

/// Two loops in runtimes of their own, as many threads; what ends the first, and their threads.
fn two_loops(listener: Listener) -> (oneshot::Sender<()>, Vec<std::thread::JoinHandle<()>>) {
    let (stop, stopped) = oneshot::channel();
    let app = app();
    let other = listener.another().unwrap();
    let run = |listener, stop: futures_util::future::BoxFuture<'static, ()>| {
        let app = Arc::clone(&app);
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(serve(app, listener, stop, SOON)).unwrap();
        })
    };
    let stopped = Box::pin(async move {
        let _ = stopped.await;
    });
    let threads = vec![run(listener, stopped), run(other, Box::pin(std::future::pending()))];
    (stop, threads)
}

#[tokio::test]
async fn accept_loops_share_one_limit_one_stop_and_one_end() {
    for reuse_port in [false, true] {
        let listener = Listener::bind(&settings(3, reuse_port)).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, threads) = two_loops(listener);
        let mut open = vec![opened(addr).await, opened(addr).await, opened(addr).await];
        // A fourth is connected by the system and served by nobody.
        let mut fourth = TcpStream::connect(addr).await.unwrap();
        let served = timeout(Duration::from_millis(300), ask(&mut fourth)).await;
        assert!(served.is_err(), "{served:?}");
        drop(open.pop());
        let mut seen = Vec::new();
        while !seen.ends_with(b"}") {
            let read = timeout(SOON, fourth.read_buf(&mut seen)).await.unwrap().unwrap();
            assert_ne!(read, 0);
        }
        stop.send(()).unwrap();
        // The stop of one is the stop of both, and both wait for the connections of both.
        let began = Instant::now();
        for thread in threads {
            tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
        }
        assert!(began.elapsed() < SOON, "idle connections were closed, not waited for");
        TcpStream::connect(addr).await.unwrap_err();
    }
}

#[tokio::test]
async fn connections_are_spread_over_sockets_that_share_a_port() {
    let listener = Listener::bind(&settings(100, true)).unwrap();
    let addr = listener.local_addr().unwrap();
    let other = listener.another().unwrap();
    assert_eq!(other.local_addr().unwrap(), addr);
    // One that nobody accepts from: some connections are its own, so not all are served.
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(serve(
        app(),
        listener,
        async move {
            let _ = stopped.await;
        },
        SOON,
    ));
    let mut waiting = 0;
    for _ in 0..64 {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let served = timeout(Duration::from_millis(50), ask(&mut stream)).await.is_ok();
        waiting += usize::from(!served);
        if !served {
            break;
        }
    }
    assert!(waiting > 0, "the system gives the second socket its share");
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
    drop(other);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// `:method: GET`, `:scheme: http`, `:path: /`, `:authority: g`, without Huffman.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'g'];

/// The error codes of all frames that end the connection.
async fn goaways(stream: &mut TcpStream) -> Vec<u32> {
    let mut seen = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut seen)).await.unwrap();
    let (mut rest, mut codes) = (&seen[..], Vec::new());
    while rest.len() >= 9 {
        let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        if rest[3] == GOAWAY && rest.len() >= 17 {
            codes.push(u32::from_be_bytes(rest[13..17].try_into().unwrap()));
        }
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    codes
}

#[tokio::test]
async fn a_flood_of_resets_ends_the_connection() {
    let listener = Listener::bind(&settings(100, false)).unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(app(), listener, std::future::pending(), SOON));
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    for n in 0..4_000 {
        sent.extend(frame(HEADERS, 0x5, 2 * n + 1, GET));
        sent.extend(frame(RST_STREAM, 0, 2 * n + 1, &8_u32.to_be_bytes()));
    }
    let mut stream = TcpStream::connect(addr).await.unwrap();
    // It may be ended before everything is sent.
    let _ = stream.write_all(&sent).await;
    let enhance_your_calm = 11;
    assert!(goaways(&mut stream).await.contains(&enhance_your_calm));
    // Others are served.
    opened(addr).await;
}

#[tokio::test]
async fn a_head_without_end_ends_the_connection() {
    let listener = Listener::bind(&settings(100, false)).unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(app(), listener, std::future::pending(), SOON));
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    sent.extend(frame(HEADERS, 0x1, 1, GET));
    let piece = [&[0x40, 1, b'x', 0x7f, 0x80, 0x7f][..], &[b'y'; 16_000][..]].concat();
    let continuation = 9;
    for _ in 0..1_000 {
        sent.extend(frame(continuation, 0, 1, &piece));
    }
    let _ = stream.write_all(&sent).await;
    let mut seen = Vec::new();
    let ended = timeout(SOON, stream.read_to_end(&mut seen)).await;
    assert!(ended.is_ok(), "16 MB of one head are not read on for ever");
    opened(addr).await;
}

/// A header for HPACK, as a literal without indexing.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        // Below 127 a length is one byte.
        field.push(u8::try_from(text.len()).unwrap());
        field.extend(text.as_bytes());
    }
    field
}

/// What becomes of one request of HTTP/2: its status, or the code it is reset with.
async fn fate(addr: SocketAddr, fields: &[(&str, &str)], body: &[u8]) -> Result<String, u32> {
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    let head: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
    sent.extend(frame(HEADERS, 0x4, 1, &head));
    sent.extend(frame(0, 0x1, 1, body));
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(&sent).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let mut rest = &seen[..];
        while rest.len() >= 9 {
            let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
            let Some(payload) = rest.get(9..9 + length) else { break };
            match (rest[3], rest[8]) {
                (RST_STREAM, 1) => return Err(u32::from_be_bytes(payload.try_into().unwrap())),
                (GOAWAY, _) => return Err(u32::from_be_bytes(payload[4..8].try_into().unwrap())),
                // The status comes first, from the static table or as a literal of it.
                (HEADERS, 1) => return Ok(format!("{:02x}", payload[0])),
                _ => {}
            }
            rest = &rest[9 + length..];
        }
        let read = timeout(SOON, stream.read_buf(&mut seen)).await.unwrap().unwrap();
        assert_ne!(read, 0, "neither an answer nor a reset");
    }
}

#[tokio::test]
async fn what_would_be_another_request_in_http_1_is_none_in_http_2() {
    let listener = Listener::bind(&settings(100, false)).unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(app(), listener, std::future::pending(), SOON));
    let usual =
        [(":method", "GET"), (":scheme", "http"), (":authority", "g"), (":path", "/health")];
    let with = |more: &[(&'static str, &'static str)]| [&usual[..], more].concat();
    let ok = "88".to_owned();
    assert_eq!(fate(addr, &with(&[]), b"").await, Ok(ok.clone()));
    assert_eq!(fate(addr, &with(&[("content-length", "2")]), b"{}").await, Ok(ok));
    for more in [
        &[("transfer-encoding", "chunked")][..],
        &[("connection", "close")],
        &[("content-length", "3")],
        &[("content-length", "2"), ("content-length", "3")],
        &[("x-a", "1\r\nx-b: 2")],
        &[("x a", "1")],
        &[("X-A", "1")],
        &[("x-a:", "1")],
        &[(":path", "/other")],
        &[(":unknown", "1")],
    ] {
        let seen = fate(addr, &with(more), b"{}").await;
        let refused = seen.is_err() || seen == Ok("8c".to_owned());
        assert!(refused, "{more:?}: {seen:?}");
    }
    for path in ["/health\r\nx-b: 2", "/health HTTP/1.1", ""] {
        let fields =
            [(":method", "GET"), (":scheme", "http"), (":authority", "g"), (":path", path)];
        let seen = fate(addr, &fields, b"").await;
        assert!(seen.is_err() || seen == Ok("8c".to_owned()), "{path:?}: {seen:?}");
    }
}
