//! Temporary.
#![allow(clippy::unwrap_used, missing_docs)]
use kvasir_kv_events::{Address, Subscriber, SubscriberConfig, Update};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions};
use std::time::{Duration, Instant};

#[test]
fn repro() {
    let mut slow = 0;
    for n in 0..60 {
        let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
        let address = Address::resolve(&publisher.endpoint(), "127.0.0.1").unwrap();
        let mut config = SubscriberConfig::new(address);
        config.replay = Some(Address::resolve(&publisher.replay_endpoint().unwrap(), "127.0.0.1").unwrap());
        let mut sub = Subscriber::spawn(config).unwrap();
        let wait = |sub: &mut Subscriber, want: &str| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(8) {
                match sub.try_recv() {
                    Some(Update::Forget { why, .. } | Update::Trust { why, .. }) if why.as_str() == want => return true,
                    Some(u) => eprintln!("{n}: {u:?}"),
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
            false
        };
        if !wait(&mut sub, "joined") {
            eprintln!("{n}: not joined: {}", publisher.endpoint());
            let out = std::process::Command::new("ss").args(["-tanp"]).output().unwrap();
            let port = publisher.endpoint().rsplit(':').next().unwrap().to_owned();
            for line in String::from_utf8_lossy(&out.stdout).lines().filter(|l| l.contains(&port)) { eprintln!("{line}"); }
            panic!();
        }
        publisher.go_down();
        assert!(wait(&mut sub, "disconnected"));
        std::thread::sleep(Duration::from_millis(n % 12));
        publisher.come_up();
        if !wait(&mut sub, "connected") {
            slow += 1;
            let port = publisher.endpoint();
            eprintln!("{n}: not reconnected to {port}, subs {}", publisher.subscriptions());
            let out = std::process::Command::new("ss").args(["-tanp"]).output().unwrap();
            let port = port.rsplit(':').next().unwrap().to_owned();
            for line in String::from_utf8_lossy(&out.stdout).lines().filter(|l| l.contains(&port)) { eprintln!("{line}"); }
        }
    }
    assert_eq!(slow, 0);
}
