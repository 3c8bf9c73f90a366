//! The published examples, whole and mangled.

use std::path::PathBuf;

use kvasir_config::{Config, ConfigError};
use proptest::prelude::*;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// A page of the documentation.
pub(crate) fn docs(name: &str) -> String {
    std::fs::read_to_string(directory().join(name)).unwrap()
}

/// Every example by its name.
pub(crate) fn examples() -> Vec<(String, String)> {
    let found = std::fs::read_dir(directory().join("examples")).unwrap();
    let mut examples: Vec<(String, String)> = found
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    examples.sort();
    examples
}

#[test]
fn every_example_is_sound_linked_and_written_out_the_same() {
    let (examples, page) = (examples(), docs("configuration.md"));
    assert!(examples.len() >= 5);
    for (name, text) in examples {
        let config = Config::parse(&name, &text).unwrap_or_else(|error| panic!("{error}"));
        assert!(page.contains(&format!("(examples/{name})")), "{name} is not linked");
        assert_eq!(Config::parse(&name, &config.to_yaml().unwrap()).unwrap(), config);
    }
}

/// Whether an error says where.
pub(crate) fn is_located(error: &ConfigError, text: &str) -> bool {
    let lines = text.lines().count() as u64;
    let within = |place: &Option<(u64, u64)>| {
        place.map_or(text.trim().is_empty(), |(line, _)| (1..=lines + 1).contains(&line))
    };
    match error {
        ConfigError::Syntax { place, message, .. } => !message.is_empty() && within(place),
        ConfigError::Meaning { place, key, message, .. } => {
            !key.is_empty() && !message.is_empty() && (place.is_none() || within(place))
        }
        ConfigError::Read { .. } | ConfigError::Variable { .. } => false,
    }
}

const PIECES: [&str; 22] = [
    "",
    "-1",
    "18446744073709551616",
    "1e400",
    ".nan",
    "null",
    "~",
    "[",
    "]",
    "{",
    "}",
    "*a",
    "&a ",
    ": ",
    "\n",
    "  ",
    "\t",
    "- ",
    "'",
    "\"",
    "!!binary ",
    "\u{feff}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_mangled_example_is_taken_or_its_fault_located(
        which in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..12, prop::sample::select(&PIECES[..])), 1..4),
        word in "[a-z_]{0,12}|[ -~]{0,8}|\\PC{0,4}",
        places_word in any::<bool>(),
    ) {
        let examples = examples();
        let (_, text) = which.get(&examples);
        let mut text: Vec<char> = text.chars().collect();
        for (place, length, piece) in cuts {
            let from = place.index(text.len() + 1);
            let to = (from + length).min(text.len());
            let piece = if places_word { word.as_str() } else { piece };
            text.splice(from..to, piece.chars());
        }
        let text: String = text.into_iter().collect();
        match Config::parse("f", &text) {
            Ok(config) => {
                let written = config.to_yaml().unwrap();
                prop_assert!(Config::parse("f", &written).is_ok(), "{text}\n---\n{written}");
            }
            Err(error) => prop_assert!(is_located(&error, &text), "{error}\n---\n{text}"),
        }
    }
}
