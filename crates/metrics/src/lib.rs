//! The catalogue of all metric families a gateway shows: name, kind, labels, unit and meaning, each said once.
//!
//! It records nothing and knows no recorder. What renders a page takes HELP and TYPE from here, what installs a
//! recorder its descriptions and buckets; `docs/metrics.md` is made of it (`cargo xtask metrics`), and a page
//! can be held against it ([`Page`]). Tests of this crate compare it with the sources, in both directions.

mod document;
mod families;
mod family;
mod page;
mod write;

pub use self::document::document;
pub use self::families::{GROUPS, Group, all, find};
pub use self::family::{Family, Kind, Label};
pub use self::page::{Page, Sample};
pub use self::write::{describe, header, sample};
