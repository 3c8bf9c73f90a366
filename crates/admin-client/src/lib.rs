//! A client of a gateway's admin API (`docs/admin-api.md`).
//!
//! Every question has a deadline and every answer a bound. What is no answer of an admin API is told
//! from one that says no, and a route that the gateway does not have from a thing that is not there:
//! the API's own document says which routes it has.

mod client;
mod document;
mod error;
mod path;

pub use self::client::{AdminClient, BadToken};
pub use self::error::{AskError, Refusal};
pub use self::path::ApiPath;
