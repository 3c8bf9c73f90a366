//! The admin API of a running gateway.

mod audit;
mod changes;
mod connections;
mod page;
mod pairs;
mod reads;
mod roles;
mod routing;
mod store;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use kvasir_testkit::client::{RawClient, Response};
use serde_json::{Value, json};

use crate::harness::{ConfigFile, Gateway, SOON};

pub(crate) const READ: &str = "read-token-0123456789";
pub(crate) const WRITE: &str = "write-token-0123456789";

/// A configuration with an admin port, both tokens and these pools.
pub(crate) fn with_admin(pools: Value) -> Value {
    let admin = json!({"listen": "127.0.0.1:0", "read_token": READ, "write_token": WRITE});
    let mut config = json!({ "admin": admin });
    config["pools"] = pools;
    config
}

/// The admin API of a gateway, to somebody with a token.
pub(crate) struct Admin {
    pub(crate) addr: SocketAddr,
    token: Option<&'static str>,
}

impl Admin {
    /// Of a gateway that logs JSON; with the token for changes.
    pub(crate) async fn of(gateway: &Gateway) -> Self {
        let is_it = |line: &str| line.contains("the admin API is served");
        let line = gateway.line("the admin API's address", is_it).await;
        let (_, rest) = line.split_once("\"address\":\"").unwrap();
        let addr = rest.split('"').next().unwrap().parse().unwrap();
        Self { addr, token: Some(WRITE) }
    }

    pub(crate) fn with(&self, token: Option<&'static str>) -> Self {
        Self { addr: self.addr, token }
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: &[u8]) -> Response {
        self.ask_with(method, path, &[], body).await
    }

    pub(crate) async fn ask_with(
        &self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let mut client = RawClient::connect(self.addr).await.unwrap().with_deadline(SOON);
        let token = self.token.map(|token| format!("Bearer {token}"));
        let mut headers: Vec<(&str, &str)> = more.to_vec();
        headers.extend(token.as_deref().map(|token| ("authorization", token)));
        client.send(method, path, &headers, body).await.unwrap();
        client.response().await.unwrap()
    }

    /// A request that is answered well.
    pub(crate) async fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.ask(method, path, body.as_bytes()).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.text());
        answer.json()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.done("GET", path, &Value::Null).await
    }

    /// A request that is refused: the status, the code and the field.
    pub(crate) async fn refused(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, String, Option<String>) {
        let answer = self.ask(method, path, body.as_bytes()).await;
        let error = &answer.json()["error"];
        let code = error["code"].as_str().unwrap_or_else(|| panic!("{}", answer.text()));
        assert!(error["message"].is_string());
        (answer.status, code.to_owned(), error["field"].as_str().map(str::to_owned))
    }
}

/// A gateway with an admin API over these pools.
pub(crate) async fn started(pools: Value) -> (Gateway, Admin, ConfigFile) {
    let file = ConfigFile::of(&with_admin(pools));
    let gateway = Gateway::of_file(&file).await;
    let admin = Admin::of(&gateway).await;
    (gateway, admin, file)
}

/// A file of its own, removed when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("admin-{}-{count}-{name}", std::process::id());
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
