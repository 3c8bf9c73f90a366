//! Messages of every call, byte by byte, as another implementation of protobuf writes them; and that the
//! code is of the contract.

use kvasir_advice::wire::aictrl::{
    Ack, AckResponse, AckStatus, EpEntry, EpState, Role, ServiceSnapshot, Snapshot, WatchRequest,
};
use prost::Message;
use sha2::{Digest, Sha256};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Both ways.
fn is_written<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, golden: &str) {
    assert_eq!(hex(&message.encode_to_vec()), golden);
    let bytes: Vec<u8> = (0..golden.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&golden[at..at + 2], 16).unwrap())
        .collect();
    assert_eq!(M::decode(&*bytes).unwrap(), *message);
}

#[test]
fn watching() {
    let request = WatchRequest { gateway_id: "gw-1".to_owned(), applier_version: 1 };
    is_written(&request, "0a0467772d311001");
    let entry = |ep_idx, addr: &str, role: Role, weight, state: EpState| EpEntry {
        ep_idx,
        ep_addr: addr.to_owned(),
        role: role as i32,
        weight,
        state: state as i32,
    };
    let snapshot = Snapshot {
        epoch: 300,
        boot_id: "b".to_owned(),
        staleness_deadline_unix_ms: 1_700_000_000_000,
        services: vec![ServiceSnapshot {
            service_key: "10.0.0.1:80:tcp".to_owned(),
            eps: vec![
                entry(0, "10.1.0.1:8000", Role::Prefill, 100, EpState::Active),
                entry(7, "", Role::Decode, 0, EpState::Disabled),
            ],
        }],
        min_applier_version: 1,
        nonce: "b-300".to_owned(),
    };
    let golden = "08ac021201621880d095ffbc3122300a0f31302e302e302e313a38303a746370\
                  1215120d31302e312e302e313a383030301801206428011206080718022803\
                  28013205622d333030";
    is_written(&snapshot, golden);
}

#[test]
fn acknowledging() {
    let ack = Ack {
        epoch: 300,
        nonce: "b-300".to_owned(),
        status: AckStatus::Rejected as i32,
        error_detail: "old_epoch: 1".to_owned(),
        gateway_id: "gw-1".to_owned(),
    };
    let golden = "08ac021205622d3330301802220c6f6c645f65706f63683a20312a0467772d31";
    is_written(&ack, golden);
    is_written(&AckResponse {}, "");
}

#[test]
fn values_of_words() {
    assert_eq!([Role::Unspecified, Role::Prefill, Role::Decode].map(|role| role as i32), [0, 1, 2]);
    let states = [EpState::Unspecified, EpState::Active, EpState::Draining, EpState::Disabled];
    assert_eq!(states.map(|state| state as i32), [0, 1, 2, 3]);
    let statuses = [AckStatus::Unspecified, AckStatus::Applied, AckStatus::Rejected];
    assert_eq!(statuses.map(|status| status as i32), [0, 1, 2]);
    assert_eq!(
        (Role::Prefill.as_str_name(), EpState::Active.as_str_name()),
        ("ROLE_PREFILL", "EP_STATE_ACTIVE")
    );
}

#[test]
fn generated_code_is_of_the_contract_as_it_is() {
    for (proto, code) in [
        (
            &include_bytes!("../../proto/aictrl.proto")[..],
            include_str!("../../src/generated/loxilb.aictrl.v1.rs"),
        ),
        (
            &include_bytes!("../../proto/health.proto")[..],
            include_str!("../../src/generated/grpc.health.v1.rs"),
        ),
    ] {
        let first = code.lines().next().unwrap();
        let digest = hex(&Sha256::digest(proto));
        assert!(
            first.contains(&digest),
            "`cargo xtask proto` makes it anew: {first} is not of {digest}"
        );
    }
}
