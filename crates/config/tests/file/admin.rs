//! The section `admin`, the token for decision headers, and what a running gateway cannot change.

use kvasir_config::{Config, SecretSource};

use crate::{SMALL, error, parse};

fn with(admin: &str) -> Config {
    parse(&format!("{SMALL}{admin}\n")).unwrap()
}

#[test]
fn there_is_no_admin_port_unless_it_is_asked_for() {
    assert_eq!(parse(SMALL).unwrap().admin, None);
    let admin = with("admin: {}").admin.unwrap();
    assert_eq!(admin.listen.to_string(), "127.0.0.1:8081");
    assert!(!admin.is_exposed());
    assert_eq!((admin.read_token_source(), admin.write_token_source()), (None, None));
}

#[test]
fn every_key_of_the_admin_port_is_taken() {
    let config = with(
        "
admin:
  listen: 0.0.0.0:9
  read_token_env: READ
  write_token_file: /write
  tls: {cert_file: /crt, key_file: /key}
  store: /var/lib/kvasir/admin.redb
  audit_log: /var/log/kvasir/audit.log",
    );
    let admin = config.admin.unwrap();
    assert!(admin.is_exposed());
    assert_eq!(admin.read_token_source(), Some(SecretSource::Env("READ")));
    let write = admin.write_token_source();
    assert_eq!(write, Some(SecretSource::File("/write".as_ref())));
    assert_eq!(admin.tls.unwrap().cert_file.as_os_str(), "/crt");
    assert_eq!(admin.store.unwrap().as_os_str(), "/var/lib/kvasir/admin.redb");
    assert_eq!(admin.audit_log.unwrap().as_os_str(), "/var/log/kvasir/audit.log");
    for (address, exposed) in [("'[::1]:1'", false), ("'[::ffff:127.0.0.1]:1'", false)] {
        let admin = with(&format!("admin: {{listen: {address}}}")).admin.unwrap();
        assert_eq!(admin.is_exposed(), exposed, "{address}");
    }
}

#[test]
fn what_is_wrong_with_tokens_is_located_and_not_shown() {
    for (text, expected) in [
        (
            "admin: {listen: '0.0.0.0:1'}",
            "admin.read_token: is needed where `listen` is no loopback",
        ),
        (
            "admin: {listen: '[2001:db8::1]:1', write_token: very-secret}",
            "admin.read_token: is needed where",
        ),
        ("admin: {read_token: secret}", "admin.read_token: a key has 8 to 512"),
        ("admin: {write_token: 'my secret words'}", "admin.write_token: a key has 8 to 512"),
        (
            "admin: {write_token: very-secret, read_token: very-secret}",
            "admin.write_token: is that",
        ),
        (
            "admin: {write_token: very-secret, write_token_env: W}",
            "admin.write_token: give one of `write_token`, `write_token_env`, `write_token_file`",
        ),
        ("admin: {read_token_env: A, read_token_file: b}", "admin.read_token: give one of"),
        ("admin: {listen: '127.0.0.1:8080'}", "admin.listen: 127.0.0.1:8080 is where clients"),
        ("admin: {store: ''}", "admin.store: the file must have a name"),
        ("decision_headers_token: secret", "decision_headers_token: a key has 8 to 512"),
        (
            "decision_headers_token: very-secret\ndecision_headers_token_file: f",
            "decision_headers_token: give one of `decision_headers_token`,",
        ),
    ] {
        let message = error(&format!("{SMALL}{text}\n"));
        assert!(
            crate::unplaced(&message).starts_with(&format!("kvasir.yaml: {expected}")),
            "{text}: {message}"
        );
        assert!(!message.contains("very-secret") && !message.contains("words"), "{message}");
    }
}

#[test]
fn the_token_for_decision_headers_is_found_in_its_three_places() {
    assert_eq!(parse(SMALL).unwrap().decision_headers_token_source(), None);
    let given = with("decision_headers_token: debug-token");
    let read = given.decision_headers_token_source().unwrap().read_token("x").unwrap();
    assert_eq!(read.expose(), "debug-token");
    let env = with("decision_headers_token_env: D");
    assert_eq!(env.decision_headers_token_source(), Some(SecretSource::Env("D")));
    let file = with("decision_headers_token_file: d");
    assert_eq!(file.decision_headers_token_source(), Some(SecretSource::File("d".as_ref())));
}

#[test]
fn tokens_of_the_admin_port_change_while_it_runs_and_the_rest_does_not() {
    let started = with("admin: {listen: '127.0.0.1:1', read_token: first-token}");
    let mut config = with("admin: {listen: '127.0.0.1:2', store: /s, write_token: write-token}");
    assert_eq!(config.hold_fixed(&started), ["admin.listen", "admin.store"]);
    let admin = config.admin.unwrap();
    assert_eq!((admin.listen.port(), &admin.store, &admin.read_token), (1, &None, &None));
    assert_eq!(admin.write_token.unwrap().expose(), "write-token");

    let mut config = parse(SMALL).unwrap();
    assert_eq!(config.hold_fixed(&started), ["admin"]);
    assert_eq!(config.admin, started.admin);
    let mut config = started.clone();
    assert_eq!(config.hold_fixed(&parse(SMALL).unwrap()), ["admin"]);
    assert_eq!(config.admin, None);
}

#[test]
fn a_port_that_goes_on_listening_to_the_world_keeps_its_token() {
    let started = with("admin: {listen: '0.0.0.0:1', read_token: first-token}");
    let mut config = with("admin: {listen: '127.0.0.1:2', write_token: write-token}");
    assert_eq!(config.hold_fixed(&started), ["admin.listen", "admin"]);
    assert_eq!(config.admin, started.admin);
}
