//! The page of the documentation is the catalogue's.

use std::fs;
use std::path::Path;

#[test]
fn the_documentation_shows_the_catalogue() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = fs::read_to_string(path).unwrap_or_default();
    assert!(page == kvasir_metrics::document(), "docs/metrics.md differs: `cargo xtask metrics`");
}
