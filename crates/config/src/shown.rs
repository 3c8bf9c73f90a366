//! A configuration, or a part of one, as it is shown: with the defaults and without the secrets.

use serde::Serialize;
use serde_json::Value;

/// As JSON, secrets as `***`, keys without a value left out. Only of this crate's types: others may
/// have secrets that show themselves.
///
/// # Errors
/// When a value cannot be written, which none of them is known to be.
pub fn shown<T: Serialize>(part: &T) -> Result<Value, serde_json::Error> {
    let mut tree = serde_json::to_value(part)?;
    prune(&mut tree);
    Ok(tree)
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune);
        }
        Value::Array(list) => list.iter_mut().for_each(prune),
        _ => {}
    }
}
