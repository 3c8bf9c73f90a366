use super::*;

fn resolved(published: &str, host: &str) -> String {
    Address::resolve(published, host).unwrap().to_string()
}

#[test]
fn wildcards_stand_for_the_urls_host() {
    for wild in ["*", "0.0.0.0", "::", "[::]", "[::ffff:0.0.0.0]", "[0:0:0:0:0:0:0:0]"] {
        let published = format!("tcp://{wild}:5557");
        assert_eq!(resolved(&published, "10.1.2.3"), "tcp://10.1.2.3:5557", "{wild}");
        assert_eq!(resolved(&published, "engine-0.ns.svc"), "tcp://engine-0.ns.svc:5557");
        assert_eq!(resolved(&published, "fd00::7"), "tcp://[fd00::7]:5557");
        assert_eq!(resolved(&published, "[fd00::7]"), "tcp://[fd00::7]:5557");
        assert!(Address::parse(&published).unwrap().is_wildcard());
    }
}

#[test]
fn other_addresses_stay_as_they_are() {
    for text in [
        "tcp://127.0.0.1:5557",
        "tcp://[::ffff:127.0.0.1]:5557",
        "tcp://[::1]:65535",
        "tcp://[fe80::1%eth0]:5557",
        "tcp://engine_0.local:1",
        "ipc:///run/engine/events.sock",
        "ipc://@abstract",
    ] {
        assert_eq!(resolved(text, "10.0.0.1"), text);
        assert_eq!(Address::parse(text).unwrap().to_string(), text);
        assert!(!Address::parse(text).unwrap().is_wildcard());
    }
}

#[test]
fn bad_text_is_told_apart() {
    let error = |text: &str| Address::parse(text).unwrap_err();
    for text in ["", "5557", "http://a:1", "inproc://x", "tcp:/a:1", "TCP://a:1"] {
        assert_eq!(error(text), EndpointError::Scheme(text.to_owned()));
    }
    for text in ["tcp://a", "tcp://a:", "tcp://a:0", "tcp://a:*", "tcp://a:65536", "tcp://a:+1"] {
        assert_eq!(error(text), EndpointError::Port(text.to_owned()));
    }
    for text in [
        "tcp://:1",
        "tcp://a b:1",
        "tcp://a\0:1",
        "tcp://[::1:1",
        "tcp://a;b:1",
        "tcp://[x]:1",
        "tcp://-a:1",
    ] {
        assert_eq!(error(text), EndpointError::Host(text.to_owned()));
    }
    for text in ["ipc://", "ipc://*", "ipc://a\0b", &format!("ipc://{}", "a".repeat(108))] {
        assert_eq!(error(text), EndpointError::Path(text.to_owned()));
    }
    let long = format!("tcp://{}:1", "a".repeat(300));
    assert_eq!(error(&long), EndpointError::Length(long.len()));
    for host in ["", "a b", "*", "0.0.0.0", "[::]"] {
        let got = Address::resolve("tcp://*:5557", host).unwrap_err();
        assert_eq!(got, EndpointError::Host(host.to_owned()));
    }
}

#[test]
fn ranks_count_ports_up() {
    let base = Address::parse("tcp://10.0.0.1:5557").unwrap();
    assert_eq!(base.for_rank(0).unwrap(), base);
    assert_eq!(base.for_rank(3).unwrap().to_string(), "tcp://10.0.0.1:5560");
    assert!(base.for_rank(60_000).is_err());
    assert!(base.for_rank(u32::MAX).is_err());
    let path = Address::parse("ipc:///run/kv").unwrap();
    assert_eq!(path.for_rank(0).unwrap(), path);
    assert!(path.for_rank(1).is_err(), "two ranks would be one stream twice");
}
