//! Signals that come while a gateway starts.

use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

use crate::harness::{ConfigFile, Gateway, SOON};

const HUP: u32 = 1;
const INT: u32 = 2;
const TERM: u32 = 15;

/// Whether the process has a handler for each of these signals, and they do not end it in the default
/// way.
fn catches(pid: u32, signals: &[u32]) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    signals.iter().all(|signal| mask & (1 << (signal - 1)) != 0)
}

/// From the first connection on there is something to be ended in good order.
#[test]
fn signals_are_waited_for_before_anybody_can_connect() {
    let text = "pools: [{model: m, token_parity: 'off', endpoints: [{url: 'http://127.0.0.1:9'}]}]";
    let file = ConfigFile::new(text);
    for _ in 0..5 {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (listen, path) = (free.to_string(), file.path().to_str().unwrap());
        let gateway = Gateway::begun(["--listen", &*listen, "--config", path]);
        let began = Instant::now();
        while TcpStream::connect(free).is_err() {
            assert!(began.elapsed() < SOON, "nobody listens");
        }
        assert!(catches(gateway.pid(), &[HUP, INT, TERM]), "a signal now would end it");
    }
}

/// To read the configuration anew is no reason to end, not even while it is read for the first time.
#[test]
fn a_hangup_while_the_configuration_is_read_does_not_end_it() {
    let file = ConfigFile::new("");
    std::fs::remove_file(file.path()).unwrap();
    assert!(Command::new("mkfifo").arg(file.path()).status().unwrap().success());
    let path = file.path().to_str().unwrap();
    let gateway = Gateway::begun(["--listen", "127.0.0.1:0", "--config", path]);
    // It waits for somebody to write: this one waits for it to read.
    let _writer = std::fs::OpenOptions::new().write(true).open(file.path()).unwrap();
    assert!(catches(gateway.pid(), &[HUP]));
}
