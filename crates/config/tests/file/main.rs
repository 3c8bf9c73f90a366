//! What a configuration file may say, and what is said about a wrong one.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

mod admin;
mod admission;
mod bounds;
mod controller;
mod disaggregation;
mod engine_side;
mod examples;
mod hostile;
mod names;
mod parse;
mod schema;
mod shown;
mod words;

use kvasir_config::{Config, ConfigError};

const SMALL: &str = "pools: [{model: m, endpoints: [{url: 'http://a:8000'}]}]\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse("kvasir.yaml", text)
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// An error without the line and column that it must have.
fn unplaced(message: &str) -> String {
    let file = "kvasir.yaml:";
    let place = message.strip_prefix(file).and_then(|rest| rest.split_once(": "));
    let (place, rest) = place.unwrap_or_else(|| panic!("no place: {message}"));
    let numbers = place.split(':').filter(|number| number.parse::<u64>().is_ok());
    assert_eq!(numbers.count(), 2, "no place: {message}");
    format!("{file} {rest}")
}
