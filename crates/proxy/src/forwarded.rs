//! What engines are told of the client: `x-forwarded-for`, `-proto` and `-host`.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::listen::Client;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What happens to forwarding headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeaders {
    /// The client's address is added to those it names; scheme and host stay where it names them.
    #[default]
    Append,
    /// What the client says is dropped.
    Replace,
    /// What the client says passes, and nothing is added.
    Off,
}

/// Sets the headers of a request of `client` that was for `host`.
pub(crate) fn note(
    headers: &mut HeaderMap,
    mode: ForwardedHeaders,
    client: &Client,
    host: Option<HeaderValue>,
) {
    let seen = Seen { address: &client.address, scheme: client.scheme, host };
    seen.note(headers, mode);
}

/// What is known of a client here.
struct Seen<'a> {
    address: &'a HeaderValue,
    scheme: &'static str,
    host: Option<HeaderValue>,
}

impl Seen<'_> {
    fn note(self, headers: &mut HeaderMap, mode: ForwardedHeaders) {
        match mode {
            ForwardedHeaders::Off => return,
            ForwardedHeaders::Replace => {
                for name in [FOR, PROTO, HOST, header::FORWARDED] {
                    headers.remove(name);
                }
            }
            ForwardedHeaders::Append => {}
        }
        let address = match headers.contains_key(FOR) {
            true => self.chain(headers),
            false => self.address.clone(),
        };
        headers.insert(FOR, address);
        headers.entry(PROTO).or_insert(HeaderValue::from_static(self.scheme));
        if let Some(host) = self.host {
            headers.entry(HOST).or_insert(host);
        }
    }

    /// All addresses that are named, in one line, and this client's.
    fn chain(&self, headers: &HeaderMap) -> HeaderValue {
        let mut lines: Vec<&[u8]> =
            headers.get_all(FOR).iter().map(HeaderValue::as_bytes).collect();
        lines.retain(|line| !line.is_empty());
        lines.push(self.address.as_bytes());
        // Joined values are a value.
        HeaderValue::from_bytes(&lines.join(&b", "[..])).unwrap_or_else(|_| self.address.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(
        mode: ForwardedHeaders,
        given: &[(&'static str, &'static str)],
    ) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let address = &HeaderValue::from_static("10.0.0.9");
        let host = Some(HeaderValue::from_static("gateway"));
        Seen { address, scheme: "https", host }.note(&mut headers, mode);
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
        };
        let mut all: Vec<_> = headers.iter().map(text).collect();
        all.sort();
        all
    }

    fn list(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_mode_does_what_it_says() {
        let given = &[
            ("forwarded", "for=x"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2, 3.3.3.3"),
            ("x-forwarded-host", "outer"),
        ];
        let appended = [
            ("forwarded", "for=x"),
            ("x-forwarded-for", "1.1.1.1, 2.2.2.2, 3.3.3.3, 10.0.0.9"),
            ("x-forwarded-host", "outer"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(noted(ForwardedHeaders::Append, given), list(&appended));
        let own = [
            ("x-forwarded-for", "10.0.0.9"),
            ("x-forwarded-host", "gateway"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(noted(ForwardedHeaders::Replace, given), list(&own));
        assert_eq!(noted(ForwardedHeaders::Append, &[]), list(&own));
        assert_eq!(noted(ForwardedHeaders::Off, given), list(given));
        assert_eq!(noted(ForwardedHeaders::Off, &[]), []);
    }
}
