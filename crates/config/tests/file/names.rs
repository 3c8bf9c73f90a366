//! Names of models and of groups of endpoints.

use crate::{error, parse};

fn pools(first: &str, second: &str) -> String {
    format!(
        "pools:
  - {{model: a, {first}endpoints: [{{url: 'http://a'}}]}}
  - {{model: b, {second}endpoints: [{{url: 'http://b'}}]}}
"
    )
}

#[test]
fn a_model_may_have_other_names() {
    let config = parse(&pools("aliases: [one, two], ", "decision_headers: true, ")).unwrap();
    let [a, b] = &config.pools[..] else { panic!() };
    assert_eq!((&a.aliases[..], a.decision_headers), (&["one".into(), "two".into()][..], None));
    assert_eq!((b.aliases.len(), b.decision_headers), (0, Some(true)));
}

#[test]
fn a_name_belongs_to_one_pool() {
    let many: Vec<String> = (0..257).map(|n| format!("n{n}")).collect();
    let many = format!("aliases: {many:?}, ");
    for (first, second, expected) in [
        ("aliases: [b], ", "", "pools[0].aliases[0]: `b` is the model of pools[1]"),
        ("", "aliases: [x, b], ", "pools[1].aliases[1]: `b` is the model of pools[1]"),
        (
            "aliases: [x], ",
            "aliases: [y, x], ",
            "pools[1].aliases[1]: `x` is an alias in pools[0] already",
        ),
        ("aliases: [x, x], ", "", "pools[0].aliases[1]: `x` is an alias in pools[0] already"),
        ("aliases: [''], ", "", "pools[0].aliases[0]: must not be empty"),
        (many.as_str(), "", "pools[0].aliases: must be at most 256 names"),
    ] {
        let message = error(&pools(first, second));
        assert_eq!(crate::unplaced(&message), format!("kvasir.yaml: {expected}"));
    }
}

#[test]
fn endpoints_may_be_grouped() {
    let text = |group: &str| {
        format!("pools: [{{model: m, endpoints: [{{url: 'http://a', group: {group}}}]}}]")
    };
    let config = parse(&text("pool-1.a_B")).unwrap();
    assert_eq!(config.pools[0].endpoints[0].group.as_deref(), Some("pool-1.a_B"));
    for group in ["''", "'a b'", "ä", &"x".repeat(65)] {
        let message = error(&text(group));
        let wanted = "pools[0].endpoints[0].group: must be 1 to 64 letters";
        assert!(message.contains(wanted), "{message}");
    }
}
