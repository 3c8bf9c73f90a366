//! Versions and the generations they mean.

use super::*;

fn generation(text: &str) -> Result<Generation, ContractError> {
    Generation::of(text.parse()?)
}

#[test]
fn both_ends_of_every_generation() {
    use Generation::{A, B, C, D, E, F, G, H};
    for (first, last, expected) in [
        ("0.9.0", "0.10.1.1", A),
        ("0.10.2", "0.11.0", B),
        ("0.11.1", "0.16.0", C),
        ("0.17.0", "0.18.1", D),
        ("0.19.0", "0.28.0", E),
        ("0.29.0", "0.30.0", F),
        ("0.31.0", "0.32.0", G),
        ("0.33.0", "0.33.0", H),
    ] {
        assert_eq!(generation(first), Ok(expected));
        assert_eq!(generation(last), Ok(expected));
        assert_eq!(expected.first_release().to_string(), first);
    }
}

#[test]
fn versions_that_cannot_be_placed() {
    for (text, why) in [
        ("0.8.5", "older than 0.9"),
        ("0.33.1", "newer than 0.33.0"),
        ("0.34.0rc1", "newer than 0.33.0"),
        ("1.0", "newer than 0.33.0"),
        ("0.18.2rc1.dev200+gabcdef", "development build"),
        ("0.22.1.dev5", "development build"),
        ("0.19.0rc1", "pre-release"),
        ("0.24.0rc2", "pre-release"),
    ] {
        let message = generation(text).unwrap_err().to_string();
        assert!(message.contains(why), "{text}: {message}");
    }
    // A pre-release far from any change is placed with its neighbours.
    assert_eq!(generation("0.26.0rc1"), Ok(Generation::E));
}
