//! Filters that give generators in Jinja2: walked over once, without a length, true even when empty.

use std::borrow::Cow;

use minijinja::value::{Rest, Value, ValueOrKwargs};
use minijinja::{Environment, Error, State, filters};

type Args = Rest<ValueOrKwargs>;
type Name<'a> = Cow<'a, str>;

/// Replaces minijinja's filters, which give lists.
pub(crate) fn install(env: &mut Environment<'_>) {
    env.add_filter("map", |state: &mut State<'_, '_>, value: Value, args: Args| {
        generator(filters::map(state, value, args))
    });
    env.add_filter(
        "select",
        |state: &mut State<'_, '_>, value: Value, test: Option<Name<'_>>, args: Args| {
            generator(filters::select(state, value, test, args))
        },
    );
    env.add_filter(
        "reject",
        |state: &mut State<'_, '_>, value: Value, test: Option<Name<'_>>, args: Args| {
            generator(filters::reject(state, value, test, args))
        },
    );
    env.add_filter("selectattr", selectattr);
    env.add_filter("rejectattr", rejectattr);
}

fn selectattr(
    state: &mut State<'_, '_>,
    value: Value,
    attribute: Name<'_>,
    test: Option<Name<'_>>,
    args: Args,
) -> Result<Value, Error> {
    generator(filters::selectattr(state, value, attribute, test, args))
}

fn rejectattr(
    state: &mut State<'_, '_>,
    value: Value,
    attribute: Name<'_>,
    test: Option<Name<'_>>,
    args: Args,
) -> Result<Value, Error> {
    generator(filters::rejectattr(state, value, attribute, test, args))
}

fn generator(items: Result<Vec<Value>, Error>) -> Result<Value, Error> {
    Ok(Value::make_one_shot_iterator(items?.into_iter()))
}
