//! `kvasirctl get`: what a gateway knows, as tables or as the API's own documents.

pub(crate) mod decisions;
pub(crate) mod endpoints;
mod inventory;
pub(crate) mod parity;
pub(crate) mod pools;
pub(crate) mod stats;

use anyhow::{Result, bail};
use kvasir_admin_client::ApiPath;
use serde_json::{Value, json};

use crate::Ended;
use crate::args::{AskArgs, GetArgs, GetWhat};
use crate::gateway::Gateway;
use crate::gateway::view::{list, text};
use crate::output::{print, yaml};

/// Asks and prints.
pub(crate) async fn run(args: GetArgs) -> Result<Ended> {
    match args.what {
        GetWhat::Pools { model: None, ask } => {
            show(&ask, &ApiPath::of(&["pools"]), pools::table).await
        }
        GetWhat::Pools { model: Some(model), ask } => {
            show(&ask, &ApiPath::of(&["pools", &model]), pools::one).await
        }
        GetWhat::Endpoints { endpoint: None, pool, ask } => {
            let path = match &pool {
                Some(pool) => ApiPath::of(&["pools", pool, "endpoints"]),
                None => ApiPath::of(&["endpoints"]),
            };
            show(&ask, &path, endpoints::table).await
        }
        GetWhat::Endpoints { endpoint: Some(endpoint), pool, ask } => {
            one_endpoint(&endpoint, pool.as_deref(), &ask).await
        }
        GetWhat::Inventory { endpoint: None, ask, .. } => {
            show(&ask, &ApiPath::of(&["inventory"]), inventory::table).await
        }
        GetWhat::Inventory { endpoint: Some(endpoint), limit, ask } => {
            let limit = limit.map(|limit| limit.to_string());
            let path = ApiPath::of(&["inventory", &endpoint]).with_some("limit", limit.as_deref());
            show(&ask, &path, inventory::samples).await
        }
        GetWhat::Parity { ask } => show(&ask, &ApiPath::of(&["parity"]), parity::text_of).await,
        GetWhat::Stats { ask } => show(&ask, &ApiPath::of(&["stats"]), stats::table).await,
        GetWhat::Decisions { limit, model, ask } => {
            of_decisions(limit, model.as_deref(), &ask).await
        }
        GetWhat::Config { ask } => config(&ask).await,
    }
}

async fn show(ask: &AskArgs, path: &ApiPath, table: fn(&Value) -> String) -> Result<Ended> {
    let document = Gateway::of(&ask.connect)?.get(path).await?;
    print(ask.print.output, &document, || table(&document))?;
    Ok(Ended::Done)
}

async fn of_decisions(limit: u32, model: Option<&str>, ask: &AskArgs) -> Result<Ended> {
    let gateway = Gateway::of(&ask.connect)?;
    let path = ApiPath::of(&["decisions"]).with("limit", &limit.to_string());
    let document = gateway.get(&path.with_some("model", model)).await?;
    if let Some(model) = model.filter(|_| list(&document, "decisions").is_empty()) {
        could_be_decided_for(&gateway, model).await?;
    }
    print(ask.print.output, &document, || decisions::table(&document))?;
    Ok(Ended::Done)
}

/// Whether there could be decisions for a model of which there are none: one that no pool is for may be an
/// adapter's name, which only decisions tell.
async fn could_be_decided_for(gateway: &Gateway, model: &str) -> Result<()> {
    let document = gateway.get(&ApiPath::of(&["pools"])).await?;
    let pools = list(&document, "pools");
    let aliases = |pool| list(pool, "aliases").iter().filter_map(Value::as_str);
    let is_it = |pool| text(pool, "model") == model || aliases(pool).any(|alias| alias == model);
    if pools.iter().any(is_it) {
        return Ok(());
    }
    let names = pools.iter().map(|pool| text(pool, "model")).collect();
    bail!(
        "--model {model}: no pool, and no decision: {}",
        crate::gateway::near_names("pools", model, &names)
    )
}

async fn config(ask: &AskArgs) -> Result<Ended> {
    let document = Gateway::of(&ask.connect)?.get(&ApiPath::of(&["config"])).await?;
    let text = yaml(&document)?;
    print(ask.print.output, &document, || text)?;
    Ok(Ended::Done)
}

/// An endpoint in one pool, or in each that has it: then the document is a list of them.
async fn one_endpoint(name: &str, pool: Option<&str>, ask: &AskArgs) -> Result<Ended> {
    let gateway = Gateway::of(&ask.connect)?;
    let pools: Vec<String> = match pool {
        Some(pool) => vec![pool.to_owned()],
        None => pools_of(&gateway, name).await?,
    };
    let mut found = Vec::new();
    for pool in &pools {
        let mut one = gateway.get(&ApiPath::of(&["pools", pool, "endpoints", name])).await?;
        one["pool"] = pool.as_str().into();
        found.push(one);
    }
    let table = found.iter().map(endpoints::one).collect::<Vec<_>>().join("\n");
    let document = match &found[..] {
        [one] => one.clone(),
        _ => json!({ "endpoints": found }),
    };
    print(ask.print.output, &document, || table)?;
    Ok(Ended::Done)
}

/// The pools that have an endpoint of this name; an error with what there is, where none has.
pub(crate) async fn pools_of(gateway: &Gateway, name: &str) -> Result<Vec<String>> {
    let document = gateway.get(&ApiPath::of(&["endpoints"])).await?;
    let all = list(&document, "endpoints");
    let mut pools: Vec<String> = Vec::new();
    for one in all.iter().filter(|one| is_named(one, name)) {
        let pool = text(one, "pool").to_owned();
        if !pools.contains(&pool) {
            pools.push(pool);
        }
    }
    if pools.is_empty() {
        let names = all.iter().map(|one| text(one, "name")).collect();
        bail!(
            "there is no endpoint `{name}`; {}",
            crate::gateway::near_names("endpoints", name, &names)
        );
    }
    Ok(pools)
}

/// By its name, by host and port of any of its ranks, or by its URL.
pub(crate) fn is_named(endpoint: &Value, name: &str) -> bool {
    let plain = |text: &str| {
        let text = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        text.map(|text| text.trim_end_matches('/').to_owned())
    };
    let name = plain(name).unwrap_or_else(|| name.to_owned());
    let url = plain(text(endpoint, "url")).unwrap_or_default();
    let own = text(endpoint, "name");
    let own = plain(own).unwrap_or_else(|| own.to_owned());
    let ranked = endpoint.get("rank").and_then(Value::as_u64).map(|rank| format!("{url}#{rank}"));
    name == own || name == url || ranked.is_some_and(|ranked| ranked == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_several_names() {
        let one = json!({"name": "http://h:1#2", "url": "http://h:1", "rank": 2});
        for name in ["h:1", "http://h:1", "h:1#2", "http://h:1/", "http://h:1#2"] {
            assert!(is_named(&one, name), "{name}");
        }
        for name in ["h:2", "h:1#1", "h"] {
            assert!(!is_named(&one, name), "{name}");
        }
    }
}
