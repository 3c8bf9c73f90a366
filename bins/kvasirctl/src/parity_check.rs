//! `kvasirctl parity-check`: engines named on the command line, leg by leg.

use anyhow::{Context, Result, bail};
use http::HeaderMap;
use kvasir_config::EngineUrl;
use kvasir_doctor::{Expectations, Target};
use kvasir_fleet::EventSpec;

use crate::Ended;
use crate::args::ParityCheckArgs;
use crate::engine_origin;
use crate::examine::{self, Group};

/// Looks and reports, once or until told to stop.
pub(crate) async fn run(args: ParityCheckArgs) -> Result<Ended> {
    match group(&args) {
        Ok(group) => examine::run(&[group], &args.look).await,
        Err(error) => Ok(examine::refused(&error)),
    }
}

fn group(args: &ParityCheckArgs) -> Result<Group> {
    let urls = &args.base_urls;
    if urls.len() > 1 && (args.events.is_some() || args.replay.is_some()) {
        bail!(
            "--events and --replay belong to one --base-url; {} are given: check them one by one, \
             or put them into a configuration for `kvasirctl doctor`",
            urls.len()
        );
    }
    if let Some((_, twice)) = urls.iter().enumerate().find(|(at, url)| urls[..*at].contains(url)) {
        bail!("--base-url {twice} is there twice");
    }
    if args.ca_file.is_some() && !urls.iter().any(EngineUrl::is_https) {
        bail!("--ca-file: no --base-url says https");
    }
    if let (Some(replay), None) = (&args.replay, &args.events) {
        check_address("--replay", replay, &args.topic)?;
    }
    if let Some(events) = &args.events {
        check_address("--events", events, &args.topic)?;
    }
    let headers: HeaderMap = args.headers.iter().cloned().collect();
    let targets: Result<Vec<Target>> = urls
        .iter()
        .map(|url| {
            Ok(Target {
                origin: engine_origin::of_url_by(url, args.ca_file.as_deref())?,
                events: args.events.clone(),
                replay: args.replay.clone(),
                topic: args.topic.clone(),
                headers: headers.clone(),
                model: args.model.clone(),
                tokenizer: args.tokenizer.clone(),
                expected: Expectations {
                    algorithm: args.expect_algo.clone(),
                    seed: args.expected_seed(),
                    block_size: args.expect_block_size,
                },
                probe: args.look.probe,
                patience: args.look.patience(),
                ..Target::new(url.authority().clone())
            })
        })
        .collect();
    Ok(Group { model: None, targets: targets? })
}

fn check_address(flag: &str, address: &str, topic: &str) -> Result<()> {
    let spec = EventSpec {
        publisher: address.to_owned(),
        replay: None,
        topic: topic.to_owned(),
        bind: false,
    };
    spec.check().with_context(|| flag.to_owned())
}
