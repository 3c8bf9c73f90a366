//! Whether prompts and caches are what the gateway takes them for; for what is wrong, why and what to
//! do about it.

mod service;

use std::sync::Arc;

use kvasir_fleet::{
    Endpoint, EndpointView, HashState, Parity, ParityPart, Pool, PromptState, StreamView,
    TokenState,
};
use kvasir_inventory::{AbsentReason, PartialReason, SuspectReason, Trust};
use serde_json::{Map, Value, json};

use crate::control::State;
use crate::recent::Decided;

/// Used share of a cache from which on it is full.
const FULL: f64 = 0.98;
/// Share of evicted blocks that are computed anew soon after, from which on a cache is too small.
const REGRETTED: f64 = 0.25;
/// How many times longer than the median of the others first data may take.
const SLOW_RATIO: f64 = 2.0;
/// Answers of an endpoint that its pace is judged by.
const MIN_ANSWERS: usize = 5;

/// Something that is wrong.
struct Problem {
    endpoint: Option<String>,
    cause: &'static str,
    finding: String,
    remedy: &'static str,
}

/// How a pool stands; `recent` are its latest decisions.
pub(crate) fn parity(pool: &Pool, recent: &[Arc<Decided>]) -> Value {
    let members = pool.members();
    let views: Vec<EndpointView> = members.iter().map(|member| member.view()).collect();
    let mut problems = Vec::new();
    service::of_readiness(pool, &members, &views, &mut problems);
    of_prompts(pool, &mut problems);
    service::of_aliases(pool, &members, &mut problems);
    of_tokens(pool, &mut problems);
    of_block_sizes(&members, &views, &mut problems);
    for (member, view) in members.iter().zip(&views) {
        of_endpoint(member, view, &mut problems);
        service::of_hand_overs(pool, member, &mut problems);
    }
    of_pace(&members, recent, &mut problems);
    let problems: Vec<Value> = problems.iter().map(Problem::shown).collect();
    json!({
        "model": pool.model(),
        "tokenizer": tokenizer(pool),
        "oracles": oracles(pool),
        "token_counts": token_counts(pool),
        "over_predicted": over_predicted(&members),
        "hash_contracts": hash_contracts(&members, &views),
        "problems": problems,
    })
}

/// What is wrong with the gateway itself.
pub(crate) fn of_gateway(state: &State) -> Vec<Value> {
    let refused = state.refused.iter().map(|why| Problem {
        endpoint: None,
        cause: "config_refused",
        finding: format!("the configuration file is not in effect, the one before is: {why}"),
        remedy: "mend the file: it is read again when it changes, or with `POST /api/v1/config/reload`",
    });
    refused.map(|problem| problem.shown()).collect()
}

impl Problem {
    fn shown(&self) -> Value {
        let Self { endpoint, cause, finding, remedy } = self;
        json!({ "endpoint": endpoint, "cause": cause, "finding": finding, "remedy": remedy })
    }
}

fn tokenizer(pool: &Pool) -> Value {
    match &*pool.prompts().state() {
        PromptState::Ready(_) => json!({"state": "ready"}),
        PromptState::Pending => json!({"state": "pending"}),
        PromptState::Missing(why) => json!({"state": "missing", "why": why.to_string()}),
    }
}

fn oracles(pool: &Pool) -> Map<String, Value> {
    let state = |part: ParityPart| pool.token_oracle().state(part).as_str();
    ParityPart::ALL.iter().map(|part| (part.as_str().to_owned(), state(*part).into())).collect()
}

fn token_counts(pool: &Pool) -> Vec<Value> {
    pool.token_parity().states().iter().map(TokenState::shown).collect()
}

fn over_predicted(members: &[Arc<Endpoint>]) -> Map<String, Value> {
    members.iter().filter_map(|member| Some((member.name(), member.over_predicted()?))).collect()
}

fn hash_contracts(members: &[Arc<Endpoint>], views: &[EndpointView]) -> Vec<Value> {
    let of = |(member, view): (&Arc<Endpoint>, &EndpointView)| {
        let name = member.name();
        let shown = move |stream: &StreamView| {
            let contract = &stream.hash_contract;
            json!({
                "endpoint": name,
                "rank": stream.rank,
                "state": contract.state.as_str(),
                "contract": contract.contract,
                "cause": contract.cause,
                "blocks_checked": stream.hashes_checked,
                "blocks_failed": stream.hashes_failed,
            })
        };
        view.streams.iter().map(shown).collect::<Vec<Value>>()
    };
    members.iter().zip(views).flat_map(of).collect()
}

fn of_prompts(pool: &Pool, problems: &mut Vec<Problem>) {
    if let PromptState::Missing(why) = &*pool.prompts().state() {
        problems.push(Problem {
            endpoint: None,
            cause: "no_tokenizer",
            finding: format!("prompts cannot be tokenised: {why}"),
            remedy: "give the model's tokenizer files in `tokenizer_dir`",
        });
    }
    let oracle = pool.token_oracle();
    if oracle.state(ParityPart::Tokenizer) == Parity::Different {
        problems.push(Problem {
            endpoint: None,
            cause: "wrong_tokenizer",
            finding: "an engine's `/tokenize` gives other ids for plain text".to_owned(),
            remedy: "use the tokenizer files of the model and revision the engine runs \
                     (`tokenizer_dir`)",
        });
    } else if oracle.state(ParityPart::Template) == Parity::Different {
        problems.push(wrong_template(
            "an engine's `/tokenize` gives other ids for conversations, and the same for plain text"
                .to_owned(),
        ));
    }
}

fn wrong_template(finding: String) -> Problem {
    Problem {
        endpoint: None,
        cause: "wrong_template",
        finding,
        remedy: "give the engine's chat template: put the file it runs with (`--chat-template`) into \
                 `tokenizer_dir` as `chat_template.jinja`",
    }
}

fn of_tokens(pool: &Pool, problems: &mut Vec<Problem>) {
    if problems.iter().any(|problem| problem.cause.starts_with("wrong_")) {
        return;
    }
    for state in pool.token_parity().states().into_iter().filter(|state| state.mismatch) {
        let example = state.example.map(|example| {
            format!(", such as {} instead of {}", example.reported, example.counted)
        });
        problems.push(wrong_template(format!(
            "engines count other prompt tokens than the gateway at `{}` for `{}`: {} answers of {}{}",
            state.api,
            state.model,
            state.different,
            state.different + state.equal,
            example.unwrap_or_default(),
        )));
    }
}

fn of_block_sizes(members: &[Arc<Endpoint>], views: &[EndpointView], problems: &mut Vec<Problem>) {
    for (member, view) in members.iter().zip(views) {
        let told = view.card.as_ref().and_then(|card| card.block_size);
        if let (Some(told), Some(seen)) = (told, view.block_size)
            && told != seen
        {
            problems.push(wrong_size(
                member,
                format!("its events have blocks of {seen} tokens, its metrics say {told}"),
            ));
        }
    }
}

fn wrong_size(member: &Endpoint, finding: String) -> Problem {
    Problem {
        endpoint: Some(member.name()),
        cause: "wrong_block_size",
        finding,
        remedy: "the events are another engine's or another cache group's: check `events` of the \
                 endpoint, and the engine's `--block-size`",
    }
}

fn of_endpoint(member: &Endpoint, view: &EndpointView, problems: &mut Vec<Problem>) {
    let mut found = |cause: &'static str, finding: String, remedy: &'static str| {
        problems.push(Problem { endpoint: Some(member.name()), cause, finding, remedy });
    };
    if let Some(why) = &view.unreachable {
        found("unreachable", why.clone(), "start the engine, or mend the way to it");
        return;
    }
    if view.card.as_ref().and_then(|card| card.prefix_caching) == Some(false) {
        found(
            "prefix_caching_off",
            "the engine keeps no prefixes".to_owned(),
            "start the engine with prefix caching",
        );
    }
    of_trust(view, &mut found);
    if let Some(example) = member.under_example().filter(|_| view.trust == Trust::Exact) {
        found(
            "under_predicted",
            format!(
                "answers steadily report far more cached tokens than its events promise, such as {} \
                 instead of {}",
                example.reported, example.predicted
            ),
            "check that `events` is this engine's publisher, alone and of all its ranks; an engine that \
             fetches from a cache beyond its own (LMCache) reports more as well",
        );
    }
    of_cache(view, &mut found);
    let is_mismatch = |stream: &&StreamView| stream.hash_contract.state == HashState::Mismatch;
    if let Some(stream) = view.streams.iter().find(is_mismatch)
        && view.trust != Trust::Suspect(SuspectReason::HashMismatch)
    {
        found(
            "wrong_hash",
            stream.hash_contract.to_string(),
            "blocks are known by their tokens, so that routing goes on; the events may be another \
             engine's",
        );
    }
}

/// What is wrong with what is known of its cache.
fn of_trust(view: &EndpointView, found: &mut impl FnMut(&'static str, String, &'static str)) {
    match view.trust {
        Trust::Partial(PartialReason::LostBatch) => found(
            "lost_events",
            lost(view),
            "give the engine a replay socket (`replay`) and a longer `buffer_steps`; look for drops \
             on the way between engine and gateway",
        ),
        Trust::Partial(PartialReason::JoinedLate | PartialReason::Orphans) => found(
            "joined_late",
            lost(view),
            "it mends itself as prompts come by; a replay socket (`replay`) mends it at once",
        ),
        Trust::Partial(PartialReason::ByteBudget) => found(
            "full_inventory",
            "blocks were given up to stay within the byte budget".to_owned(),
            "raise `inventory.max_bytes`",
        ),
        Trust::Partial(PartialReason::BlocksLeftOut) | Trust::Suspect(SuspectReason::Schema) => {
            let first = view.streams.iter().find_map(|s| s.first_schema_error.clone());
            found(
                "events_not_understood",
                first.unwrap_or_else(|| "events did not describe blocks well enough".to_owned()),
                "this engine version writes events that are not known: send a recording \
                 (docs/bug-reports.md)",
            );
        }
        Trust::Absent(AbsentReason::Disconnected | AbsentReason::Connecting) => found(
            "no_events",
            format!("the publisher cannot be reached: {}", view.trust),
            "check `events` of the endpoint, the engine's publisher and firewalls between",
        ),
        Trust::Absent(AbsentReason::NoStream) => found(
            "no_events",
            "the engine publishes no events, or none are configured".to_owned(),
            "start the engine with KV events, or set `events` of the endpoint",
        ),
        Trust::Absent(_) => found(
            "no_events",
            format!("its events cannot be followed: {}", view.trust),
            "docs/observability.md has what each reason means",
        ),
        Trust::Suspect(SuspectReason::HashMismatch) => found(
            "wrong_hash",
            "the engine does not hash blocks as configured".to_owned(),
            "set `identity` to the engine's algorithm and seed, or back to `tokens`",
        ),
        Trust::Suspect(SuspectReason::HitMismatch) => hit_mismatch(view, found),
        Trust::Suspect(_) => found(
            "events_in_doubt",
            format!("trust is {}", view.trust),
            "docs/observability.md has what each reason means",
        ),
        Trust::Exact | Trust::CatchingUp => {}
    }
}

/// Whether its cache is too small.
fn of_cache(view: &EndpointView, found: &mut impl FnMut(&'static str, String, &'static str)) {
    if view.trust.credits() && view.kv_usage.is_some_and(|used| used >= FULL) {
        found(
            "full_cache",
            format!("its KV cache is {:.0} % used", view.kv_usage.unwrap_or(0.0) * 100.0),
            "prefixes are evicted before they are used again: more memory for the cache, more \
             replicas, or fewer requests at a time",
        );
    }
    if let Some(share) = regretted(view) {
        found(
            "full_cache",
            format!("{:.0} % of the blocks it evicts are computed anew soon after", share * 100.0),
            "its cache is too small for what is asked of it: more memory for the cache, more \
             replicas, or a policy that keeps prompts apart",
        );
    }
}

/// What of its events did not come.
fn lost(view: &EndpointView) -> String {
    let gaps = view.streams.iter().map(|stream| stream.gaps).sum();
    let failed = view.streams.iter().map(|stream| stream.replay_failures).sum();
    let (gaps, failed) = (counted(gaps, "gap"), counted(failed, "failed replay"));
    format!("trust is {}; {gaps}, {failed}", view.trust)
}

fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    }
}

/// The share of evicted blocks that are computed anew soon after, where it says that the cache is too
/// small.
fn regretted(view: &EndpointView) -> Option<f64> {
    let shares = view.streams.iter().filter_map(|stream| stream.regretted_share);
    shares.reduce(f64::max).filter(|share| *share >= REGRETTED)
}

fn hit_mismatch(view: &EndpointView, found: &mut impl FnMut(&'static str, String, &'static str)) {
    let is_full = view.kv_usage.is_some_and(|used| used >= FULL);
    let (cause, remedy) = if is_full {
        ("full_cache", "its cache is full: blocks are gone before requests arrive")
    } else if regretted(view).is_some() {
        (
            "over_predicted",
            "its cache is too small (`full_cache`): blocks may be gone before requests arrive; mend \
             that first, and if this stays, check that `events` is this engine's publisher",
        )
    } else {
        (
            "over_predicted",
            "its events promise more than it hits: check that `events` is this engine's publisher; \
             `over_predicted` has an example",
        )
    };
    found(cause, "the engine hits less than its events promise".to_owned(), remedy);
}

/// Endpoints whose first data takes much longer than that of the others. What left the pool is judged no
/// more, and judges no other.
fn of_pace(members: &[Arc<Endpoint>], recent: &[Arc<Decided>], problems: &mut Vec<Problem>) {
    // Answers are noted by the engine's URL, whichever of its ranks they came from.
    let urls: std::collections::BTreeSet<&str> =
        members.iter().map(|member| member.url()).collect();
    let mut times: std::collections::BTreeMap<&str, Vec<f64>> = std::collections::BTreeMap::new();
    for one in recent {
        if let (Some(endpoint), Some(ms)) = (&one.endpoint, one.first_data_ms)
            && urls.contains(endpoint.as_str())
        {
            times.entry(endpoint).or_default().push(ms);
        }
    }
    let medians: Vec<(&str, f64)> = times
        .into_iter()
        .filter(|(_, times)| times.len() >= MIN_ANSWERS)
        .map(|(endpoint, mut times)| {
            times.sort_by(f64::total_cmp);
            (endpoint, times[times.len() / 2])
        })
        .collect();
    for (endpoint, own) in &medians {
        let mut others: Vec<f64> =
            medians.iter().filter(|(other, _)| other != endpoint).map(|(_, ms)| *ms).collect();
        others.sort_by(f64::total_cmp);
        let Some(typical) = others.get(others.len() / 2).filter(|ms| **ms > 0.0) else { continue };
        if *own > SLOW_RATIO * typical && own - typical > 50.0 {
            problems.push(Problem {
                endpoint: Some((*endpoint).to_owned()),
                cause: "slow_replica",
                finding: format!(
                    "its first data takes {own:.0} ms, that of others {typical:.0} ms"
                ),
                remedy: "look at the engine (clocks, neighbours, batch size); give it a lower \
                         `weight`, or drain it",
            });
        }
    }
}
