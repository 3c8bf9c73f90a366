//! A request's head as it comes in: what is refused of it, and what is put right before anything
//! else looks at it.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Uri, Version};

use crate::app::Now;
use crate::forwarded;
use crate::headers;
use crate::listen::{Client, MAX_HEADERS};
use crate::refusal::Refusal;

/// Whether the connection must not be used again after this request. A body in chunks may have come
/// with a `content-length` beside, which is dropped before anybody here sees it; whatever stands in
/// front of us may have believed that one (RFC 9112, 6.3).
pub(crate) fn ends_connection(parts: &Parts) -> bool {
    parts.headers.contains_key(header::TRANSFER_ENCODING)
}

/// Checks a head, and makes it what engines may see but for what belongs to one attempt.
pub(crate) fn read(parts: &mut Parts, client: &Client, now: &Now) -> Result<(), Refusal> {
    // The request's id is among them by now, whoever gave it.
    if parts.headers.len() > MAX_HEADERS + 1 {
        return Err(Refusal::TooManyHeaders { limit: MAX_HEADERS });
    }
    // Of HTTP/1.1 only what is not there as a whole is held against the limit before.
    let limit = now.settings.max_head_bytes;
    let length = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    if parts.headers.iter().map(length).sum::<usize>() > limit {
        return Err(Refusal::HeadTooLarge { limit });
    }
    let host = host(parts)?;
    check_coding(&parts.headers)?;
    check_expectation(parts)?;
    headers::from_client(&mut parts.headers);
    if parts.version == Version::HTTP_2 {
        join_cookies(&mut parts.headers);
    }
    let mode = now.settings.forwarded_headers;
    forwarded::note(&mut parts.headers, mode, client, host);
    Ok(())
}

/// Whom the client wants to talk to. There is one answer, or the request is refused: what stands
/// in front of us may have believed another (RFC 9112, 3.2; RFC 9113, 8.3.1).
fn host(parts: &Parts) -> Result<Option<HeaderValue>, Refusal> {
    let bad = |why: &str| Err(Refusal::BadHead(why.to_owned()));
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let (named, further) = (hosts.next(), hosts.next());
    if further.is_some() {
        return bad("there is more than one `Host`");
    }
    if named.is_some_and(|host| !is_host(host.as_bytes())) {
        return bad("`Host` is no host");
    }
    match (parts.uri.authority(), named) {
        (Some(target), Some(host)) if !is_same(&parts.uri, target.as_str(), host) => {
            bad("the request's target and `Host` name different hosts")
        }
        (Some(target), None) if !is_host(target.as_str().as_bytes()) => {
            bad("the request's target names no host")
        }
        (Some(target), None) => Ok(HeaderValue::from_str(target.as_str()).ok()),
        (None, None) if parts.version >= Version::HTTP_11 => bad("`Host` is missing"),
        (_, host) => Ok(host.cloned()),
    }
}

/// Whether it may be a host and a port (RFC 3986, 3.2), without a user and without a list.
fn is_host(text: &[u8]) -> bool {
    let may_stand =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+;=".contains(byte);
    !text.is_empty() && text.iter().all(may_stand)
}

/// Whether both name the same, a port left out being the scheme's.
fn is_same(uri: &Uri, target: &str, host: &HeaderValue) -> bool {
    let usual = if uri.scheme() == Some(&http::uri::Scheme::HTTPS) { ":443" } else { ":80" };
    let plain = |text: &str| text.strip_suffix(usual).unwrap_or(text).to_ascii_lowercase();
    host.to_str()
        .is_ok_and(|host| target.eq_ignore_ascii_case(host) || plain(target) == plain(host))
}

/// A body that was coded beyond being cut in chunks would reach the engine as something else.
fn check_coding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Refusal::TransferCoding),
    }
}

/// There is one expectation, and HTTP/1.0 has none (RFC 9110, 10.1.1).
fn check_expectation(parts: &mut Parts) -> Result<(), Refusal> {
    if parts.version < Version::HTTP_11 {
        parts.headers.remove(header::EXPECT);
        return Ok(());
    }
    let is_known = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if parts.headers.get_all(header::EXPECT).iter().all(is_known) {
        Ok(())
    } else {
        Err(Refusal::Expectation)
    }
}

/// HTTP/2 may cut cookies into lines of their own; HTTP/1.1 has one (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() < 2 {
        return;
    }
    // Joined values are a value: no byte is new but these two.
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(uri: &str, version: Version, headers: &[(&'static str, &'static str)]) -> Parts {
        let mut request = Request::builder().uri(uri).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn named(
        uri: &str,
        version: Version,
        headers: &[(&'static str, &'static str)],
    ) -> Option<String> {
        let host = host(&parts(uri, version, headers)).ok()?;
        Some(host.map(|host| host.to_str().unwrap().to_owned()).unwrap_or_default())
    }

    #[test]
    fn there_is_one_host() {
        let (h10, h11, h2) = (Version::HTTP_10, Version::HTTP_11, Version::HTTP_2);
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(named("/", h11, &[("host", "a:1")]), is("a:1"));
        assert_eq!(named("/", h11, &[("host", "[::1]:1")]), is("[::1]:1"));
        assert_eq!(named("/", h10, &[]), is(""));
        assert_eq!(named("http://A.b/", h11, &[("host", "a.B:80")]), is("a.B:80"));
        assert_eq!(named("https://a:443/", h2, &[("host", "a")]), is("a"));
        assert_eq!(named("https://a/", h2, &[]), is("a"));
        for (uri, version, headers) in [
            ("/", h11, &[][..]),
            ("/", h2, &[]),
            ("/", h11, &[("host", "a"), ("host", "a")]),
            ("/", h10, &[("host", "a"), ("host", "b")]),
            ("/", h11, &[("host", "")]),
            ("/", h11, &[("host", "a, b")]),
            ("/", h11, &[("host", "a/b")]),
            ("/", h11, &[("host", "user@a")]),
            ("http://a/", h11, &[("host", "b")]),
            ("http://a/", h11, &[("host", "a:81")]),
            ("http://user@a/", h11, &[("host", "a")]),
            ("http://user@a/", h11, &[]),
            ("https://a/", h2, &[("host", "b")]),
        ] {
            assert_eq!(named(uri, version, headers), None, "{uri} {headers:?}");
        }
    }

    #[test]
    fn only_one_expectation_is_known() {
        let check = |version, values: &[&'static str]| {
            let headers: Vec<_> = values.iter().map(|value| ("expect", *value)).collect();
            let mut parts = parts("/", version, &headers);
            check_expectation(&mut parts).map(|()| parts.headers.contains_key("expect"))
        };
        assert_eq!(check(Version::HTTP_11, &[]), Ok(false));
        assert_eq!(check(Version::HTTP_11, &["100-Continue"]), Ok(true));
        assert_eq!(check(Version::HTTP_10, &["100-continue"]), Ok(false));
        for bad in [&["200-ok"][..], &["100-continue", "x"], &[""], &["100-continue, x"]] {
            assert_eq!(check(Version::HTTP_11, bad), Err(Refusal::Expectation), "{bad:?}");
        }
    }

    #[test]
    fn chunks_are_the_only_coding() {
        let check = |values: &[&'static str]| {
            let headers: Vec<_> = values.iter().map(|v| ("transfer-encoding", *v)).collect();
            check_coding(&parts("/", Version::HTTP_11, &headers).headers)
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["Chunked"]), Ok(()));
        for bad in [&["gzip, chunked"][..], &["chunked", "chunked"], &["chunked, chunked"], &["x"]]
        {
            assert_eq!(check(bad), Err(Refusal::TransferCoding), "{bad:?}");
        }
    }

    #[test]
    fn cookies_become_one_line() {
        let mut parts = parts("/", Version::HTTP_2, &[("cookie", "a=1"), ("cookie", "b=2; c=3")]);
        join_cookies(&mut parts.headers);
        let cookies: Vec<_> = parts.headers.get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
    }
}
