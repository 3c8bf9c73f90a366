//! No package in several versions without a reason in `deny.toml`, and no reason without the versions.

use std::collections::BTreeMap;

use super::manifest::parse_lock;
use super::tree::Tree;

/// Of each package in several versions all but the newest need a reason.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let text = |path: &str| tree.get(path).map_or("", |file| file.text.as_str());
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, version) in parse_lock(text("Cargo.lock")).into_keys() {
        versions.entry(name).or_default().push(version);
    }
    let mut older = Vec::new();
    for (name, mut known) in versions {
        known.sort_by_key(|version| numbers(version));
        known.pop();
        older.extend(known.into_iter().map(|version| format!("{name}@{version}")));
    }
    let reasons = reasons(text("deny.toml"));
    let missing = older.iter().filter(|one| !reasons.contains(one)).map(|one| {
        format!("deny.toml: `{one}` is not the only version: avoid it, or add a reason to `skip`")
    });
    let stale = reasons
        .iter()
        .filter(|one| !older.contains(one))
        .map(|one| format!("deny.toml: `{one}` needs no reason any more: take it out of `skip`"));
    missing.chain(stale).collect()
}

/// Versions in the order of their numbers.
fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0)).collect()
}

/// `name@version` of every entry of `skip` with a reason.
fn reasons(text: &str) -> Vec<String> {
    let list = text.split_once("\nskip = [").map_or("", |(_, rest)| rest);
    let lines = list.lines().take_while(|line| *line != "]");
    let entries = lines.filter(|line| !line.trim_start().starts_with('#'));
    let given = entries.filter(|line| {
        line.split_once("reason = \"").is_some_and(|(_, reason)| !reason.starts_with('"'))
    });
    given.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"a\"\nversion = \"1.10.0\"\n\n\
                        [[package]]\nname = \"a\"\nversion = \"1.9.0\"\n\n\
                        [[package]]\nname = \"b\"\nversion = \"1.0.0\"\n";

    fn with(skip: &str) -> Vec<String> {
        let deny = format!("[bans]\nskip = [\n{skip}]\n");
        check(&Tree::of(&[("Cargo.lock", LOCK), ("deny.toml", &deny)]))
    }

    #[test]
    fn the_older_of_two_versions_needs_a_reason() {
        assert!(with("")[0].contains("a@1.9.0"));
        assert!(with("    { crate = \"a@1.9.0\", reason = \"c asks for it\" },\n").is_empty());
        assert_eq!(with("    { crate = \"a@1.9.0\", reason = \"\" },\n").len(), 1);
    }

    #[test]
    fn a_reason_for_what_is_gone_is_found() {
        let both = "    { crate = \"a@1.9.0\", reason = \"c\" },\n    { crate = \"b@1.0.0\", reason = \"c\" },\n";
        let errors = with(both);
        assert!(errors.len() == 1 && errors[0].contains("b@1.0.0"), "{errors:?}");
    }
}
