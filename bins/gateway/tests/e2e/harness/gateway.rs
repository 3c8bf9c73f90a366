//! The binary as a child process.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kvasir_testkit::client::{self, RawClient, Response};
use kvasir_testkit::eventually_async;
use serde_json::{Value, json};

use super::{MetricsPage, Replica, SOON, until};

/// A free port.
const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A running gateway; killed when dropped. A failed test prints its log.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    addr: SocketAddr,
    log: Log,
}

/// What it wrote to standard error, line by line.
#[derive(Clone, Debug, Default)]
struct Log(Arc<LogState>);

#[derive(Debug, Default)]
struct LogState {
    lines: Mutex<Vec<String>>,
    /// The other end of the pipe is closed.
    ended: AtomicBool,
}

impl Gateway {
    /// One pool, with the settings tests want.
    pub(crate) async fn over(pool: Value) -> Self {
        Self::start(json!({ "pools": [pool] })).await
    }

    /// With this configuration; what it does not say is set as tests want it.
    pub(crate) async fn start(config: Value) -> Self {
        Self::start_at(ANY_PORT, config).await
    }

    /// The same at an address.
    pub(crate) async fn start_at(listen: SocketAddr, config: Value) -> Self {
        let file = ConfigFile::of(&config);
        Self::spawn(listen, [OsStr::new("--config"), file.path().as_os_str()]).await
    }

    /// With this file, which it takes up again when it changes.
    pub(crate) async fn of_file(file: &ConfigFile) -> Self {
        Self::spawn(ANY_PORT, [OsStr::new("--config"), file.path().as_os_str()]).await
    }

    /// With these engines; text logs.
    pub(crate) async fn with_urls(urls: &[String], flags: &[&str]) -> Self {
        let staged = super::Golden::staged();
        let fixed = ["--decision-headers", "--tokenizer-dir", staged.to_str().unwrap()];
        let all = urls.iter().map(String::as_str).chain(fixed).chain(flags.iter().copied());
        Self::spawn(ANY_PORT, all).await
    }

    async fn spawn<A: AsRef<OsStr>>(listen: SocketAddr, args: impl IntoIterator<Item = A>) -> Self {
        let mut command = command();
        command.args(["serve", "--listen", &listen.to_string()]).args(args);
        let mut child = command.spawn().unwrap();
        let log = Log::of(&mut child);
        let mut gateway = Self { child, addr: ([127, 0, 0, 1], 0).into(), log };
        let line = gateway.line("the address", |line| line.contains("listening")).await;
        let address = line.split("address").nth(1).unwrap();
        let digits = |c: char| c.is_ascii_digit() || c == '.' || c == ':';
        let address = address.trim_start_matches(|c: char| !c.is_ascii_digit());
        let end = address.find(|c| !digits(c)).unwrap_or(address.len());
        gateway.addr = address[..end].parse().unwrap_or_else(|_| panic!("{line}"));
        gateway
    }

    /// `serve` with these arguments, not waited for.
    pub(crate) fn begun<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let mut child = command().arg("serve").args(args).spawn().unwrap();
        let log = Log::of(&mut child);
        Self { child, addr: ([0, 0, 0, 0], 0).into(), log }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) async fn connect(&self) -> RawClient {
        RawClient::connect(self.addr).await.unwrap().with_deadline(SOON)
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        client::get(self.addr, path).await.unwrap()
    }

    /// A JSON POST on a connection of its own.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.post_bytes(path, body.to_string().as_bytes()).await
    }

    pub(crate) async fn post_bytes(&self, path: &str, body: &[u8]) -> Response {
        let mut client = self.sent(path, body).await;
        client.response().await.unwrap()
    }

    /// A JSON POST whose answer is not read yet.
    pub(crate) async fn sent(&self, path: &str, body: &[u8]) -> RawClient {
        let mut client = self.connect().await;
        client.send("POST", path, &[("content-type", "application/json")], body).await.unwrap();
        client
    }

    pub(crate) async fn metrics(&self) -> MetricsPage {
        let page = self.get("/metrics").await;
        assert_eq!(page.status, 200);
        MetricsPage::parse(&page.text())
    }

    /// Waits until a metric has this value.
    pub(crate) async fn until_metric(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        until(SOON, || async {
            let seen = self.metrics().await.sum(name, labels);
            if seen == Some(value) { Ok(()) } else { Err(format!("{name}{labels:?} {seen:?}")) }
        })
        .await;
    }

    /// Waits until a metric has this value or more: a changed file that is met by the signal and by
    /// the look at it counts twice.
    pub(crate) async fn until_counted(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        until(SOON, || async {
            let seen = self.metrics().await.sum(name, labels);
            let enough = seen.is_some_and(|seen| seen >= value);
            if enough { Ok(()) } else { Err(format!("{name}{labels:?} {seen:?}")) }
        })
        .await;
    }

    /// Waits until all engines have said what they serve: before, they may serve any model.
    pub(crate) async fn until_known(&self) {
        until(SOON, || async {
            let answer = self.post("/v1/completions", &json!({"model": "nobody's"})).await;
            if answer.status == 503 { Err(answer.text()) } else { Ok(()) }
        })
        .await;
    }

    /// Waits until the tokenizer is loaded and each replica's history is known.
    pub(crate) async fn until_learned(&self, replicas: &[&Replica]) {
        self.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
        for replica in replicas {
            self.until_trust(replica, "exact").await;
        }
    }

    /// Waits until an endpoint's trust is this state, or this state and reason (`a(b)`).
    pub(crate) async fn until_trust(&self, replica: &Replica, wanted: &str) {
        until(SOON, || async {
            let page = self.metrics().await;
            let url = replica.url();
            let read = |label| page.label("kvasir_endpoint_trust", &[("endpoint", &url)], label);
            let (state, reason) = (read("state"), read("reason"));
            let seen = if reason.is_empty() { state } else { format!("{state}({reason})") };
            if seen == wanted { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    /// Waits until so many blocks are known of a replica.
    pub(crate) async fn until_blocks(&self, replica: &Replica, count: u32) {
        let labels = [("endpoint", &*replica.url()), ("tier", "device")];
        self.until_metric("kvasir_endpoint_resident_blocks", &labels, f64::from(count)).await;
    }

    /// Waits until nothing is in flight anywhere.
    pub(crate) async fn until_idle(&self) {
        self.until_metric("kvasir_endpoint_in_flight", &[], 0.0).await;
        let queued = self.metrics().await.sum("kvasir_endpoint_queued_prefill_tokens", &[]);
        assert_eq!(queued, Some(0.0), "nothing is in flight, yet prompt tokens are queued");
    }

    /// Waits for a line of the log.
    pub(crate) async fn line(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        until(SOON, || async {
            let found = self.log.lines().into_iter().find(|line| wanted(line));
            found.ok_or_else(|| format!("no line with {what} in:\n{}", self.log.text()))
        })
        .await
    }

    /// Everything it wrote so far.
    pub(crate) fn log_text(&self) -> String {
        self.log.text()
    }

    /// Waits for an access log line, of a gateway that logs JSON.
    pub(crate) async fn access_line(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        until(SOON, || async {
            let lines = self.access_lines();
            let found = lines.iter().find(|line| wanted(line)).cloned();
            found.ok_or_else(|| format!("{lines:#?}"))
        })
        .await
    }

    /// The access log so far.
    pub(crate) fn access_lines(&self) -> Vec<Value> {
        let parsed = self.log.lines().into_iter().map(|line| {
            serde_json::from_str::<Value>(&line).unwrap_or_else(|_| panic!("no JSON: {line}"))
        });
        parsed.filter(|line| line["target"] == "kvasir::access").collect()
    }

    /// Asks it to stop, as service managers do.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Asks it to read its configuration anew.
    pub(crate) fn hang_up(&self) {
        self.signal("-HUP");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Changes the file and waits until that is in effect.
    pub(crate) async fn reload(&self, file: &ConfigFile, config: &Value) {
        let applied = [("result", "applied")];
        let count = |page: &MetricsPage| page.sum("kvasir_config_reloads_total", &applied);
        let before = count(&self.metrics().await).unwrap_or(0.0);
        file.replace(config);
        self.hang_up();
        self.until_counted("kvasir_config_reloads_total", &applied, before + 1.0).await;
    }

    /// What it wrote to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.log.text()
    }

    /// Waits for its end.
    pub(crate) async fn exit_status(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < SOON, "it does not end:\n{}", self.log.text());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Gateway {
    #[expect(clippy::print_stderr, reason = "the log explains a failed test")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the gateway at {}:\n{}", self.addr, self.log.text());
        }
    }
}

/// Runs `serve` with arguments it must refuse: its exit status and standard error.
pub(crate) async fn run_to_end<A: AsRef<OsStr>>(
    args: impl IntoIterator<Item = A>,
) -> (Option<i32>, String) {
    let mut gateway = Gateway::begun(args);
    let status = gateway.exit_status().await;
    // The last lines may still be on their way through the pipe.
    eventually_async(SOON, || gateway.log.0.ended.load(Ordering::Acquire)).await;
    (status, gateway.log.text())
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-gateway"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Nothing of the machine the tests run on.
    command.env_remove("RUST_LOG").env_remove(kvasir_config::CONFIG_VARIABLE);
    for variable in kvasir_config::VARIABLES {
        command.env_remove(variable.name);
    }
    for cache in ["HOME", "HF_HOME", "HF_HUB_CACHE"] {
        command.env(cache, "/nonexistent");
    }
    command
}

impl Log {
    fn of(child: &mut Child) -> Self {
        let log = Self::default();
        let state = Arc::clone(&log.0);
        let pipe = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                state.lines.lock().unwrap().push(line);
            }
            state.ended.store(true, Ordering::Release);
        });
        log
    }

    fn lines(&self) -> Vec<String> {
        self.0.lines.lock().unwrap().clone()
    }

    fn text(&self) -> String {
        self.lines().join("\n")
    }
}

/// A configuration file of its own; removed when dropped.
#[derive(Debug)]
pub(crate) struct ConfigFile(PathBuf);

impl ConfigFile {
    pub(crate) fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{}-{count}.yaml", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    /// This configuration; what it does not say is set as tests want it.
    pub(crate) fn of(config: &Value) -> Self {
        Self::new(&with_defaults(config))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Puts another in its place, in one step.
    pub(crate) fn replace(&self, config: &Value) {
        self.replace_text(&with_defaults(config));
    }

    pub(crate) fn replace_text(&self, text: &str) {
        let beside = self.0.with_extension("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, &self.0).unwrap();
    }
}

fn with_defaults(config: &Value) -> String {
    let mut whole = json!({"decision_headers": true, "scrape_interval_ms": 100,
        "timeouts": {"connect_ms": 1000}, "log": {"format": "json"}});
    whole.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    // JSON is YAML.
    whole.to_string()
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
