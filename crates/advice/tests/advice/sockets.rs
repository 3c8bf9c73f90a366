//! Both sides over real sockets: the controller to a client, and the gateway's side to a controller that is
//! scripted to be slow, to restart and to replay.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper_util::rt::{TokioExecutor, TokioIo};
use kvasir_advice::Dialed;
use kvasir_advice::controller::{AdvisorSettings, Controller, ControllerSettings};
use kvasir_advice::gateway::{FollowerSettings, Status as Standing, Watch, WatchSettings};
use kvasir_advice::wire::aictrl::ai_ctrl_client::AiCtrlClient;
use kvasir_advice::wire::aictrl::ai_ctrl_server::{AiCtrl, AiCtrlServer};
use kvasir_advice::wire::aictrl::{Ack, AckResponse, AckStatus, Snapshot, WatchRequest};
use kvasir_advice::wire::health::HealthCheckRequest;
use kvasir_advice::wire::health::health_client::HealthClient;
use kvasir_fleet::Fleet;
use kvasir_inventory::{Inventory, Limits};
use kvasir_kv_hash::KeySpace;
use kvasir_testkit::pki::{Authority, Identity};
use kvasir_upstream::{Tls, TlsFiles};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Response, Status};
use tower_service::Service as _;

/// By then it has happened.
const SOON: Duration = Duration::from_secs(10);

/// An engine of so many blocks, as far as a controller asks it.
async fn engine(blocks: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let page = format!("vllm:cache_config_info{{num_gpu_blocks=\"{blocks}\"}} 1\n");
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{page}",
                    page.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    addr
}

/// A controller of one engine, and its ports.
async fn controller(token: Option<&str>) -> (SocketAddr, SocketAddr) {
    controller_with(token, None).await
}

/// The same with TLS by a certificate for `localhost`.
async fn controller_with(
    token: Option<&str>,
    identity: Option<&Identity>,
) -> (SocketAddr, SocketAddr) {
    let engine = engine(100).await;
    let dir = std::env::temp_dir().join(format!(
        "kvasir-advice-{}-{}",
        std::process::id(),
        engine.port()
    ));
    std::fs::create_dir_all(&dir).unwrap();
    let registry = dir.join("registry.yaml");
    let text = format!(
        "service: {{key: m}}\nepoch_period_sec: 0.2\nhosts:\n  127.0.0.1: {{gpu_model: G, hbm_gb: 1, \
         role: unified, port: {}, ep_idx: 0, expected_num_gpu_blocks: 100, serving_throughput_prior: 1}}\n",
        engine.port()
    );
    std::fs::write(&registry, text).unwrap();
    let tls = identity.map(|identity| {
        let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        std::fs::write(&cert, &identity.cert).unwrap();
        std::fs::write(&key, &identity.key).unwrap();
        kvasir_server_tls::TlsFiles { cert, key, client_ca: None }
    });
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = ControllerSettings {
        registry,
        grpc: any,
        metrics: any,
        scrape_interval: Duration::from_millis(50),
        epoch: None,
        advisor: AdvisorSettings::default(),
        token: token.map(str::to_owned),
        tls,
        gateway: None,
        boot_id: "boot".to_owned(),
    };
    let controller = Controller::bind(settings).await.unwrap();
    let addresses = controller.addresses().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    tokio::spawn(controller.run());
    addresses
}

async fn page(addr: SocketAddr, path: &str) -> String {
    kvasir_testkit::client::get(addr, path).await.unwrap().text()
}

/// Until the controller's page has this line.
async fn until_shown(addr: SocketAddr, line: &str) {
    let wait = async {
        while !page(addr, "/metrics").await.lines().any(|shown| shown == line) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let came = tokio::time::timeout(SOON, wait).await;
    assert!(came.is_ok(), "no `{line}`");
}

#[tokio::test]
async fn a_controller_is_watched_and_told() {
    let (grpc, metrics) = controller(None).await;
    let dialed = Dialed::connect(&grpc.to_string(), None, None).await.unwrap();
    let mut client = AiCtrlClient::new(dialed.clone());
    let request = WatchRequest { gateway_id: "gw".to_owned(), applier_version: 1 };
    let mut snapshots = client.watch_snapshots(request).await.unwrap().into_inner();
    let first = snapshots.message().await.unwrap().unwrap();
    let second = snapshots.message().await.unwrap().unwrap();
    assert_eq!((second.epoch, &*second.boot_id), (first.epoch + 1, "boot"));
    let entry = &second.services[0].eps[0];
    assert_eq!((&*second.services[0].service_key, entry.weight), ("m", 100));
    until_shown(metrics, "aictrl_watchers_connected 1").await;
    let ack =
        Ack { gateway_id: "gw".to_owned(), status: AckStatus::Applied as i32, ..Ack::default() };
    client.ack_snapshot(ack).await.unwrap();
    until_shown(metrics, "aictrl_acks_applied_total{gateway=\"gw\"} 1").await;
    drop((snapshots, client));
    until_shown(metrics, "aictrl_watchers_connected 0").await;
    let mut health = HealthClient::new(dialed);
    let of = |service: &str| HealthCheckRequest { service: service.to_owned() };
    for service in ["", "loxilb.aictrl.v1.AiCtrl"] {
        assert_eq!(health.check(of(service)).await.unwrap().into_inner().status, 1);
    }
    assert_eq!(health.check(of("other")).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(page(metrics, "/healthz").await, "ok\n");
}

#[tokio::test]
async fn a_token_is_asked_for_where_there_is_one() {
    let (grpc, _) = controller(Some("right-token")).await;
    for (token, code) in
        [(None, Code::Unauthenticated), (Some("wrong-token"), Code::Unauthenticated)]
    {
        let dialed = Dialed::connect(&grpc.to_string(), None, token).await.unwrap();
        let refused = AiCtrlClient::new(dialed).watch_snapshots(WatchRequest::default()).await;
        assert_eq!(refused.unwrap_err().code(), code, "{token:?}");
    }
    let dialed = Dialed::connect(&grpc.to_string(), None, Some("right-token")).await.unwrap();
    assert!(AiCtrlClient::new(dialed).watch_snapshots(WatchRequest::default()).await.is_ok());
}

#[tokio::test]
async fn a_controller_with_tls_is_believed_by_its_certificate_only() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (grpc, _) = controller_with(None, Some(&authority.issue(&["localhost"]))).await;
    let believing = |authority: &Authority, server_name: &str| {
        let file = std::env::temp_dir().join(format!(
            "kvasir-advice-ca-{}-{}",
            std::process::id(),
            grpc.port()
        ));
        std::fs::write(&file, authority.pem()).unwrap();
        let server_name = Some(server_name.to_owned());
        let files = TlsFiles { ca_file: Some(file.clone()), server_name, ..TlsFiles::default() };
        let tls = Tls::load(&files).unwrap();
        std::fs::remove_file(file).unwrap();
        tls
    };
    let at = grpc.to_string();
    let right = believing(&authority, "localhost");
    let dialed = Dialed::connect(&at, Some(&right), None).await.unwrap();
    let mut client = AiCtrlClient::new(dialed);
    let mut snapshots = client.watch_snapshots(WatchRequest::default()).await.unwrap().into_inner();
    assert!(snapshots.message().await.unwrap().is_some());
    for wrong in [believing(&other, "localhost"), believing(&authority, "elsewhere")] {
        let refused = Dialed::connect(&at, Some(&wrong), None).await.unwrap_err().to_string();
        assert!(refused.contains("certificate"), "{refused}");
    }
}

/// A controller that says what it is told to, on one connection after the other.
#[derive(Clone)]
struct Scripted {
    /// What is said on each connection; then it breaks off, but for the last.
    scripts: Arc<Vec<Vec<Snapshot>>>,
    connections: Arc<AtomicUsize>,
    acks: Arc<Mutex<Vec<Ack>>>,
    /// Before each snapshot.
    pause: Duration,
}

#[tonic::async_trait]
impl AiCtrl for Scripted {
    type WatchSnapshotsStream = Pin<Box<dyn Stream<Item = Result<Snapshot, Status>> + Send>>;

    async fn watch_snapshots(
        &self,
        _: tonic::Request<WatchRequest>,
    ) -> Result<Response<Self::WatchSnapshotsStream>, Status> {
        let connection = self.connections.fetch_add(1, Ordering::SeqCst);
        let script = self.scripts.get(connection).cloned().unwrap_or_default();
        let (is_last, pause) = (connection + 1 >= self.scripts.len(), self.pause);
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            for snapshot in script {
                tokio::time::sleep(pause).await;
                let _ = sender.send(snapshot).await;
            }
            if is_last {
                sender.closed().await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver).map(Ok))))
    }

    async fn ack_snapshot(
        &self,
        ack: tonic::Request<Ack>,
    ) -> Result<Response<AckResponse>, Status> {
        self.acks.lock().push(ack.into_inner());
        Ok(Response::new(AckResponse {}))
    }
}

async fn serve(scripted: Scripted) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = AiCtrlServer::new(scripted.clone());
            let service =
                hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let mut server = server.clone();
                    async move {
                        Ok::<_, Infallible>(
                            server.call(request.map(tonic::body::Body::new)).await.unwrap(),
                        )
                    }
                });
            let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http2.serve_connection(TokioIo::new(stream), service));
        }
    });
    addr
}

/// About no endpoint at all, good for `seconds`.
fn snapshot(boot: &str, epoch: u64, seconds: u64) -> Snapshot {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    Snapshot {
        epoch,
        boot_id: boot.to_owned(),
        staleness_deadline_unix_ms: now + seconds * 1000,
        min_applier_version: 1,
        nonce: format!("{boot}-{epoch}"),
        services: Vec::new(),
    }
}

fn watch(addr: SocketAddr) -> Watch {
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let inventory = Arc::new(Inventory::new(KeySpace::new([7; KeySpace::SECRET_LEN]), limits));
    let fleet = Arc::new(Fleet::empty(inventory));
    let follower = FollowerSettings { jitter_percent: 0, ..FollowerSettings::default() };
    let settings = WatchSettings {
        address: addr.to_string(),
        tls: None,
        token: None,
        gateway_id: "gw".to_owned(),
        services: Vec::new(),
        ack_timeout: Duration::from_secs(1),
        follower,
    };
    Watch::start(settings, Arc::new(move || Arc::clone(&fleet)), || 0.5)
}

async fn until(watch: &Watch, what: impl Fn(&Standing) -> bool) -> Standing {
    let wait = async {
        while !what(&watch.status()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let came = tokio::time::timeout(SOON, wait).await;
    assert!(came.is_ok(), "{:?}", watch.status());
    watch.status()
}

fn scripted(scripts: Vec<Vec<Snapshot>>, pause: Duration) -> Scripted {
    let (connections, acks) = (Arc::default(), Arc::default());
    Scripted { scripts: Arc::new(scripts), connections, acks, pause }
}

#[tokio::test]
async fn a_controller_that_breaks_off_restarts_and_replays_is_followed_as_far_as_it_is_right() {
    let controller = scripted(
        vec![
            vec![snapshot("x", 1, 60), snapshot("x", 1, 60)],
            // Another process, then what the first said.
            vec![snapshot("y", 1, 60), snapshot("x", 1, 60), snapshot("y", 2, 10_000)],
        ],
        Duration::from_millis(100),
    );
    let watch = watch(serve(controller.clone()).await);
    let status = until(&watch, |status| status.accepted == 2 && status.rejected.len() == 2).await;
    assert_eq!((status.rejected["old_epoch"], status.rejected["far_deadline"]), (2, 1));
    let status = until(&watch, |status| status.applied == 2).await;
    assert_eq!(
        (&*status.boot_id, status.epoch, status.state(), status.connected),
        ("y", 1, "following", true)
    );
    let wait = async {
        while controller.acks.lock().len() < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, wait).await.unwrap();
    let mut acks: Vec<(String, i32)> =
        controller.acks.lock().iter().map(|ack| (ack.nonce.clone(), ack.status)).collect();
    acks.sort();
    let of = |nonce: &str, status: AckStatus| (nonce.to_owned(), status as i32);
    use AckStatus::{Applied, Rejected};
    let wanted = [
        of("x-1", Applied),
        of("x-1", Rejected),
        of("x-1", Rejected),
        of("y-1", Applied),
        of("y-2", Rejected),
    ];
    assert_eq!(acks, wanted);
    assert!(controller.acks.lock().iter().all(|ack| ack.gateway_id == "gw"));
}

#[tokio::test]
async fn a_slow_controller_and_one_that_is_not_there_change_nothing() {
    let controller = scripted(vec![vec![snapshot("x", 1, 1)]], Duration::from_millis(1500));
    let slow = watch(serve(controller).await);
    // Its only snapshot comes when its deadline is over.
    let status = until(&slow, |status| status.rejected.contains_key("expired")).await;
    assert_eq!((status.accepted, status.state()), (0, "neutral"));
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let status = until(&watch(gone), |status| status.last_error.is_some()).await;
    assert_eq!(status.state(), "off_line");
}
