//! What an error of the API means to whoever called, and what to do.

use anyhow::{Error, anyhow};
use kvasir_admin_client::{AskError, Refusal};

use super::Connection;

/// In one line.
pub(super) fn of(error: AskError, connection: &Connection) -> Error {
    let from = connection.url_from();
    let how = connection.how_to_name();
    match error {
        AskError::Connect { .. } => anyhow!(
            "{error} (the address is from {from}). Is the gateway running, with a section `admin` in \
             its configuration? {how}"
        ),
        AskError::NotAdmin { .. } => anyhow!(
            "{error} (the address is from {from}). The admin API has a port of its own, `admin.listen` \
             of the gateway's configuration. {how}"
        ),
        AskError::Timeout { .. } | AskError::Broken { .. } => {
            anyhow!("{error} (the address is from {from})")
        }
        AskError::NoRoute { .. } => anyhow!(
            "{error}: it is another version than this kvasirctl ({})",
            env!("CARGO_PKG_VERSION")
        ),
        AskError::Refused(refusal) => refused(&refusal, connection),
    }
}

fn refused(refusal: &Refusal, connection: &Connection) -> Error {
    let shown = connection.shown();
    match (refusal.status.as_u16(), &*refusal.code) {
        (401, _) => anyhow!(
            "{refusal} ({shown}). Give the file with the gateway's `admin.read_token` or \
             `admin.write_token`: --token-file FILE, or `token_file:` in {}",
            connection.file()
        ),
        (403, "read_only") => anyhow!("{refusal} ({shown}): give --token-file with that one"),
        (403, _) => anyhow!("{refusal} ({shown})"),
        _ => anyhow!("{refusal}"),
    }
}
