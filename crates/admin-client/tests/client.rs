//! The client against sockets that answer as gateways do, and as they do not.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use kvasir_admin_client::{AdminClient, ApiPath, AskError, BadToken};
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use kvasir_upstream::Origin;
use serde_json::{Value, json};

/// A server that answers everything so, and a client of it.
async fn answering(reply: Reply) -> (FakeEngine, AdminClient) {
    let server = FakeEngine::start(EngineConfig::default()).await.unwrap();
    server.set_handler(move |asked| match asked.path.as_str() {
        "/api/v1/openapi.json" => {
            let info = json!({"title": "Kvasir admin API", "version": "9.9.9"});
            let paths = json!({"/api/v1/pools/{model}": {"get": {}}});
            Some(Reply::Json(StatusCode::OK, json!({"info": info, "paths": paths})))
        }
        _ => Some(reply.clone()),
    });
    let client = client_of(&server);
    (server, client)
}

fn client_of(server: &FakeEngine) -> AdminClient {
    let authority = server.addr().to_string().parse().unwrap();
    AdminClient::new(Origin::at(authority, false).unwrap(), Some("token-01234")).unwrap()
}

fn refusal(status: StatusCode, error: &Value) -> Reply {
    Reply::Json(status, json!({ "error": error }))
}

fn pool() -> ApiPath {
    ApiPath::of(&["pools", "org/m"])
}

#[tokio::test]
async fn answers_are_read_and_the_token_is_shown() {
    let (server, client) = answering(Reply::Json(StatusCode::OK, json!({"a": 1}))).await;
    assert_eq!(client.get(&pool()).await.unwrap(), json!({"a": 1}));
    let asked = server.requests();
    assert_eq!(asked[0].path, "/api/v1/pools/org%2Fm");
    assert_eq!(asked[0].header("authorization"), "Bearer token-01234");
    let body = Bytes::from_static(b"{\"x\": 2}");
    client.send(Method::PATCH, &pool(), body).await.unwrap();
    let asked = server.requests();
    assert_eq!((asked[1].method.as_str(), asked[1].json()), ("PATCH", json!({"x": 2})));
}

#[tokio::test]
async fn what_the_api_says_is_told_with_its_field() {
    let error = json!({"code": "invalid", "message": "must be 0 to 10000", "field": "weight"});
    let (_server, client) = answering(refusal(StatusCode::UNPROCESSABLE_ENTITY, &error)).await;
    let error = client.get(&pool()).await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!((refusal.status.as_u16(), refusal.field.as_deref()), (422, Some("weight")));
    assert_eq!(error.to_string(), "weight: must be 0 to 10000");
}

#[tokio::test]
async fn a_thing_that_is_not_there_is_told_from_a_route_that_is_not() {
    let error = json!({"code": "not_found", "message": "there is no pool `org/m`"});
    let (_server, client) = answering(refusal(StatusCode::NOT_FOUND, &error)).await;
    let missing = client.get(&pool()).await.unwrap_err();
    assert_eq!(missing.refusal().unwrap().code, "not_found");
    match client.get(&ApiPath::of(&["parity"])).await.unwrap_err() {
        AskError::NoRoute { route, version, .. } => {
            assert_eq!((&*route, &*version), ("GET /api/v1/parity", "9.9.9"));
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn what_is_no_admin_api_is_told() {
    // As the data port answers.
    let server = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let error = json!({"code": "not_found", "message": "no such path", "type": "invalid_request"});
    server.set_default(refusal(StatusCode::NOT_FOUND, &error));
    let asked = client_of(&server).get(&pool()).await;
    assert!(matches!(asked, Err(AskError::NotAdmin { .. })), "{asked:?}");
    // As a web server does.
    let page = Bytes::from_static(b"<html>");
    let (_server, client) = answering(Reply::Status(StatusCode::OK, HeaderMap::new(), page)).await;
    let asked = client.get(&pool()).await;
    assert!(matches!(asked, Err(AskError::NotAdmin { .. })), "{asked:?}");
    // As something else than HTTP does.
    let (_server, client) =
        answering(Reply::RawBytes(Bytes::from_static(b"SSH-2.0\r\n\r\n"))).await;
    let asked = client.get(&pool()).await;
    assert!(matches!(asked, Err(AskError::NotAdmin { .. } | AskError::Broken { .. })), "{asked:?}");
}

#[tokio::test]
async fn changes_are_sent_once() {
    let (server, client) = answering(Reply::Json(StatusCode::OK, json!({}))).await;
    // So that there is a kept connection, whose break may be nobody's fault.
    client.get(&pool()).await.unwrap();
    server.push([Reply::ResetBeforeHead]);
    let asked = client.send(Method::PATCH, &pool(), Bytes::from_static(b"{}")).await;
    assert!(matches!(asked, Err(AskError::Broken { .. })), "{asked:?}");
    let changes = server.requests().into_iter().filter(|asked| asked.method == "PATCH");
    assert_eq!(changes.count(), 1);
}

#[tokio::test]
async fn nobody_there_and_no_token() {
    let origin = || Origin::at("127.0.0.1:9".parse().unwrap(), false).unwrap();
    let asked = AdminClient::new(origin(), None).unwrap().get(&pool()).await;
    let error = asked.unwrap_err();
    assert!(matches!(error, AskError::Connect { .. }), "{error}");
    assert!(error.to_string().starts_with("cannot connect to http://127.0.0.1:9: "), "{error}");
    for token in ["", "two words", "line\n", "é"] {
        assert_eq!(AdminClient::new(origin(), Some(token)).unwrap_err(), BadToken, "{token:?}");
    }
}
