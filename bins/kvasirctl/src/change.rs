//! `kvasirctl drain`, `activate`, `disable` and `weight`: changes of one endpoint.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http::Method;
use kvasir_admin_client::ApiPath;
use serde_json::{Value, json};

use crate::args::{AskArgs, StateArgs, WeightArgs};
use crate::gateway::Gateway;
use crate::gateway::view::{cell, count, list, plain, text};
use crate::get::endpoints::takes;
use crate::get::pools_of;
use crate::live_line::LiveLine;
use crate::output::print;
use crate::{Ended, say};

/// How often is looked while waiting.
const EVERY: Duration = Duration::from_millis(250);
/// Exit status of a wait that was in vain.
const IN_VAIN: u8 = 1;

/// A state that an endpoint is put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Active,
    Drain,
    Disabled,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Drain => "drain",
            Self::Disabled => "disabled",
        }
    }

    /// Whether what was waited for is there; if not, what is missing.
    fn reached(self, endpoint: &Endpoint) -> Result<(), String> {
        match self {
            Self::Active if endpoint.all.iter().all(|one| one["eligible"] == true) => Ok(()),
            Self::Active => Err(format!("takes requests: {}", endpoint.takes())),
            Self::Drain | Self::Disabled => match endpoint.in_flight() {
                0 => Ok(()),
                many => Err(format!("{many} in flight")),
            },
        }
    }
}

/// An endpoint as the API shows it: itself, or each of its ranks.
struct Endpoint {
    all: Vec<Value>,
}

impl Endpoint {
    fn of(document: &Value) -> Self {
        match list(document, "ranks") {
            [] => Self { all: vec![document.clone()] },
            ranks => Self { all: ranks.to_vec() },
        }
    }

    fn in_flight(&self) -> u64 {
        self.all.iter().map(|one| count(one, "in_flight")).sum()
    }

    fn takes(&self) -> String {
        let refuses = self.all.iter().find(|one| one["eligible"] != true);
        refuses.or(self.all.first()).map(takes).unwrap_or_default()
    }
}

/// Puts an endpoint into a state, and waits where that is asked.
pub(crate) async fn state(args: StateArgs, state: State) -> Result<Ended> {
    let gateway = Gateway::of(&args.ask.connect)?;
    let patch = json!({ "state": state.as_str() });
    let (path, document) = patched(&gateway, &args.endpoint, &patch).await?;
    if !args.wait {
        shown(&args.ask, &document)?;
        return Ok(Ended::Done);
    }
    let deadline = Duration::from_secs(args.timeout);
    let waited = wait(&gateway, &path, state, deadline).await?;
    let (document, why) = match waited {
        Ok(document) => (document, None),
        Err((document, why)) => (document, Some(why)),
    };
    shown(&args.ask, &document)?;
    match why {
        None => Ok(Ended::Done),
        Some(why) => {
            say(&format!("{}: not within {} s: {why}", args.endpoint, args.timeout));
            Ok(Ended::Status(IN_VAIN))
        }
    }
}

/// Sets an endpoint's weight.
pub(crate) async fn weight(args: WeightArgs) -> Result<Ended> {
    let gateway = Gateway::of(&args.ask.connect)?;
    let patch = json!({ "weight": args.weight });
    let (_, document) = patched(&gateway, &args.endpoint, &patch).await?;
    shown(&args.ask, &document)?;
    Ok(Ended::Done)
}

/// What is patched is the engine's, the same in all its pools: it is said in the first.
async fn patched(gateway: &Gateway, name: &str, patch: &Value) -> Result<(ApiPath, Value)> {
    if name.contains('#') {
        bail!("{name}: all ranks of an engine change together; leave `#rank` out");
    }
    let pools = pools_of(gateway, name).await?;
    let Some(pool) = pools.first() else { bail!("there is no endpoint `{name}`") };
    let path = ApiPath::of(&["pools", pool, "endpoints", name]);
    let document = gateway.ask(Method::PATCH, &path, Some(patch)).await?;
    Ok((path, document))
}

/// The endpoint when it is so, or what it was at the deadline and what was missing.
async fn wait(
    gateway: &Gateway,
    path: &ApiPath,
    state: State,
    deadline: Duration,
) -> Result<Result<Value, (Value, String)>> {
    let start = Instant::now();
    let mut line = LiveLine::late(EVERY);
    loop {
        let document = gateway.get(path).await?;
        let why = match state.reached(&Endpoint::of(&document)) {
            Ok(()) => return Ok(Ok(document)),
            Err(why) => why,
        };
        // Somebody else changed it meanwhile: what is waited for may never be.
        let now = text(&document, "state");
        if now != state.as_str() {
            let why = format!("its state is `{}` by now: {why}", plain(now));
            return Ok(Err((document, why)));
        }
        if start.elapsed() >= deadline {
            return Ok(Err((document, why)));
        }
        line.draw(|| format!("{} … {}", plain(text(&document, "name")), plain(&why)));
        tokio::time::sleep(EVERY).await;
    }
}

fn shown(ask: &AskArgs, document: &Value) -> Result<()> {
    let endpoint = Endpoint::of(document);
    print(ask.print.output, document, || {
        let kept = match document.get("persisted") {
            Some(Value::Bool(false)) => {
                "; it lasts until the gateway ends, since it has no `admin.store`"
            }
            _ => "",
        };
        let weight = cell(&document["weight"]);
        let name = document.get("url").and_then(Value::as_str).unwrap_or_default();
        let warnings = document["warnings"].as_array().into_iter().flatten();
        let warnings: String = warnings
            .filter_map(Value::as_str)
            .map(|why| format!("warning: {}\n", plain(why)))
            .collect();
        format!(
            "{}: {}, weight {weight}, takes requests: {}, {} in flight{kept}\n{warnings}",
            plain(name),
            plain(text(document, "state")),
            plain(&endpoint.takes()),
            endpoint.in_flight(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_are_waited_for() {
        let rank =
            |in_flight: u64, eligible: bool| json!({"in_flight": in_flight, "eligible": eligible});
        let document =
            json!({"in_flight": 0, "eligible": true, "ranks": [rank(0, true), rank(2, false)]});
        let endpoint = Endpoint::of(&document);
        assert_eq!(State::Drain.reached(&endpoint), Err("2 in flight".to_owned()));
        assert!(State::Active.reached(&endpoint).is_err());
        let idle = Endpoint::of(&rank(0, true));
        for state in [State::Active, State::Drain, State::Disabled] {
            assert_eq!(state.reached(&idle), Ok(()));
        }
    }
}
