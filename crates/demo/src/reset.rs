//! Empties a running engine's prefix cache, so that every policy starts from nothing.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::StagedModel;
use crate::client::ChatError;

const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ANSWER: usize = 64 << 10;

/// Resets the prefix cache of the engine at `base` (vLLM in development mode:
/// `VLLM_SERVER_DEV_MODE=1`), then has it compute one token: vLLM announces the reset with the
/// next request only.
///
/// # Errors
/// The engine cannot be reached or refuses.
pub async fn reset_prefix_cache(base: &str) -> Result<(), ChatError> {
    post(base, "/reset_prefix_cache", String::new()).await?;
    let model = StagedModel::NAME;
    let body = serde_json::json!({ "model": model, "prompt": [1], "max_tokens": 1 });
    post(base, "/v1/completions", body.to_string()).await
}

async fn post(base: &str, path: &str, body: String) -> Result<(), ChatError> {
    let broken = |error: &dyn std::error::Error| ChatError::Http(error.to_string());
    let request = Request::post(format!("{base}{path}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| broken(&e))?;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let exchange = async {
        let response = client.request(request).await.map_err(|e| broken(&e))?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let answer = answer.map_err(|e| ChatError::Http(e.to_string()))?.to_bytes();
        if status == StatusCode::OK {
            return Ok(());
        }
        let body = format!("{path}: {}", String::from_utf8_lossy(&answer));
        Err(ChatError::Status { status: status.as_u16(), body })
    };
    tokio::time::timeout(TIMEOUT, exchange).await.unwrap_or(Err(ChatError::Timeout))
}
