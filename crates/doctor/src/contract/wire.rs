//! The leg `wire`: in which form events come.

use kvasir_inventory::{SuspectReason, Trust};

use super::{by_hashes, to_hear_events};
use crate::probe::Probed;
use crate::report::{Leg, LegName};
use crate::stream::{Collected, Shapes};
use crate::target::Target;

const INTEGERS: &str = "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES";

pub(super) fn leg(target: &Target, probed: &Probed, events: Option<&Collected>) -> Leg {
    let Some(heard) = events else {
        return Leg::unknown(LegName::Wire, "no events are followed", "see the leg events");
    };
    if let Some(leg) = unreadable(heard) {
        return leg;
    }
    let shapes = &heard.shapes;
    if shapes.stored == 0 {
        return Leg::unknown(LegName::Wire, "no stored block was heard", to_hear_events(probed));
    }
    let finding = describe(shapes);
    if by_hashes::come_without_tokens(events) && !target.goes_by_hashes() {
        let remark = by_hashes::no_tokens();
        return Leg::off(LegName::Wire, format!("{finding}: {}", remark.finding), remark.remedy);
    }
    match heard.trust {
        Trust::Suspect(SuspectReason::HashMismatch) => Leg::off(
            LegName::Wire,
            format!("{finding}: trust {}, so nothing is credited", heard.trust),
            "see the leg hash_contract",
        ),
        Trust::Suspect(SuspectReason::LookaheadHashing) => Leg::off(
            LegName::Wire,
            format!("{finding}: lookahead tokens are not followed yet, so nothing is credited"),
            "start the engine with disable_lookahead_block_hashes in its speculative config",
        ),
        Trust::Suspect(SuspectReason::UnsupportedGroup) => Leg::off(
            LegName::Wire,
            format!("{finding}: not all of its cache groups are followed, so nothing is credited"),
            "route this model by load or prefix only; where the engine offers it, switch its \
             hybrid cache manager off",
        ),
        Trust::Suspect(SuspectReason::ExtraKeysUnpublished) => Leg::off(
            LegName::Wire,
            format!("{finding}: one was, so nothing is credited"),
            "update the engine, or keep salted, adapter and image requests to another one",
        ),
        Trust::Suspect(_) => Leg::off(
            LegName::Wire,
            format!("{finding}: trust {}, so nothing is credited", heard.trust),
            "see the leg events",
        ),
        _ => Leg::ok(LegName::Wire, finding),
    }
}

/// What could not be read.
fn unreadable(heard: &Collected) -> Option<Leg> {
    let (stats, shapes) = (&heard.stats, &heard.shapes);
    let report = "report it with the engine's version: nothing is credited meanwhile";
    if stats.schema_errors > 0 {
        let finding = format!(
            "a known event cannot be decoded, in {} so far{}; RUST_LOG=warn shows its bytes",
            batches(stats.schema_errors),
            heard.schema_error.as_deref().map_or_else(String::new, |why| format!(" ({why})"))
        );
        return Some(Leg::off(LegName::Wire, finding, report));
    }
    if stats.malformed_messages > 0 {
        let finding = format!(
            "messages that are no batches of events ({} so far): those have three parts, the second a \
             number of 8 bytes",
            stats.malformed_messages
        );
        let remedy = "is it another program's publisher? Give the engine's with --events";
        return Some(Leg::off(LegName::Wire, finding, remedy));
    }
    let bad = shapes.bad_extras.as_ref()?;
    Some(Leg::off(LegName::Wire, format!("extra keys that fit no known release: {bad}"), report))
}

fn describe(shapes: &Shapes) -> String {
    let form = match (shapes.arrays, shapes.maps) {
        (true, true) => "arrays and maps",
        (true, false) => "arrays",
        (false, true) => "maps",
        (false, false) => "neither arrays nor maps",
    };
    let hashes = match (shapes.integers, shapes.bytes) {
        (true, false) => format!("integer hashes ({INTEGERS}=1 in vLLM, its default)"),
        (false, true) => format!("byte hashes ({INTEGERS}=0 in vLLM)"),
        (true, true) => "integer and byte hashes".to_owned(),
        (false, false) => "no hashes of device blocks".to_owned(),
    };
    let extras = match (shapes.extras_published, shapes.extras_left_out) {
        (true, _) => "extra keys published",
        (false, true) => {
            "extra keys not published (salted, adapter and image blocks look plain: no credit once \
             such a request was sent)"
        }
        (false, false) => "extra keys not seen",
    };
    let mut parts = vec![form.to_owned(), hashes, extras.to_owned()];
    if shapes.without_tokens {
        let some = if shapes.with_tokens { "some " } else { "" };
        parts.push(format!("{some}blocks without tokens"));
    }
    if shapes.lookahead {
        parts.push("lookahead tokens".to_owned());
    }
    if shapes.groups.len() > 1 || shapes.kinds.iter().any(|kind| kind != "full_attention") {
        let groups: Vec<String> = shapes.groups.iter().map(ToString::to_string).collect();
        let kinds: Vec<&str> = shapes.kinds.iter().map(String::as_str).collect();
        parts.push(format!("cache groups {} ({})", groups.join(", "), kinds.join(", ")));
    }
    if !shapes.places.is_empty() {
        let places: Vec<&str> = shapes.places.iter().map(String::as_str).collect();
        parts.push(format!("blocks outside the device: {}", places.join(", ")));
    }
    if shapes.unknown_events > 0 {
        parts.push(format!("{} events of unknown kinds skipped", shapes.unknown_events));
    }
    parts.join(", ")
}

fn batches(count: u64) -> String {
    if count == 1 { "1 batch".to_owned() } else { format!("{count} batches") }
}
