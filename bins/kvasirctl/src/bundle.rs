//! `kvasirctl bundle`: what a gateway knows, in one file for a bug report, without its secrets.

mod archive;
mod frames;

use std::time::Duration;

use anyhow::Result;
use kvasir_admin_client::ApiPath;
use serde_json::{Value, json};

use self::archive::Archive;
use crate::args::BundleArgs;
use crate::gateway::Gateway;
use crate::{Ended, say};

/// Decisions that the gateway keeps, and that are asked for.
const DECISIONS: &str = "1024";

/// Files of the archive, and what is asked for them.
fn documents() -> [(&'static str, ApiPath); 9] {
    let of = |name: &str| ApiPath::of(&[name]);
    [
        ("config.json", of("config")),
        ("pools.json", of("pools")),
        ("endpoints.json", of("endpoints")),
        ("inventory.json", of("inventory")),
        ("parity.json", of("parity")),
        ("routing.json", of("routing")),
        ("stats.json", of("stats")),
        ("decisions.json", of("decisions").with("limit", DECISIONS)),
        ("openapi.json", of("openapi.json")),
    ]
}

/// Asks for everything and writes it. What cannot be had is named in it; a gateway that cannot be asked
/// at all is an error, and leaves no file.
pub(crate) async fn run(args: BundleArgs) -> Result<Ended> {
    let gateway = Gateway::of(&args.connect)?;
    let mut missing = serde_json::Map::new();
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut config = Value::Null;
    for (name, path) in documents() {
        match gateway.get(&path).await {
            Ok(mut document) => {
                without_seeds(&mut document);
                files.push((name.to_owned(), format!("{document:#}\n").into_bytes()));
                if name == "config.json" {
                    config = document;
                }
            }
            // The first is a matter of address and token: nothing else would be had either.
            Err(error) if files.is_empty() => return Err(error),
            Err(error) => drop(missing.insert(name.to_owned(), format!("{error:#}").into())),
        }
    }
    match gateway.text(&ApiPath::plain("/metrics")).await {
        Ok(page) => files.push(("metrics.txt".to_owned(), page.into_bytes())),
        Err(error) => drop(missing.insert("metrics.txt".to_owned(), format!("{error:#}").into())),
    }
    // Before anything long is begun: the file must be new.
    let mut archive = Archive::create(&args.out, gateway.token())?;
    if let Some(seconds) = args.frames {
        say(&format!(
            "{} will hold token ids of prompts in plain: look at it before you share it",
            args.out.display()
        ));
        let recorded = frames::record_all(&config, Duration::from_secs(seconds)).await;
        for (name, recorded) in recorded {
            match recorded {
                Ok(lines) => files.push((name, lines)),
                Err(why) => drop(missing.insert(name, why.into())),
            }
        }
    }
    let bundle = json!({
        "kvasirctl": env!("CARGO_PKG_VERSION"),
        "gateway": gateway.url(),
        "unix_s": archive.unix_s(),
        "missing": missing,
    });
    archive.add("bundle.json", format!("{bundle:#}\n").as_bytes())?;
    for (name, content) in &files {
        archive.add(name, content)?;
    }
    let bytes = archive.finish()?;
    for (name, why) in &missing {
        say(&format!("{name} is missing: {}", why.as_str().unwrap_or_default()));
    }
    say(&format!(
        "{}: {} files, {} KiB",
        args.out.display(),
        files.len() + 1,
        bytes.div_ceil(1024)
    ));
    Ok(Ended::Done)
}

/// Who knows the seed of an engine's hashes can make prompts that collide: the metrics leave it out, too.
fn without_seeds(document: &mut Value) {
    match document {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::String(seed) if key == "seed" => "***".clone_into(seed),
                    other => without_seeds(other),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(without_seeds),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_left_out() {
        let mut config =
            json!({"pools": [{"identity": {"engine": {"seed": "42", "algorithm": "a"}}}]});
        without_seeds(&mut config);
        let expected =
            json!({"pools": [{"identity": {"engine": {"seed": "***", "algorithm": "a"}}}]});
        assert_eq!(config, expected);
    }
}
