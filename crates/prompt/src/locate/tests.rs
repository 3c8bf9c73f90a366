use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A directory that goes away with the test.
struct Temp(PathBuf);

impl Temp {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("kvasir-locate-{}-{n}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// A directory with a tokenizer.
    fn model(&self, path: &str) -> PathBuf {
        self.file(&format!("{path}/tokenizer.json"), "{}");
        self.0.join(path)
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn found(located: Located) -> (PathBuf, Source) {
    match located {
        Located::Found { dir, source } => (dir, source),
        missing @ Located::Missing { .. } => panic!("{missing}"),
    }
}

#[test]
fn staged_wins_over_root_and_cache() {
    let temp = Temp::new();
    let staged = temp.model("staged/org__m");
    let root = temp.model("root");
    temp.file("hub/models--org--m/refs/main", "abc\n");
    let snapshot = temp.model("hub/models--org--m/snapshots/abc");
    let caches = [temp.0.join("hub")];
    let root_name = root.to_str();
    let dir = temp.0.join("staged");
    let look = |staged| locate_in("org/m", staged, root_name, &caches);
    assert_eq!(found(look(Some(dir.as_path()))), (staged.clone(), Source::Staged));
    fs::remove_dir_all(staged).unwrap();
    assert_eq!(found(look(Some(dir.as_path()))), (root.clone(), Source::Root));
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(found(look(None)), (snapshot, Source::HubCache));
}

#[test]
fn root_can_be_a_repository_name() {
    let temp = Temp::new();
    temp.file("hub/models--org--base/refs/main", "r1");
    let snapshot = temp.model("hub/models--org--base/snapshots/r1");
    let located = locate_in("my-alias", None, Some("org/base"), &[temp.0.join("hub")]);
    assert_eq!(found(located), (snapshot, Source::HubCache));
}

#[test]
fn names_cannot_leave_their_directory() {
    let temp = Temp::new();
    temp.model("secret");
    temp.model("staged/ok");
    let staged = temp.0.join("staged");
    let absolute = temp.0.join("secret");
    let absolute = absolute.to_str().unwrap();
    for name in [
        "../secret",
        "..",
        ".",
        "",
        "a/../../secret",
        "/etc",
        absolute,
        "a//b",
        "a/./b",
        "a\0b",
        "a\\..\\b",
        "secret/",
        "x\n",
    ] {
        let located = locate_in(name, Some(&staged), None, std::slice::from_ref(&temp.0));
        let Located::Missing { tried, .. } = &located else { panic!("{name:?} gave {located}") };
        assert!(!tried.is_empty(), "{name:?}");
        assert!(tried.iter().all(|t| t.reason.starts_with("the name")), "{name:?}: {located}");
    }
    assert!(staged_name(&"x".repeat(300)).is_err());
    // Dots that are part of a name are harmless.
    assert_eq!(staged_name("org/m..v1.5").as_deref(), Ok("org__m..v1.5"));
}

#[test]
fn revisions_cannot_leave_the_cache() {
    let temp = Temp::new();
    temp.model("secret");
    for revision in ["../../../secret", "..", "/etc", "", "a\0b", &"a".repeat(300)] {
        temp.file("hub/models--m/refs/main", revision);
        let located = locate_in("m", None, None, &[temp.0.join("hub")]);
        let text = located.to_string();
        assert!(text.contains("refs/main is no revision"), "{revision:?}: {text}");
    }
}

#[test]
fn the_message_names_every_place() {
    let temp = Temp::new();
    temp.file("staged/org__m/tokenizer.model", "spm");
    fs::create_dir_all(temp.0.join("root")).unwrap();
    let root = temp.0.join("root");
    let caches = [temp.0.join("hub1"), temp.0.join("hub2")];
    let located = locate_in("org/m", Some(&temp.0.join("staged")), root.to_str(), &caches);
    assert_eq!(located.dir(), None);
    let text = located.to_string();
    for part in [
        "no tokenizer for model `org/m`",
        "only a SentencePiece tokenizer.model, no tokenizer.json; write one with",
        "engine root",
        "no tokenizer.json",
        "hub1/models--org--m: not in this cache",
        "hub2/models--org--m: not in this cache",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_eq!(text.matches("; ").count(), 4, "{text}");
    let located = locate_in("a/b/c", None, None, &caches);
    assert!(located.to_string().ends_with("hub cache a/b/c: not a repository name"), "{located}");
    let located = locate_in("m", None, Some("models/m"), &[]);
    assert!(located.to_string().contains("models/m: not an absolute path"), "{located}");
}

#[test]
fn caches_from_the_environment() {
    let of = |vars: &[(&str, &str)]| {
        let vars: Vec<(String, OsString)> =
            vars.iter().map(|(k, v)| ((*k).to_owned(), OsString::from(v))).collect();
        hub_caches(|name| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
    };
    let paths = |p: &[&str]| p.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(
        of(&[("HF_HUB_CACHE", "/a"), ("HF_HOME", "/b"), ("HOME", "/h")]),
        paths(&["/a", "/b/hub", "/h/.cache/huggingface/hub"])
    );
    assert_eq!(of(&[("HF_HOME", ""), ("HOME", "/h")]), paths(&["/h/.cache/huggingface/hub"]));
    assert_eq!(of(&[("HF_HUB_CACHE", "/b/hub"), ("HF_HOME", "/b")]), paths(&["/b/hub"]));
    assert!(of(&[]).is_empty());
}
