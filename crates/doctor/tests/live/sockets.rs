//! Event and replay sockets that are missing, swapped, silent or something else.

use std::net::TcpListener;

use kvasir_doctor::{LegName, Target, Verdict};
use kvasir_testkit::engine::{EngineConfig, FakeEngine};
use kvasir_testkit::publisher::payload::{Form, batch, malformed, stored};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions, ReplayFault};
use serde_json::{Value, json};

use kvasir_engine_sim::{Algorithm, HashForm};

use crate::common::{plain, probing, release, report, says, start, target};

/// A fake vLLM whose `/kv_event_sources` says this.
async fn engine(sources: Value) -> (FakeEngine, Target) {
    let config = EngineConfig { kv_event_sources: Some(sources), ..EngineConfig::default() };
    let engine = FakeEngine::start(config).await.unwrap();
    let mut target = Target::new(engine.addr().to_string().parse().unwrap());
    target.patience = std::time::Duration::from_secs(1);
    (engine, target)
}

fn source(publisher: &str, replay: Option<&str>) -> Value {
    json!({"0": {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": publisher,
        "replay_endpoint": replay, "topic": ""}})
}

/// An address that nothing listens at.
fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("tcp://{}", listener.local_addr().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_off() {
    let mut config = plain();
    (config.events, config.replay) = (None, None);
    let server = start(config).await;
    let found = report(&probing(&server)).await;
    says(&found, LegName::Events, Verdict::Off, &["publishes no events", "--kv-events-config '{"]);
    says(&found, LegName::Replay, Verdict::Off, &["replay_endpoint"]);
    says(&found, LegName::Wire, Verdict::Unknown, &["see the leg events"]);
    says(&found, LegName::Prediction, Verdict::Unknown, &["without events", "0, 48"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_off() {
    let server =
        start(kvasir_engine_sim::server::SimServerConfig { replay: None, ..plain() }).await;
    let found = report(&probing(&server)).await;
    says(&found, LegName::Events, Verdict::Ok, &["partial(joined_late)"]);
    let parts = ["no replay socket", "restart of the gateway costs", "\"replay_endpoint\""];
    says(&found, LegName::Replay, Verdict::Off, &parts);
    says(&found, LegName::HashContract, Verdict::Ok, &["13 of 13"]);
    says(&found, LegName::Prediction, Verdict::Ok, &["8 of 8"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ports_swapped() {
    let server = start(plain()).await;
    let mut target = target(&server);
    target.patience = std::time::Duration::from_secs(1);
    target.events = server.events_endpoint();
    target.replay = server.events_endpoint();
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Ok, &[]);
    says(&found, LegName::Replay, Verdict::Off, &["answers no replay request", "own address"]);
    (target.events, target.replay) = (server.replay_endpoint(), server.events_endpoint());
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Off, &["no publisher answered", "replay socket"]);
    says(&found, LegName::Replay, Verdict::Unknown, &["not asked"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn something_else_listens() {
    let server = start(plain()).await;
    let http = server.url().replace("http://", "tcp://");
    let mut target = target(&server);
    target.patience = std::time::Duration::from_secs(1);
    target.events = Some(http.clone());
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Off, &[&http, "the HTTP port?"]);
    (target.events, target.replay) = (server.events_endpoint(), Some(http.clone()));
    let found = report(&target).await;
    says(&found, LegName::Replay, Verdict::Off, &[&http, "answers no replay request"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_listens() {
    let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
    let nowhere = closed();
    let (_engine, target) = engine(source(&publisher.endpoint(), Some(&nowhere))).await;
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Ok, &[]);
    says(&found, LegName::Replay, Verdict::Off, &["connection refused", &nowhere]);

    // vLLM takes an address without a wildcard as one to connect to.
    let (_engine, mut target) = engine(source(&nowhere, None)).await;
    let found = report(&target).await;
    let parts = ["connection refused", "connects to tcp://127.0.0.1", "tcp://*:5557"];
    says(&found, LegName::Events, Verdict::Off, &parts);

    target.events = Some("tcp://no-such-host.invalid:5557".to_owned());
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Off, &["name not found"]);
    target.events = Some("tcp://127.0.0.1".to_owned());
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Off, &["no fixed port"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_tells() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut target = Target::new(engine.addr().to_string().parse().unwrap());
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Unknown, &["--events tcp://HOST:5557"]);
    let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
    target.events = Some(publisher.endpoint());
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Ok, &["no batch yet"]);
    says(&found, LegName::Replay, Verdict::Unknown, &["--replay"]);
    target.bind = true;
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Unknown, &["connects to our address"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_publisher_and_a_replay_that_hangs() {
    let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
    let replay = publisher.replay_endpoint().unwrap();
    let (_engine, target) = engine(source(&publisher.endpoint(), Some(&replay))).await;
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Ok, &["no batch yet", "trust exact"]);
    says(&found, LegName::Replay, Verdict::Ok, &["nothing was published before this check"]);
    publisher.set_replay_fault(ReplayFault::Hang);
    let found = report(&target).await;
    says(&found, LegName::Replay, Verdict::Off, &["answers no replay request within 1 s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_was_cut_off() {
    let options = PublisherOptions { buffer_steps: 2, ..PublisherOptions::default() };
    let publisher = FakePublisher::start(options).unwrap();
    for hash in 0..5 {
        let event = stored(&[hash], None, &[hash as u32; 16]);
        publisher.publish(batch(Form::Array, 1.0, &[event]));
    }
    let replay = publisher.replay_endpoint().unwrap();
    let (_engine, target) = engine(source(&publisher.endpoint(), Some(&replay))).await;
    let found = report(&target).await;
    says(&found, LegName::Replay, Verdict::Ok, &["holds batches 3 to 4"]);
    says(&found, LegName::Wire, Verdict::Ok, &["arrays", "extra keys not published"]);
    says(&found, LegName::HashContract, Verdict::Unknown, &["no contract computes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage() {
    let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
    publisher.publish(batch(Form::Map, 1.0, &[malformed()]));
    let replay = publisher.replay_endpoint().unwrap();
    let (_engine, target) = engine(source(&publisher.endpoint(), Some(&replay))).await;
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Ok, &["suspect(schema)"]);
    says(&found, LegName::Replay, Verdict::Ok, &["no batch that could be used"]);
    says(
        &found,
        LegName::Wire,
        Verdict::Off,
        &["cannot be decoded", "(BlockRemoved.block_hashes: has an"],
    );
}

/// The replay socket knows no topics: it makes up for every message that is not heard, late.
#[tokio::test(flavor = "multi_thread")]
async fn another_topic() {
    let server = start(plain()).await;
    let mut target = probing(&server);
    target.topic = "another".to_owned();
    let found = report(&target).await;
    let parts = ["topic \"another\"", "publishes under \"\"", "correct --topic"];
    says(&found, LegName::Events, Verdict::Off, &parts);

    // Where the engine does not tell its topic, only what comes live tells.
    let server = start(release("0.31.0", Algorithm::Sha256, Some("0"), HashForm::Int)).await;
    let mut target = probing(&server);
    target.topic = "another".to_owned();
    target.events = Some(server.events_endpoint().unwrap());
    target.replay = server.replay_endpoint();
    let found = report(&target).await;
    let parts = ["topic \"another\"", "none live", "correct --topic"];
    says(&found, LegName::Events, Verdict::Off, &parts);
    target.probe = false;
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Unknown, &["nothing live under this topic"]);
    target.topic = String::new();
    let found = report(&target).await;
    says(&found, LegName::Events, Verdict::Ok, &["replayed"]);
}

/// Messages that are no batches at all, while the check runs.
#[tokio::test(flavor = "multi_thread")]
async fn another_programs_messages() {
    let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
    let (_engine, mut target) = engine(source(&publisher.endpoint(), None)).await;
    target.events = Some(publisher.endpoint());
    let checking = tokio::spawn(async move { report(&target).await });
    let deadline = std::time::Duration::from_secs(20);
    kvasir_testkit::eventually_async(deadline, || {
        publisher.subscriptions() > 0 || checking.is_finished()
    })
    .await;
    publisher.send_frames(vec![b"hello".to_vec()]);
    let found = checking.await.unwrap();
    says(&found, LegName::Wire, Verdict::Off, &["no batches of events"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_ranks() {
    let server = start(kvasir_engine_sim::server::SimServerConfig { ranks: 2, ..plain() }).await;
    let found = report(&probing(&server)).await;
    let parts = ["rank 0 looked at, not ranks 1 at tcp://", "of each"];
    says(&found, LegName::Events, Verdict::Unknown, &parts);
    // The probe keeps to the rank that is listened to.
    says(&found, LegName::Prediction, Verdict::Ok, &["8 of 8"]);
}
