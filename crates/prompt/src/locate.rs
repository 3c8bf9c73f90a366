//! Where the tokenizer of a model is on the local disk.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Which rule found a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The directory the operator staged tokenizers in.
    Staged,
    /// The `root` the engine reports in `/v1/models`, as a local directory.
    Root,
    /// The local Hugging Face cache.
    HubCache,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Staged => "staged",
            Self::Root => "engine root",
            Self::HubCache => "hub cache",
        })
    }
}

/// One place that was looked at, and why it did not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// Which rule led there.
    pub source: Source,
    /// The directory, or the name no directory could be made of.
    pub place: String,
    /// Why it did not serve.
    pub reason: String,
}

/// The outcome of [`locate()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// A directory with a `tokenizer.json`.
    Found {
        /// The directory.
        dir: PathBuf,
        /// The rule that found it.
        source: Source,
    },
    /// There is none. `Display` gives one message that names every place.
    Missing {
        /// The model asked for.
        model: String,
        /// Every place looked at, in order.
        tried: Vec<Tried>,
    },
}

impl Located {
    /// The directory, when there is one.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Self::Found { dir, .. } => Some(dir),
            Self::Missing { .. } => None,
        }
    }
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { dir, source } => write!(f, "{} ({source})", dir.display()),
            Self::Missing { model, tried } => {
                write!(f, "no tokenizer for model `{model}`")?;
                for (i, t) in tried.iter().enumerate() {
                    let sep = if i == 0 { ": " } else { "; " };
                    write!(f, "{sep}{} {}: {}", t.source, t.place, t.reason)?;
                }
                Ok(())
            }
        }
    }
}

/// Finds the directory with the tokenizer of `model`, without the network. In this order:
///
/// 1. `staged/<model>`, with `/` in the name written as `__`;
/// 2. `root` (what the engine reports as the model's root), if it is a local directory;
/// 3. the local Hugging Face cache, for `model` and then for `root` as repository names:
///    `$HF_HUB_CACHE`, `$HF_HOME/hub` and `~/.cache/huggingface/hub`, each with
///    `models--<org>--<name>/snapshots/<revision>`, the revision from `refs/main`.
///
/// Names come from clients and engines: one that could leave the directory it is looked up in is
/// refused.
#[must_use]
pub fn locate(model: &str, staged: Option<&Path>, root: Option<&str>) -> Located {
    locate_in(model, staged, root, &hub_caches(|name| std::env::var_os(name)))
}

/// [`locate()`] with given caches.
fn locate_in(
    model: &str,
    staged: Option<&Path>,
    root: Option<&str>,
    caches: &[PathBuf],
) -> Located {
    let mut search = Search { tried: Vec::new() };
    match search.run(model, staged, root, caches) {
        Some((dir, source)) => Located::Found { dir, source },
        None => Located::Missing { model: model.to_owned(), tried: search.tried },
    }
}

struct Search {
    tried: Vec<Tried>,
}

impl Search {
    fn run(
        &mut self,
        model: &str,
        staged: Option<&Path>,
        root: Option<&str>,
        caches: &[PathBuf],
    ) -> Option<(PathBuf, Source)> {
        if let Some(staged) = staged {
            match staged_name(model) {
                Ok(name) => {
                    if let Some(dir) = self.dir(Source::Staged, staged.join(name)) {
                        return Some((dir, Source::Staged));
                    }
                }
                Err(reason) => self.note(Source::Staged, model, reason),
            }
        }
        let root = root.filter(|root| !root.is_empty());
        if let Some(root) = root {
            if root.contains('\0') {
                self.note(Source::Root, root, "the name has a NUL");
            } else if Path::new(root).is_absolute() {
                if let Some(dir) = self.dir(Source::Root, PathBuf::from(root)) {
                    return Some((dir, Source::Root));
                }
            } else {
                // Relative to the engine's working directory, which is not ours.
                self.note(Source::Root, root, "not an absolute path");
            }
        }
        let names = [Some(model), root.filter(|root| *root != model && !root.starts_with('/'))];
        for name in names.into_iter().flatten() {
            if let Some(dir) = self.hub(name, caches) {
                return Some((dir, Source::HubCache));
            }
        }
        None
    }

    fn note(&mut self, source: Source, place: &str, reason: &str) {
        self.tried.push(Tried { source, place: place.to_owned(), reason: reason.to_owned() });
    }

    /// The directory, if it has a tokenizer; else a note why not.
    fn dir(&mut self, source: Source, dir: PathBuf) -> Option<PathBuf> {
        match lacks(&dir) {
            None => Some(dir),
            Some(reason) => {
                self.note(source, &dir.display().to_string(), &reason);
                None
            }
        }
    }

    fn hub(&mut self, name: &str, caches: &[PathBuf]) -> Option<PathBuf> {
        let folder = match repository_folder(name) {
            Ok(folder) => folder,
            Err(reason) => {
                self.note(Source::HubCache, name, reason);
                return None;
            }
        };
        for cache in caches {
            let repository = cache.join(&folder);
            match snapshot(&repository) {
                Ok(dir) => {
                    if let Some(dir) = self.dir(Source::HubCache, dir) {
                        return Some(dir);
                    }
                }
                Err(reason) => {
                    self.note(Source::HubCache, &repository.display().to_string(), &reason);
                }
            }
        }
        None
    }
}

/// Why a directory has no usable tokenizer; `None` if it has one.
pub(crate) fn lacks(dir: &Path) -> Option<String> {
    if dir.join("tokenizer.json").is_file() {
        return None;
    }
    if !dir.is_dir() {
        return Some("no such directory".to_owned());
    }
    if dir.join("tokenizer.model").is_file() {
        return Some(
            "only a SentencePiece tokenizer.model, no tokenizer.json; write one with transformers: \
             AutoTokenizer.from_pretrained(dir).save_pretrained(dir)"
                .to_owned(),
        );
    }
    Some("no tokenizer.json".to_owned())
}

/// The directory name of a staged model.
fn staged_name(model: &str) -> Result<String, &'static str> {
    check_name(model)?;
    Ok(model.replace('/', "__"))
}

/// The cache's directory name of a repository.
fn repository_folder(name: &str) -> Result<String, &'static str> {
    check_name(name)?;
    let mut parts = name.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(_), None, _) => Ok(format!("models--{name}")),
        (Some(org), Some(model), None) => Ok(format!("models--{org}--{model}")),
        _ => Err("not a repository name"),
    }
}

/// Whether a name is safe to be made a part of a path.
fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("the name is empty");
    }
    if name.len() > 255 {
        return Err("the name is longer than 255 bytes");
    }
    if name.chars().any(|c| c.is_control() || c == '\\') {
        return Err("the name has a backslash or control character");
    }
    if name.starts_with('/') {
        return Err("the name is an absolute path");
    }
    if name.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err("the name has an empty, `.` or `..` part");
    }
    Ok(())
}

/// The snapshot directory `refs/main` of a cached repository points to.
fn snapshot(repository: &Path) -> Result<PathBuf, String> {
    if !repository.is_dir() {
        return Err("not in this cache".to_owned());
    }
    let reference = repository.join("refs").join("main");
    let size = std::fs::metadata(&reference).map_err(|e| format!("refs/main: {e}"))?.len();
    if size > 256 {
        return Err("refs/main is no revision".to_owned());
    }
    let revision = std::fs::read_to_string(&reference).map_err(|e| format!("refs/main: {e}"))?;
    let revision = revision.trim();
    if revision.contains('/') || check_name(revision).is_err() {
        return Err("refs/main is no revision".to_owned());
    }
    Ok(repository.join("snapshots").join(revision))
}

/// The cache directories the environment names, most specific first.
fn hub_caches(var: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| var(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let candidates = [
        set("HF_HUB_CACHE"),
        set("HF_HOME").map(|home| home.join("hub")),
        set("HOME").map(|home| home.join(".cache").join("huggingface").join("hub")),
    ];
    let mut out: Vec<PathBuf> = Vec::new();
    for path in candidates.into_iter().flatten() {
        if !out.contains(&path) {
            out.push(path);
        }
    }
    out
}
