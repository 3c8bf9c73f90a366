//! What whoever asked for a change or a reload is told where it is not in effect.

use anyhow::{Error, Result};
use http::StatusCode;
use kvasir_admin::ApiError;
use kvasir_config::{ConfigError, Place};
use tokio::task::JoinError;

use crate::bad_key;

/// A fault of this machine or of the gateway: no change of what was sent mends it.
pub(super) fn broken(why: &str) -> ApiError {
    tracing::error!(why, "an order of the admin API was not carried out");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why)
}

/// A change that nothing can be made of, with the key that is to blame as its sender knows it.
pub(super) fn change(error: &Error, place: &Place) -> ApiError {
    match bad_key::parts(error) {
        Some((key, why)) => ApiError::invalid(place.shortened(key), why),
        None => invalid(error),
    }
}

/// A file that was not taken up.
pub(super) fn reload(error: &Error) -> ApiError {
    if let Some(ConfigError::Read { .. }) = error.downcast_ref() {
        return ApiError::new(StatusCode::CONFLICT, "no_file", format!("{error:#}"));
    }
    match error.downcast_ref::<JoinError>() {
        Some(_) => broken(&format!("{error:#}")),
        None => invalid(error),
    }
}

/// A change that was kept, could not be put into effect, and was taken out of the store again, if that could
/// be done.
pub(super) fn not_in_effect(error: &Error, back: Result<()>) -> ApiError {
    match back {
        Ok(()) => invalid(error),
        Err(back) => broken(&format!(
            "the change is not in effect ({error:#}), but it is in the store, which cannot be written any \
             more ({back:#}): the next start tries it again"
        )),
    }
}

fn invalid(error: &Error) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};
    use kvasir_config::{Change, Config};
    use serde_json::json;

    use super::*;
    use crate::bad_key::bad_key;

    #[test]
    fn what_shows_in_use_names_the_field_of_what_was_sent() {
        let file = "pools: [{model: a, endpoints: [{url: 'http://x:1'}]}, {model: m, endpoints: [{url: 'http://y:1'}]}]";
        let config = Config::parse("f", file).unwrap();
        let made = json!({"model": "m", "endpoints": [{"url": "http://y:1"}]});
        let place = Change::CreatePool(made).place_in(&config);
        let error = Err::<(), _>(bad_key("pools[1].tokenizer_dir", "no such directory"));
        let refused = change(&error.context("setting up").unwrap_err(), &place);
        assert_eq!((refused.status.as_u16(), refused.code), (422, "invalid"));
        assert_eq!(refused.field.as_deref(), Some("tokenizer_dir"));
        assert_eq!(refused.message, "no such directory");
        assert_eq!(change(&anyhow!("other"), &place).field, None);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_and_a_fault_are_no_bad_values() {
        let gone = Config::load_with_text(std::path::Path::new("/nowhere/f")).unwrap_err();
        let refused = reload(&gone.into());
        assert_eq!((refused.status.as_u16(), refused.code), (409, "no_file"));
        let broke = tokio::spawn(async { panic!("a test") }).await.unwrap_err();
        let refused = reload(&Error::from(broke).context("reading"));
        assert_eq!((refused.status.as_u16(), refused.code), (500, "internal"));
        assert_eq!(reload(&anyhow!("bad")).status.as_u16(), 422);
    }

    #[test]
    fn what_stays_in_the_store_is_said_to_be_there() {
        let refused = not_in_effect(&anyhow!("no swap"), Err(anyhow!("disk full")));
        assert_eq!(refused.status.as_u16(), 500);
        assert!(refused.message.contains("it is in the store"), "{refused}");
        let both = refused.message.contains("no swap") && refused.message.contains("disk full");
        assert!(both, "{refused}");
        assert_eq!(not_in_effect(&anyhow!("no swap"), Ok(())).status.as_u16(), 422);
    }
}
