//! Engines, the two binaries, and looks at them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_engine_sim::{CostModel, EngineConfig};
use kvasir_testkit::client::{self, RawClient};
use serde_json::json;

/// On a machine that may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Waits for a state; `look` says what it saw when it is not there.
pub(crate) async fn until<T>(mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look().await {
            Ok(seen) => return seen,
            Err(seen) => assert!(start.elapsed() < SOON, "last seen: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// An engine of this speed with a cache of so many blocks.
pub(crate) async fn engine(speed: f64, blocks: usize, port: u16) -> SimServer {
    let engine = EngineConfig {
        num_blocks: blocks,
        max_model_len: 4096,
        cost: CostModel::DEMO.faster(speed),
        ..EngineConfig::default()
    };
    let listen = SocketAddr::from(([127, 0, 0, 1], port));
    let model = "tiny".to_owned();
    let config = SimServerConfig {
        engine,
        model,
        listen,
        events: None,
        replay: None,
        ..SimServerConfig::default()
    };
    SimServer::start(config).await.unwrap()
}

pub(crate) fn address(engine: &SimServer) -> SocketAddr {
    engine.url().strip_prefix("http://").unwrap().parse().unwrap()
}

/// A port that nobody has.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A file of its own, removed when dropped.
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}.yaml", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let file = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        file.replace(text);
        file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Puts another text in its place, in one step.
    pub(crate) fn replace(&self, text: &str) {
        let beside = self.0.with_extension("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, &self.0).unwrap();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A child process and what it wrote to standard error; killed when dropped.
pub(crate) struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn spawn(command: &mut Command) -> Self {
        command
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (pipe, seen) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&lines));
        std::thread::spawn(move || {
            pipe.lines().map_while(Result::ok).for_each(|line| seen.lock().unwrap().push(line));
        });
        Self { child, lines }
    }

    pub(crate) fn log(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// Waits for a line, and reads the address behind a word of it.
    async fn address(&self, line: &str, word: &str) -> SocketAddr {
        until(async || {
            let log = self.log();
            let found =
                log.lines().find(|known| known.contains(line)).ok_or_else(|| log.clone())?;
            let rest = found.split(&format!("{word}=")).nth(1).ok_or_else(|| found.to_owned())?;
            rest.split_whitespace().next().unwrap().parse().map_err(|_| found.to_owned())
        })
        .await
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Its exit status, once it ends.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let child = &mut self.child;
        until(async || child.try_wait().unwrap().ok_or_else(|| "it runs".to_owned())).await.code()
    }

    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "the log explains a failed test")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log:\n{}", self.log());
        }
    }
}

/// The controller's binary with these arguments.
pub(crate) fn controller(args: &[&str]) -> Process {
    Process::spawn(Command::new(env!("CARGO_BIN_EXE_kvasir-controller")).args(args))
}

/// A controller that goes by a registry, asks often, and listens on `grpc` of this machine.
pub(crate) async fn advising(registry: &File, grpc: u16, more: &[&str]) -> (Process, SocketAddr) {
    let grpc = format!("127.0.0.1:{grpc}");
    let mut args = vec!["--registry", registry.path().to_str().unwrap(), "--grpc", &grpc];
    args.extend([
        "--metrics",
        "127.0.0.1:0",
        "--scrape-interval-s",
        "0.1",
        "--stale-budget-s",
        "3",
    ]);
    args.extend(more);
    let process = controller(&args);
    let metrics = process.address("advising", "metrics").await;
    (process, metrics)
}

/// The gateway's binary beside the controller's; built where only the controller's package was.
fn gateway_binary() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let beside = Path::new(env!("CARGO_BIN_EXE_kvasir-controller")).parent().unwrap();
        let path = beside.join("kvasir-gateway");
        if path.exists() {
            return path;
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--quiet", "-p", "kvasir-gateway", "--target-dir"]);
        cargo.arg(beside.parent().unwrap());
        if beside.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "kvasir-gateway cannot be built");
        path
    })
}

/// A gateway over these engines that follows a controller, and its admin port.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) addr: SocketAddr,
    pub(crate) admin: SocketAddr,
    _config: File,
}

impl Gateway {
    pub(crate) async fn start(engines: &[&SimServer], policy: &str, controller: u16) -> Self {
        let endpoints: Vec<_> = engines.iter().map(|engine| json!({"url": engine.url()})).collect();
        let config = json!({
            "decision_headers": true,
            "scrape_interval_ms": 100,
            "pools": [{"model": "tiny", "policy": policy, "token_parity": "off", "endpoints": endpoints}],
            "admin": {"listen": "127.0.0.1:0"},
            "controller": {"address": format!("127.0.0.1:{controller}"), "decay_ms": 1000,
                "hysteresis_ms": 0, "apply_jitter_percent": 0,
                "services": [{"key": "10.0.0.1:80:tcp", "pool": "tiny"}]},
        });
        let config = File::new(&config.to_string());
        let mut command = Command::new(gateway_binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config.path());
        for cache in ["HOME", "HF_HOME", "HF_HUB_CACHE"] {
            command.env(cache, "/nonexistent");
        }
        let process = Process::spawn(&mut command);
        let admin = process.address("the admin API is served", "address").await;
        let addr = process.address(" listening", "address").await;
        Self { process, addr, admin, _config: config }
    }

    /// The weights that count, in the order of the engines; of a look at the admin API.
    pub(crate) async fn advised(&self) -> Vec<(u64, String)> {
        let pool = client::get(self.admin, "/api/v1/pools/tiny").await.unwrap().json();
        let endpoints = pool["endpoints"].as_array().unwrap();
        let of = |endpoint: &serde_json::Value| {
            let advised = &endpoint["advised"];
            let state = advised["state"].as_str().unwrap().to_owned();
            (advised["effective_weight"].as_u64().unwrap(), state)
        };
        endpoints.iter().map(of).collect()
    }

    pub(crate) async fn until_weights(&self, wanted: &[u64]) {
        until(async || {
            let seen: Vec<u64> = self.advised().await.iter().map(|(weight, _)| *weight).collect();
            if seen == wanted { Ok(()) } else { Err(format!("{seen:?}, not {wanted:?}")) }
        })
        .await;
    }

    /// Asks for a few tokens; which engine answered.
    pub(crate) async fn ask(&self, n: u32) -> String {
        ask(self.addr, n).await
    }

    /// How many of these requests each engine answered, several at a time.
    pub(crate) async fn spread(&self, requests: u32) -> BTreeMap<String, u32> {
        let mut tasks = Vec::new();
        for lane in 0..8 {
            let addr = self.addr;
            tasks.push(tokio::spawn(async move {
                let mut urls = Vec::new();
                for n in (lane..requests).step_by(8) {
                    urls.push(ask(addr, n).await);
                }
                urls
            }));
        }
        let mut spread = BTreeMap::new();
        for task in tasks {
            for url in task.await.unwrap() {
                *spread.entry(url).or_default() += 1;
            }
        }
        spread
    }
}

/// A request that must be answered well; by which engine it was.
pub(crate) async fn ask(gateway: SocketAddr, n: u32) -> String {
    let prompt: Vec<u32> = (0..64).map(|token| (n * 7 + token) % 900 + 1).collect();
    let body = json!({"model": "tiny", "prompt": prompt, "max_tokens": 3}).to_string();
    let mut client = RawClient::connect(gateway).await.unwrap().with_deadline(SOON);
    client.send("POST", "/v1/completions", &[], body.as_bytes()).await.unwrap();
    let answer = client.response().await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.head.header("x-kvasir-endpoint").unwrap().to_owned()
}

/// Until a metrics page has this line.
pub(crate) async fn until_shown(metrics: SocketAddr, line: &str) {
    until(async || {
        let page =
            client::get(metrics, "/metrics").await.map_err(|error| error.to_string())?.text();
        if page.lines().any(|shown| shown == line) { Ok(()) } else { Err(page) }
    })
    .await;
}
