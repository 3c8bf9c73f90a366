//! One idea per function: long functions are reported, very long ones are errors. Tests are free: what
//! they do one after the other is best read so.

use super::tree::{File, Tree};

/// Longer functions are reported.
const SOFT: usize = 60;

/// Longer functions are errors.
const HARD: usize = 90;

/// A function that is longer than may be.
struct Long<'a> {
    file: &'a str,
    /// Where it begins, from 1.
    line: usize,
    name: &'a str,
    lines: usize,
}

/// Functions over the hard limit.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    longer(tree, HARD).map(|long| long.say(HARD) + ": look for its second idea").collect()
}

/// Functions between the soft and the hard limit.
pub(super) fn notes(tree: &Tree) -> Vec<String> {
    longer(tree, SOFT).filter(|long| long.lines <= HARD).map(|long| long.say(SOFT)).collect()
}

impl Long<'_> {
    fn say(&self, limit: usize) -> String {
        let Self { file, line, name, lines } = self;
        format!("{file}:{line}: `{name}` has {lines} lines, more than {limit}")
    }
}

fn longer(tree: &Tree, limit: usize) -> impl Iterator<Item = Long<'_>> {
    let is_looked_at = |f: &&File| f.is_rust() && !f.is_generated() && !f.is_test();
    let all = tree.files.iter().filter(is_looked_at).flat_map(functions);
    all.filter(move |long| long.lines > limit)
}

/// The functions of a file before its tests. They are read off the formatted text: one ends at the first
/// closing bracket that stands as far in as it begins.
fn functions(file: &File) -> Vec<Long<'_>> {
    let own = file.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<&str> = own.lines().collect();
    let starts = lines.iter().enumerate().filter_map(|(at, line)| Some((at, name(line)?)));
    let of = |(at, name)| {
        let rest = lines.get(at..)?;
        Some(Long { file: &file.path, line: at + 1, name, lines: length(rest)? })
    };
    starts.filter_map(of).collect()
}

/// Lines of the function that begins with the first; none of one of a single line, or without a body.
fn length(lines: &[&str]) -> Option<usize> {
    let first = lines.first().filter(|first| !first.ends_with(['}', ';']))?;
    let indent = first.len() - first.trim_start().len();
    let ends = |line: &str| {
        let own = line.get(indent..).filter(|_| line.len() - line.trim_start().len() == indent)?;
        let is_bodiless = own.starts_with(')') && own.ends_with(';');
        (own == "}" || is_bodiless).then_some(is_bodiless)
    };
    let (at, is_bodiless) = lines.iter().enumerate().find_map(|(at, l)| Some((at, ends(l)?)))?;
    (!is_bodiless).then_some(at + 1)
}

/// The name of the function that begins on this line.
fn name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_word = |word: &str| {
        matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub")
    };
    let is_head = before.split_whitespace().all(|word| is_word(word) || word.ends_with(')'));
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (is_head && end > 0).then(|| &after[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: usize, indent: &str) -> String {
        let body = format!("{indent}    x();\n").repeat(lines - 2);
        format!("{indent}pub(crate) async fn long(\n{body}{indent}}}\n")
    }

    #[test]
    fn limits_are_inclusive() {
        let (soft, hard) = (SOFT, HARD);
        for (lines, noted, failed) in
            [(soft, 0, 0), (soft + 1, 1, 0), (hard, 1, 0), (hard + 1, 0, 1)]
        {
            for indent in ["", "    "] {
                let tree = Tree::of(&[("crates/a/src/lib.rs", &of(lines, indent))]);
                assert_eq!((notes(&tree).len(), check(&tree).len()), (noted, failed), "{lines}");
            }
        }
        let text = format!("//! A.\n\n{}", of(HARD + 1, ""));
        let tree = Tree::of(&[("crates/a/src/lib.rs", &text)]);
        let said = format!("crates/a/src/lib.rs:3: `long` has {} lines", HARD + 1);
        assert!(check(&tree)[0].starts_with(&said), "{:?}", check(&tree));
    }

    #[test]
    fn tests_words_and_declarations_are_no_functions() {
        let long = of(200, "    ");
        let tests = format!("fn a() {{}}\n\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        let declared = format!("trait T {{\n    fn a(\n    );\n{}}}\n", "    x\n".repeat(200));
        let words =
            format!("// the fn of a thing\nstruct S {{\n{}}}\n", "    x: u8,\n".repeat(200));
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", &tests),
            ("crates/a/src/tests.rs", &long),
            ("crates/a/src/b.rs", &declared),
            ("crates/a/src/c.rs", &words),
        ]);
        let found = [check(&tree), notes(&tree)].concat();
        assert!(found.is_empty(), "{found:?}");
    }
}
