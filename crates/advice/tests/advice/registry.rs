//! Registries: both forms, and what is wrong with others, with its place.

use std::time::Duration;

use kvasir_advice::registry::{HostRole, HostState, Registry};

/// As published, but for the documentation's placeholder of a GPU.
const SAMPLE: &str = r#"service:
  key: "10.10.10.254:8080:tcp"   # <vip>:<port>:<proto>
  vip: "10.10.10.254"
  port: 8080
epoch_period_sec: 10             # staleness deadline = 3x epoch
hosts:
  ep0:
    gpu_model: "<gpu>"
    hbm_gb: 80
    role: prefill
    port: 8000
    ep_idx: 0
    expected_num_gpu_blocks: 8192   # calibration fingerprint
    serving_throughput_prior: 1.0
  ep2:
    gpu_model: "<gpu>"
    hbm_gb: 40
    role: prefill
    port: 8000
    ep_idx: 1
    expected_num_gpu_blocks: 4096
    serving_throughput_prior: 0.5
"#;

const STRICT: &str = r#"version: 1
service: {key: "192.0.2.1:80:tcp", vip: 192.0.2.1, port: 80}
epoch_period_sec: 2.5
hosts:
  "10.0.0.2":
    gpu_model: L40S
    hbm_gb: 48
    role: decode
    port: 8001
    ep_idx: 3
    expected_num_gpu_blocks: 100
    serving_throughput_prior: 2
    calibration:
      throughput_tokens_per_sec: 900.5
      throughput_ratio: 0.5
      fingerprint: 0123456789abcdef
      fingerprint_fields: {gpu_sku: L40S, num_gpu_blocks: 100, block_size: 16}
      measured_date: "2026-11-01"
      harness_version: "1"
"#;

#[test]
fn the_published_sample_loads_without_addresses() {
    let registry = Registry::parse("sample.yaml", SAMPLE).unwrap();
    assert_eq!(registry.service_key, "10.10.10.254:8080:tcp");
    assert_eq!(registry.epoch, Duration::from_secs(10));
    let shown: Vec<_> = registry
        .hosts
        .iter()
        .map(|host| {
            (&*host.name, host.ep_idx, host.expected_blocks, host.prior, host.address.clone())
        })
        .collect();
    assert_eq!(shown, [("ep0", 0, 8192, 1.0, None), ("ep2", 1, 4096, 0.5, None)]);
    assert!(registry.hosts.iter().all(|host| host.role == HostRole::Prefill));
}

#[test]
fn the_strict_form_has_addresses_and_calibrations() {
    let registry = Registry::parse("strict.yaml", STRICT).unwrap();
    assert_eq!(registry.epoch, Duration::from_millis(2500));
    let [host] = &registry.hosts[..] else { panic!("{registry:?}") };
    assert_eq!(host.address.as_deref(), Some("10.0.0.2:8001"));
    assert_eq!((host.role, host.state), (HostRole::Decode, HostState::Active));
    let calibration = host.calibration.as_ref().unwrap();
    assert_eq!((calibration.tokens_per_sec, calibration.ratio), (Some(900.5), Some(0.5)));
    assert_eq!(calibration.fingerprint.as_deref(), Some("0123456789abcdef"));
    assert_eq!(calibration.fields.len(), 3);
}

#[test]
fn hosts_of_the_sample_form_may_say_where_they_are() {
    let of = |line: &str| {
        let text = SAMPLE.replace("    ep_idx: 1\n", &format!("    ep_idx: 1\n    {line}\n"));
        Registry::parse("f", &text).unwrap().hosts[1].clone()
    };
    assert_eq!(of("address: 10.0.0.9").address.as_deref(), Some("10.0.0.9:8000"));
    assert_eq!(of("address: gpu-9.example").address.as_deref(), Some("gpu-9.example:8000"));
    assert_eq!(of("address: '2001:db8::1'").address.as_deref(), Some("[2001:db8::1]:8000"));
    assert_eq!(of("state: draining").state, HostState::Draining);
    let by_ip = SAMPLE.replace("  ep2:", "  10.0.0.7:");
    let registry = Registry::parse("f", &by_ip).unwrap();
    assert_eq!(registry.hosts[1].address.as_deref(), Some("10.0.0.7:8000"));
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_key() {
    // What is put in the place of what, and what the error must say.
    let sample: [(&str, &str, &str); 16] = [
        ("epoch_period_sec: 10 ", "epoch_period_sec: 0 ", "f:5:19: epoch_period_sec: 0 is not"),
        ("epoch_period_sec: 10 ", "epoch_period_sec: .nan ", "f:5:19: epoch_period_sec: NaN"),
        ("epoch_period_sec: 10 ", "epoch_period_sec: soon ", "f:5:"),
        ("epoch_period_sec", "epoch_period", "f:5:"),
        ("\"10.10.10.254:8080:tcp\"", "''", "f:2:8: service.key: must have"),
        ("vip: \"10.10.10.254\"", "vip: here", "f:3:8: service.vip: `here` is no IP"),
        ("port: 8080", "port: 0", "f:4:9: service.port: 0 is not 1 to 65535"),
        ("ep_idx: 1", "ep_idx: 0", "ep_idx: 0 is that of `ep0`, too"),
        ("ep_idx: 1", "ep_idx: -1", "f:20:"),
        ("hbm_gb: 40", "hbm_gb: 0", "f:17:13: hosts.ep2.hbm_gb: 0 is not above 0"),
        ("_blocks: 4096", "_blocks: 0", "f:21:30: hosts.ep2.expected_num_gpu_blocks: must be"),
        ("prior: 0.5", "prior: -0.5", "f:22:31: hosts.ep2.serving_throughput_prior: -0.5"),
        ("prior: 0.5", "prior: .inf", "f:22:31: hosts.ep2.serving_throughput_prior: inf"),
        ("  ep2:", "  ep0:", "f:15:"),
        ("    serving_throughput_prior: 0.5\n", "", "f:"),
        ("service:\n", "server:\n", "f:1:"),
    ];
    let strict: [(&str, &str, &str); 9] = [
        ("version: 1", "version: 2", "f:1:10: version: is 2; 1 is known"),
        ("epoch_period_sec: 2.5\n", "", "f:2:10: epoch_period_sec: is needed"),
        ("\"10.0.0.2\":", "ep0:", "hosts.ep0: is no IP address"),
        ("role: decode", "role: Decoder", "f:8:11: hosts.10.0.0.2.role: `Decoder` is none of"),
        ("port: 8001", "port: 80010", "f:9:11: hosts.10.0.0.2.port: 80010 is not"),
        ("port: 8001", "port: 8001\n    state: off", "f:10:"),
        ("0123456789abcdef", "0123", "f:16:20: hosts.10.0.0.2.calibration.fingerprint: must be 16"),
        ("throughput_ratio: 0.5", "throughput_ratio: 0", "calibration.throughput_ratio: 0 is not"),
        (
            "    gpu_model: L40S",
            "    address: 'a b'\n    gpu_model: L40S",
            "hosts.10.0.0.2.address: `a b`",
        ),
    ];
    let cases =
        sample.iter().map(|case| (SAMPLE, case)).chain(strict.iter().map(|case| (STRICT, case)));
    for (text, (from, to, wanted)) in cases {
        assert!(text.contains(from), "{from}");
        // The last place: of hosts the second.
        let at = text.rfind(from).unwrap();
        let broken = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
        let error = Registry::parse("f", &broken).unwrap_err().to_string();
        assert!(error.starts_with("f:") && error.contains(wanted), "{to}: {error}");
    }
    let fields = "      fingerprint_fields: {gpu_sku: L40S, num_gpu_blocks: 100, block_size: 16}\n";
    let error = Registry::parse("f", &STRICT.replace(fields, "")).unwrap_err().to_string();
    assert!(error.contains("says nothing without `fingerprint_fields`"), "{error}");
    let error = Registry::parse("f", "service: {key: a}\nhosts: {}\n").unwrap_err().to_string();
    assert!(error.starts_with("f:2:8: hosts: has 0"), "{error}");
    for text in ["", "[", "hosts: 3", "\u{0}", "a: &a [*a]"] {
        assert!(Registry::parse("f", text).unwrap_err().to_string().starts_with("f:"), "{text:?}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Registry::load("/nowhere/registry.yaml".as_ref()).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/registry.yaml: "), "{error}");
}
