//! What a pool that splits requests says of itself.

use super::Pool;
use crate::endpoint::Endpoint;
use crate::split::Protocol;

impl Pool {
    /// How the KV of a prompt computed at `endpoint` is handed over; `None` where that is not known,
    /// or the pool does not split requests.
    #[must_use]
    pub fn protocol(&self, endpoint: &Endpoint) -> Option<Protocol> {
        match self.split()?.protocol {
            Protocol::Auto => Protocol::of_kind(endpoint.card()?.kind),
            protocol => Some(protocol),
        }
    }

    /// The code of the error where nobody can serve a request.
    #[must_use]
    pub fn unavailable_code(&self) -> &'static str {
        if self.split.is_some() { "pd_pool_unavailable" } else { "no_endpoint" }
    }
}
