//! The JSON schema of the file, as it is published. Written by hand, since half of the types read more
//! than one form and bounds are not in types; tests hold it against what the parser takes.

/// The schema, draft 2020-12.
pub const SCHEMA: &str = include_str!("../../../docs/config-schema.json");
