//! `kvasirctl doctor`: a running gateway by what it knows, or every engine of a configuration, leg by leg.

mod gateway;

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use http::{HeaderMap, header};
use kvasir_config::{Config, EndpointConfig, PoolConfig};
use kvasir_doctor::Target;
use kvasir_fleet::{EventSpec, bearer};

use crate::Ended;
use crate::args::{DoctorArgs, LookArgs};
use crate::engine_origin;
use crate::examine::{self, Group, SOMETHING_OFF, SOMETHING_UNKNOWN};
use crate::gateway::Gateway;
use crate::identity;

/// Looks and reports, once or until told to stop.
pub(crate) async fn run(args: DoctorArgs) -> Result<Ended> {
    let is_gateway_named = args.connect.address.admin.is_some() || args.connect.settings.is_some();
    match (&args.config, is_gateway_named) {
        (Some(_), true) if args.look.json || args.look.watch.is_some() => {
            let why = "--json and --watch: give --config, or else --admin or --settings";
            Ok(examine::refused(&anyhow!(why)))
        }
        (Some(config), false) => of_engines(config, &args).await,
        (None, _) => of_gateway(&args).await,
        (Some(config), true) => {
            let engines = of_engines(config, &args).await?;
            Ok(worse(engines, of_gateway(&args).await?))
        }
    }
}

async fn of_engines(config: &Path, args: &DoctorArgs) -> Result<Ended> {
    match groups(config, args) {
        Ok(groups) => examine::run(&groups, &args.look).await,
        Err(error) => Ok(examine::refused(&error)),
    }
}

async fn of_gateway(args: &DoctorArgs) -> Result<Ended> {
    if args.config.is_none() && args.look.probe {
        let why = "--probe: prompts are sent to the engines of a configuration; give --config";
        return Ok(examine::refused(&anyhow!(why)));
    }
    match Gateway::of(&args.connect) {
        Ok(gateway) => gateway::run(&gateway, args).await,
        Err(error) => {
            let hint = "or give a gateway's configuration with --config FILE to check its engines";
            Ok(examine::refused(&anyhow!("{error:#}; {hint}")))
        }
    }
}

/// What ends worse: something is off, or it was not looked at, or something could not be told.
fn worse(one: Ended, other: Ended) -> Ended {
    let rank = |ended: Ended| match ended {
        Ended::Done => 0,
        Ended::Status(SOMETHING_UNKNOWN) => 1,
        Ended::Interrupted => 2,
        Ended::Status(SOMETHING_OFF) => 3,
        Ended::Status(_) => 4,
    };
    if rank(other) > rank(one) { other } else { one }
}

fn groups(config: &Path, args: &DoctorArgs) -> Result<Vec<Group>> {
    let config = Config::load(config)?;
    let wanted = |pool: &&PoolConfig| args.pool.as_ref().is_none_or(|model| pool.model == *model);
    let pools: Vec<&PoolConfig> = config.pools.iter().filter(wanted).collect();
    if let (true, Some(model)) = (pools.is_empty(), &args.pool) {
        let models: Vec<&str> = config.pools.iter().map(|pool| pool.model.as_str()).collect();
        bail!("--pool {model}: there is none; the pools are {}", models.join(", "));
    }
    pools.into_iter().map(|pool| group(pool, &args.look)).collect()
}

fn group(pool: &PoolConfig, look: &LookArgs) -> Result<Group> {
    let headers = headers(pool).with_context(|| format!("pool `{}`", pool.model))?;
    let targets: Result<Vec<Target>> = pool
        .endpoints
        .iter()
        .map(|endpoint| {
            target(pool, endpoint, &headers, look)
                .with_context(|| format!("pool `{}`: events of {}", pool.model, endpoint.url))
        })
        .collect();
    Ok(Group { model: Some(pool.model.clone()), targets: targets? })
}

fn headers(pool: &PoolConfig) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Some(key) = pool.resolve_api_key().map_err(|(key, why)| anyhow!("{key}: {why}"))? {
        let value = bearer(key.expose()).context("the API key is no header value")?;
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}

fn target(
    pool: &PoolConfig,
    endpoint: &EndpointConfig,
    headers: &HeaderMap,
    look: &LookArgs,
) -> Result<Target> {
    let EndpointConfig { url, events, replay, topic, bind, .. } = endpoint;
    let topic = topic.clone().unwrap_or_default();
    // A queue the gateway drains is not touched.
    let events = events.clone().filter(|_| !endpoint.polls());
    if let Some(publisher) = events.clone() {
        let (replay, topic) = (replay.clone(), topic.clone());
        EventSpec { publisher, replay, topic, bind: *bind }.check()?;
    }
    let identity = identity::of(pool);
    Ok(Target {
        origin: engine_origin::of_pool(pool, url)?,
        events,
        replay: replay.clone(),
        topic,
        bind: *bind,
        headers: headers.clone(),
        model: Some(pool.model.clone()),
        tokenizer_dir: pool.tokenizer_dir.clone(),
        expected: identity::expectations(&identity),
        identity,
        probe: look.probe,
        patience: look.patience(),
        ..Target::new(url.authority().clone())
    })
}
