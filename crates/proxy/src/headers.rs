//! Which headers pass, in both directions.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers that belong to one connection, not to the message (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes what belongs to one connection, including what `connection` names.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// The headers an engine gets for a client's.
pub(crate) fn to_engine(mut headers: HeaderMap, authorization: Option<&HeaderValue>) -> HeaderMap {
    strip_hop_by_hop(&mut headers);
    // Set anew for the engine: its own host, and the length of the body as it was read. The body
    // is whole, so nothing is left to expect.
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::EXPECT);
    if let Some(value) = authorization {
        headers.insert(header::AUTHORIZATION, value.clone());
    }
    headers
}

/// The headers a client gets for an engine's.
pub(crate) fn to_client(headers: &mut HeaderMap) {
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
            ("authorization", "Bearer client"),
            ("x-vendor", "kept"),
            ("traceparent", "00-1"),
        ]);
        let kept = to_engine(headers.clone(), None);
        let expected = map(&[
            ("authorization", "Bearer client"),
            ("x-vendor", "kept"),
            ("traceparent", "00-1"),
        ]);
        assert_eq!(kept, expected);
        let pool = HeaderValue::from_static("Bearer pool");
        assert_eq!(to_engine(headers, Some(&pool))[header::AUTHORIZATION], pool);
    }
}
