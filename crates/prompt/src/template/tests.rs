use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;
use crate::json;

#[derive(Deserialize)]
struct Expressions<'a> {
    #[serde(borrow)]
    context: &'a RawValue,
    cases: Vec<Expression>,
}

#[derive(Deserialize)]
struct Expression {
    t: String,
    out: Option<String>,
}

/// Expressions that differ from Jinja2, and why. An entry that starts to match fails the test.
const OPEN: &[(&str, &str)] = &[
    (r#"{{ '%s has %d' % ("user", s | length) }}"#, "the % operator on strings"),
    ("{{ 'a%sb' % 'x' }}", "the % operator on strings"),
    ("{{ d['items'] is defined }}", "a dict's methods are no items here"),
    ("{{ 1 < 'a' }}", "comparing unlike types is no error here"),
    ("{{ '%05.1f|%x|%s|%r' | format(3.14159, 255, none, 'q') }}", "%r"),
    ("{{ d | xmlattr }}", "no such filter"),
    ("{{ 'x' | filesizeformat if false else 1000 | filesizeformat }}", "no such filter"),
    ("{{ d | pprint }}", "another layout"),
    ("{{ 'a  b' | wordwrap(2) }}", "no such filter"),
    ("{{ '<p>x</p>' | striptags }}", "no such filter"),
    ("{{ messages | groupby('role') }}", "groups are lists, not tuples"),
    (
        "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 3, 4, c=5) }}",
        "no varargs and kwargs of macros",
    ),
    (
        "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}",
        "a macro's default cannot name another argument",
    ),
    ("{{ d.items() }}", "views print as lists"),
    ("{{ s.encode('utf-8') }}", "no such method"),
    ("{{ s.translate({}) }}", "no such method"),
    ("{{ range(3) | tojson }}", "ranges and generators are sequences here"),
    ("{{ self is defined }}", "no self"),
    ("{{ +1 }}", "no unary plus"),
];

fn frozen() -> CivilTime {
    CivilTime { year: 2025, month: 3, day: 9, hour: 14, minute: 5, second: 7, microsecond: 0 }
}

fn render(source: &str, context: &Value) -> Result<String, String> {
    Template::compile(source, Arc::new(frozen))?.render(context.clone())
}

#[test]
fn expressions_as_in_jinja2() {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/chat-golden/jinja-expressions.json");
    let text = std::fs::read_to_string(path).unwrap();
    let golden: Expressions<'_> = serde_json::from_str(&text).unwrap();
    let context = value::from_json(&json::parse(golden.context.get()).unwrap());
    let mut open: Vec<&(&str, &str)> = OPEN.iter().collect();
    let (mut wrong, mut equal) = (Vec::new(), 0);
    for case in &golden.cases {
        let got = render(&case.t, &context);
        let same = match (&case.out, &got) {
            (Some(want), Ok(got)) => want == got,
            (None, Err(_)) => true,
            _ => false,
        };
        if same {
            equal += 1;
        } else if let Some(at) = open.iter().position(|o| o.0 == case.t) {
            open.remove(at);
        } else {
            wrong.push(format!("{}\n    want {:?}\n    got  {got:?}", case.t, case.out));
        }
    }
    println!("{equal} of {} expressions equal", golden.cases.len());
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(open.is_empty(), "listed as open but equal now: {open:?}");
}

#[test]
fn compile_errors_have_a_line() {
    let error = Template::compile("a\n{% if %}\n", Arc::new(frozen)).unwrap_err();
    assert!(error.contains("line 2"), "{error}");
    let error = Template::compile("{{ x | no_such_filter }}", Arc::new(frozen))
        .and_then(|t| t.render(Value::from(1)))
        .unwrap_err();
    assert!(error.contains("no_such_filter") && error.contains("line 1"), "{error}");
}

#[test]
fn what_python_cannot_walk_over_fails() {
    for source in [
        "{% for x in 1 %}{% endfor %}",
        "{% for x in none %}{% endfor %}",
        "{% for x in true if x %}{% endfor %}",
        "{{ none | join }}",
        "{{ 1 | list }}",
    ] {
        assert!(render(source, &Value::from(())).is_err(), "{source}");
    }
    let none = Value::from_pairs([("x", Value::from(()))]);
    assert_eq!(render("{% for y in x or [] %}a{% else %}b{% endfor %}", &none).unwrap(), "b");
}

#[test]
fn generation_blocks_keep_their_scope() {
    let source =
        "{% set x = 1 %}{%- generation -%} {% set x = 2 %}{{ x }} {%- endgeneration %}{{ x }}";
    assert_eq!(render(source, &Value::from(())).unwrap(), "21");
}

#[test]
fn exceptions_keep_their_words() {
    let error =
        render("{{ raise_exception('no ' ~ x) }}", &Value::from_pairs([("x", "way")])).unwrap_err();
    assert_eq!(error, "no way (template line 1)");
}

#[test]
fn python_methods() {
    for (source, want) in [
        ("{{ 'a.b.c'.rsplit('.', 1) }}", "['a.b', 'c']"),
        ("{{ ' a  b  c '.split(none, 1) }}", "['a', 'b  c ']"),
        ("{{ ' a  b  c '.rsplit(maxsplit=1) }}", "[' a  b', 'c']"),
        ("{{ 'a,b'.split(sep=',') }}", "['a', 'b']"),
        ("{{ 'k=v=w'.partition('=') }}", "('k', '=', 'v=w')"),
        ("{{ 'k=v=w'.rpartition('=') }}", "('k=v', '=', 'w')"),
        ("{{ 'kv'.rpartition('=') }}", "('', '', 'kv')"),
        ("{{ 'a\nb\r\nc\u{2028}d'.splitlines() }}", "['a', 'b', 'c', 'd']"),
        ("{{ 'a\nb'.splitlines(true) }}", "['a\\n', 'b']"),
        ("{{ '-5'.zfill(4) }}|{{ 'ab'.center(5, '*') }}|{{ 'x'.ljust(3) }}|", "-005|**ab*|x  |"),
        ("{{ 'x\ty'.expandtabs(4) }}", "x   y"),
        ("{{ \"they're bill's\".title() }}", "They'Re Bill'S"),
        ("{{ 'ǆ'.title() }}{{ 'ßa'.capitalize() }}", "ǅSsa"),
        ("{{ '\x1c a\x1f'.strip() }}|", "a|"),
        ("{{ 'aXbX'.removesuffix('X') }}", "aXb"),
        ("{{ dict(a=1, **{}) if false else dict([('k', 2)], z=3) }}", "{'k': 2, 'z': 3}"),
        ("{{ ['a\u{2028}', 'é\u{0301}\u{fe0f}'] | string }}", "['a\\u2028', 'é\u{301}\u{fe0f}']"),
        ("{{ [1e16, 1e-7] }}", "[1e+16, 1e-07]"),
    ] {
        assert_eq!(render(source, &Value::from(())).as_deref(), Ok(want), "{source}");
    }
}
