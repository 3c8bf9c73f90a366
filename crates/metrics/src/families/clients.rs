//! Connections: of clients, and to engines.

use super::Group;
use super::words::ENDPOINT;
use crate::family::{Label, counter, gauge};

const HANDSHAKES: &[&str] = &[
    "closed",
    "timeout",
    "not_tls",
    "incompatible",
    "no_protocol",
    "no_client_certificate",
    "client_certificate",
    "alert",
    "other",
];
const RELOADS: Label = Label::of("result", &["ok", "failed"]);

pub(super) const GROUP: Group = Group {
    title: "Clients",
    about: "",
    families: &[
        gauge("kvasir_client_connections", &[], "Connections of clients that are open."),
        gauge(
            "kvasir_client_connections_limit",
            &[],
            "How many connections of clients may be open (`max_connections`).",
        ),
        gauge(
            "kvasir_accept_paused",
            &[],
            "1 while no connection is accepted because the limit is reached; of several accept loops, how many pause. A line of the log \
             says when that begins and ends.",
        ),
        counter(
            "kvasir_accept_pauses_total",
            &[Label::of("reason", &["max_connections", "accept_error"])],
            "How often no connection was accepted for a while. `accept_error`: usually the process has no more file descriptors; said in the log.",
        ),
        counter(
            "kvasir_write_stalls_total",
            &[Label::of("level", &["connection", "stream"])],
            "Clients that read nothing for `write_stall_s` and were cut off. The connection, or a stream of HTTP/2.",
        ),
        counter(
            "kvasir_tls_handshake_failures_total",
            &[Label::of("cause", HANDSHAKES)],
            "TLS handshakes of clients that failed. `closed`: the client left; `incompatible`: version or cipher; `no_protocol`: \
             ALPN; `alert`: the client does not like our certificate.",
        ),
        counter(
            "kvasir_tls_reloads_total",
            &[RELOADS],
            "Changed files of certificates that were taken up, or could not be used (said in the log).",
        ),
        gauge("kvasir_tls_stale", &[], "1 while the files of certificates are not what is in use."),
        counter(
            "kvasir_api_keys_reloads_total",
            &[RELOADS],
            "Changed files of API keys that were taken up, or could not be used (said in the log).",
        ),
        gauge(
            "kvasir_api_keys_stale",
            &[],
            "1 while the files of API keys are not what is in use.",
        ),
    ],
};

pub(super) const UPSTREAM: Group = Group {
    title: "Connections to engines",
    about: "Those of requests only; what the background asks engines goes over connections of its own.",
    families: &[
        gauge(
            "kvasir_upstream_connections",
            &[ENDPOINT, Label::of("state", &["idle", "busy"])],
            "Connections kept (`idle`), and those with a request or being opened (`busy`).",
        ),
        gauge(
            "kvasir_upstream_waiting",
            &[ENDPOINT],
            "Requests that wait because all `max_connections` are busy, or (h2) for one that is being opened.",
        ),
        counter(
            "kvasir_upstream_connects_total",
            &[ENDPOINT, Label::of("result", &["ok", "pool", "dns", "tcp", "tls"])],
            "Connections opened (`ok`), or where it failed. `pool`: waited for in vain.",
        ),
        counter(
            "kvasir_upstream_reused_total",
            &[ENDPOINT],
            "Requests sent over a connection that had carried another.",
        ),
        counter(
            "kvasir_upstream_stale_retries_total",
            &[ENDPOINT, Label::of("request", &["unsent", "refused", "repeated"])],
            "Requests sent again at once, over another connection, which no client notices; once in an attempt. `unsent`: a kept \
             connection had closed before anything of it was sent. `refused`: an h2 engine said that it did nothing with it \
             (`REFUSED_STREAM`, or a `GOAWAY` that leaves it out). `repeated`: a kept HTTP/1.1 connection broke within a \
             second, before anything of an answer; taken from the [budget](configuration.md#retries). Many of `unsent` and \
             `repeated`: the engine closes idle connections sooner than the gateway does (4 s).",
        ),
        counter(
            "kvasir_upstream_stale_names_total",
            &[],
            "Connections to a last known address since the name could not be looked up. The log says which.",
        ),
    ],
};
