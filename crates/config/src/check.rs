//! Whether what the parts of a configuration say fits together: its pools, and the engines that are
//! in several of them.

use std::collections::HashMap;

use http::uri::Authority;

use crate::bounds::{DAY_S, HOUR_MS, MOST_BODY_BYTES, Wrong, within};
use crate::endpoint::EndpointConfig;
use crate::log_level;
use crate::loxilb::LoxilbConfig;
use crate::model::Config;
use crate::pool::PoolConfig;

/// Why two engines cannot connect to us in the same way.
const ONE_EACH: &str = "engines that share an address need a `topic` each";

/// Below, heads of prompts would say nothing.
const LEAST_PROMPT_BYTES: usize = 1024;

/// Where in the configuration something is, before the key itself.
fn at<K: AsRef<str>>(prefix: &str) -> impl Fn((K, String)) -> Wrong {
    move |(key, message)| (format!("{prefix}.{}", key.as_ref()), message)
}

impl Config {
    /// The same where the pools are not known yet: their one template has no name and no endpoints.
    pub(crate) fn check_template(&self) -> Result<(), Wrong> {
        let is_template = |pool: &PoolConfig| pool.model.is_empty() && pool.endpoints.is_empty();
        if !self.pools.iter().all(is_template) {
            return self.check();
        }
        let mut config = self.clone();
        config.pools.truncate(1);
        if config.pools.is_empty() {
            config.pools.push(PoolConfig::named(String::new()));
        }
        for pool in &mut config.pools {
            "some-model".clone_into(&mut pool.model);
            pool.endpoints.extend("http://engine".parse().map(EndpointConfig::at));
        }
        config.check()
    }

    /// Whether it can be used, as far as can be told without a network. One that was
    /// [parsed](Self::parse) can; one that was changed since has to be asked again.
    ///
    /// # Errors
    /// If not: the key, as a path such as `pools[0].endpoints[1].url`, and what is wrong with it.
    pub fn check(&self) -> Result<(), (String, String)> {
        // Rules bring pools of their own.
        if self.pools.is_empty() && self.loxilb.is_none() {
            return Err(("pools".to_owned(), "at least one pool is needed".to_owned()));
        }
        within("max_body_bytes", &self.max_body_bytes, &1, &MOST_BODY_BYTES)?;
        let most = &MOST_BODY_BYTES;
        within("max_prompt_bytes", &self.max_prompt_bytes, &LEAST_PROMPT_BYTES, most)?;
        self.timeouts.check().map_err(at("timeouts"))?;
        within("scrape_interval_ms", &self.scrape_interval_ms, &50, &HOUR_MS)?;
        within("shutdown_grace_s", &self.shutdown_grace_s, &0, &DAY_S)?;
        within("shutdown_delay_s", &self.shutdown_delay_s, &0, &DAY_S)?;
        self.inventory.check().map_err(at("inventory"))?;
        self.check_client_keys()?;
        self.check_decision_headers_token()?;
        self.check_admin()?;
        self.loxilb.as_ref().map_or(Ok(()), LoxilbConfig::check).map_err(at("loxilb"))?;
        self.check_controller()?;
        self.retries.check().map_err(at("retries"))?;
        self.health.check().map_err(at("health"))?;
        if let Some(level) = &self.log.level {
            log_level::check(level).map_err(|why| ("log.level".to_owned(), why))?;
        }
        for (i, path) in self.forward_paths.iter().enumerate() {
            check_path(path).map_err(|why| (format!("forward_paths[{i}]"), why.to_owned()))?;
        }
        self.check_pools()
    }

    fn check_admin(&self) -> Result<(), Wrong> {
        let Some(admin) = &self.admin else { return Ok(()) };
        admin.check().map_err(at("admin"))?;
        if admin.listen == self.listen && admin.listen.port() != 0 {
            let message = format!("{} is where clients connect (`listen`)", admin.listen);
            return Err(("admin.listen".to_owned(), message));
        }
        Ok(())
    }

    fn check_controller(&self) -> Result<(), Wrong> {
        let Some(controller) = &self.controller else { return Ok(()) };
        let models: Vec<&str> = self.pools.iter().map(|pool| &*pool.model).collect();
        controller.check(&models).map_err(at("controller"))
    }

    fn check_pools(&self) -> Result<(), Wrong> {
        self.check_names()?;
        let mut engines = Engines::default();
        for (i, pool) in self.pools.iter().enumerate() {
            pool.check().map_err(at(&format!("pools[{i}]")))?;
            let timeouts = self.timeouts.with(&pool.timeouts);
            timeouts.check().map_err(at(&format!("pools[{i}].timeouts")))?;
            for (j, endpoint) in pool.endpoints.iter().enumerate() {
                engines.see(pool, endpoint).map_err(|(of_pool, key, message)| {
                    let endpoint = if of_pool { String::new() } else { format!("endpoints[{j}].") };
                    (format!("pools[{i}].{endpoint}{key}"), message)
                })?;
            }
        }
        Ok(())
    }
}

/// Whether it is a path, exact or a prefix that ends in `*`.
fn check_path(path: &str) -> Result<(), &'static str> {
    let exact = path.strip_suffix('*').unwrap_or(path);
    match path {
        _ if !path.starts_with('/') => Err("must begin with `/`"),
        _ if exact.contains('*') => {
            Err("`*` may stand at the end only: what precedes it is a prefix")
        }
        _ if exact.contains(['?', '#']) => Err("is a path, without `?` and `#`"),
        _ if exact.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            Err("must have no white space")
        }
        _ => Ok(()),
    }
}

/// What was said of engines so far. One engine has one weight, one state, one role, one stream of events and so
/// on, whichever pools it is in.
#[derive(Default)]
struct Engines<'a> {
    /// Where each is first mentioned.
    known: HashMap<&'a Authority, (&'a PoolConfig, &'a EndpointConfig)>,
    /// The first stream of events that is told of each.
    streams: HashMap<&'a Authority, Stream<'a>>,
    /// Those that connect to us, by the address.
    bound: HashMap<&'a str, Vec<(&'a Authority, Option<&'a str>)>>,
    /// The publishers we connect to, by the address, with the engine, its rank and the topic.
    publishers: HashMap<&'a str, Vec<Publisher<'a>>>,
}

type Publisher<'a> = (&'a Authority, Option<u32>, Option<&'a str>);

type Stream<'a> = (&'a str, Option<&'a str>, Option<&'a str>, bool);

/// Whether the key is the pool's and not the endpoint's, the key, and what is wrong.
type Odd = (bool, &'static str, String);

impl<'a> Engines<'a> {
    /// Whether it fits what was said before.
    fn see(&mut self, pool: &'a PoolConfig, endpoint: &'a EndpointConfig) -> Result<(), Odd> {
        let engine = endpoint.url.authority();
        let (first, known) = *self.known.entry(engine).or_insert((pool, endpoint));
        fits(first, known, pool, endpoint)?;
        self.see_address(endpoint)?;
        self.see_publisher(endpoint)?;
        let Some(stream) = endpoint.stream() else { return Ok(()) };
        if *self.streams.entry(engine).or_insert(stream) != stream {
            let message = format!("{} has another event stream elsewhere", endpoint.url);
            return Err((false, "events", message));
        }
        Ok(())
    }

    /// One publisher is of one engine: with the blocks of another's cache an engine would be believed
    /// to hold what it never had. Ranks with URLs of their own are one engine.
    fn see_publisher(&mut self, endpoint: &'a EndpointConfig) -> Result<(), Odd> {
        let Some((address, topic)) = endpoint.connects_to() else { return Ok(()) };
        let (engine, rank) = (endpoint.url.authority(), endpoint.rank);
        let others = self.publishers.entry(address).or_default();
        let alike = |(other, of, known): &&Publisher<'_>| {
            let are_ranks = rank.is_some() && of.is_some() && rank != *of;
            let may_share = topic.is_some() && known.is_some() && topic != *known;
            *other != engine && !are_ranks && !may_share
        };
        if let Some((other, ..)) = others.iter().find(alike) {
            let message = format!(
                "{address} is the publisher of http://{other} too: each engine has one of its own"
            );
            return Err((false, "events", message));
        }
        others.push((engine, rank, topic));
        Ok(())
    }

    fn see_address(&mut self, endpoint: &'a EndpointConfig) -> Result<(), Odd> {
        let Some((address, topic)) = endpoint.listens_at() else { return Ok(()) };
        let engine = endpoint.url.authority();
        let others = self.bound.entry(address).or_default();
        let alike = |(other, known): &&(&Authority, Option<&str>)| {
            *other != engine && (topic.is_none() || known.is_none() || topic == *known)
        };
        if let Some((other, _)) = others.iter().find(alike) {
            let message = format!("http://{other} connects there too: {ONE_EACH}");
            return Err((false, "topic", message));
        }
        others.push((engine, topic));
        Ok(())
    }
}

/// Whether two mentions of one engine say the same of what it has once.
fn fits(
    first: &PoolConfig,
    known: &EndpointConfig,
    pool: &PoolConfig,
    endpoint: &EndpointConfig,
) -> Result<(), Odd> {
    let ranks = |pool: &PoolConfig, endpoint: &EndpointConfig| {
        (pool.rank_addressing, endpoint.ranks, endpoint.rank)
    };
    let (url, of) = (&endpoint.url, |key, message| Err((false, key, message)));
    if ranks(first, known) != ranks(pool, endpoint) {
        return of("url", format!("the ranks of {url} are told otherwise elsewhere"));
    }
    if known.state != endpoint.state {
        return of("state", format!("{url} has another state elsewhere"));
    }
    if known.part() != endpoint.part() {
        let model = &first.model;
        let what = "another `role`, `bootstrap_port` or `bootstrap_host`";
        return of("role", format!("{url} has {what} in the pool `{model}`"));
    }
    if known.weight != endpoint.weight {
        let (weight, model) = (known.weight, &first.model);
        return of("weight", format!("{url} has the weight {weight} in the pool `{model}`"));
    }
    if first.identity != pool.identity {
        let message = format!(
            "{url} is in the pools `{}` and `{}`: blocks of one engine are known in one way",
            first.model, pool.model
        );
        return Err((true, "identity", message));
    }
    if first.connections() != pool.connections() || known.url != *url {
        let message = format!(
            "{url} is connected to otherwise in the pool `{}` (scheme, `engine_tls`, `http2`, \
             `max_idle_connections`, `max_connections`)",
            first.model
        );
        return of("url", message);
    }
    Ok(())
}
