//! Requests in two legs: prefill here, decode there.

use super::Group;
use super::words::{ENDPOINT, ENGINE_SECONDS, MODEL, RANK, STREAM};
use crate::family::{Label, counter, gauge, histogram};

const PLANS: &[&str] = &[
    "split",
    "decode_holds",
    "unified",
    "no_prefill",
    "not_split",
    "prefill_failed",
    "params_missing",
    "ended_early",
    "transfer_failed",
    "lease_expired",
    "unknown_protocol",
];
const SIDES: &[&str] = &["prefill", "decode"];
const FAULTS: &[&str] = &["prefill", "decode", "link"];

pub(super) const GROUP: Group = Group {
    title: "Prefill and decode",
    about: "Of [pools that split requests](policies.md#prefill-and-decode).",
    families: &[
        counter(
            "kvasir_pd_requests_total",
            &[MODEL, Label::of("plan", PLANS)],
            "Requests of pools whose endpoints have roles, by how they were served. `split`, `decode_holds`, `unified`, \
             `no_prefill` (no prefill engine could be had: worth an alert), `not_split` (a decode engine did all of what [may not be \
             split](configuration.md#prefill-and-decode)); or why a decode engine computed the prompt of one that was to be split: \
             `prefill_failed` (prefill legs failed, and no further one was sent), `params_missing` (its answer handed nothing over), `ended_early` (it handed \
             nothing over since the first token ended the answer, and was no answer for the client), `transfer_failed` (the \
             decode engine failed, and may have tried to fetch), `lease_expired`, `unknown_protocol` (the prefill engine has not \
             said what it is).",
        ),
        histogram(
            "kvasir_pd_leg_seconds",
            ENGINE_SECONDS,
            &[Label::of("leg", SIDES), STREAM],
            "How long legs took that succeeded. `prefill` to the end of its answer (of legs sent at once, to its first data), `decode` \
             to its first data. With `stream=\"false\"` that of a decode leg comes when all was generated: it says nothing of the \
             transfer.",
        ),
        counter(
            "kvasir_pd_params_missing_total",
            &[MODEL],
            "Prefill legs that were answered without a hand-over. An engine without connector, or an answer above 1 MiB; no answer \
             that ended with its first token.",
        ),
        gauge(
            "kvasir_pd_rooms",
            &[],
            "Numbers of split requests in use (SGLang's rooms, TensorRT-LLM's ids). 0 when nothing is in flight.",
        ),
        gauge(
            "kvasir_pd_leases",
            &[ENDPOINT, RANK],
            "Prompts whose blocks a prefill endpoint keeps for decode legs, as far as is known. From the end of the prefill leg to the \
             first data of the decode leg, for `lease_ms` from its beginning at most; where no decode leg comes, or it fails, \
             until that end.",
        ),
        counter(
            "kvasir_pd_leases_expired_total",
            &[ENDPOINT, RANK],
            "Those that were kept for too short a time: the decode leg may have found nothing. Once a leg was sent whose answer is not \
             streamed it is not known when it fetched, and its end counts nowhere.",
        ),
        counter(
            "kvasir_pd_leases_abandoned_total",
            &[ENDPOINT, RANK],
            "Those that were kept to their end for nobody, as far as is known. The client left, or the decode leg failed.",
        ),
        counter(
            "kvasir_pd_failed_hand_overs_total",
            &[ENDPOINT, Label::of("part", SIDES)],
            "Hand-overs of KV that failed, counted at both engines by their part. The decode engine answered as one that \
             could not fetch, or was late with the first data of a stream; of legs sent at once either was answered with an \
             error, or neither gave data in time; or (`prefill` alone) nothing was handed over.",
        ),
        counter(
            "kvasir_pd_faults_total",
            &[ENDPOINT, Label::of("fault", FAULTS)],
            "How often the engine was [found at fault](operations.md#prefill-engines-that-hand-nothing-over) for that. \
             `link`: only what is between two, counted at both.",
        ),
        gauge(
            "kvasir_pd_left_out",
            &[ENDPOINT, Label::of("fault", FAULTS)],
            "1 while the engine is left out of hand-overs for that. Of `link` how many of its links are.",
        ),
        gauge(
            "kvasir_endpoint_transfer_tokens_per_second",
            &[ENDPOINT, RANK],
            "Tokens of KV per second that a decode endpoint fetches, learned from the first data of legs that were alone.",
        ),
        gauge(
            "kvasir_endpoint_role",
            &[ENDPOINT, RANK, Label::of("role", &["unified", "prefill", "decode"])],
            "1 for its part in [pools that split requests](configuration.md#prefill-and-decode).",
        ),
        gauge(
            "kvasir_pool_split",
            &[MODEL, Label::of("state", &["splits", "no_roles", "off", "no_prefill", "no_decode"])],
            "1 for whether the pool can split requests. `no_roles`: no endpoint has one; `off`: switched off; `no_prefill`: \
             decode endpoints compute prompts; `no_decode`: only unified endpoints serve.",
        ),
    ],
};
