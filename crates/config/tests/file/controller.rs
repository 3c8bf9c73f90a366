//! The section `controller`.

use kvasir_config::SecretSource;

use crate::{SMALL, parse};

#[test]
fn no_controller_is_followed_unless_it_is_asked_for() {
    assert_eq!(parse(SMALL).unwrap().controller, None);
    let controller = parse(&format!("{SMALL}controller: {{address: 'c:18856'}}\n")).unwrap();
    let controller = controller.controller.unwrap();
    assert_eq!((&*controller.address, controller.token_source()), ("c:18856", None));
    let times = (controller.decay_ms, controller.hysteresis_ms, controller.ack_timeout_ms);
    assert_eq!((times, controller.apply_jitter_percent), ((30_000, 5_000, 10_000), 10));
}

#[test]
fn every_key_is_taken() {
    let model = parse(SMALL).unwrap().pools[0].model.clone();
    let text = format!(
        "{SMALL}controller: {{address: '[::1]:1', tls: {{ca_file: /ca}}, token_env: T, gateway_id: g, \
         services: [{{key: '10.0.0.1:80:tcp', pool: {model}}}], decay_ms: 100, hysteresis_ms: 0, \
         ack_timeout_ms: 1, apply_jitter_percent: 0}}\n"
    );
    let controller = parse(&text).unwrap().controller.unwrap();
    assert_eq!(controller.token_source(), Some(SecretSource::Env("T")));
    assert_eq!(
        (&*controller.services[0].key, &controller.services[0].pool),
        ("10.0.0.1:80:tcp", &model)
    );
}

#[test]
fn what_cannot_be_is_said_with_its_key() {
    let model = parse(SMALL).unwrap().pools[0].model.clone();
    let twice = format!("services: [{{key: k, pool: {model}}}, {{key: k, pool: {model}}}]");
    for (rest, why) in [
        ("", "controller.address: `` is not host:port"),
        ("http://c:1", "controller.address: `http://c:1` is not host:port"),
        ("c", "controller.address: `c` is not host:port"),
        ("c:0", "controller.address: `c:0` is not"),
        ("u@c:1", "controller.address: `u@c:1` is not"),
    ] {
        let error = parse(&format!("{SMALL}controller: {{address: '{rest}'}}\n")).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    for (rest, why) in [
        ("token: short", "controller.token: a key has 8 to 512"),
        ("token_env: A, token_file: b", "controller.token: give one of"),
        ("gateway_id: ''", "controller.gateway_id: must have 1 to 256 bytes"),
        ("tls: {cert_file: /c}", "controller.tls.key_file: is needed"),
        (
            "services: [{key: k, pool: nobody}]",
            "controller.services[0].pool: there is no pool `nobody`",
        ),
        (&*twice, "controller.services[1].key: `k` is there twice"),
        ("decay_ms: 99", "controller.decay_ms: must be from 100 to 3600000"),
        ("apply_jitter_percent: 101", "controller.apply_jitter_percent: must be from 0 to 100"),
    ] {
        let error = parse(&format!("{SMALL}controller: {{address: 'c:1', {rest}}}\n")).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}
