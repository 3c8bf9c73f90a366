//! One question to an engine's `POST /tokenize`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use kvasir_upstream::Origin;
use serde::Deserialize;

use crate::engine_client::EngineClient;

const PATH: &str = "/tokenize";
const PATIENCE: Duration = Duration::from_secs(5);
/// Tells these questions from clients' in engines' logs.
const USER_AGENT: HeaderValue = HeaderValue::from_static("kvasir-token-parity");

/// What an engine said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ids(Vec<u32>),
    /// It refuses this one.
    Refused,
    /// It takes no such questions, or not from us.
    NotTold(&'static str),
    /// It was late, broke off, or said something else.
    Unheard(String),
}

#[derive(Deserialize)]
struct Tokens {
    tokens: Vec<u32>,
}

/// The client for questions with the pool's key.
pub(super) fn client(client: &EngineClient, key: Option<&HeaderValue>) -> EngineClient {
    let agent = (header::USER_AGENT, USER_AGENT);
    let key = key.map(|value| (header::AUTHORIZATION, value.clone()));
    client.clone().with_headers(HeaderMap::from_iter([agent].into_iter().chain(key)))
}

pub(super) async fn ask(client: &EngineClient, engine: &Origin, body: Vec<u8>) -> Answer {
    let sent = client.post_json(engine, PATH, Bytes::from(body), PATIENCE).await;
    let (status, body) = match sent {
        Ok(answer) => answer,
        Err(error) => return Answer::Unheard(error.to_string()),
    };
    match status {
        StatusCode::OK => match serde_json::from_slice::<Tokens>(&body) {
            Ok(Tokens { tokens }) => Answer::Ids(tokens),
            Err(error) => Answer::Unheard(format!("no token ids in the answer: {error}")),
        },
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            Answer::NotTold("it has no /tokenize")
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Answer::NotTold("it wants another key"),
        // Old releases of vLLM answer 500 where a template raises an exception.
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY
        | StatusCode::INTERNAL_SERVER_ERROR => Answer::Refused,
        _ => Answer::Unheard(format!("{PATH} answered {status}")),
    }
}
