//! Watching a controller: connects, takes up what it says, acknowledges, and connects again. What is in
//! effect is written to the fleet's engines five times a second, whether there is a connection or not.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvasir_fleet::{Advice, Endpoint, Fleet};
use kvasir_upstream::Tls;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tonic::Streaming;

use super::follower::{Clock, Follower, FollowerSettings};
use super::judge::{Refusal, Services, Target};
use super::status::Status;
use crate::transport::Dialed;
use crate::wire::APPLIER_VERSION;
use crate::wire::aictrl::ai_ctrl_client::AiCtrlClient;
use crate::wire::aictrl::{Ack, AckStatus, Snapshot, WatchRequest};

/// How often what is in effect is written to the fleet.
const TICK: Duration = Duration::from_millis(200);
/// Before the first try to connect again, and at most.
const RECONNECT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// A connection that lasted so long counts as one that worked.
const LASTED: Duration = Duration::from_secs(5);
/// The largest snapshot that is read, in bytes.
const MAX_SNAPSHOT: usize = 1 << 20;
/// Acknowledgements that may wait to be sent.
const ACKS: usize = 16;

/// Everything a gateway is told of its controller.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// `host:port`.
    pub address: String,
    /// TLS, where it is spoken.
    pub tls: Option<Tls>,
    /// What is shown to it.
    pub token: Option<String>,
    /// This gateway's name.
    pub gateway_id: String,
    /// Models of pools, by the keys the controller has for them. A pool is always known by its model.
    pub services: Vec<(String, String)>,
    /// How long an acknowledgement may take.
    pub ack_timeout: Duration,
    /// How advice is followed.
    pub follower: FollowerSettings,
}

/// The fleet now.
pub type FleetNow = Arc<dyn Fn() -> Arc<Fleet> + Send + Sync>;
/// A random number from 0 to 1.
pub type Chance = fn() -> f64;

/// A controller that is watched. Cheap to clone.
#[derive(Clone)]
pub struct Watch {
    settings: Arc<WatchSettings>,
    fleet: FleetNow,
    chance: Chance,
    follower: Arc<Mutex<Follower>>,
    acks: mpsc::Sender<Ack>,
    came: Arc<Notify>,
    start: Instant,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Watch {
    /// Begins to watch, in tasks of its own that go on for ever. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(settings: WatchSettings, fleet: FleetNow, chance: Chance) -> Self {
        let (acks, to_send) = mpsc::channel(ACKS);
        let follower = Arc::new(Mutex::new(Follower::new(settings.follower)));
        let (settings, came) = (Arc::new(settings), Arc::new(Notify::new()));
        let watch = Self { settings, fleet, chance, follower, acks, came, start: Instant::now() };
        count_from_zero();
        tokio::spawn(watch.clone().apply());
        tokio::spawn(watch.clone().connect(to_send));
        watch
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.follower.lock().status().clone()
    }

    /// Writes what is in effect to the fleet.
    async fn apply(self) {
        loop {
            let endpoints = endpoints(&(self.fleet)());
            let well: HashSet<&str> = endpoints
                .iter()
                .filter(|endpoint| endpoint.is_well())
                .map(|endpoint| endpoint.authority().as_str())
                .collect();
            let now = self.start.elapsed();
            let before = self.status();
            let (effect, next, status) = {
                let mut follower = self.follower.lock();
                let effect = follower.tick(now, |address| well.contains(address));
                (effect, follower.next_at(), follower.status().clone())
            };
            for endpoint in &endpoints {
                let advice = effect.advice.get(endpoint.authority().as_str());
                endpoint.advise(advice.copied().unwrap_or(Advice::NEUTRAL));
            }
            if let Some((epoch, nonce)) = effect.applied {
                tracing::debug!(epoch, "a snapshot is in effect");
                self.acknowledge(epoch, nonce, None);
            }
            note(&before, &status);
            let until_next = next.map(|at| at.saturating_sub(self.start.elapsed()));
            tokio::select! {
                () = sleep(until_next.unwrap_or(TICK).min(TICK)) => {}
                () = self.came.notified() => {}
            }
        }
    }

    async fn connect(self, mut to_send: mpsc::Receiver<Ack>) {
        let (mut wait, longest) = RECONNECT;
        loop {
            let began = Instant::now();
            let why = match self.watch(&mut to_send).await {
                Ok(()) => "the controller ended the stream".to_owned(),
                Err(why) => why,
            };
            let was = {
                let mut follower = self.follower.lock();
                let status = follower.status_mut();
                status.last_error = Some(why.clone());
                std::mem::replace(&mut status.connected, false)
            };
            let address = &*self.settings.address;
            if was || wait == RECONNECT.0 {
                tracing::warn!(address, why, state = "unwatched", "the controller is not there");
            }
            metrics::gauge!("kvasir_controller_connected").set(0.0);
            if began.elapsed() >= LASTED {
                wait = RECONNECT.0;
            }
            sleep(wait).await;
            wait = (wait * 2).min(longest);
        }
    }

    /// Until the connection breaks.
    async fn watch(&self, to_send: &mut mpsc::Receiver<Ack>) -> Result<(), String> {
        let settings = &self.settings;
        let dialed =
            Dialed::connect(&settings.address, settings.tls.as_ref(), settings.token.as_deref());
        let dialed = dialed.await.map_err(|error| error.to_string())?;
        let mut client = AiCtrlClient::new(dialed).max_decoding_message_size(MAX_SNAPSHOT);
        let gateway_id = settings.gateway_id.clone();
        let request = WatchRequest { gateway_id, applier_version: APPLIER_VERSION };
        let snapshots = client.watch_snapshots(request);
        let snapshots = timeout(settings.ack_timeout, snapshots).await;
        let snapshots = snapshots.map_err(|_| "it does not answer".to_owned())?;
        let mut snapshots = snapshots.map_err(|status| status.to_string())?.into_inner();
        {
            let mut follower = self.follower.lock();
            let status = follower.status_mut();
            (status.connected, status.last_error) = (true, None);
        }
        metrics::gauge!("kvasir_controller_connected").set(1.0);
        tracing::info!(address = settings.address, "the controller is watched");
        let acknowledging = async {
            while let Some(ack) = to_send.recv().await {
                let sent = timeout(settings.ack_timeout, client.ack_snapshot(ack)).await;
                if !matches!(sent, Ok(Ok(_))) {
                    self.follower.lock().status_mut().acks_failed += 1;
                    metrics::counter!("kvasir_controller_acks_failed_total").increment(1);
                }
            }
        };
        tokio::select! {
            ended = self.take(&mut snapshots) => ended,
            () = acknowledging => Ok(()),
        }
    }

    async fn take(&self, snapshots: &mut Streaming<Snapshot>) -> Result<(), String> {
        while let Some(snapshot) = snapshots.message().await.map_err(|status| status.to_string())? {
            let services = self.services();
            let clock = Clock { now: self.start.elapsed(), unix_ms: unix_ms() };
            let offered = self.follower.lock().offer(&snapshot, &services, clock, (self.chance)());
            match offered {
                Ok(_) => self.came.notify_one(),
                Err(refusal) => {
                    note_refusal(&snapshot, &refusal);
                    self.acknowledge(snapshot.epoch, snapshot.nonce, Some(refusal));
                }
            }
        }
        Ok(())
    }

    /// One that finds no room is counted as not sent.
    fn acknowledge(&self, epoch: u64, nonce: String, refusal: Option<Refusal>) {
        let status = if refusal.is_some() { AckStatus::Rejected } else { AckStatus::Applied };
        let error_detail = refusal.map(|refusal| refusal.to_string()).unwrap_or_default();
        let gateway_id = self.settings.gateway_id.clone();
        let ack = Ack { epoch, nonce, status: status as i32, error_detail, gateway_id };
        if self.acks.try_send(ack).is_err() {
            self.follower.lock().status_mut().acks_failed += 1;
            metrics::counter!("kvasir_controller_acks_failed_total").increment(1);
        }
    }

    /// What the controller may advise on, by the fleet of the moment.
    fn services(&self) -> Services {
        let fleet = (self.fleet)();
        let mut services = Services::new();
        for pool in fleet.pools() {
            let mut targets: Vec<Target> = Vec::new();
            for member in pool.members().iter() {
                let address = member.authority().as_str();
                if !targets.iter().any(|target| target.address == address) {
                    targets.push(Target { address: address.to_owned(), role: member.role() });
                }
            }
            let keys = self.settings.services.iter().filter(|(_, model)| model == pool.model());
            for (key, _) in keys {
                services.insert(key.clone(), targets.clone());
            }
            services.insert(pool.model().to_owned(), targets);
        }
        services
    }
}

fn endpoints(fleet: &Fleet) -> Vec<Arc<Endpoint>> {
    fleet
        .pools()
        .iter()
        .flat_map(|pool| pool.members().iter().cloned().collect::<Vec<_>>())
        .collect()
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn note_refusal(snapshot: &Snapshot, refusal: &Refusal) {
    let Refusal { reason, detail } = refusal;
    tracing::warn!(
        epoch = snapshot.epoch,
        reason,
        detail,
        "a snapshot of the controller is rejected"
    );
    let counter = metrics::counter!("kvasir_controller_snapshots_total", "result" => *reason);
    counter.increment(1);
}

/// An alert on the first rejection needs to have seen that there was none.
fn count_from_zero() {
    for result in ["applied"].into_iter().chain(Refusal::REASONS) {
        metrics::counter!("kvasir_controller_snapshots_total", "result" => result).increment(0);
    }
    metrics::counter!("kvasir_controller_overrides_total").increment(0);
    metrics::counter!("kvasir_controller_acks_failed_total").increment(0);
    metrics::gauge!("kvasir_controller_connected").set(0.0);
    metrics::gauge!("kvasir_controller_alpha").set(0.0);
}

/// What changed from one tick to the next.
#[expect(clippy::cast_precision_loss, reason = "epochs are far below 2^52")]
fn note(before: &Status, now: &Status) {
    let applied = now.applied.saturating_sub(before.applied);
    metrics::counter!("kvasir_controller_snapshots_total", "result" => "applied")
        .increment(applied);
    let overrides = now.overrides.saturating_sub(before.overrides);
    metrics::counter!("kvasir_controller_overrides_total").increment(overrides);
    metrics::gauge!("kvasir_controller_alpha").set(now.alpha);
    metrics::gauge!("kvasir_controller_epoch").set(now.epoch as f64);
}
