//! The names of addresses that are listened on.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::Result;
use kvasir_config::ListenAddress;

use crate::bad_key::bad_key;

/// Where to listen: the address itself, or the first that its name has, one of IPv4 before others.
/// `key` is the configuration's.
pub(crate) fn resolve(key: &str, address: &ListenAddress) -> Result<SocketAddr> {
    if let Some(address) = address.ip() {
        return Ok(address);
    }
    let wrong = |why: String| bad_key(key, format!("cannot listen on `{address}`: {why}"));
    let found = address.to_string().to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    let found: Vec<SocketAddr> = found.collect();
    let first = found.iter().find(|found| found.is_ipv4()).or(found.first());
    let first = *first.ok_or_else(|| wrong("the name has no address".to_owned()))?;
    if address.is_loopback() && !first.ip().to_canonical().is_loopback() {
        return Err(wrong(format!("the name stands for {first}, which other machines can reach")));
    }
    tracing::info!(key, name = %address, chosen = %first, ?found, "a name to listen on is looked up");
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_and_an_address_is_itself() {
        let at = |text: &str| resolve("listen", &text.parse().unwrap());
        assert_eq!(at("[::1]:7").unwrap(), SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 7)));
        let local = at("localhost:7").unwrap();
        assert!(local.ip().is_loopback() && local.port() == 7, "{local}");
        let error = at("no-such-host.invalid:7").unwrap_err().to_string();
        assert!(
            error.starts_with("listen: cannot listen on `no-such-host.invalid:7`: "),
            "{error}"
        );
    }
}
