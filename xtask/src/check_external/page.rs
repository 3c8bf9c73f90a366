//! What the status page is looked at over: a gateway that asks for a token, with an engine among its
//! own that publishes no events; and one that is open and idle.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

use super::fleet::{Fleet, MODEL, PATIENCE, engine, ready};
use crate::child::{Running, started};

/// Asked for by the first gateway; a secret of nobody.
const READ_TOKEN: &str = "read-token-of-the-page-check";

/// A pool's name that is no markup; its engine does not serve it.
const STRANGE: &str = "<img src=x onerror=alert(1)>";

/// Ends with this value.
pub(super) struct Gateways {
    environment: [(&'static str, String); 5],
    _running: [Running; 3],
}

impl Gateways {
    /// Starts them over the engines of a fleet, and one more.
    pub(super) fn start(root: &Path, dir: &Path, fleet: &Fleet) -> Result<Self, String> {
        let silent = engine(root, &[])?;
        let mut engines: Vec<&str> = fleet.engines().collect();
        let idle = gateway(root, dir, "idle", ("", ""), &engines)?;
        engines.push(&silent.1);
        let token = format!(r#", "read_token": "{READ_TOKEN}""#);
        let other =
            format!(r#", {{"model": "{STRANGE}", "endpoints": [{{"url": "{}"}}]}}"#, silent.1);
        let busy = gateway(root, dir, "busy", (&token, &other), &engines)?;
        for gateway in [&busy, &idle] {
            ready(&gateway.url)?;
        }
        let environment = [
            ("BASE_URL", busy.url),
            ("ADMIN_URL", busy.admin),
            ("IDLE_URL", idle.url),
            ("IDLE_ADMIN_URL", idle.admin),
            ("READ_TOKEN", READ_TOKEN.to_owned()),
        ];
        Ok(Self { environment, _running: [silent.0, idle.running, busy.running] })
    }

    /// What the check is told.
    pub(super) fn environment(&self) -> &[(&'static str, String)] {
        &self.environment
    }
}

struct Gateway {
    running: Running,
    url: String,
    admin: String,
}

fn gateway(
    root: &Path,
    dir: &Path,
    name: &str,
    (token, other): (&str, &str),
    engines: &[&str],
) -> Result<Gateway, String> {
    // What it says first is where its admin port is; where clients go is decided here.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    let listen = free.map_err(|error| format!("no free port: {error}"))?;
    let endpoints: Vec<String> =
        engines.iter().map(|url| format!(r#"{{"url": "{url}"}}"#)).collect();
    let config = format!(
        r#"{{"listen": "{listen}", "admin": {{"listen": "127.0.0.1:0"{token}}},
            "pools": [{{"model": "{MODEL}", "endpoints": [{}]}}{other}]}}"#,
        endpoints.join(", "),
    );
    let file = dir.join(format!("page-{name}.json"));
    fs::write(&file, config).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut command = Command::new(root.join("target/debug/kvasir-gateway"));
    command.arg("serve").arg("--config").arg(&file).env("RUST_LOG", "info,kvasir::access=warn");
    let (running, admin) = started(command, PATIENCE, |line| {
        line.contains("the admin API is served").then(|| line.split("address=").nth(1))?
    })?;
    let admin = admin.split_whitespace().next().unwrap_or_default();
    Ok(Gateway { running, url: format!("http://{listen}"), admin: format!("http://{admin}") })
}
