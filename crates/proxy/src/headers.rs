//! Which headers pass, in both directions.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::split::Leg;
use crate::token_header;

/// The most header lines that engines get beyond those of the client: host, length, the pool's key,
/// `x-request-id`, `x-forwarded-for`, `-proto` and `-host`, `traceparent`, a rank and, of prefill legs,
/// `accept-encoding`.
pub(crate) const ADDED: usize = 10;

/// Headers that belong to one connection, not to the message (RFC 9110, 7.6.1), beside `connection`.
const HOP_BY_HOP: [HeaderName; 6] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes what belongs to one connection in any case.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Removes `connection` and what it names, unless that is for everybody: a client that names
/// `authorization` there must not get it lost on the way.
fn strip_named(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| !is_end_to_end(name))
        .collect();
    headers.remove(header::CONNECTION);
    for name in named {
        headers.remove(name);
    }
}

/// Whether a header has a meaning beyond the connection that `connection` cannot take from it
/// (RFC 9110, 7.6.1: it must not name fields that are intended for all recipients).
fn is_end_to_end(name: &HeaderName) -> bool {
    const PREFIXES: [&str; 10] = [
        "accept",
        "access-control-",
        "anthropic-",
        "content-",
        "if-",
        "openai-",
        "x-data-",
        "x-forwarded-",
        "x-kvasir-",
        "x-stainless-",
    ];
    const NAMES: [&str; 21] = [
        "authorization",
        "baggage",
        "cache-control",
        "cookie",
        "date",
        "expect",
        "forwarded",
        "host",
        "location",
        "origin",
        "range",
        "retry-after",
        "set-cookie",
        "traceparent",
        "tracestate",
        "user-agent",
        "vary",
        "www-authenticate",
        "x-api-key",
        "x-model",
        "x-request-id",
    ];
    let name = name.as_str();
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Takes out of a client's head what frames it between the client and us. Trailers of requests are
/// read and dropped, so nothing announces them.
///
/// What `connection` names is for the next hop, which we are: it stays until the request goes on, for
/// settings may name any header that the gateway reads ([`to_engine`] drops it).
pub(crate) fn from_client(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    headers.remove(header::TRAILER);
}

/// Names a data-parallel rank to vLLM.
const RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// The headers an engine gets for a client's, after [`from_client`]: without those that its `connection`
/// names. Where the gateway has chosen a
/// `rank` of the engine, what the client says of ranks does not pass.
pub(crate) fn to_engine(
    mut headers: HeaderMap,
    authorization: Option<&HeaderValue>,
    rank: Option<u32>,
) -> HeaderMap {
    strip_named(&mut headers);
    // Set anew for the engine: its own host, and the length of the body as it was read. The body
    // is whole, so nothing is left to expect.
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::EXPECT);
    // For the gateway alone, and longer than heads engines take.
    headers.remove(token_header::OWN);
    headers.remove(token_header::ROLTER);
    if let Some(value) = authorization {
        headers.insert(header::AUTHORIZATION, value.clone());
    }
    if let Some(rank) = rank {
        headers.insert(RANK, HeaderValue::from(rank));
    }
    headers
}

/// What is particular of the headers of a `leg`, after [`to_engine`] with the same `rank`. A client's rank
/// is for one engine: it does not pass to two. And the answer of a prefill engine is read here.
pub(crate) fn of_leg(headers: &mut HeaderMap, leg: Leg, rank: Option<u32>) {
    if rank.is_none() {
        headers.remove(RANK);
    }
    if leg == Leg::Prefill {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
}

/// The headers a client gets for an engine's. `trailer` stays: trailers pass, where the client takes
/// them.
pub(crate) fn to_client(headers: &mut HeaderMap) {
    // Where both are told, the length is not that of the body (RFC 9112, 6.3).
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    strip_named(headers);
    strip_hop_by_hop(headers);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v)))
            .collect()
    }

    #[test]
    fn connection_headers_stay_and_the_rest_passes() {
        let headers = map(&[
            ("connection", "close, x-secret-hop"),
            ("x-secret-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("host", "gateway"),
            ("content-length", "3"),
            ("expect", "100-continue"),
            ("x-kvasir-token-ids", "1,2"),
            ("x-rolter-vllm-token-ids", "1,2"),
            ("authorization", "Bearer client"),
            ("x-vendor", "kept"),
            ("traceparent", "00-1"),
        ]);
        let mut headers = headers;
        from_client(&mut headers);
        let kept = to_engine(headers.clone(), None, None);
        let expected = map(&[
            ("authorization", "Bearer client"),
            ("x-vendor", "kept"),
            ("traceparent", "00-1"),
        ]);
        assert_eq!(kept, expected);
        let pool = HeaderValue::from_static("Bearer pool");
        assert_eq!(to_engine(headers, Some(&pool), None)[header::AUTHORIZATION], pool);
    }

    #[test]
    fn what_is_for_everybody_is_not_lost_by_being_named() {
        let mut headers = map(&[
            ("connection", "Authorization, content-type,X-Request-Id, cookie, host,x-mine, ,b@d"),
            ("connection", "content-length, user-agent, anthropic-version, accept-encoding"),
            ("user-agent", "a test"),
            ("anthropic-version", "2023-06-01"),
            ("accept-encoding", "gzip"),
            ("authorization", "Bearer key"),
            ("content-type", "application/json"),
            ("x-request-id", "1"),
            ("cookie", "a=b"),
            ("host", "gateway"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("trailer", "x-sum"),
            ("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA"),
        ]);
        from_client(&mut headers);
        assert_eq!(headers["x-mine"], "1", "the next hop reads it");
        let headers = to_engine(headers, None, None);
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let kept = ["accept-encoding", "anthropic-version", "authorization", "content-type"];
        assert_eq!(names[..4], kept);
        assert_eq!(names[4..], ["cookie", "user-agent", "x-request-id"]);
    }

    #[test]
    fn answers_keep_what_announces_trailers_and_no_length_of_chunks() {
        let mut headers = map(&[
            ("connection", "close, x-hop, content-type"),
            ("x-hop", "1"),
            ("content-type", "text/event-stream"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("keep-alive", "timeout=5"),
            ("trailer", "x-sum"),
        ]);
        to_client(&mut headers);
        assert_eq!(headers, map(&[("content-type", "text/event-stream"), ("trailer", "x-sum")]));
    }

    #[test]
    fn where_a_rank_was_chosen_the_clients_does_not_pass() {
        let headers = map(&[("x-data-parallel-rank", "7"), ("x-data-parallel-rank", "nine")]);
        assert_eq!(to_engine(headers.clone(), None, None), headers);
        let chosen = to_engine(headers, None, Some(2));
        assert_eq!(chosen, map(&[("x-data-parallel-rank", "2")]));
    }

    #[test]
    fn a_leg_has_the_rank_of_its_endpoint_or_none_and_prefill_answers_can_be_read() {
        let client = map(&[("x-data-parallel-rank", "7"), ("accept-encoding", "gzip, br")]);
        for (leg, coding) in [(Leg::Prefill, "identity"), (Leg::Decode, "gzip, br")] {
            for rank in [None, Some(2)] {
                let mut headers = to_engine(client.clone(), None, rank);
                of_leg(&mut headers, leg, rank);
                let named = headers.remove("x-data-parallel-rank");
                assert_eq!(named, rank.map(HeaderValue::from), "{leg:?}");
                assert_eq!(headers, map(&[("accept-encoding", coding)]), "{leg:?}");
            }
        }
    }
}
