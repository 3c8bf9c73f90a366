//! What a pool does not do although it was configured to: serve at all, answer to a name, and compute
//! prompts at prefill endpoints.

use std::sync::Arc;

use kvasir_fleet::{Endpoint, EndpointView, Exclusion, HandOverFault, Pool, Role};

use super::Problem;

/// A pool that no request is served by, once all who may answer have been asked.
pub(super) fn of_readiness(
    pool: &Pool,
    members: &[Arc<Endpoint>],
    views: &[EndpointView],
    problems: &mut Vec<Problem>,
) {
    let is_awaited = |(member, view): (&Arc<Endpoint>, &EndpointView)| {
        let silent = !view.up && view.unreachable.is_none();
        silent && pool.exclusion(member, pool.model()).is_none()
    };
    if pool.is_ready() || members.iter().zip(views).any(is_awaited) {
        return;
    }
    let why = if pool.serves_only_split() {
        "its decode engines answer only prompts that a prefill endpoint computed, and no pair of them \
         is in service"
            .to_owned()
    } else {
        pool.why_none(pool.model())
    };
    problems.push(Problem {
        endpoint: None,
        cause: "not_ready",
        finding: format!("every request for it is answered 503: {why}"),
        remedy: "add an endpoint that answers (role `decode` or `unified`), activate one, or mend what \
                 keeps them out of service",
    });
}

/// Other names of the model that no engine answers to.
pub(super) fn of_aliases(pool: &Pool, members: &[Arc<Endpoint>], problems: &mut Vec<Problem>) {
    let serves = |member: &Endpoint, name: &str| {
        pool.exclusion(member, name) != Some(Exclusion::ModelNotServed)
    };
    // Where the model itself is not served nothing more is to be said of its other names.
    let mut able: Vec<&Arc<Endpoint>> = members.iter().collect();
    able.retain(|member| member.has_answered() && serves(member, pool.model()));
    for alias in pool.aliases() {
        if able.is_empty() || able.iter().any(|member| serves(member, alias)) {
            continue;
        }
        problems.push(Problem {
            endpoint: None,
            cause: "model_not_served",
            finding: format!("no engine serves the alias `{alias}`: requests for it are answered 503"),
            remedy: "start the engines with that name too (`--served-model-name`), or take it out of \
                     `aliases`: engines get the name as the client wrote it",
        });
    }
}

/// An endpoint whose part in split requests comes to nothing.
pub(super) fn of_hand_overs(pool: &Pool, member: &Endpoint, problems: &mut Vec<Problem>) {
    const LEFT_OUT: &str = "it is left out of split requests but for one that tries it every 30 s";
    for fault in pool.hand_over_faults(member) {
        let (finding, remedy) = match fault {
            HandOverFault::HandsNothing => (
                format!("its prefill answers carry nothing to hand over: {LEFT_OUT}"),
                "start the engine with its KV connector (vLLM: `--kv-transfer-config`), or give the \
                 endpoint the role `unified`; until then prompts are computed where they are answered",
            ),
            HandOverFault::NobodyFetches => (
                format!("several decode engines could not fetch what it computed: {LEFT_OUT}"),
                "look at the engine's log, and whether decode engines reach it where it offers KV",
            ),
            HandOverFault::FetchesNothing => (
                format!("it could fetch from none of several prefill engines: {LEFT_OUT}"),
                "look at the engine's log, at its KV connector, and whether it reaches the prefill engines",
            ),
            // Told once, at the prefill endpoint.
            HandOverFault::Link(_) if pool.role(member) != Role::Prefill => continue,
            HandOverFault::Link(other) => (
                format!("{other} cannot fetch what it computes: of this pair, {LEFT_OUT}"),
                "look at what is between the two, and whether their connectors and versions fit",
            ),
        };
        let endpoint = Some(member.name());
        problems.push(Problem { endpoint, cause: "no_hand_over", finding, remedy });
    }
}
