//! What is said of a configuration without serving by it: `check`, `config print`, `config schema`.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::{Result, anyhow};
use kvasir_config::{AdminConfig, Config, EndpointRole, PoolConfig, SCHEMA, Taken};
use kvasir_fleet::SplitState;
use kvasir_proxy::Listener;

use crate::args::{FileArgs, Told};
use crate::client_keys::Keys;
use crate::{admin, client_keys, controller, doubtful, spec, telemetry};

/// Does what `serve` does before it opens anything, and says what it would serve.
pub(crate) fn check(args: &FileArgs) -> Result<()> {
    let Told { config, taken, said } = args.config()?;
    let keys = referred_to(&config).map_err(|error| said.locate(error))?;
    let file = args.file().map(|file| file.display().to_string()).unwrap_or_default();
    let summary = summary(&config, keys.clients.is_some(), &taken).unwrap_or_default();
    say(&format!("{file}: ok\n{summary}"));
    Ok(())
}

/// Reads all that a configuration refers to; the keys of clients.
fn referred_to(config: &Config) -> Result<Keys> {
    telemetry::filter(&config.log)?;
    spec::spans(config)?;
    spec::fleet_spec(config, None)?;
    Listener::check(&spec::listen_settings(config)?).map_err(spec::unusable_listener)?;
    let keys = client_keys::load(config)?;
    config.admin.as_ref().map(admin::check).transpose()?;
    controller::settings(config)?;
    Ok(keys)
}

/// The configuration in effect.
pub(crate) fn print(args: &FileArgs) -> Result<()> {
    let Told { mut config, .. } = args.config()?;
    if args.file().is_none() {
        // The template of pools that are found is no pool.
        config.pools.clear();
    }
    say(&config.to_yaml().map_err(|why| anyhow!(why))?);
    Ok(())
}

/// The schema of the file.
pub(crate) fn schema() {
    say(SCHEMA);
}

/// What a configuration comes to, a line for each thing that is served.
fn summary(config: &Config, keys: bool, taken: &[Taken]) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let speech = if config.listener.tls.is_some() { "TLS" } else { "plain text" };
    let who = if keys { "with an API key" } else { "everybody" };
    writeln!(text, "clients: {}, {speech}, {who}", config.listen)?;
    for pool in &config.pools {
        write_pool(&mut text, pool)?;
    }
    if let Some(admin) = &config.admin {
        let AdminConfig { listen, tls, .. } = admin;
        let speech = if tls.is_some() { "TLS" } else { "plain text" };
        let reads =
            if admin.read_token_source().is_some() { "who has a token" } else { "everybody" };
        let writes =
            if admin.write_token_source().is_some() { "who has a token" } else { "nobody" };
        writeln!(text, "admin: {listen}, {speech}, read by {reads}, changed by {writes}")?;
    } else {
        writeln!(text, "admin: none; `admin: {{}}` opens one at its default address")?;
    }
    for what in doubtful::of(config) {
        writeln!(text, "warning: {what}")?;
    }
    for Taken { name, key, without_effect } in taken {
        match without_effect {
            None => writeln!(text, "environment: {name} sets {key}")?,
            Some(why) => writeln!(text, "environment: {name} has no effect: {why}")?,
        }
    }
    Ok(text)
}

fn write_pool(text: &mut String, pool: &PoolConfig) -> std::fmt::Result {
    let PoolConfig { model, aliases, endpoints, .. } = pool;
    let also: String = aliases.iter().map(|alias| format!(", `{alias}`")).collect();
    let (count, policy) = (endpoints.len(), pool.policy.name());
    let s = if count == 1 { "" } else { "s" };
    let split = if pool.splits().is_some() { ", split into prefill and decode" } else { "" };
    writeln!(text, "pool `{model}`{also}: {count} endpoint{s}, policy {policy}{split}")?;
    let has = |role| endpoints.iter().any(|endpoint| endpoint.role == role);
    let sides = (has(EndpointRole::Prefill), has(EndpointRole::Decode));
    let state = SplitState::of(sides.0, sides.1, pool.splits().is_some());
    state.warning().map_or(Ok(()), |why| writeln!(text, "warning: pool `{model}`: {why}"))
}

/// To standard output; that nobody reads it changes nothing.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
