use super::*;

fn none() -> Option<Side> {
    None
}

fn set(faults: &Faults, wanted: &Value) -> Result<(), String> {
    faults.set(wanted.as_object().unwrap())
}

#[test]
fn settings_survive_the_round_trip() {
    let faults = Faults::default();
    for wanted in [
        json!({"events": "delay_ms:20", "http": "slow:30", "path": "/v1", "leg": "decode",
            "transfer": "slow:7", "lease": "expired", "gone": "garbage", "once": true, "keep_alive_ms": 5}),
        json!({"events": "drop", "http": "error:503", "path": "", "leg": "",
            "transfer": "ok", "lease": "ok", "gone": "ok", "once": false, "keep_alive_ms": null}),
        json!({"events": "duplicate", "http": "reset_mid_body", "path": "", "leg": "",
            "transfer": "ok", "lease": "ok", "gone": "ok", "once": false, "keep_alive_ms": null}),
        json!({"events": "ok", "http": "hang", "path": "", "leg": "",
            "transfer": "ok", "lease": "ok", "gone": "ok", "once": false, "keep_alive_ms": null}),
    ] {
        set(&faults, &wanted).unwrap();
        assert_eq!(faults.to_json(), wanted);
    }
    set(&faults, &json!({"http": "ok"})).unwrap();
    assert_eq!(faults.take_http("/x", none), HttpFault::None);
}

#[test]
fn wrong_settings_change_nothing() {
    let faults = Faults::default();
    for wanted in [
        json!({"events": "drop", "http": "error:200"}),
        json!({"events": "drop", "http": "slow:-1"}),
        json!({"events": "drop", "htpp": "hang"}),
        json!({"events": "drop", "once": 1}),
        json!({"events": "drop", "http": "slow:600001"}),
        json!({"events": "drop", "keep_alive_ms": "soon"}),
        json!({"events": "drop", "leg": "both"}),
        json!({"events": "drop", "transfer": "slow"}),
        json!({"events": "drop", "lease": true}),
        json!({"events": "drop", "gone": "away"}),
        json!({"events": 3}),
        json!({"events": "delay_ms:"}),
    ] {
        assert!(set(&faults, &wanted).is_err(), "{wanted}");
        assert_eq!(faults.take_event(), EventFault::None, "{wanted}");
    }
}

#[test]
fn once_is_once_for_each_and_only_on_the_path() {
    let faults = Faults::default();
    set(&faults, &json!({"events": "drop", "http": "hang", "path": "/v1", "once": true})).unwrap();
    assert_eq!(faults.take_http("/health", none), HttpFault::None);
    assert_eq!(faults.take_http("/v1/models", none), HttpFault::Hang);
    assert_eq!(faults.take_http("/v1/models", none), HttpFault::None);
    assert_eq!(faults.take_event(), EventFault::Drop);
    assert_eq!(faults.take_event(), EventFault::None);
}

#[test]
fn faults_of_transfers_and_legs() {
    let faults = Faults::default();
    set(&faults, &json!({"transfer": "fail", "lease": "expired", "once": true})).unwrap();
    assert!(faults.take_lease_expired() && !faults.take_lease_expired());
    assert_eq!(faults.take_transfer(), TransferFault::Fail);
    assert_eq!(faults.take_transfer(), TransferFault::None);
    set(&faults, &json!({"http": "reset", "leg": "prefill"})).unwrap();
    assert_eq!(faults.take_http("/v1", none), HttpFault::None);
    assert_eq!(faults.take_http("/v1", || Some(Side::Decode)), HttpFault::None);
    assert_eq!(faults.take_http("/v1", || Some(Side::Prefill)), HttpFault::Reset);
}
