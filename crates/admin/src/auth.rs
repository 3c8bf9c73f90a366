//! Who may ask, and who may change things.

use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri, header};
use kvasir_tokens::{TokenDigest, bearer};

use crate::error::ApiError;

/// What a route asks of who calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Nothing.
    Open,
    /// Leave to read.
    Read,
    /// Leave to change things.
    Write,
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nobody in particular, where reading is open to all.
    Anybody,
    /// Who has the token for reading.
    Reader,
    /// Who has the token for changes.
    Writer,
}

impl Role {
    /// The name of the token that was shown.
    pub(crate) fn token(self) -> &'static str {
        match self {
            Self::Anybody => "none",
            Self::Reader => "read_token",
            Self::Writer => "write_token",
        }
    }
}

/// The tokens.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    read: Option<TokenDigest>,
    write: Option<TokenDigest>,
}

impl Guard {
    pub(crate) fn new(read: Option<&str>, write: Option<&str>) -> Self {
        let digest = |token: &str| TokenDigest::of(token.as_bytes());
        Self { read: read.map(digest), write: write.map(digest) }
    }

    /// Whether a route may be called with these headers, and as whom.
    pub(crate) fn admit(&self, access: Access, headers: &HeaderMap) -> Result<Role, ApiError> {
        self.check_browser(headers)?;
        if access == Access::Open {
            return Ok(Role::Anybody);
        }
        if access == Access::Write && self.write.is_none() {
            let why = "changes are off: `admin.write_token_env` or `admin.write_token_file` turns \
                       them on";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "writes_disabled", why));
        }
        let role = self.role(headers)?;
        if access == Access::Write && role != Role::Writer {
            let why = "this token may read only: changes need the write token";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "read_only", why));
        }
        Ok(role)
    }

    fn role(&self, headers: &HeaderMap) -> Result<Role, ApiError> {
        let unauthorized = |why: &str| ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", why);
        let Some(shown) = headers.get(header::AUTHORIZATION) else {
            return match self.read {
                None => Ok(Role::Anybody),
                Some(_) => Err(unauthorized("a bearer token is needed: `authorization: Bearer …`")),
            };
        };
        let token = bearer(shown.as_bytes()).ok_or_else(|| {
            unauthorized("the `authorization` header is not of the form `Bearer TOKEN`")
        })?;
        let shown = TokenDigest::of(token);
        let is = |known: Option<TokenDigest>| known == Some(shown);
        let (reads, writes) = (is(self.read), is(self.write));
        match (reads, writes) {
            (_, true) => Ok(Role::Writer),
            (true, false) => Ok(Role::Reader),
            (false, false) => Err(unauthorized("the token is not known")),
        }
    }

    /// Pages of other sites can make a browser ask; they say where they are from. Where no token is
    /// needed, a name that somebody else points here is none of ours either.
    fn check_browser(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.and_then(|host| host.parse::<Authority>().ok());
        if let Some(origin) = headers.get(header::ORIGIN) {
            let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
            let origin = origin.and_then(|origin| origin.authority().cloned());
            if origin.is_none() || origin != host {
                let why = "requests of other sites' pages are not answered";
                return Err(ApiError::new(StatusCode::FORBIDDEN, "origin_refused", why));
            }
        }
        let is_local = |host: &Authority| {
            let name = host.host().trim_start_matches('[').trim_end_matches(']');
            name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
        };
        if self.read.is_none() && host.as_ref().is_some_and(|host| !is_local(host)) {
            let why = "without a read token this is answered at an IP address or `localhost` only";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "host_refused", why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn code(guard: &Guard, access: Access, pairs: &[(&'static str, &str)]) -> &'static str {
        match guard.admit(access, &headers(pairs)) {
            Ok(role) => role.token(),
            Err(error) => error.code,
        }
    }

    #[test]
    fn roles() {
        let guard = Guard::new(Some("r"), Some("w"));
        let (read, write) = (("authorization", "Bearer r"), ("authorization", "bearer  w"));
        assert_eq!(code(&guard, Access::Open, &[]), "none");
        assert_eq!(code(&guard, Access::Read, &[]), "unauthorized");
        assert_eq!(code(&guard, Access::Read, &[("authorization", "Bearer x")]), "unauthorized");
        assert_eq!(code(&guard, Access::Read, &[("authorization", "Basic r")]), "unauthorized");
        assert_eq!(code(&guard, Access::Read, &[read]), "read_token");
        assert_eq!(code(&guard, Access::Read, &[write]), "write_token");
        assert_eq!(code(&guard, Access::Write, &[read]), "read_only");
        assert_eq!(code(&guard, Access::Write, &[write]), "write_token");
        let open = Guard::new(None, None);
        assert_eq!(code(&open, Access::Read, &[]), "none");
        assert_eq!(code(&open, Access::Read, &[read]), "unauthorized");
        assert_eq!(code(&open, Access::Write, &[write]), "writes_disabled");
        let half = Guard::new(None, Some("w"));
        assert_eq!(code(&half, Access::Write, &[]), "read_only");
    }

    #[test]
    fn browsers_of_other_sites_are_refused() {
        let guard = Guard::new(None, None);
        let ask = |pairs: &[(&'static str, &str)]| code(&guard, Access::Read, pairs);
        let host = ("host", "127.0.0.1:8081");
        assert_eq!(ask(&[host]), "none");
        assert_eq!(ask(&[host, ("origin", "http://127.0.0.1:8081")]), "none");
        assert_eq!(ask(&[host, ("origin", "http://evil.example")]), "origin_refused");
        assert_eq!(ask(&[host, ("origin", "null")]), "origin_refused");
        assert_eq!(ask(&[("host", "evil.example:8081")]), "host_refused");
        assert_eq!(ask(&[("host", "localhost:8081")]), "none");
        assert_eq!(ask(&[("host", "[::1]:8081")]), "none");
    }
}
