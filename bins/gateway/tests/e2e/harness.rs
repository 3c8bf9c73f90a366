//! What every test here needs: the binary, replicas to put behind it, and eyes.

mod decision;
mod gateway;
mod golden;
mod lockstep;
mod metrics;
mod replica;
mod stop;

use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

use kvasir_testkit::engine::FakeEngine;
use serde_json::{Value, json};

pub(crate) use self::decision::Decision;
pub(crate) use self::gateway::{ConfigFile, Gateway, run_to_end};
pub(crate) use self::golden::Golden;
pub(crate) use self::lockstep::Lockstep;
pub(crate) use self::metrics::MetricsPage;
pub(crate) use self::replica::{BLOCK, Replica, ReplicaOptions};
pub(crate) use self::stop::stops_in_good_order;

/// For what should happen at once, on a machine that may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// How soon an engine must learn that a client left, on a machine that may be busy: what goes on without
/// its client takes longer in every test.
pub(crate) const PROMPTLY: Duration = Duration::from_secs(10);
pub(crate) const NEVER: Duration = Duration::from_secs(3600);

pub(crate) const COMPLETIONS: &str = "/v1/completions";
pub(crate) const CHAT: &str = "/v1/chat/completions";

/// The configuration of a pool over these engines, with the staged tokenizer.
pub(crate) fn pool(model: &str, engines: &[&FakeEngine]) -> Value {
    let urls: Vec<String> = engines.iter().map(|engine| engine.url()).collect();
    pool_at(model, &urls)
}

/// The same by URLs.
pub(crate) fn pool_at(model: &str, urls: &[String]) -> Value {
    let endpoints: Vec<Value> = urls.iter().map(|url| json!({ "url": url })).collect();
    json!({"model": model, "tokenizer_dir": Golden::staged(), "token_parity": "off",
        "endpoints": endpoints})
}

/// `count` token ids from `first` on. The staged vocabulary has 4096.
pub(crate) fn ids(first: u32, count: u32) -> Vec<u32> {
    (first..first + count).collect()
}

/// A completion request for a prompt of token ids.
pub(crate) fn completion(ids: &[u32]) -> Value {
    json!({"model": "tiny", "prompt": ids, "max_tokens": 2})
}

/// The same as a stream of `count` tokens.
pub(crate) fn stream(ids: &[u32], count: u32) -> Value {
    json!({"model": "tiny", "prompt": ids, "max_tokens": count, "stream": true})
}

/// A request with a prompt that takes much longer to tokenise than a test waits.
pub(crate) fn long_prompt() -> String {
    let words = "many words that take their time ".repeat(220_000);
    json!({"model": "tiny", "prompt": words}).to_string()
}

/// Waits for a state that takes a request to see; `look` says what it saw when it is not there.
#[track_caller]
pub(crate) fn until<F, T>(
    deadline: Duration,
    mut look: impl FnMut() -> F,
) -> impl Future<Output = T>
where
    F: Future<Output = Result<T, String>>,
{
    let caller = Location::caller();
    async move {
        let start = Instant::now();
        loop {
            match look().await {
                Ok(seen) => return seen,
                Err(seen) => {
                    let late = start.elapsed() > deadline;
                    assert!(!late, "{caller}: not within {deadline:?}; last seen: {seen}");
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
