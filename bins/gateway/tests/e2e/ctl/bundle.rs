//! What is in a bundle, and what is not.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::{Value, json};

use super::Home;
use crate::admin::{READ, WRITE, started};
use crate::harness::{COMPLETIONS, Replica, SOON, completion, ids, pool, until};

/// The files of an archive, by their names in it, as `tar` reads them.
fn unpacked(home: &Home, file: &str) -> Vec<(String, Vec<u8>)> {
    let folder = home.path("unpacked");
    std::fs::create_dir_all(&folder).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["-xzf", file, "-C", "unpacked"]).current_dir(home.path(""));
    assert!(tar.status().unwrap().success());
    let (mut found, mut folders) = (Vec::new(), vec![folder.join("kvasir-bundle")]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                found.push((name, std::fs::read(path).unwrap()));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_has_everything_but_secrets() {
    const ENGINE_KEY: &str = "engine-key-very-secret";
    const CLIENT_KEY: &str = "client-key-very-secret";
    let replica = Replica::start().await;
    let mut tiny = pool("tiny", &[&replica.engine]);
    tiny["api_key"] = json!(ENGINE_KEY);
    let (gateway, admin, file) = started(json!([tiny])).await;
    let home = Home::of(&admin);
    gateway.until_learned(&[&replica]).await;
    // From now on its own pages want a key, too.
    let config = std::fs::read_to_string(file.path()).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["api_keys"] = json!([CLIENT_KEY]);
    file.replace(&config);
    gateway.hang_up();
    until(SOON, || async {
        let config = admin.get("/api/v1/config").await;
        if config["api_keys"].is_null() { Err(config.to_string()) } else { Ok(()) }
    })
    .await;
    // A request's name may be anything, even what must not be told.
    let mut client = gateway.connect().await;
    let body = completion(&ids(1, 64)).to_string();
    let key = format!("Bearer {CLIENT_KEY}");
    let headers =
        [("content-type", "application/json"), ("authorization", &*key), ("x-request-id", WRITE)];
    client.send("POST", COMPLETIONS, &headers, body.as_bytes()).await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 200);

    let ran = home.run(&["bundle", "--out", "b.tar.gz", "--frames", "1"]).await;
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    let mode = std::fs::metadata(home.path("b.tar.gz")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let files = unpacked(&home, "b.tar.gz");
    let read = |name: &str| {
        let found = files.iter().find(|(of, _)| of == name);
        let (_, content) = found.unwrap_or_else(|| panic!("no {name}: {}", ran.err));
        String::from_utf8(content.clone()).unwrap()
    };
    for name in ["pools", "endpoints", "inventory", "parity", "routing", "stats", "openapi"] {
        let document: Value = serde_json::from_str(&read(&format!("{name}.json"))).unwrap();
        assert!(document.is_object(), "{name}");
    }
    let decisions: Value = serde_json::from_str(&read("decisions.json")).unwrap();
    assert_eq!(decisions["decisions"][0]["request_id"], "***");
    assert!(read("metrics.txt").contains("kvasir_pool_ready"));
    let config: Value = serde_json::from_str(&read("config.json")).unwrap();
    assert_eq!(config["admin"]["write_token"], "***");
    assert_eq!(config["pools"][0]["api_key"], "***");
    let bundle: Value = serde_json::from_str(&read("bundle.json")).unwrap();
    assert_eq!(bundle["missing"], json!({}), "{}", ran.err);
    let frames = files.iter().find(|(name, _)| name.ends_with(".jsonl")).unwrap();
    let frames = String::from_utf8(frames.1.clone()).unwrap();
    assert!(frames.contains("\"frames\"") || frames.contains("\"replay\""), "{frames}");
    for (name, content) in &files {
        let text = String::from_utf8_lossy(content);
        for secret in [READ, WRITE, ENGINE_KEY, CLIENT_KEY] {
            assert!(!text.contains(secret), "{name} has {secret}");
        }
    }
    // It is not written over, and where nobody answers there is none.
    let error = home.fails(&["bundle", "--out", "b.tar.gz"]).await;
    assert!(error.contains("--out b.tar.gz"), "{error}");
    home.fails(&["bundle", "--out", "c.tar.gz", "--admin", "http://127.0.0.1:9"]).await;
    assert!(!home.path("c.tar.gz").exists());
}
