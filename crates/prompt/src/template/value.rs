//! Request values as template values.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, Value};

use super::python::float_repr;
use crate::json::Json;

/// A number whose text Python and minijinja print differently, or that fits no native type. It
/// prints as Python does; arithmetic with it is an error.
#[derive(Debug)]
pub(crate) struct PyNum(pub(crate) String);

impl Object for PyNum {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The template value of a request value.
pub(crate) fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Int(i) => match i64::try_from(*i) {
            Ok(i) => Value::from(i),
            Err(_) => Value::from(*i),
        },
        Json::BigInt(digits) => Value::from_object(PyNum(digits.clone())),
        Json::Float(f) => float(*f),
        Json::Str(s) => Value::from(s.as_str()),
        Json::List(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Json::Dict(fields) => {
            Value::from_pairs(fields.0.iter().map(|(k, v)| (Value::from(k.as_str()), from_json(v))))
        }
    }
}

/// A float, as an object where minijinja would print it otherwise than Python.
pub(crate) fn float(f: f64) -> Value {
    let text = float_repr(f);
    if text.contains(|c: char| c.is_ascii_alphabetic()) {
        Value::from_object(PyNum(text))
    } else {
        Value::from(f)
    }
}
