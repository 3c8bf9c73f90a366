//! Event streams and the inventory: how far they are believed, and what they told of.

use super::Group;
use super::words::{ENDPOINT, RANK, TRUST, TRUST_REASON};
use crate::family::{Label, counter, gauge};

pub(super) const GROUP: Group = Group {
    title: "Event streams and the inventory",
    about: "Counters are of the event stream; of one that is fetched (TensorRT-LLM), a disconnect is a question that failed after one \
            that did not, and there is nothing to replay. They have the label `rank` where an engine has several streams. What the \
            states and reasons mean and what to do: [trust](observability.md#trust).",
    families: &[
        gauge(
            "kvasir_endpoint_trust",
            &[ENDPOINT, RANK, TRUST, TRUST_REASON],
            "1 for how far the endpoint's events are believed, and why no further. As far as those of its least believable rank.",
        ),
        gauge(
            "kvasir_stream_trust",
            &[ENDPOINT, RANK, TRUST, TRUST_REASON],
            "1 for the state one event stream is in, and why.",
        ),
        counter(
            "kvasir_trust_transitions_total",
            &[
                ENDPOINT,
                Label::any("rank"),
                Label::any("from"),
                Label::any("to"),
                Label::any("reason"),
            ],
            "Changes of how far an event stream is believed, and what made them.",
        ),
        counter("kvasir_stream_batches_total", &[ENDPOINT, RANK], "Event batches applied."),
        counter("kvasir_stream_events_total", &[ENDPOINT, RANK], "Events in these batches."),
        counter(
            "kvasir_stream_gaps_total",
            &[ENDPOINT, RANK],
            "Gaps in the sequence of event batches.",
        ),
        counter(
            "kvasir_stream_replays_total",
            &[ENDPOINT, RANK],
            "Replays that were answered to the end.",
        ),
        counter(
            "kvasir_stream_replay_failures_total",
            &[ENDPOINT, RANK],
            "Replays that were asked for and not answered to the end.",
        ),
        counter(
            "kvasir_stream_restarts_total",
            &[ENDPOINT, RANK],
            "Engine restarts seen in the event stream.",
        ),
        counter(
            "kvasir_stream_disconnects_total",
            &[ENDPOINT, RANK],
            "Lost connections to the event publisher.",
        ),
        counter(
            "kvasir_stream_schema_errors_total",
            &[ENDPOINT, RANK],
            "Batches and known events that could not be decoded.",
        ),
        counter(
            "kvasir_stream_unknown_events_total",
            &[ENDPOINT, RANK],
            "Events of unknown kinds, skipped.",
        ),
        counter(
            "kvasir_stream_overflows_total",
            &[ENDPOINT, RANK],
            "Live batches given up because too many waited behind a replay.",
        ),
        gauge(
            "kvasir_endpoint_resident_blocks",
            &[ENDPOINT, RANK, Label::of("tier", &["device", "host", "disk", "remote"])],
            "Blocks known to be resident, by tier. Those of a lost connection stay, without credit, until the life is decided.",
        ),
        counter(
            "kvasir_endpoint_stored_blocks_total",
            &[ENDPOINT, RANK],
            "Blocks the engine said it stored.",
        ),
        counter(
            "kvasir_endpoint_evicted_blocks_total",
            &[ENDPOINT, RANK],
            "Blocks the engine said it removed, by evicting them or otherwise. Without those that went as all was cleared.",
        ),
        counter(
            "kvasir_endpoint_evictions_watched_total",
            &[ENDPOINT, RANK],
            "A sample (one in eight) of the blocks that left the engine's own memory.",
        ),
        counter(
            "kvasir_endpoint_evictions_regretted_total",
            &[ENDPOINT, RANK],
            "Those of the sample that the engine computed anew soon after. A large share: the cache is too small for what is asked of it.",
        ),
        gauge(
            "kvasir_endpoint_orphan_blocks",
            &[ENDPOINT, RANK],
            "Blocks kept aside until their parent appears.",
        ),
        counter(
            "kvasir_endpoint_blocks_left_out_total",
            &[ENDPOINT, RANK],
            "Stored blocks the events did not describe well enough to be credited.",
        ),
        gauge(
            "kvasir_endpoint_hash_contract",
            &[
                ENDPOINT,
                RANK,
                Label::of("state", &["unchecked", "verified", "unreproducible", "mismatch"]),
                Label::any("contract"),
                Label::any("cause"),
            ],
            "1 for what is known of how the engine hashes blocks ([hash contracts](observability.md#hash-contracts)). Without the seed, which who may \
             scrape need not know.",
        ),
        counter(
            "kvasir_endpoint_hash_blocks_checked_total",
            &[ENDPOINT, RANK],
            "Plain blocks whose hash was computed anew from their tokens.",
        ),
        counter(
            "kvasir_endpoint_hash_blocks_failed_total",
            &[ENDPOINT, RANK],
            "Plain blocks whose hash, computed anew, was another.",
        ),
        counter(
            "kvasir_endpoint_blocks_given_up_total",
            &[ENDPOINT, RANK],
            "Blocks given up to stay within the [limits](configuration.md) of the inventory.",
        ),
        gauge(
            "kvasir_endpoint_inventory_bytes",
            &[ENDPOINT, RANK],
            "Bytes of the inventory that the endpoint is charged for.",
        ),
        gauge("kvasir_inventory_bytes", &[], "Bytes allocated for the picture of all caches."),
        gauge("kvasir_inventory_max_bytes", &[], "Bytes that the picture of all caches may take."),
    ],
};
