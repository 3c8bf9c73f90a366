//! Links of Markdown: relative ones lead to a file or directory of the repository, and their anchors to a heading.

use std::collections::{BTreeSet, HashMap};

use super::tree::{File, Tree};

/// Looks at all Markdown files; what other hosts have is not asked.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let places = places(tree);
    let pages = || tree.files.iter().filter(|file| file.path.ends_with(".md"));
    let anchors: HashMap<&str, BTreeSet<String>> =
        pages().map(|page| (page.path.as_str(), anchors(&page.text))).collect();
    let mut errors = Vec::new();
    for page in pages() {
        for (number, target) in links(page) {
            let fault = fault(&page.path, &target, &places, &anchors);
            errors.extend(fault.map(|why| format!("{}:{number}: `{target}`: {why}", page.path)));
        }
    }
    errors
}

/// Why a link leads nowhere.
fn fault(
    page: &str,
    target: &str,
    places: &BTreeSet<&str>,
    anchors: &HashMap<&str, BTreeSet<String>>,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(p, a)| (p, Some(a)));
    let place = if path.is_empty() { page.to_owned() } else { resolve(page, path) };
    if !places.contains(place.as_str()) {
        return Some(format!("there is no {place}; mend the path or take out the link"));
    }
    let known = anchors.get(place.as_str())?;
    let missing = anchor.is_some_and(|anchor| !known.contains(anchor));
    missing.then(|| format!("{place} has no heading of this name"))
}

/// All files, and the directories they are in.
fn places(tree: &Tree) -> BTreeSet<&str> {
    let mut places = BTreeSet::from([""]);
    for file in &tree.files {
        let ends = file.path.match_indices('/').map(|(end, _)| end).chain([file.path.len()]);
        places.extend(ends.filter_map(|end| file.path.get(..end)));
    }
    places
}

/// A path relative to a page, from the root; one that leads out of the repository begins with `..`.
fn resolve(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|part| *part != "..") => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((i + 1, line))
    })
}

/// Targets of links, with the numbers of their lines.
fn links(page: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(&page.text) {
        // Every other piece is between backticks.
        let text: Vec<&str> = line.split('`').collect();
        let plain: String = text
            .iter()
            .enumerate()
            .map(
                |(i, piece)| if i % 2 == 0 { (*piece).to_owned() } else { "`".repeat(piece.len()) },
            )
            .collect();
        for piece in plain.split("](").skip(1) {
            found.extend(piece.split_once(')').map(|(target, _)| (number, target.to_owned())));
        }
    }
    found
}

/// The anchors GitHub gives a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        let Some(heading) = heading.strip_prefix(' ').filter(|_| line.starts_with('#')) else {
            continue;
        };
        let slug = slug(heading);
        let count = counts.entry(slug.clone()).or_default();
        anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    anchors
}

fn slug(heading: &str) -> String {
    let mut text = heading.trim().to_owned();
    while let Some(start) = text.find("](") {
        let end = text[start..].find(')').map_or(text.len(), |length| start + length + 1);
        text.replace_range(start..end, "");
    }
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "# One page\n\n## `kvasirctl get` and [more](b.md)\n\n## Twice\n\n## Twice\n";

    #[test]
    fn what_leads_somewhere_passes() {
        for link in [
            "a.md",
            "./a.md",
            "../docs/a.md#one-page",
            "#here",
            "a.md#kvasirctl-get-and-more",
            "a.md#twice-1",
            "../xtask",
            "../xtask/x.rs#L3",
            "https://example.org/x#y",
            "..",
        ] {
            let text = format!("# Here\n\nSee [it]({link}).\n");
            let tree = Tree::of(&[("docs/a.md", PAGE), ("docs/b.md", &text), ("xtask/x.rs", "")]);
            assert_eq!(check(&tree), Vec::<String>::new(), "{link}");
        }
    }

    #[test]
    fn what_leads_nowhere_is_named() {
        for (link, message) in [
            ("c.md", "docs/b.md:2: `c.md`: there is no docs/c.md"),
            ("a.md#other", "docs/b.md:2: `a.md#other`: docs/a.md has no heading"),
            ("a.md#twice-2", "docs/b.md:2: `a.md#twice-2`: docs/a.md has no heading"),
            ("../../a.md", "docs/b.md:2: `../../a.md`: there is no ../a.md"),
            ("#there", "docs/b.md:2: `#there`: docs/b.md has no heading"),
        ] {
            let text = format!("\n[a](a.md), [b]({link})\n");
            let errors = check(&Tree::of(&[("docs/a.md", PAGE), ("docs/b.md", &text)]));
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].starts_with(message), "{errors:?}");
        }
    }

    #[test]
    fn code_has_no_links() {
        let text = "`[a](b.md)`\n\n```text\n[a](b.md)\n# No heading\n```\n";
        assert_eq!(check(&Tree::of(&[("a.md", text)])), Vec::<String>::new());
    }
}
