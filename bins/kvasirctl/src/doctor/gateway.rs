//! What a running gateway knows to be wrong: its parity page, pools that are not ready, and endpoints
//! that take no requests.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, bail};
use kvasir_admin_client::ApiPath;
use kvasir_doctor::Verdict;
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::examine::status;
use crate::gateway::view::{list, plain, text};
use crate::gateway::{Gateway, near_names};
use crate::get::parity::problem_of;
use crate::output::write;
use crate::{Ended, stop};

/// What was found.
struct Found {
    /// What is wrong, each with the pool it is of.
    problems: Vec<Value>,
    /// What cannot be told yet.
    unknown: Vec<String>,
    /// What is as somebody wanted it, and may be forgotten.
    notes: Vec<String>,
    pools: usize,
}

/// Looks and prints; with `--watch` until SIGINT or SIGTERM.
pub(super) async fn run(gateway: &Gateway, args: &DoctorArgs) -> Result<Ended> {
    let mut stopped = pin!(stop::requested()?);
    loop {
        let found = tokio::select! {
            found = look(gateway, args.pool.as_deref()) => found?,
            () = &mut stopped => return Ok(Ended::Interrupted),
        };
        write(&shown(gateway, &found, args))?;
        let Some(seconds) = args.look.watch else { return Ok(status(found.verdict())) };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
            () = &mut stopped => return Ok(status(found.verdict())),
        }
    }
}

async fn look(gateway: &Gateway, only: Option<&str>) -> Result<Found> {
    let parity = gateway.get(&ApiPath::of(&["parity"])).await?;
    let pools = gateway.get(&ApiPath::of(&["pools"])).await?;
    found(&parity, &pools, only)
}

fn found(whole: &Value, pools: &Value, only: Option<&str>) -> Result<Found> {
    let of = |list: &[Value]| -> Vec<Value> {
        let is_asked = |one: &&Value| only.is_none_or(|model| text(one, "model") == model);
        list.iter().filter(is_asked).cloned().collect()
    };
    let (parity, chosen) = (of(list(whole, "pools")), of(list(pools, "pools")));
    if let (true, Some(model)) = (chosen.is_empty(), only) {
        let all: BTreeSet<&str> =
            list(pools, "pools").iter().map(|one| text(one, "model")).collect();
        bail!("--pool {model}: there is none; {}", near_names("pools", model, &all));
    }
    let mut found =
        Found { problems: Vec::new(), unknown: Vec::new(), notes: Vec::new(), pools: chosen.len() };
    // Whichever pool is asked for: it may be the refused file that would mend it.
    found.problems.extend(list(whole, "problems").iter().cloned());
    for pool in &parity {
        for problem in list(pool, "problems") {
            let mut problem = problem.clone();
            problem["pool"] = pool["model"].clone();
            found.problems.push(problem);
        }
        if text(&pool["tokenizer"], "state") == "pending" {
            let model = text(pool, "model");
            found.unknown.push(format!("pool {model}: its tokenizer is still being loaded"));
        }
    }
    chosen.iter().for_each(|pool| found.of_pool(pool));
    Ok(found)
}

impl Found {
    fn of_pool(&mut self, pool: &Value) {
        let model = text(pool, "model");
        let mut takers = 0;
        for one in list(pool, "endpoints") {
            takers += usize::from(one["eligible"] == true);
            self.of_endpoint(model, one);
            if text(one, "trust") == "catching_up" {
                let name = text(one, "name");
                self.unknown
                    .push(format!("pool {model}: the events of {name} are being caught up"));
            }
        }
        let is_known = self.problems.iter().any(|one| text(one, "pool") == model);
        if pool["ready"] == false && takers == 0 && !is_known {
            let why = text(pool, "why_not_ready");
            self.problem(model, None, "pool_not_ready", why, "add an endpoint, or activate one");
        }
    }

    fn of_endpoint(&mut self, model: &str, one: &Value) {
        let name = text(one, "name");
        let why = text(one, "why_not");
        let remedy = match why {
            "" => return,
            "draining" | "drain" | "disabled" => {
                let note = format!("pool {model}: the state of {name} is `{}`", text(one, "state"));
                self.notes.push(note + "; `kvasirctl activate` gives it requests again");
                return;
            }
            "no_answer_yet" => {
                self.unknown.push(format!("pool {model}: {name} has not answered yet"));
                return;
            }
            _ if why.starts_with("unreachable") => "start the engine, or mend the way to it",
            "model_not_served" => "serve the model there, or take the endpoint out of the pool",
            "asleep" => "wake the engine up, or drain it",
            "breaker_open" | "half_open" => {
                "several requests in a row failed there: look at the engine's log"
            }
            "back_pressure" => "the engine is full for a moment: more replicas, or fewer requests",
            _ => "docs/observability.md has what each reason means",
        };
        let is_told = |problem: &Value| {
            text(problem, "endpoint") == name
                && text(problem, "pool") == model
                && why.starts_with(text(problem, "cause"))
        };
        if !self.problems.iter().any(is_told) {
            let cause = why.split(':').next().unwrap_or(why).to_owned();
            let finding = format!("it takes no requests: {why}");
            self.problem(model, Some(name), &cause, &finding, remedy);
        }
    }

    fn problem(
        &mut self,
        pool: &str,
        endpoint: Option<&str>,
        cause: &str,
        finding: &str,
        remedy: &str,
    ) {
        self.problems.push(json!({
            "endpoint": endpoint, "cause": cause, "finding": finding, "remedy": remedy, "pool": pool,
        }));
    }

    fn verdict(&self) -> Verdict {
        match (self.problems.is_empty(), self.unknown.is_empty()) {
            (false, _) => Verdict::Off,
            (true, false) => Verdict::Unknown,
            (true, true) => Verdict::Ok,
        }
    }
}

fn shown(gateway: &Gateway, found: &Found, args: &DoctorArgs) -> String {
    let Found { problems, unknown, notes, pools } = found;
    if args.look.json {
        let document = json!({
            "gateway": gateway.url(), "verdict": found.verdict().as_str(), "problems": problems,
            "unknown": unknown, "notes": notes,
        });
        return match args.look.watch {
            Some(_) => format!("{document}\n"),
            None => format!("{document:#}\n"),
        };
    }
    let mut out = format!("gateway {}\n", gateway.url());
    let mut last = None;
    for problem in problems {
        let pool = text(problem, "pool");
        if !pool.is_empty() && last != Some(pool) {
            out.push_str(&format!("pool {}\n", plain(pool)));
            last = Some(pool);
        }
        out.push_str(&problem_of(problem));
    }
    for line in unknown {
        out.push_str(&format!("unknown: {}\n", plain(line)));
    }
    for line in notes {
        out.push_str(&format!("note: {}\n", plain(line)));
    }
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    };
    out.push_str(&format!("{}: {}\n", count(*pools, "pool"), count(problems.len(), "problem")));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parity(problems: &Value) -> Value {
        json!({"pools": [{"model": "m", "tokenizer": {"state": "ready"}, "problems": problems}]})
    }

    fn pools(why_not: &Value) -> Value {
        json!({"pools": [{"model": "m", "ready": true, "endpoints": [
            {"name": "http://h:1", "eligible": why_not.is_null(), "why_not": why_not, "state": "active"},
        ]}]})
    }

    fn ended(parity: &Value, pools: &Value) -> Ended {
        status(found(parity, pools, None).unwrap().verdict())
    }

    #[test]
    fn statuses_are_those_of_the_checks_of_engines() {
        let none = parity(&json!([]));
        assert_eq!(ended(&none, &pools(&Value::Null)), Ended::Done);
        assert_eq!(ended(&none, &pools(&json!("draining"))), Ended::Done);
        assert_eq!(ended(&none, &pools(&json!("no_answer_yet"))), Ended::Status(3));
        assert_eq!(ended(&none, &pools(&json!("breaker_open"))), Ended::Status(1));
        let lost = parity(&json!([{"endpoint": "http://h:1", "cause": "lost_events"}]));
        assert_eq!(ended(&lost, &pools(&Value::Null)), Ended::Status(1));
    }

    #[test]
    fn what_parity_says_is_not_said_twice() {
        let down = parity(&json!([{"endpoint": "http://h:1", "cause": "unreachable"}]));
        let why = json!("unreachable: connection refused");
        assert_eq!(found(&down, &pools(&why), None).unwrap().problems.len(), 1);
        let silent = found(&parity(&json!([])), &pools(&why), None).unwrap();
        assert_eq!(text(&silent.problems[0], "cause"), "unreachable");
        let error = found(&parity(&json!([])), &pools(&Value::Null), Some("n")).err().unwrap();
        assert!(error.to_string().contains("the pools are m"), "{error}");
    }
}
