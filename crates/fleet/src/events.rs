//! Which event stream an endpoint has, and the task that applies it.

use std::sync::Arc;

use kvasir_inventory::{AbsentReason, Inventory, Trust};
use kvasir_kv_events::{Address, EndpointError, Subscriber, SubscriberConfig, Update};
use tokio::task::JoinHandle;

use crate::apply::Applier;
use crate::card::EngineCard;
use crate::endpoint::Endpoint;
use crate::spec::EventSpec;

/// Where an endpoint's events come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From nowhere; the endpoint earns no credit.
    None(AbsentReason),
    /// From this publisher.
    Stream(EventSpec),
}

impl Source {
    /// The configured stream, else the one the engine names.
    pub(crate) fn of(configured: Option<&EventSpec>, card: &EngineCard) -> Self {
        if let Some(spec) = configured {
            return Self::Stream(spec.clone());
        }
        match card.event_sources.as_deref() {
            None | Some([]) => Self::None(AbsentReason::NoStream),
            Some([source]) => Self::Stream(EventSpec {
                publisher: source.publisher.clone(),
                replay: source.replay.clone(),
                topic: source.topic.clone(),
                bind: false,
            }),
            Some(_) => Self::None(AbsentReason::DataParallel),
        }
    }
}

/// Follows one endpoint's stream, and changes to another when the engine names another.
#[derive(Debug, Default)]
pub(crate) struct EventFollower {
    source: Option<Source>,
    task: Option<AbortOnDrop>,
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl EventFollower {
    /// Follows `source` from now on. Does nothing when it is followed already.
    pub(crate) fn follow(
        &mut self,
        endpoint: &Arc<Endpoint>,
        inventory: &Arc<Inventory>,
        source: Source,
    ) {
        if self.source.as_ref() == Some(&source) {
            return;
        }
        self.task = None;
        inventory.clear(endpoint.slot());
        endpoint.set_stream(None);
        match &source {
            Source::None(reason) => endpoint.set_trust(Trust::Absent(*reason), "no_stream"),
            Source::Stream(spec) => match self.start(endpoint, inventory, spec) {
                Ok(()) => {}
                Err(error) => {
                    endpoint.set_trust(Trust::Absent(AbsentReason::NoStream), "bad_address");
                    tracing::error!(endpoint = endpoint.url(), %error, "events not followed");
                }
            },
        }
        self.source = Some(source);
    }

    fn start(
        &mut self,
        endpoint: &Arc<Endpoint>,
        inventory: &Arc<Inventory>,
        spec: &EventSpec,
    ) -> Result<(), StartError> {
        let host = endpoint.authority().host();
        let address = if spec.bind {
            Address::parse(&spec.publisher)?
        } else {
            Address::resolve(&spec.publisher, host)?
        };
        let replay = spec.replay.as_deref().map(|text| Address::resolve(text, host)).transpose()?;
        tracing::info!(
            endpoint = endpoint.url(),
            %address,
            replay = replay.as_ref().map(ToString::to_string),
            "following events"
        );
        let mut config = SubscriberConfig::new(address);
        endpoint.url().clone_into(&mut config.name);
        config.bind = spec.bind;
        config.topic.clone_from(&spec.topic);
        config.replay = replay;
        let subscriber = Subscriber::spawn(config)?;
        endpoint.set_stream(Some(subscriber.stats()));
        let applied = apply_all(Arc::clone(endpoint), Arc::clone(inventory), subscriber);
        self.task = Some(AbortOnDrop(tokio::spawn(applied)));
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Address(#[from] EndpointError),
    #[error(transparent)]
    Subscribe(#[from] kvasir_kv_events::SubscribeError),
}

/// Applies updates until the stream or the task ends.
async fn apply_all(endpoint: Arc<Endpoint>, inventory: Arc<Inventory>, mut subscriber: Subscriber) {
    let mut applier = Applier::new(inventory, endpoint.slot(), endpoint.trust());
    let unknown = Arc::new(EngineCard::default());
    while let Some(update) = subscriber.recv().await {
        if let Update::Forget { trust, why } = &update {
            // First the trust, then the blocks: nobody is credited with what is being forgotten.
            endpoint.set_trust(*trust, why.as_str());
        }
        let card = endpoint.card().unwrap_or_else(|| Arc::clone(&unknown));
        applier.apply(&update, &card);
        if let Some(size) = applier.block_size() {
            endpoint.set_block_size(size);
        }
        let why = match &update {
            Update::Forget { why, .. } | Update::Trust { why, .. } => why.as_str(),
            Update::Batch { .. } => "events",
        };
        endpoint.set_trust(applier.trust(), why);
    }
    endpoint.set_trust(Trust::Absent(AbsentReason::NoStream), "subscriber_ended");
    applier.forget();
}
