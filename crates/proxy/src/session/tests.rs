use http::{HeaderName, HeaderValue};
use kvasir_balance::digest;

use super::*;

fn heads(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &[u8])| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

fn header(name: &str) -> SessionSource {
    SessionSource::Header(name.to_owned())
}

fn sid() -> SessionSource {
    SessionSource::Cookie("sid".to_owned())
}

#[test]
fn the_first_place_with_a_name_wins() {
    let user = SessionSource::Body(BodyName::User);
    let headers = heads(&[("x-chat", b"c"), ("cookie", b"a=1; sid=s")]);
    let names = Names { user: Name::Text("u".to_owned()), ..Names::default() };
    let of = |sources: &[SessionSource]| of_request("m", sources, &headers, &names);
    assert_eq!(of(&[header("X-Chat"), sid(), user.clone()]), Some(digest(b"c")));
    assert_eq!(of(&[sid(), header("x-chat")]), Some(sid().digest(b"s")));
    assert_eq!(of(&[header("x-other"), user.clone()]), Some(user.digest(b"u")));
    assert_eq!(of(&[header("x-other")]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn what_is_no_name_is_passed_over() {
    let long = [b'a'; 257];
    let headers = heads(&[("x-long", &long), ("x-empty", b"  "), ("x-name", b"\xffname")]);
    let names = Names {
        user: Name::NotText,
        safety_identifier: Name::TooLong,
        prompt_cache_key: Name::Absent,
    };
    let all = [
        header("x-long"),
        header("x-empty"),
        SessionSource::Body(BodyName::User),
        SessionSource::Body(BodyName::SafetyIdentifier),
        SessionSource::Body(BodyName::PromptCacheKey),
        header("x-name"),
    ];
    assert_eq!(of_request("m", &all, &headers, &names), Some(digest(b"\xffname")));
    let why = all.each_ref().map(|source| look(source, &headers, &names));
    let (long, no_text) = (Err(Ignored::TooLong), Err(Ignored::NotText));
    assert_eq!(why, [long, Ok(None), no_text, long, Ok(None), Ok(Some(&b"\xffname"[..]))]);
    // A name is all of it: one that goes on is another one.
    let name = [b'a'; 256];
    let headers = heads(&[("x-long", &name)]);
    assert_eq!(of_request("m", &all, &headers, &Names::default()), Some(digest(&name)));
}

#[test]
fn cookies_are_found_by_their_whole_name() {
    for (lines, wanted) in [
        (&["sid=s"][..], Some("s")),
        (&["xsid=x; sidx=y;sid = \"s\" ; sid=t"], Some("s")),
        (&["a=1", "sid=s==; b=2"], Some("s==")),
        (&["sid"], None),
        (&["sid="], Some("")),
        (&["SID=s"], None),
        (&["a=sid=s"], None),
        (&[""], None),
    ] {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::COOKIE, HeaderValue::from_static(line));
        }
        let found = cookie(&headers, "sid").map(|name| str::from_utf8(name).unwrap());
        assert_eq!(found, wanted, "{lines:?}");
    }
}
