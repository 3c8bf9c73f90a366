//! Where in a text of YAML each key stands, so that what is wrong with a value is said with its line.
//!
//! The text is read once more, without its types, and only where something is wrong with it.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// Line and column, both from 1.
pub(crate) type Place = (u64, u64);

/// Sections in sections. No key is so deep, and each takes a good part of a small stack.
const DEEPEST: usize = 24;

/// A text of YAML by its keys.
pub(crate) struct Places(Spanned<Node>);

enum Node {
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Leaf,
}

impl Places {
    /// Of a text; `None` where it is no YAML.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let budget = serde_saphyr::budget! { max_depth: DEEPEST };
        let options = serde_saphyr::options! { budget: budget };
        serde_saphyr::from_str_with_options(text, options).ok().map(Self)
    }

    /// Where the value of a key is, which is a path such as `pools[0].endpoints[1].url`; of what is not
    /// in the text, where the section is in which it would be. `None` where that is all of it.
    pub(crate) fn place(&self, key: &str) -> Option<Place> {
        let mut found = None;
        let mut at = &self.0;
        for step in key.split(['.', '[']) {
            let next = match (&at.value, step.strip_suffix(']')) {
                (Node::List(items), Some(index)) => items.get(index.parse::<usize>().ok()?),
                (Node::Map(entries), None) => {
                    entries.iter().find(|(name, _)| name.value == step).map(|(_, value)| value)
                }
                _ => None,
            };
            let Some(next) = next else { break };
            (at, found) = (next, Some(place(next.referenced)));
        }
        found
    }

    /// The key whose name or value begins at a place, or is the last to begin before it.
    pub(crate) fn key_at(&self, wanted: Place) -> Option<String> {
        // Of several at one place the innermost: a section begins where its first key does.
        self.before(wanted).max_by_key(|found| found.at).map(|found| found.key)
    }

    /// The innermost section that begins at a place, or is the last to begin before it: a section begins
    /// where its first key does. The outermost of several at one place.
    pub(crate) fn section_at(&self, wanted: Place) -> Option<String> {
        let sections = self.before(wanted).filter(|found| found.is_section);
        sections.rev().max_by_key(|found| found.at).map(|found| found.key)
    }

    /// What begins at a place or before it, in the order of [`list`].
    fn before(&self, wanted: Place) -> impl DoubleEndedIterator<Item = Found> {
        let mut all = Vec::new();
        list("", &self.0, &mut all);
        all.into_iter().filter(move |found| found.at <= wanted && !found.key.is_empty())
    }
}

/// A key's name, or its value.
struct Found {
    at: Place,
    key: String,
    /// A value with keys of its own.
    is_section: bool,
}

fn place(location: Location) -> Place {
    (location.line(), location.column())
}

/// All keys with the places of their names and values, sections before what is in them.
fn list(key: &str, node: &Spanned<Node>, keys: &mut Vec<Found>) {
    let is_section = matches!(node.value, Node::Map(_));
    keys.push(Found { at: place(node.referenced), key: key.to_owned(), is_section });
    match &node.value {
        Node::Leaf => {}
        Node::List(items) => {
            for (index, item) in items.iter().enumerate() {
                list(&format!("{key}[{index}]"), item, keys);
            }
        }
        Node::Map(entries) => {
            for (name, value) in entries {
                let dot = if key.is_empty() { "" } else { "." };
                let inner = format!("{key}{dot}{}", name.value);
                keys.push(Found {
                    at: place(name.referenced),
                    key: inner.clone(),
                    is_section: false,
                });
                list(&inner, value, keys);
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

/// Takes whatever is there.
struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "listen: a
pools:
  - model: m
    endpoints: [{url: x}, {url: y, weight: 3}]
  - {model: n, policy: latency}
inventory:
  max_bytes: 7
";

    #[test]
    fn a_key_is_found_with_its_place_and_the_other_way_round() {
        let places = Places::of(TEXT).unwrap();
        for (key, wanted) in [
            ("listen", (1, 9)),
            ("pools[0].model", (3, 12)),
            ("pools[0].endpoints[1].weight", (4, 44)),
            ("pools[1].policy", (5, 24)),
            ("inventory.max_bytes", (7, 14)),
        ] {
            assert_eq!(places.place(key), Some(wanted), "{key}");
            assert_eq!(places.key_at(wanted).as_deref(), Some(key));
        }
        // What is not there is where it would be.
        assert_eq!(places.place("pools[0].endpoints[1].url.x"), Some((4, 33)));
        assert_eq!(places.place("pools[1].sticky.idle_s"), Some((5, 5)));
        assert_eq!(places.place("inventory.max_endpoint_bytes"), Some((7, 3)));
        assert_eq!(places.place("admin.listen"), None);
        assert_eq!(places.place("pools[9].model"), places.place("pools"));
        // Its name is a place as well.
        assert_eq!(places.key_at((5, 16)).as_deref(), Some("pools[1].policy"));
        assert_eq!(places.key_at((9, 9)).as_deref(), Some("inventory.max_bytes"));
        assert_eq!(places.key_at((0, 1)), None);
        assert!(
            Places::of("a: [").is_none() && Places::of("").is_none_or(|p| p.place("a").is_none())
        );
    }
}
