//! The binary as a child process, whose configuration changes all the time.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kvasir_testkit::client;
use serde_json::{Value, json};
use tokio::time::sleep;

static FILES: AtomicU64 = AtomicU64::new(0);
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Gateway {
    child: Child,
    addr: SocketAddr,
    file: PathBuf,
    urls: Vec<String>,
    /// Lines of its log that must not be there.
    panics: Arc<AtomicU64>,
}

impl Gateway {
    pub(crate) async fn start(urls: &[String]) -> Self {
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("kvasir-chaos-{}-{number}.yaml", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, config(urls, 0).to_string()).expect("a file can be written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-gateway"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
        command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the gateway starts");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let (found, address) = tokio::sync::oneshot::channel();
        let panics = Arc::<AtomicU64>::default();
        let seen = Arc::clone(&panics);
        std::thread::spawn(move || {
            let mut found = Some(found);
            for line in stderr.lines().map_while(Result::ok) {
                // Others, such as those of event publishers, are in the log, too.
                if line.contains("listening")
                    && let Some(at) = line.split("address=").nth(1)
                    && let Some(found) = found.take()
                {
                    let _ = found.send(at.split_whitespace().next().unwrap_or_default().to_owned());
                }
                let panicked = line.contains("panicked");
                seen.fetch_add(u64::from(panicked), Ordering::Relaxed);
                if panicked || line.contains(" ERROR ") {
                    eprintln!("{line}");
                }
            }
        });
        let address = address.await.expect("it says where it listens");
        let addr = address.parse().unwrap_or_else(|_| panic!("{address} is no address"));
        let gateway = Self { child, addr, file, urls: urls.to_vec(), panics };
        let began = Instant::now();
        while client::get(addr, "/readyz").await.map_or(0, |answer| answer.status) != 200 {
            assert!(began.elapsed() < PATIENCE, "it does not get ready");
            sleep(Duration::from_millis(20)).await;
        }
        gateway
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Gives it another configuration every so often: engines come, go and change their weight.
    pub(crate) async fn reload_every(self: Arc<Self>, pause: Duration) {
        for turn in 1.. {
            sleep(pause).await;
            // In one step: half a file is a bad configuration.
            let new = self.file.with_extension("new");
            fs::write(&new, config(&self.urls, turn).to_string()).expect("a file");
            fs::rename(&new, &self.file).expect("a file takes the other's place");
            let pid = self.child.id().to_string();
            let told = Command::new("kill").args(["-HUP", &pid]).status();
            assert!(told.is_ok_and(|status| status.success()), "the gateway is gone");
        }
    }

    /// How often it took up another configuration, and how often it refused to.
    pub(crate) async fn reloads(&self) -> (f64, f64) {
        let page = client::get(self.addr, "/metrics").await.map(|page| page.text());
        let page = page.unwrap_or_default();
        let count = |result: &str| -> f64 {
            let wanted = format!("kvasir_config_reloads_total{{result=\"{result}\"}} ");
            let value = page.lines().find_map(|line| line.strip_prefix(&wanted));
            value.map_or(0.0, |value| value.parse().expect("a number"))
        };
        (count("applied"), count("rejected"))
    }

    /// Panics have no place, whatever happens.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// What it takes of the memory.
    pub(crate) fn resident_mb(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it is alive");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let kb: f64 = line.trim().trim_end_matches(" kB").trim().parse().expect("a number");
        kb / 1024.0
    }

    /// Waits until nothing is counted at any engine.
    pub(crate) async fn until_idle(&self) {
        let began = Instant::now();
        loop {
            let page = client::get(self.addr, "/metrics").await.map(|page| page.text());
            let page = page.unwrap_or_default();
            let counted: Vec<&str> = page
                .lines()
                .filter(|line| {
                    line.starts_with("kvasir_endpoint_in_flight")
                        || line.starts_with("kvasir_endpoint_queued_prefill_tokens")
                })
                .collect();
            if !counted.is_empty() && counted.iter().all(|line| line.ends_with(" 0")) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "still counted:\n{}", counted.join("\n"));
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.file);
    }
}

/// The configuration of one turn. JSON is YAML.
fn config(urls: &[String], turn: u64) -> Value {
    let endpoint = |(place, url): (u64, &String)| json!({"url": url, "weight": 50 + (turn * 7 + place) % 3 * 25});
    let all: Vec<Value> = (0..).zip(urls).map(endpoint).collect();
    // From the second turn on one is missing, always another.
    let missing = (turn % (urls.len() as u64 + 1)) as usize;
    let there = all.into_iter().enumerate().filter(|(place, _)| turn == 0 || place + 1 != missing);
    let endpoints: Vec<Value> = there.map(|(_, endpoint)| endpoint).collect();
    let policy = if turn % 4 == 3 { "power_of_two" } else { "latency" };
    let admission = json!({"endpoint": {"max_requests": 40 + turn % 2 * 40}, "hold_ms": 500,
        "queue": {"places": 400, "max_wait_ms": 4_000}});
    json!({
        "pools": [{"model": "tiny", "policy": policy, "token_parity": "off",
            "admission": admission, "endpoints": endpoints}],
        "scrape_interval_ms": 100,
        "timeouts": {"connect_ms": 1_000, "first_data_ms": 3_000, "idle_ms": 3_000,
            "request_ms": 10_000},
        "log": {"level": "info,kvasir::access=off"},
    })
}
