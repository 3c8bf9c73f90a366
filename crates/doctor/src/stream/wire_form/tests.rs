//! Forms as publishers write them.

use kvasir_testkit::publisher::payload::{Form, batch, cleared, encode, stored};

use super::*;

#[test]
fn arrays_and_maps_are_told_apart() {
    let events = |count| vec![stored(&[1], None, &[7; 16]); count];
    // Headers of one, three and five bytes.
    for count in [1, 15, 16, 70_000] {
        assert_eq!(of(&batch(Form::Array, 1.5, &events(count))), Some(EventForm::Array));
        assert_eq!(of(&batch(Form::Map, 1.5, &events(count))), Some(EventForm::Map));
    }
    assert_eq!(of(&batch(Form::Map, 0.0, &[cleared()])), Some(EventForm::Map));
    // A map whose header is wider than it need be, as vLLM writes it.
    let wide = [0x92, 0x07, 0x91, 0xde, 0x00, 0x01];
    assert_eq!(of(&wide), Some(EventForm::Map));
}

#[test]
fn nothing_else_is_a_form() {
    assert_eq!(of(&batch(Form::Map, 1.5, &[])), None);
    assert_eq!(of(&encode(&rmpv::Value::from("text"))), None);
    let whole = batch(Form::Map, 1.5, &[cleared()]);
    for cut in 0..12 {
        assert_eq!(of(&whole[..cut]), None, "{cut}");
    }
}
