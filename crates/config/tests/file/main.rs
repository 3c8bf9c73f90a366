//! What a configuration file may say, and what is said about a wrong one.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

mod admin;
mod admission;
mod bounds;
mod controller;
mod disaggregation;
mod engine_side;
mod examples;
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
