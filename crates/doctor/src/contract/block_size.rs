//! The leg `block_size`: events against `cache_config_info` against the expectation.

use crate::facts::Facts;
use crate::report::{Leg, LegName};
use crate::stream::Collected;
use crate::target::Target;

pub(super) fn leg(target: &Target, facts: &Facts, events: Option<&Collected>) -> Leg {
    let sizes = events.map(|heard| &heard.shapes.block_sizes);
    let sizes: Vec<u32> = sizes.into_iter().flatten().copied().collect();
    let (hashed, plain) = (facts.cache.hash_block_size, facts.cache.block_size);
    let told = hashed.or(plain).or(facts.card.block_size);
    let mut parts = Vec::new();
    if !sizes.is_empty() {
        let shown: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        parts.push(format!("events {}", shown.join(" and ")));
    }
    match (hashed, plain) {
        (Some(hashed), Some(plain)) if hashed != plain => {
            parts.push(format!(
                "cache_config_info {hashed} (hash_block_size), {plain} (block_size)"
            ));
        }
        (None, None) => parts.extend(told.map(|told| format!("the engine says {told}"))),
        _ => parts.extend(told.map(|told| format!("cache_config_info {told}"))),
    }
    let Some(known) = sizes.first().copied().or(told) else {
        return Leg::unknown(
            LegName::BlockSize,
            "neither events nor the engine's HTTP server tell",
            "run with --probe where there are events, or again once there was traffic",
        );
    };
    if let Some(expected) = target.expected.block_size {
        parts.push(format!("expected {expected}"));
    }
    let finding = parts.join(", ");
    if sizes.len() > 1 {
        let remedy = "compare with the engine's log: its blocks of one group should be of one size";
        return Leg::off(LegName::BlockSize, finding, remedy);
    }
    if let Some(expected) = target.expected.block_size.filter(|expected| *expected != known) {
        let remedy =
            format!("--expect-block-size {known}, or --block-size {expected} on the engine");
        return Leg::off(LegName::BlockSize, finding, remedy);
    }
    if !sizes.is_empty() && told.is_some_and(|told| told != known) && plain != Some(known) {
        let remedy = "events decide; until the first one the gateway takes the other value: is \
                      this the publisher of this engine?";
        return Leg::off(LegName::BlockSize, finding, remedy);
    }
    Leg::ok(LegName::BlockSize, finding)
}
