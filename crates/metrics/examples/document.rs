//! Writes the catalogue as a page of the documentation: `cargo xtask metrics` puts it where it belongs.

use std::io::{self, Write as _};

fn main() -> io::Result<()> {
    io::stdout().lock().write_all(kvasir_metrics::document().as_bytes())
}
