//! Fetches the events of an engine that does not publish them (TensorRT-LLM), for all its ranks.
//!
//! Whoever asks takes the events away. It is done only where the configuration says so: nobody else
//! may ask the same engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use kvasir_inventory::{AbsentReason, Inventory, Slot, Trust};
use kvasir_kv_events::Update;
use kvasir_kv_events::poll::{PollStream, RankUpdate};

use crate::engine::Engine;
use crate::engine_client::{EngineClient, ProbeError};
use crate::stream_applier::{Followed, StreamApplier, off_the_scheduler};
use crate::task::Task;

const PATH: &str = "/kv_cache_events";
/// Between two questions while there is much to hear, and while there is nothing.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Answers longer than this take a while to read.
const HEAVY_BYTES: usize = 64 << 10;

/// Polls one engine, for the streams of all its ranks.
#[derive(Debug, Default)]
pub(crate) struct PollFollower {
    followed: Option<Wanted>,
    /// What the task asks with: another one is no reason to begin anew.
    client: Arc<ArcSwapOption<EngineClient>>,
    task: Option<Task>,
}

/// The ranks with their places in the inventory, the base model it is done for, and with which key.
type Wanted = (Vec<(u32, Slot)>, String, Option<HeaderValue>);

impl PollFollower {
    /// Polls no more.
    pub(crate) async fn end(self) {
        if let Some(task) = self.task {
            task.end().await;
        }
    }

    /// Polls from now on. Does nothing when that is done already for the same ranks and model.
    pub(crate) async fn follow(
        &mut self,
        engine: &Arc<Engine>,
        streams: Vec<Followed>,
        inventory: &Arc<Inventory>,
        client: &EngineClient,
        authorization: Option<&HeaderValue>,
        base: &str,
    ) {
        let rank_of = |to: &Followed| (to.stream.rank(), to.stream.slot());
        let ranks: Vec<(u32, Slot)> = streams.iter().map(rank_of).collect();
        let wanted: Wanted = (ranks, base.to_owned(), authorization.cloned());
        let key = authorization.map(|value| (header::AUTHORIZATION, value.clone()));
        let client = client.clone().with_headers(HeaderMap::from_iter(key));
        self.client.store(Some(Arc::new(client)));
        let ended = self.task.as_ref().is_none_or(Task::is_finished);
        if self.followed.as_ref() == Some(&wanted) && !ended {
            return;
        }
        if let Some(task) = self.task.take() {
            task.end().await;
        }
        for Followed { stream, .. } in &streams {
            stream.withhold_credit();
            stream.set_trust(Trust::Absent(AbsentReason::Connecting), "followed");
            off_the_scheduler(true, || stream.clear());
            stream.set_polled(None);
        }
        tracing::info!(endpoint = engine.url(), ranks = ?wanted.0, "fetching events");
        let applications = streams
            .iter()
            .map(|to| (to.stream.rank(), StreamApplier::new(to.clone(), Arc::clone(inventory))))
            .collect();
        let client = Arc::clone(&self.client);
        let poller = Poller::new(Arc::clone(engine), client, applications);
        for Followed { stream, .. } in &streams {
            stream.set_polled(poller.stream.stats(stream.rank()));
        }
        self.task = Some(Task::spawn(poller.run()));
        self.followed = Some(wanted);
    }
}

struct Poller {
    engine: Arc<Engine>,
    client: Arc<ArcSwapOption<EngineClient>>,
    stream: PollStream,
    applications: BTreeMap<u32, StreamApplier>,
    /// Newer servers take `GET`, older ones `POST`.
    method: Method,
}

impl Poller {
    fn new(
        engine: Arc<Engine>,
        client: Arc<ArcSwapOption<EngineClient>>,
        applications: BTreeMap<u32, StreamApplier>,
    ) -> Self {
        let ranks: Vec<u32> = applications.keys().copied().collect();
        let (stream, first) = PollStream::new(&ranks);
        let mut poller = Self { engine, client, stream, applications, method: Method::POST };
        poller.apply(first);
        poller
    }

    async fn run(mut self) {
        let mut interval = SHORTEST;
        loop {
            let origin = self.engine.origin();
            let Some(client) = self.client.load_full() else { return };
            let answer = client.fetch(self.method.clone(), &origin, PATH, TIMEOUT).await;
            interval = self.take(answer, interval);
            tokio::time::sleep(interval).await;
        }
    }

    /// Takes in an answer; how long to wait for the next question.
    fn take(
        &mut self,
        answer: Result<(StatusCode, Bytes), ProbeError>,
        interval: Duration,
    ) -> Duration {
        let (updates, next) = match answer {
            Ok((StatusCode::OK, body)) => {
                let stream = &mut self.stream;
                let updates =
                    off_the_scheduler(body.len() > HEAVY_BYTES, || stream.answered(&body));
                let busy = updates.iter().any(|(_, u)| matches!(u, Update::Batch { .. }));
                let next = if busy { interval / 2 } else { interval * 2 };
                (updates, next.clamp(SHORTEST, LONGEST))
            }
            Ok((StatusCode::METHOD_NOT_ALLOWED, _)) if self.method == Method::POST => {
                self.method = Method::GET;
                (Vec::new(), SHORTEST)
            }
            Ok((status @ (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED), _)) => {
                tracing::debug!(endpoint = self.engine.url(), %status, "no cache events");
                self.method = Method::POST;
                (self.stream.refused(), PAUSE)
            }
            Ok((status, _)) => {
                tracing::debug!(endpoint = self.engine.url(), %status, "cache events not fetched");
                (self.stream.failed(), PAUSE)
            }
            Err(error) => {
                tracing::debug!(endpoint = self.engine.url(), %error, "cache events not fetched");
                (self.stream.failed(), PAUSE)
            }
        };
        self.apply(updates);
        next
    }

    fn apply(&mut self, updates: Vec<RankUpdate>) {
        for (rank, update) in updates {
            if let Some(application) = self.applications.get_mut(&rank) {
                application.apply(&update);
            }
        }
    }
}
