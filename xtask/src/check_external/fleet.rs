//! What external clients talk to: the gateway over two simulated engines, all of this repository.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::tools::cargo;
use crate::child::{Running, started};

/// The model's name in requests.
pub(super) const MODEL: &str = "kvasir-demo";
/// How long a program may take to say where it listens.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Ends with this value.
pub(super) struct Fleet {
    url: String,
    _gateway: Running,
    engines: [(Running, String); 2],
}

impl Fleet {
    /// Builds and starts them.
    pub(super) fn start(root: &Path) -> Result<Self, String> {
        let mut build = Command::new(cargo());
        build.current_dir(root).args([
            "build",
            "--locked",
            "-p",
            "kvasirctl",
            "-p",
            "kvasir-gateway",
        ]);
        match build.status() {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("cargo build ended with {status}")),
            Err(error) => return Err(format!("cargo: {error}")),
        }
        let events = ["--events", "tcp://127.0.0.1:*", "--replay", "tcp://127.0.0.1:*"];
        let (first, second) = (engine(root, &events)?, engine(root, &events)?);
        let mut gateway = Command::new(root.join("target/debug/kvasir-gateway"));
        gateway.args(["serve", "--listen", "127.0.0.1:0", "--decision-headers"]);
        gateway.args([&first.1, &second.1]).env("RUST_LOG", "info,kvasir::access=warn");
        let (running, address) = started(gateway, PATIENCE, |line| line.split("address=").nth(1))?;
        let url = format!("http://{}", address.trim());
        ready(&url)?;
        Ok(Self { url, _gateway: running, engines: [first, second] })
    }

    /// Without a final slash.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The URLs of its engines.
    pub(super) fn engines(&self) -> impl Iterator<Item = &str> {
        self.engines.iter().map(|(_, url)| url.as_str())
    }
}

/// Starts a simulated engine; with its URL.
pub(super) fn engine(root: &Path, events: &[&str]) -> Result<(Running, String), String> {
    let mut command = Command::new(root.join("target/debug/kvasirctl"));
    command.args(["sim-engine", "--port", "0", "--speed", "4"]).args(events);
    started(command, PATIENCE, |line| line.split(' ').find(|word| word.starts_with("http://")))
}

/// Waits until the gateway serves.
pub(super) fn ready(url: &str) -> Result<(), String> {
    let end = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < end {
        let mut curl = Command::new("curl");
        curl.args(["-sf", "-o", "/dev/null", &format!("{url}/readyz")]);
        match curl.status() {
            Ok(status) if status.success() => return Ok(()),
            Ok(_) => thread::sleep(Duration::from_millis(200)),
            Err(error) => return Err(format!("curl: {error}")),
        }
    }
    Err("the gateway does not get ready".to_owned())
}
