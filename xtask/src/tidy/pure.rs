//! The crates that others link build without a runtime, HTTP or sockets.

use super::manifest::{Manifest, parse_lock};
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Crates that stay pure, with everything below them.
const PURE: &[&str] = &["kvasir-kv-hash", "kvasir-inventory", "kvasir-balance"];

/// What they must not pull in.
const FORBIDDEN: &[&str] = &["tokio", "hyper", "zmq", "reqwest"];

/// Follows normal and build dependencies: of members by their manifests, because the
/// lock file does not tell dev-dependencies apart, of all others by the lock file.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let Some(lock) = tree.get("Cargo.lock") else {
        return vec!["Cargo.lock is missing: run `cargo generate-lockfile` and commit it".into()];
    };
    let graph = Graph::new(tree, &lock.text);
    let mut errors = Vec::new();
    for name in PURE.iter().filter(|name| graph.members.contains_key(**name)) {
        if let Some(way) = graph.way_to_forbidden(name) {
            errors.push(format!(
                "`{name}` must build without {}, but has {}: move what needs it up a layer",
                FORBIDDEN.join(", "),
                way.join(" -> ")
            ));
        }
    }
    errors
}

struct Graph {
    members: BTreeMap<String, Vec<String>>,
    /// By name: all versions together, which errs on the strict side.
    locked: BTreeMap<String, Vec<String>>,
}

impl Graph {
    fn new(tree: &Tree, lock: &str) -> Self {
        let manifests = tree.manifests().map(|(_, f)| Manifest::parse(&f.text));
        let mut locked: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for ((name, _), dependencies) in parse_lock(lock) {
            let names = dependencies.iter().filter_map(|d| d.split(' ').next());
            locked.entry(name).or_default().extend(names.map(str::to_owned));
        }
        Self { members: manifests.map(|m| (m.name, m.dependencies)).collect(), locked }
    }

    /// The shortest chain of names from a member to a forbidden package.
    fn way_to_forbidden(&self, from: &str) -> Option<Vec<String>> {
        let mut seen = BTreeSet::from([from.to_owned()]);
        let mut queue = VecDeque::from([vec![from.to_owned()]]);
        while let Some(way) = queue.pop_front() {
            let last = way.last()?;
            if FORBIDDEN.contains(&last.as_str()) {
                return Some(way);
            }
            let next = self.members.get(last).or_else(|| self.locked.get(last));
            for name in next.into_iter().flatten() {
                if seen.insert(name.clone()) {
                    queue.push_back(way.iter().chain([name]).cloned().collect());
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"kvasir-balance\"\nversion = \"0.1.0\"\ndependencies = [\n \
        \"helper\",\n \"tokio\",\n]\n\n[[package]]\nname = \"helper\"\nversion = \"1.0.0\"\n\
        dependencies = [\n \"deep 2.0.0\",\n]\n\n[[package]]\nname = \"deep\"\nversion = \"2.0.0\"\n\
        dependencies = [\n \"zmq\",\n]\n";

    fn with(dependencies: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"kvasir-balance\"\n{dependencies}");
        check(&Tree::of(&[("Cargo.lock", LOCK), ("crates/balance/Cargo.toml", &manifest)]))
    }

    #[test]
    fn a_direct_dependency_is_found() {
        let errors = with("[dependencies]\ntokio.workspace = true\n");
        assert!(errors[0].contains("kvasir-balance -> tokio"), "{errors:?}");
    }

    #[test]
    fn a_dependency_far_below_is_found() {
        let errors = with("[dependencies]\nhelper = \"1\"\n");
        assert!(errors[0].contains("kvasir-balance -> helper -> deep -> zmq"), "{errors:?}");
    }

    #[test]
    fn dev_dependencies_are_free_although_the_lock_file_lists_them() {
        assert!(with("[dev-dependencies]\ntokio.workspace = true\n").is_empty());
    }

    #[test]
    fn a_missing_lock_file_is_an_error() {
        assert!(check(&Tree::of(&[]))[0].contains("Cargo.lock"));
    }
}
