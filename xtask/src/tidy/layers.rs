//! Dependencies between workspace crates point strictly downward.

use super::manifest::Manifest;
use super::tree::Tree;

/// Layers from the bottom up. A crate may use those of lower layers only.
const LAYERS: &[&[&str]] = &[
    &["kvasir-files", "kvasir-kv-hash", "kvasir-metrics", "kvasir-tokens"],
    &["kvasir-inventory", "kvasir-server-tls"],
    &["kvasir-balance", "kvasir-prompt", "kvasir-kv-events", "kvasir-upstream"],
    &["kvasir-fleet", "kvasir-engine-sim", "kvasir-config"],
    &[
        "kvasir-admin",
        "kvasir-admin-client",
        "kvasir-compat-loxilb",
        "kvasir-proxy",
        "kvasir-advice",
        "kvasir-demo",
        "kvasir-doctor",
        "kvasir-sim",
    ],
    &["kvasir-gateway", "kvasir-controller", "kvasirctl"],
    // Beside the product: both may use any of it, nothing of it uses them.
    &["xtask", TESTKIT],
];

/// Only ever a dev-dependency.
const TESTKIT: &str = "kvasir-testkit";

fn rank(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// Reads the layers off the members' `[dependencies]`; dev-dependencies are free.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let members: Vec<(&str, Manifest)> =
        tree.manifests().map(|(_, f)| (f.path.as_str(), Manifest::parse(&f.text))).collect();
    let is_member = |name: &str| members.iter().any(|(_, m)| m.name == name);
    let mut errors = Vec::new();
    for (path, manifest) in &members {
        let name = &manifest.name;
        let Some(own) = rank(name) else {
            errors.push(format!(
                "{path}: crate `{name}` has no layer: add it to LAYERS in \
                 xtask/src/tidy/layers.rs and to docs/architecture.md"
            ));
            continue;
        };
        for used in manifest.dependencies.iter().filter(|d| is_member(d) || rank(d).is_some()) {
            if used == TESTKIT {
                errors.push(format!("{path}: move `{TESTKIT}` to [dev-dependencies]"));
            } else if rank(used).is_some_and(|r| r >= own) {
                errors.push(format!(
                    "{path}: `{name}` (layer {own}) must not use `{used}` (layer {}): move the \
                     shared part down, or let a binary connect them through a trait",
                    rank(used).unwrap_or_default()
                ));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, rest: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        let below = "[package]\nname = \"kvasir-kv-hash\"\n";
        check(&Tree::of(&[("crates/kv-hash/Cargo.toml", below), ("crates/x/Cargo.toml", &text)]))
    }

    #[test]
    fn downward_is_allowed() {
        let rest = "[dependencies]\nkvasir-kv-hash.workspace = true\nbytes = \"1\"\n";
        assert!(with("kvasir-inventory", rest).is_empty());
    }

    #[test]
    fn upward_and_sideways_are_errors() {
        for used in ["kvasir-proxy", "kvasir-fleet", "kvasir-config"] {
            let rest = format!("[dependencies]\n{used}.workspace = true\n");
            let errors = with("kvasir-config", &rest);
            assert_eq!(errors.len(), 1, "{used}: {errors:?}");
            assert!(errors[0].contains("must not use"), "{errors:?}");
        }
    }

    #[test]
    fn an_unknown_crate_is_an_error_that_says_where_to_add_it() {
        let errors = with("kvasir-novel", "");
        assert!(errors[0].contains("xtask/src/tidy/layers.rs"), "{errors:?}");
    }

    #[test]
    fn testkit_is_for_tests() {
        let dependency = "kvasir-testkit.workspace = true\n";
        let errors = with("kvasir-gateway", &format!("[dependencies]\n{dependency}"));
        assert!(errors[0].contains("[dev-dependencies]"), "{errors:?}");
        assert!(with("kvasir-gateway", &format!("[dev-dependencies]\n{dependency}")).is_empty());
    }
}
