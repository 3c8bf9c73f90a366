//! TLS to engines: who is believed, and what is said where nobody is.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kvasir_testkit::pki::{Authority, Identity, server_config};
use kvasir_testkit::tls::TlsFront;
use kvasir_upstream::{Failure, Limits, Origin, Phase, Tls, TlsError, TlsFiles, Upstream};

use crate::engine::{Engine, ask, stats};

pub(crate) fn file(name: &str, text: &str) -> PathBuf {
    let name = format!("{}-{name}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

pub(crate) fn origin(addr: SocketAddr, files: &TlsFiles, http2: bool) -> Origin {
    let tls = Tls::load(files).unwrap();
    Origin::new(addr.to_string().parse().unwrap(), Some(tls), http2, Limits::default())
}

async fn front(identity: &Identity, clients: Option<&Authority>) -> (Engine, TlsFront) {
    let engine = Engine::plain().await;
    let config = server_config(identity, clients, &["http/1.1"]);
    let front = TlsFront::start(engine.addr, config).await.unwrap();
    (engine, front)
}

async fn refused(front: &TlsFront, files: &TlsFiles) -> Failure {
    ask(&Upstream::default(), &origin(front.addr(), files, false)).await.unwrap_err()
}

#[tokio::test]
async fn an_engine_must_be_who_its_url_says() {
    let authority = Authority::new();
    let (ca_file, other_ca) =
        (Some(file("ca.pem", authority.pem())), Some(file("other-ca.pem", Authority::new().pem())));
    let (engine, front) = front(&authority.issue(&["127.0.0.1"]), None).await;
    let upstream = Upstream::default();
    let believed =
        origin(front.addr(), &TlsFiles { ca_file: ca_file.clone(), ..TlsFiles::default() }, false);
    assert!(believed.url().starts_with("https://127.0.0.1:"), "{believed}");
    for _ in 0..3 {
        assert_eq!(ask(&upstream, &believed).await.unwrap(), "ok");
    }
    assert_eq!(engine.accepted(), 1, "a TLS connection is kept, too");
    assert_eq!(stats(&upstream).reused, 2);

    let failure = refused(&front, &TlsFiles { ca_file: other_ca, ..TlsFiles::default() }).await;
    assert_eq!(failure.phase(), Phase::Tls);
    let wanted = "TLS with 127.0.0.1: the engine's certificate is not taken: no authority that is \
                  trusted has signed it (`engine_tls.ca_file`)";
    assert_eq!(failure.why(), wanted);

    let server_name = Some("engine.test".to_owned());
    let named = TlsFiles { ca_file: ca_file.clone(), server_name, ..TlsFiles::default() };
    let failure = refused(&front, &named).await;
    assert_eq!(failure.phase(), Phase::Tls);
    let wanted = "it is for 127.0.0.1, not for engine.test (`engine_tls.server_name`)";
    assert!(failure.why().ends_with(wanted), "it says for whom it is valid: {failure}");

    let anyone = TlsFiles { insecure_skip_verify: true, ..TlsFiles::default() };
    assert_eq!(ask(&upstream, &origin(front.addr(), &anyone, false)).await.unwrap(), "ok");
}

#[tokio::test]
async fn an_authority_is_no_server() {
    let authority = Authority::new();
    let (_engine, front) = front(&authority.itself(), None).await;
    let ca_file = Some(file("itself.pem", authority.pem()));
    let failure = refused(&front, &TlsFiles { ca_file, ..TlsFiles::default() }).await;
    let wanted = "TLS with 127.0.0.1: the engine's certificate is not taken: it is one of an authority \
                  (`CA:TRUE`), which no server may show";
    assert_eq!(failure.why(), wanted);
}

#[tokio::test]
async fn a_name_may_be_another_than_the_urls() {
    let authority = Authority::new();
    let (_engine, front) = front(&authority.issue(&["engine.test"]), None).await;
    let files = TlsFiles {
        ca_file: Some(file("named-ca.pem", authority.pem())),
        server_name: Some("engine.test".to_owned()),
        ..TlsFiles::default()
    };
    let believed = origin(front.addr(), &files, false);
    assert_eq!(ask(&Upstream::default(), &believed).await.unwrap(), "ok");
}

#[tokio::test]
async fn an_engine_may_ask_who_we_are() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (_engine, front) = front(&authority.issue(&["127.0.0.1"]), Some(&clients)).await;
    let ours = clients.issue(&["gateway"]);
    let ca_file = Some(file("mtls-ca.pem", authority.pem()));
    let files = TlsFiles {
        ca_file: ca_file.clone(),
        cert_file: Some(file("ours.pem", &ours.cert)),
        key_file: Some(file("ours.key", &ours.key)),
        ..TlsFiles::default()
    };
    let believed = origin(front.addr(), &files, false);
    assert_eq!(ask(&Upstream::default(), &believed).await.unwrap(), "ok");
    // Under TLS 1.3 a refusal comes after the handshake.
    let failure = refused(&front, &TlsFiles { ca_file, ..TlsFiles::default() }).await;
    assert!(failure.why().contains("CertificateRequired"), "{failure:?}");
}

#[tokio::test]
async fn an_engine_without_tls_is_no_engine_with_it() {
    let engine = Engine::start(|mut stream, _| async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    })
    .await;
    let anyone = TlsFiles { insecure_skip_verify: true, ..TlsFiles::default() };
    let failure =
        ask(&Upstream::default(), &origin(engine.addr, &anyone, false)).await.unwrap_err();
    assert_eq!(failure.phase(), Phase::Tls, "{failure}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let ours = authority.issue(&["gateway"]);
    let (cert, key) = (Some(file("f.pem", &ours.cert)), Some(file("f.key", &ours.key)));
    let load = |files: TlsFiles| Tls::load(&files).map(|_| ()).unwrap_err();
    let nothing = TlsFiles::default;
    let missing = Some(PathBuf::from("/nonexistent/ca.pem"));
    let error = load(TlsFiles { ca_file: missing, ..nothing() });
    assert!(matches!(error, TlsError::File { key: "ca_file", .. }), "{error}");
    let empty = Some(file("empty.pem", "nothing"));
    let error = load(TlsFiles { ca_file: empty.clone(), ..nothing() });
    assert!(matches!(error, TlsError::Empty { key: "ca_file", .. }), "{error}");
    let ca_file = Some(file("f-ca.pem", authority.pem()));
    let believes = || TlsFiles { ca_file: ca_file.clone(), ..nothing() };
    let error = load(TlsFiles { cert_file: cert.clone(), ..believes() });
    assert!(matches!(error, TlsError::Half), "{error}");
    let error = load(TlsFiles { cert_file: cert.clone(), key_file: empty, ..believes() });
    assert!(matches!(error, TlsError::Empty { key: "key_file", .. }), "{error}");
    let other = Some(file("other.key", &authority.issue(&["x"]).key));
    let error = load(TlsFiles { cert_file: cert.clone(), key_file: other, ..believes() });
    assert!(matches!(error, TlsError::Unusable(_)), "{error}");
    let error = load(TlsFiles { server_name: Some("a b".to_owned()), ..believes() });
    assert!(matches!(error, TlsError::Name(_)), "{error}");
    // The same files are the same TLS, until what they hold changes.
    let ours = || TlsFiles { cert_file: cert.clone(), key_file: key.clone(), ..believes() };
    let (one, other) = (Tls::load(&ours()).unwrap(), Tls::load(&ours()).unwrap());
    assert_eq!(one, other);
    std::fs::write(ca_file.as_ref().unwrap(), Authority::new().pem()).unwrap();
    assert_ne!(one, Tls::load(&ours()).unwrap());
}
