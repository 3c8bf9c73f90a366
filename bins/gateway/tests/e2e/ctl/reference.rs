//! docs/cli.md is what all binaries say with `--help`. `cargo xtask cli` has this test write it.

use std::path::Path;
use std::process::Command;

use super::{beside, kvasirctl};

const HEAD: &str = "# Commands and their flags

What `--help` of each command says, for all binaries; this page is made from it (`cargo xtask cli`). How to use them:
[kvasirctl and a running gateway](kvasirctl.md), [checking engines](parity.md), [configuration](configuration.md),
[simulation](simulation.md), [the weight controller](controller.md).
";

/// What `--help` of a command says, without white space at ends of lines.
fn help(binary: &Path, words: &[String]) -> String {
    let output = Command::new(binary).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{words:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

/// The names below `Commands:`.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = lines.take_while(|line| line.starts_with("  "));
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

/// The section of a command, and those of its own commands.
fn section(binary: &Path, name: &str, words: &[String], page: &mut String) {
    let said = help(binary, words);
    let title = [&[name.to_owned()], words].concat().join(" ");
    let level = if words.is_empty() { "##" } else { "###" };
    page.push_str(&format!("\n{level} `{title}`\n\n```text\n{said}\n```\n"));
    for command in commands(&said) {
        section(binary, name, &[words, &[command]].concat(), page);
    }
}

#[test]
fn the_page_says_what_the_binaries_say() {
    let mut page = HEAD.to_owned();
    section(Path::new(env!("CARGO_BIN_EXE_kvasir-gateway")), "kvasir-gateway", &[], &mut page);
    section(kvasirctl(), "kvasirctl", &[], &mut page);
    section(&beside("kvasir-controller"), "kvasir-controller", &[], &mut page);
    assert!(page.matches("\n### `kvasirctl ").count() > 20, "{page}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("KVASIR_WRITE_PAGES").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(there == page, "docs/cli.md is not what --help says (`cargo xtask cli`): {differs:?}");
}
