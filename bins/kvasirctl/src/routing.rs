//! `kvasirctl routing`: a model's routing in the words of `ExaMLOps` E4.

mod simulate;

use anyhow::{Result, bail};
use http::Method;
use kvasir_admin_client::ApiPath;
use serde_json::{Map, Value, json};

use crate::Ended;
use crate::args::{AskArgs, RoutingArgs, RoutingWhat, SetArgs, TenantArgs};
use crate::gateway::Gateway;
use crate::gateway::view::{cell, count, counts, list, percent, plain, text};
use crate::output::print;
use crate::table::Table;

/// Does what is asked.
pub(crate) async fn run(args: RoutingArgs) -> Result<Ended> {
    match args.what {
        RoutingWhat::Set(args) => set(&args).await?,
        RoutingWhat::Get { model, tenant, ask } => get(model.as_deref(), &tenant, &ask).await?,
        RoutingWhat::Delete { model, tenant, ask } => delete(&model, &tenant, &ask).await?,
        RoutingWhat::Stats { model, tenant, ask } => stats(&model, &tenant, &ask).await?,
        RoutingWhat::Simulate(args) => simulate::run(&args)?,
    }
    Ok(Ended::Done)
}

fn place(model: &str, tenant: &TenantArgs) -> ApiPath {
    ApiPath::of(&["routing", model]).with_some("tenant", tenant.tenant.as_deref())
}

async fn set(args: &SetArgs) -> Result<()> {
    let patch = patch(args)?;
    let gateway = Gateway::of(&args.ask.connect)?;
    let set = gateway.ask(Method::PATCH, &place(&args.model, &args.tenant), Some(&patch)).await?;
    print(args.ask.print.output, &set, || {
        let splits = if set["disaggregate"] == true { " + disaggregated" } else { "" };
        let (model, mode) = (plain(text(&set, "model")), plain(text(&set, "mode")));
        format!("Routing for {model}: {mode}{splits}\n")
    })
}

/// What was given; nothing else changes.
fn patch(args: &SetArgs) -> Result<Value> {
    let mut patch = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            patch.insert(key.to_owned(), value);
        }
    };
    put("mode", args.mode.map(|mode| mode.as_str().into()));
    put("slo_latency_ms", args.slo_latency_ms.map(|limit| json!(limit)));
    let splits = args.disaggregate || args.no_disaggregate;
    put("disaggregate", splits.then_some(args.disaggregate.into()));
    put("prefill_pool", args.prefill_pool.clone().map(Value::from));
    put("decode_pool", args.decode_pool.clone().map(Value::from));
    for setting in &args.reset {
        let key = setting.key();
        if patch.get(key).is_some_and(|value| !value.is_null()) {
            bail!("--reset {}: it is set, too", key.replace('_', "-"));
        }
        patch.insert(key.to_owned(), Value::Null);
    }
    Ok(patch.into())
}

async fn get(model: Option<&str>, tenant: &TenantArgs, ask: &AskArgs) -> Result<()> {
    let gateway = Gateway::of(&ask.connect)?;
    let (path, is_one) = match model {
        Some(model) => (place(model, tenant), true),
        None if tenant.tenant.is_some() => bail!("--tenant: give a model, too"),
        None => (ApiPath::of(&["routing"]), false),
    };
    let document = gateway.get(&path).await?;
    print(ask.print.output, &document, || match is_one {
        true => table(std::slice::from_ref(&document)),
        false => table(list(&document, "routing")),
    })
}

async fn delete(model: &str, tenant: &TenantArgs, ask: &AskArgs) -> Result<()> {
    let gateway = Gateway::of(&ask.connect)?;
    let deleted = gateway.ask(Method::DELETE, &place(model, tenant), None).await?;
    print(ask.print.output, &deleted, || format!("Routing for {}: as configured\n", plain(model)))
}

async fn stats(model: &str, tenant: &TenantArgs, ask: &AskArgs) -> Result<()> {
    let path = ApiPath::of(&["routing", model, "stats"]);
    let path = path.with_some("tenant", tenant.tenant.as_deref());
    let document = Gateway::of(&ask.connect)?.get(&path).await?;
    print(ask.print.output, &document, || {
        let config = &document["config"];
        let record = if config.is_null() { String::new() } else { record(config) };
        record + &events(&document["stats"])
    })
}

/// E4's line of counts.
fn events(stats: &Value) -> String {
    let decisions = match counts(&stats["by_decision"]) {
        none if none.is_empty() => "no decisions".to_owned(),
        some => plain(&some),
    };
    let (total, rate) = (count(stats, "total"), percent(&stats["hit_rate"]));
    format!("Routing events: {total} · hit rate {rate} · {decisions}\n")
}

/// E4's record of a model's settings.
fn record(config: &Value) -> String {
    let limit = match cell(&config["slo_latency_ms"]) {
        none if none.is_empty() => "—".to_owned(),
        limit => limit,
    };
    let mut out = String::new();
    for (name, value) in [
        ("model", text(config, "model").to_owned()),
        ("mode", text(config, "mode").to_owned()),
        ("slo_latency_ms", limit),
        ("disaggregate", config["disaggregate"].to_string()),
    ] {
        out.push_str(&format!("{name:<15} {}\n", plain(&value)));
    }
    out
}

fn table(all: &[Value]) -> String {
    if all.is_empty() {
        return "no routing settings: all models are routed as configured\n".to_owned();
    }
    let mut table = Table::of(&[
        "MODEL",
        "TENANT",
        "MODE",
        ">SLO MS",
        "DISAGGREGATE",
        "PREFILL POOL",
        "DECODE POOL",
        "UPDATED",
    ]);
    for one in all {
        table.row(
            [
                "model",
                "tenant",
                "mode",
                "slo_latency_ms",
                "disaggregate",
                "prefill_pool",
                "decode_pool",
                "updated_at",
            ]
            .map(|key| cell(&one[key])),
        );
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_e4s() {
        let stats = json!({"total": 4, "hits": 3, "hit_rate": 0.75,
                           "by_decision": {"load_aware": 1, "affinity": 3}});
        let expected = "Routing events: 4 · hit rate 75.0% · affinity 3, load_aware 1\n";
        assert_eq!(events(&stats), expected);
        let none = json!({"total": 0, "hits": 0, "hit_rate": 0.0, "by_decision": {}});
        assert_eq!(events(&none), "Routing events: 0 · hit rate 0.0% · no decisions\n");
        let record = record(&json!({"model": "m", "mode": "round_robin", "slo_latency_ms": null,
                                    "disaggregate": false}));
        assert!(record.contains("slo_latency_ms  —\n"), "{record}");
        assert!(record.contains("disaggregate    false\n"), "{record}");
    }
}
