//! From a configuration to running ranks, and on through restarts to the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;

use super::address::Base;
use super::config::{Plan, SimServerConfig, SimServerError};
use super::disagg::Disagg;
use super::faults::Faults;
use super::http::serve;
use super::publisher::{Publisher, PublisherOptions};
use super::rank::Rank;
use super::state::{Life, Order, State, mix};
use super::text::Text;
use crate::Engine;

/// Connections waiting to be accepted.
const BACKLOG: u32 = 1_024;

/// Attempts to find free ports next to each other for all ranks.
const PORT_ATTEMPTS: usize = 32;

/// How long the port of the life before is waited for.
const LISTEN_DEADLINE: Duration = Duration::from_secs(10);

/// Binds everything and starts engines and publishers.
pub(super) async fn start(
    config: SimServerConfig,
    orders: mpsc::WeakSender<Order>,
) -> Result<(Arc<State>, TcpListener), SimServerError> {
    let plan = config.plan()?;
    let text = Text::load(config.root.as_deref()).await?;
    let listen = |error| SimServerError::Listen { address: config.listen, error };
    let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let faults = Arc::new(Faults::default());
    let publishers = publishers(&config, &plan, &faults).await?;
    let bound = |base: &Option<Base>, of: fn(&Publisher) -> Option<&str>| {
        let base = base.as_ref()?;
        Some(publishers.first().and_then(of).map_or_else(|| base.clone(), |at| base.bound_as(at)))
    };
    let events = bound(&plan.events, |publisher| Some(&publisher.endpoint));
    let replay = bound(&plan.replay, |publisher| publisher.replay.as_deref());
    let mut ranks = Vec::new();
    let mut publishers = publishers.into_iter();
    for rank in 0..config.ranks {
        let engine = Engine::with_source(plan.engine.clone(), Box::new(config.tokens))?;
        let rank = Rank::start(rank, engine, plan.format, publishers.next());
        ranks.push(rank.map_err(SimServerError::Thread)?);
    }
    let parallel = if config.ranks > 1 { format!("dp{}-", config.ranks) } else { String::new() };
    let build = mix(config.seed, u64::MAX) as u32;
    let state = State {
        fingerprint: format!("vllm-{}-{parallel}{build:08x}", config.version),
        engine: plan.engine,
        version: plan.version,
        address,
        events,
        replay,
        text,
        faults,
        disagg: Disagg::new(config.seed, address),
        ranks,
        life: Mutex::new(Life::new(0.0)),
        orders,
        ids: AtomicU64::new(0),
        next_rank: AtomicUsize::new(0),
        config,
    };
    Ok((Arc::new(state), listener))
}

/// One publisher a rank, or none.
async fn publishers(
    config: &SimServerConfig,
    plan: &Plan,
    faults: &Arc<Faults>,
) -> Result<Vec<Publisher>, SimServerError> {
    let Some(events) = &plan.events else { return Ok(Vec::new()) };
    let chosen = events.is_wildcard() || plan.replay.as_ref().is_some_and(Base::is_wildcard);
    let mut attempt = 1;
    loop {
        match try_publishers(config, plan, events, faults).await {
            // The ports after a free one need not be free.
            Err(SimServerError::Bind { error: zmq::Error::EADDRINUSE, .. })
                if chosen && config.ranks > 1 && attempt < PORT_ATTEMPTS =>
            {
                attempt += 1;
            }
            other => return other,
        }
    }
}

async fn try_publishers(
    config: &SimServerConfig,
    plan: &Plan,
    events: &Base,
    faults: &Arc<Faults>,
) -> Result<Vec<Publisher>, SimServerError> {
    let mut bases = (events.clone(), plan.replay.clone());
    if config.ranks > 1 {
        bases.0 = bases.0.or_range(config.ranks);
        bases.1 = bases.1.map(|replay| replay.or_range(config.ranks));
    }
    let mut publishers = Vec::new();
    for rank in 0..config.ranks {
        let taken = || SimServerError::Bind {
            endpoint: format!("the ports of rank {rank}"),
            error: zmq::Error::EADDRINUSE,
        };
        let replay = match &bases.1 {
            Some(replay) => Some(replay.of_rank(rank).ok_or_else(taken)?),
            None => None,
        };
        let options = PublisherOptions {
            rank,
            endpoint: bases.0.of_rank(rank).ok_or_else(taken)?,
            replay,
            topic: config.topic.clone(),
            buffer_steps: config.buffer_steps,
            version: plan.version,
        };
        let publisher = Publisher::start(options, Arc::clone(faults)).await?;
        if rank == 0 {
            bases.0 = bases.0.bound_as(&publisher.endpoint);
            let replay = publisher.replay.as_deref();
            bases.1 = bases.1.zip(replay).map(|(base, replay)| base.bound_as(replay));
        }
        publishers.push(publisher);
    }
    Ok(publishers)
}

/// Serves, restarts and ends as it is told.
pub(super) async fn supervise(
    state: Arc<State>,
    listener: TcpListener,
    mut orders: mpsc::Receiver<Order>,
) {
    let mut listener = Some(listener);
    let mut next = None;
    loop {
        let order = match (next.take(), listener.take()) {
            (Some(order), _) => Some(order),
            (None, Some(listener)) => serve(listener, &state, &mut orders).await,
            // It could not listen again.
            (None, None) => orders.recv().await,
        };
        match order {
            Some(Order::Restart { down, done }) => {
                let held = hold(state.address);
                state.new_life().await;
                tokio::select! {
                    () = tokio::time::sleep(down) => {
                        listener = relisten(state.address, held).await;
                        // The caller may not wait for it.
                        let _ = done.send(());
                    }
                    order = orders.recv() => next = Some(order.unwrap_or_else(|| {
                        Order::Stop(tokio::sync::oneshot::channel().0)
                    })),
                }
            }
            Some(Order::Stop(done)) => {
                state.stop().await;
                let _ = done.send(());
                return;
            }
            None => {
                state.stop().await;
                return;
            }
        }
    }
}

/// Bound without listening: connections are refused, and nobody else gets the port.
fn hold(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn relisten(
    address: SocketAddr,
    mut held: std::io::Result<TcpSocket>,
) -> Option<TcpListener> {
    let deadline = Instant::now() + LISTEN_DEADLINE;
    loop {
        match held.and_then(|socket| socket.listen(BACKLOG)) {
            Ok(listener) => return Some(listener),
            Err(error) if Instant::now() >= deadline => {
                tracing::error!(%error, %address, "down: cannot listen again");
                return None;
            }
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                held = hold(address);
            }
        }
    }
}
