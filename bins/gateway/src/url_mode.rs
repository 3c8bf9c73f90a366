//! Engines given by URL alone: they are asked what they serve.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kvasir_config::{Config, EndpointConfig, EngineUrl, PoolConfig};
use kvasir_fleet::{EngineCard, EngineClient, Origin, TlsError};

/// How long the others are waited for once one engine has answered.
const LATECOMERS: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(500);
/// How often it is said that engines are still waited for.
const REMINDER: Duration = Duration::from_secs(10);

/// Asks the engines until they answer, and fills in `config`'s pools: one per model found, set up
/// like the one pool `config` comes with.
///
/// An engine that stays silent joins the pool where there is just one; else it cannot be known
/// where it belongs, and it is left out with a warning.
///
/// # Errors
/// When engines are spoken to in TLS and the system has no certificates of authorities.
pub(crate) async fn discover(mut config: Config, urls: &[EngineUrl]) -> Result<Config, TlsError> {
    let urls = &distinct(urls);
    let client = EngineClient::new(config.timeouts.connect());
    let mut cards: Vec<Option<EngineCard>> = vec![None; urls.len()];
    let origins: Result<Vec<Origin>, _> =
        urls.iter().map(|url| Origin::at(url.authority().clone(), url.is_https())).collect();
    let origins = origins?;
    let started = Instant::now();
    let mut first_answer: Option<Instant> = None;
    let mut reminded = started;
    loop {
        let silent = (0..urls.len()).filter(|at| cards[*at].is_none());
        let asked = silent.map(|at| {
            let client = client.clone();
            let origin = &origins[at];
            async move { (at, EngineCard::ask(&client, origin, None, None).await) }
        });
        let mut last_error = None;
        for (at, answer) in join_all(asked).await {
            match answer {
                Ok(card) if !card.models.is_empty() => cards[at] = Some(card),
                Ok(_) => last_error = Some((at, "it serves no model".to_owned())),
                Err(error) => last_error = Some((at, error.to_string())),
            }
        }
        let Some((at, why)) = last_error else { break };
        if first_answer.is_none() && cards.iter().any(Option::is_some) {
            first_answer = Some(Instant::now());
        }
        if first_answer.is_some_and(|at| at.elapsed() > LATECOMERS) {
            break;
        }
        if reminded == started || reminded.elapsed() > REMINDER {
            reminded = Instant::now();
            tracing::warn!(url = %urls[at], why, "waiting for an engine to say what it serves");
        }
        tokio::time::sleep(PAUSE).await;
    }
    config.pools = pools(config.pools.first(), urls, &cards);
    Ok(config)
}

fn distinct(urls: &[EngineUrl]) -> Vec<EngineUrl> {
    let mut seen = HashSet::new();
    urls.iter().filter(|url| seen.insert(*url)).cloned().collect()
}

fn pools(
    template: Option<&PoolConfig>,
    urls: &[EngineUrl],
    cards: &[Option<EngineCard>],
) -> Vec<PoolConfig> {
    let mut pools: Vec<PoolConfig> = Vec::new();
    for (url, card) in urls.iter().zip(cards) {
        for model in card.iter().flat_map(|card| &card.models) {
            let at = pools.iter().position(|pool| pool.model == model.id).unwrap_or_else(|| {
                let set_up = template.cloned().unwrap_or_else(|| PoolConfig::named(String::new()));
                pools.push(PoolConfig { model: model.id.clone(), ..set_up });
                pools.len() - 1
            });
            pools[at].endpoints.push(EndpointConfig::at(url.clone()));
        }
    }
    for (url, _) in urls.iter().zip(cards).filter(|(_, card)| card.is_none()) {
        match pools.as_mut_slice() {
            [pool] => {
                tracing::warn!(%url, model = pool.model, "engine is silent; taken for the pool's");
                pool.endpoints.push(EndpointConfig::at(url.clone()));
            }
            _ => tracing::error!(%url, "engine is silent and left out: its model is not known"),
        }
    }
    pools
}

#[cfg(test)]
mod tests {
    use kvasir_fleet::ServedModel;

    use super::*;

    fn card(models: &[&str]) -> Option<EngineCard> {
        let model = |id: &&str| ServedModel { id: (*id).into(), root: None, max_model_len: None };
        Some(EngineCard { models: models.iter().map(model).collect(), ..EngineCard::default() })
    }

    fn listed(urls: &[&str], cards: &[Option<EngineCard>]) -> Vec<(String, Vec<String>)> {
        let urls: Vec<EngineUrl> = urls.iter().map(|url| url.parse().unwrap()).collect();
        pools(None, &urls, cards)
            .into_iter()
            .map(|p| (p.model, p.endpoints.iter().map(|e| e.url.to_string()).collect()))
            .collect()
    }

    #[test]
    fn engines_are_grouped_by_what_they_serve() {
        let urls = ["http://a", "http://b", "http://c"];
        let pools = listed(&urls, &[card(&["m", "alias"]), card(&["m"]), card(&["n"])]);
        let pool = |model: &str, urls: &[&str]| {
            (model.to_owned(), urls.iter().map(|u| (*u).to_owned()).collect::<Vec<_>>())
        };
        let expected = [
            pool("m", &["http://a", "http://b"]),
            pool("alias", &["http://a"]),
            pool("n", &["http://c"]),
        ];
        assert_eq!(pools, expected);
        // A silent engine joins only where there is no choice.
        let alone = listed(&urls[..2], &[card(&["m"]), None]);
        assert_eq!(alone, [pool("m", &["http://a", "http://b"])]);
        let unclear = listed(&urls, &[card(&["m"]), card(&["n"]), None]);
        assert_eq!(unclear, [pool("m", &["http://a"]), pool("n", &["http://b"])]);
    }
}
