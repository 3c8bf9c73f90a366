//! The metric families the gateway reads.

use http::StatusCode;
use kvasir_fleet::{EngineKind, samples};

use crate::facts::{Facts, name_of};
use crate::probe::Probed;
use crate::report::{Leg, LegName};
use crate::shown::{list, shown};

/// What is read of vLLM, and what for.
const FAMILIES: [(&str, &str); 7] = [
    ("vllm:num_requests_running", "load by other clients"),
    ("vllm:num_requests_waiting", "load by other clients"),
    ("vllm:kv_cache_usage_perc", "the cache's use"),
    ("vllm:cache_config_info", "the block size before the first event"),
    ("vllm:prefix_cache_queries_total", "judging predictions"),
    ("vllm:prefix_cache_hits_total", "judging predictions"),
    ("process_start_time_seconds", "restarts"),
];

/// Read where it is there: older releases have no such family.
const SLEEP_STATE: &str = "vllm:engine_sleep_state";

/// Families that count requests once some were served.
const SERVED: [&str; 2] = ["vllm:request_success_total", "vllm:prompt_tokens_total"];

/// Adds the leg `metrics`. Families register lazily, so they are looked for last.
pub(crate) async fn legs(facts: &Facts, probed: &Probed, legs: &mut Vec<Leg>) {
    let page = match facts.client.get(&facts.origin, "/metrics", None).await {
        Ok((StatusCode::OK, body)) => Ok(String::from_utf8_lossy(&body).into_owned()),
        Ok((status, _)) => Err(format!("GET /metrics answers {status}")),
        Err(error) => Err(format!("GET /metrics: {}", shown(&error.to_string()))),
    };
    legs.push(match (facts.kind, page) {
        (EngineKind::Vllm, Ok(page)) => vllm(&page, probed.answered() > 0),
        (EngineKind::Vllm, Err(why)) => Leg::off(
            LegName::Metrics,
            format!("{why}: load by other clients and a sleeping engine go unseen"),
            "let GET /metrics through to the engine",
        ),
        (kind, _) => Leg::unknown(
            LegName::Metrics,
            format!(
                "the gateway reads vLLM's families only; of {} it knows the load that it sends \
                 itself",
                name_of(kind)
            ),
            "send all requests for this engine through the gateway",
        ),
    });
}

fn vllm(page: &str, answered: bool) -> Leg {
    let leg = LegName::Metrics;
    let has = |name: &str| samples(page).any(|sample| sample.name == name);
    if samples(page)
        .any(|s| s.name == SLEEP_STATE && s.label("sleep_state") == Some("awake") && s.value == 0.0)
    {
        return Leg::off(
            leg,
            "the engine sleeps (vllm:engine_sleep_state): it gets no requests",
            "wake it up: POST /wake_up",
        );
    }
    let missing: Vec<String> = FAMILIES
        .iter()
        .filter(|(name, _)| !has(name))
        .map(|(name, purpose)| format!("{name} (for {purpose})"))
        .collect();
    if missing.is_empty() {
        let count = FAMILIES.len() + usize::from(has(SLEEP_STATE));
        let asleep = if has(SLEEP_STATE) {
            ""
        } else {
            "; without vllm:engine_sleep_state a sleeping engine goes unnoticed"
        };
        return Leg::ok(leg, format!("all {count} families that are read are there{asleep}"));
    }
    let served = answered || samples(page).any(|s| SERVED.contains(&s.name) && s.value > 0.0);
    let finding =
        format!("{} of {} families missing: {}", missing.len(), FAMILIES.len(), list(missing));
    if served {
        Leg::off(leg, finding, "start the engine without --disable-log-stats, or update it")
    } else {
        Leg::unknown(
            leg,
            format!("{finding}; no served request is counted, either"),
            "families register with the first request: send one, or use --probe",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;

    const RECORDED: &str = include_str!("../../../testdata/http-vllm-0.32.0/metrics_lora.txt");

    fn without(family: &str) -> String {
        RECORDED.lines().filter(|line| !line.starts_with(family)).fold(
            String::new(),
            |mut page, line| {
                page.push_str(line);
                page.push('\n');
                page
            },
        )
    }

    #[test]
    fn a_real_page_has_them_all() {
        let leg = vllm(RECORDED, false);
        assert_eq!(leg.verdict, Verdict::Ok, "{leg}");
        assert!(leg.finding.contains("all 8"), "{leg}");
    }

    #[test]
    fn every_family_is_missed_by_its_name() {
        for (family, _) in FAMILIES {
            let leg = vllm(&without(family), false);
            assert_eq!(leg.verdict, Verdict::Off, "{leg}");
            assert!(leg.finding.contains(family), "{leg}");
        }
        let leg = vllm(&without(SLEEP_STATE), false);
        assert_eq!(leg.verdict, Verdict::Ok, "{leg}");
        assert!(leg.finding.contains(SLEEP_STATE), "{leg}");
    }

    #[test]
    fn before_the_first_request_nothing_is_held_against_it() {
        let page = "vllm:num_requests_running{engine=\"0\"} 0.0\nvllm:prompt_tokens_total 0.0\n";
        let leg = vllm(page, false);
        assert_eq!(leg.verdict, Verdict::Unknown, "{leg}");
        assert!(leg.remedy.as_deref().is_some_and(|remedy| remedy.contains("--probe")), "{leg}");
        assert_eq!(vllm(page, true).verdict, Verdict::Off);
        let page = page.replace("total 0.0", "total 7.0");
        assert_eq!(vllm(&page, false).verdict, Verdict::Off);
    }

    #[test]
    fn a_sleeping_engine_is_off() {
        let page = "vllm:engine_sleep_state{sleep_state=\"awake\"} 0.0\n";
        let leg = vllm(page, false);
        assert!(leg.verdict == Verdict::Off && leg.finding.contains("sleeps"), "{leg}");
    }
}
