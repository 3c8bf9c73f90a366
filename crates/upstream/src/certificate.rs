//! What is wrong with an engine's certificate, in words: the library's are names of its own types.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// What a TLS handshake failed by, for people.
pub(crate) fn why(error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(wrong)) => {
            format!("the engine's certificate is not taken: {}", of(wrong))
        }
        _ => crate::failure::root_cause(error),
    }
}

fn of(wrong: &CertificateError) -> String {
    use CertificateError as Wrong;
    let known = match wrong {
        Wrong::UnknownIssuer => "no authority that is trusted has signed it (`engine_tls.ca_file`)",
        Wrong::Expired | Wrong::ExpiredContext { .. } => "it has expired",
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => "it is not valid yet",
        Wrong::Revoked => "it is revoked",
        Wrong::BadEncoding => "it is no certificate that can be read",
        Wrong::BadSignature => "its signature is wrong",
        Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => "it is none for servers",
        Wrong::NotValidForName => "it is for another name (`engine_tls.server_name`)",
        Wrong::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let names = names.join(", ");
            let expected = expected.to_str();
            return format!("it is for {names}, not for {expected} (`engine_tls.server_name`)");
        }
        Wrong::Other(other) if is_authoritys(&other.0) => {
            "it is one of an authority (`CA:TRUE`), which no server may show"
        }
        other => return other.to_string(),
    };
    known.to_owned()
}

/// `engine.test` of `DnsName("engine.test")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// The verifier's own errors can be told by their text only.
fn is_authoritys(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    error.to_string().contains("CaUsedAsEndEntity")
}
