//! The commands of docs/kvasirctl.md, run as they stand there.

use std::path::Path;

use serde_json::json;

use super::Home;
use crate::admin::started;
use crate::harness::{COMPLETIONS, Replica, completion, ids, pool};

/// The lines of the page's blocks that begin with the command.
fn commands() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kvasirctl.md");
    let page = std::fs::read_to_string(page).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("    kvasirctl "));
    lines.map(|line| line.split("  #").next().unwrap().trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_work() {
    let replicas = Replica::several(2).await;
    let engines = [&replicas[0].engine, &replicas[1].engine];
    let mut tiny = pool("tiny", &engines);
    tiny["endpoints"][0]["group"] = json!("fast");
    tiny["endpoints"][1]["group"] = json!("large");
    let (gateway, admin, _file) = started(json!([tiny])).await;
    gateway.until_learned(&[&replicas[0], &replicas[1]]).await;
    let home = Home::of(&admin);
    let body = completion(&ids(1, 64));
    gateway.post(COMPLETIONS, &body).await;
    home.put("body.json", &body.to_string(), 0o644);
    home.put("admin-token", crate::admin::READ, 0o600);
    let (endpoint, url) = (replicas[0].engine.addr().to_string(), format!("http://{}", admin.addr));
    let mut run = 0;
    for command in commands() {
        // These go on for longer, and other tests run them.
        if command == "watch" || command.contains("--frames") {
            continue;
        }
        // What stands there for an operator's own names.
        let line = command
            .replace("http://127.0.0.1:8081", &url)
            .replace("/etc/kvasir/admin-token", "admin-token")
            .replace("10.0.0.8:8000", &endpoint)
            .replace("org/m", "tiny");
        let args: Vec<&str> = line.split(' ').collect();
        home.ok(&args).await;
        run += 1;
    }
    assert!(run >= 20, "{run} commands were found");
}
