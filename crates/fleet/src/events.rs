//! Which event stream a rank has, and the task that applies it.

use std::sync::{Arc, Weak};

use kvasir_inventory::{AbsentReason, Inventory, Trust};
use kvasir_kv_events::{Address, EndpointError, SubscribeError, Subscriber, SubscriberConfig};

use crate::card::EngineCard;
use crate::kind::EngineKind;
use crate::rank_stream::RankStream;
use crate::spec::EventSpec;
use crate::stream_applier::{Followed, StreamApplier, off_the_scheduler};
use crate::task::Task;

/// Where a rank's events come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From nowhere; the endpoint earns no credit.
    None(AbsentReason),
    /// From this publisher.
    Stream(EventSpec),
}

impl Source {
    /// A rank's stream: the configured one, else the one the engine names. `card` is `None` while
    /// the engine does not say what it is.
    pub(crate) fn of(
        configured: Option<&EventSpec>,
        card: Option<&EngineCard>,
        stream: &RankStream,
    ) -> Self {
        if let Some(spec) = configured {
            return spec.for_rank(stream.offset()).map_or_else(
                |error| {
                    tracing::error!(rank = stream.rank(), %error, "a rank without a stream");
                    Self::None(AbsentReason::NoStream)
                },
                Self::Stream,
            );
        }
        let Some(card) = card else { return Self::None(AbsentReason::EngineUnknown) };
        let mut told = card.event_sources.iter().flatten();
        match told.find(|source| source.rank == stream.rank()) {
            Some(source) => Self::Stream(EventSpec {
                publisher: source.publisher.clone(),
                replay: source.replay.clone(),
                topic: source.topic.clone(),
                bind: false,
            }),
            None => Self::None(match card.kind {
                EngineKind::LlamaCpp => AbsentReason::EngineWithoutEvents,
                EngineKind::TrtLlm => AbsentReason::NotPolled,
                EngineKind::Vllm | EngineKind::Sglang | EngineKind::Other => AbsentReason::NoStream,
            }),
        }
    }
}

/// Follows one rank's stream, and changes to another when the engine names another.
#[derive(Debug, Default)]
pub(crate) struct EventFollower {
    /// The source and the base model it was followed for: another model is another cache.
    followed: Option<(Source, String)>,
    /// Where what it says is written: another stream of the same rank is to be followed anew.
    into: Weak<RankStream>,
    task: Option<Task>,
}

impl EventFollower {
    /// Follows nothing more.
    pub(crate) async fn end(self) {
        if let Some(task) = self.task {
            task.end().await;
        }
    }

    /// Follows `source` from now on. Does nothing when it is followed already, for the same `base`
    /// model.
    pub(crate) async fn follow(
        &mut self,
        to: &Followed,
        inventory: &Arc<Inventory>,
        source: Source,
        base: &str,
    ) {
        let same = self.followed.as_ref().is_some_and(|(known, of)| *known == source && of == base)
            && std::ptr::eq(self.into.as_ptr(), Arc::as_ptr(&to.stream));
        let ended = self.task.as_ref().is_some_and(Task::is_finished);
        if same && !ended {
            return;
        }
        if let Some(task) = self.task.take() {
            // Until it has really ended it may still store blocks.
            task.end().await;
        }
        // Until it is followed again, so that a failed start is tried anew.
        self.followed = None;
        self.into = Arc::downgrade(&to.stream);
        let stream = &to.stream;
        stream.withhold_credit();
        let (trust, why) = match &source {
            Source::None(reason) => (Trust::Absent(*reason), "no_stream"),
            Source::Stream(_) => (Trust::Absent(AbsentReason::Connecting), "followed"),
        };
        stream.set_trust(trust, why);
        off_the_scheduler(true, || stream.clear());
        stream.set_subscriber(None);
        if let Source::Stream(spec) = &source
            && let Err(error) = self.start(to, inventory, spec)
        {
            stream.set_trust(Trust::Absent(AbsentReason::NoStream), "not_started");
            tracing::error!(endpoint = to.endpoint.url(), rank = stream.rank(), %error, "events not followed");
            if let StartError::Subscribe(SubscribeError::Spawn(_)) = error {
                // Out of threads or descriptors for now: tried again at the next visit.
                return;
            }
        }
        self.followed = Some((source, base.to_owned()));
    }

    fn start(
        &mut self,
        to: &Followed,
        inventory: &Arc<Inventory>,
        spec: &EventSpec,
    ) -> Result<(), StartError> {
        let Followed { endpoint, stream } = to;
        let host = endpoint.authority().host();
        let address = if spec.bind {
            Address::parse(&spec.publisher)?
        } else {
            Address::resolve(&spec.publisher, host)?
        };
        let replay = spec.replay.as_deref().map(|text| Address::resolve(text, host)).transpose()?;
        tracing::info!(
            endpoint = endpoint.url(),
            rank = stream.rank(),
            %address,
            replay = replay.as_ref().map(ToString::to_string),
            "following events"
        );
        let mut config = SubscriberConfig::new(address);
        config.name = format!("{}#{}", endpoint.url(), stream.rank());
        config.bind = spec.bind;
        config.topic.clone_from(&spec.topic);
        config.replay = replay;
        let subscriber = Subscriber::spawn(config)?;
        stream.set_subscriber(Some(&subscriber));
        let applied = apply_all(to.clone(), Arc::clone(inventory), subscriber);
        self.task = Some(Task::spawn(applied));
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Address(#[from] EndpointError),
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
}

/// Applies updates until the stream or the task ends.
async fn apply_all(to: Followed, inventory: Arc<Inventory>, mut subscriber: Subscriber) {
    let mut application = StreamApplier::new(to, inventory);
    while let Some(update) = subscriber.recv().await {
        application.apply(&update);
    }
    application.end("subscriber_ended");
}
