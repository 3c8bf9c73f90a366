//! Families about where prompts get their tokens: tokenizers, their caches, comparisons.

use std::sync::Arc;

use kvasir_metrics::{header, sample};

use kvasir_prompt::{PrefixCacheStats, Renderer, Source, TokenizerEngine};

use crate::pool::Pool;
use crate::token_oracle::{Parity, ParityPart};
use crate::tokenizer::PromptState;

/// A family: its name, and how to read a value off a tokenizer's cache.
type Family = (&'static str, fn(&PrefixCacheStats) -> f64);

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
const CACHE: &[Family] = &[
    ("kvasir_prompt_cache_bytes", |c| c.bytes as f64),
    ("kvasir_prompt_cache_budget_bytes", |c| c.budget as f64),
    ("kvasir_prompt_cache_entries", |c| c.entries as f64),
    ("kvasir_prompt_cache_hits_total", |c| c.hits as f64),
    ("kvasir_prompt_cache_misses_total", |c| c.misses as f64),
    ("kvasir_prompt_cache_hit_bytes_total", |c| c.hit_bytes as f64),
    ("kvasir_prompt_cache_miss_bytes_total", |c| c.miss_bytes as f64),
    ("kvasir_prompt_cache_saved_tokens_total", |c| c.hit_tokens as f64),
    ("kvasir_prompt_cache_evictions_total", |c| c.evictions as f64),
];

pub(super) fn render(page: &mut String, pools: &[Arc<Pool>]) {
    let loaded: Vec<(&str, Arc<Renderer>)> = pools.iter().filter_map(|p| loaded(p)).collect();
    let caches: Vec<(&str, PrefixCacheStats)> =
        loaded.iter().map(|(model, renderer)| (*model, renderer.cache().1)).collect();
    for (name, read) in CACHE {
        header(page, name);
        for (model, stats) in &caches {
            sample(page, name, &[("model", model)], read(stats));
        }
    }
    let name = "kvasir_tokenizer_engine";
    header(page, name);
    for (model, renderer) in &loaded {
        let (engine, reason) = match renderer.engine() {
            TokenizerEngine::Library(why) => ("library", why),
            _ => ("byte_level", String::new()),
        };
        let labels = [("model", *model), ("engine", engine), ("reason", &reason)];
        sample(page, name, &labels, 1.0);
    }
    sources(page, pools);
    templates(page, pools);
    parity(page, pools);
    headers(page, pools);
}

fn sources(page: &mut String, pools: &[Arc<Pool>]) {
    let name = "kvasir_tokenizer_source";
    header(page, name);
    for pool in pools {
        let source = match pool.prompts().source() {
            Some(Source::Staged) => "staged",
            Some(Source::Root) => "root",
            Some(Source::HubCache) => "hub_cache",
            None => continue,
        };
        sample(page, name, &[("model", pool.model()), ("source", source)], 1.0);
    }
}

fn templates(page: &mut String, pools: &[Arc<Pool>]) {
    let name = "kvasir_template_state";
    header(page, name);
    for pool in pools {
        if let Some((state, reason)) = pool.prompts().template_state() {
            let labels = [("model", pool.model()), ("state", state), ("reason", reason)];
            sample(page, name, &labels, 1.0);
        }
    }
}

fn loaded(pool: &Pool) -> Option<(&str, Arc<Renderer>)> {
    match &*pool.prompts().state() {
        PromptState::Ready(renderer) => Some((pool.model(), Arc::clone(renderer))),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn parity(page: &mut String, pools: &[Arc<Pool>]) {
    let name = "kvasir_tokenizer_parity";
    header(page, name);
    for (pool, part) in parts(pools) {
        let now = pool.token_oracle().state(part);
        for state in Parity::ALL {
            let labels =
                [("model", pool.model()), ("part", part.as_str()), ("state", state.as_str())];
            sample(page, name, &labels, if state == now { 1.0 } else { 0.0 });
        }
    }
    let name = "kvasir_tokenizer_parity_checks_total";
    header(page, name);
    for (pool, part) in parts(pools) {
        for (result, count) in pool.token_oracle().counts(part) {
            let labels = [("model", pool.model()), ("part", part.as_str()), ("result", result)];
            sample(page, name, &labels, count as f64);
        }
    }
}

fn parts(pools: &[Arc<Pool>]) -> impl Iterator<Item = (&Arc<Pool>, ParityPart)> {
    pools.iter().flat_map(|pool| ParityPart::ALL.map(|part| (pool, part)))
}

/// Only for pools that allow headers.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn headers(page: &mut String, pools: &[Arc<Pool>]) {
    let allowing = || pools.iter().filter(|pool| pool.token_headers().allowed());
    if allowing().next().is_none() {
        return;
    }
    let name = "kvasir_token_headers_believed";
    header(page, name);
    for pool in allowing() {
        let believed = if pool.token_headers().believed() { 1.0 } else { 0.0 };
        sample(page, name, &[("model", pool.model())], believed);
    }
    let name = "kvasir_token_headers_total";
    header(page, name);
    for pool in allowing() {
        for (result, count) in pool.token_headers().counts() {
            sample(page, name, &[("model", pool.model()), ("result", result)], count as f64);
        }
    }
}
