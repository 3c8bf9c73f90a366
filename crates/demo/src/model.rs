//! The tokenizer of the model that the simulated engines claim to serve.
//!
//! A small byte-level BPE of 4,096 tokens with a `ChatML` template, carried inside the program so
//! that it needs neither a network nor files of its own.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// The files an engine and a gateway read of a model.
const FILES: [(&str, &[u8]); 4] = [
    ("config.json", include_bytes!("../../../testdata/models/tiny/config.json")),
    (
        "generation_config.json",
        include_bytes!("../../../testdata/models/tiny/generation_config.json"),
    ),
    ("tokenizer.json", include_bytes!("../../../testdata/models/tiny/tokenizer.json")),
    (
        "tokenizer_config.json",
        include_bytes!("../../../testdata/models/tiny/tokenizer_config.json"),
    ),
];

/// A directory of staged tokenizers that holds one model. It is removed when this is dropped.
#[derive(Debug)]
pub struct StagedModel {
    name: String,
    staged: PathBuf,
    dir: PathBuf,
}

impl StagedModel {
    /// The name the model is served under unless another is asked for.
    pub const NAME: &'static str = "kvasir-demo";

    /// How many tokens the tokenizer knows.
    pub const VOCABULARY: u32 = 4_096;

    /// Writes the model's files to a new directory below the system's temporary one, as
    /// `MODEL/…` with `/` in the name as `__`.
    ///
    /// # Errors
    /// When the name is none of a directory, or a directory or file cannot be written.
    pub fn create(name: &str) -> io::Result<Self> {
        let folder = name.replace('/', "__");
        if folder.is_empty() || folder == "." || folder == ".." || folder.contains(['\\', '\0']) {
            let message = format!("`{name}` is no name for a model");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let staged = fresh_directory()?;
        // From here on a failure removes what was made.
        let model = Self { name: name.to_owned(), dir: staged.join(folder), staged };
        std::fs::create_dir(&model.dir)?;
        for (file, bytes) in FILES {
            std::fs::write(model.dir.join(file), bytes)?;
        }
        Ok(model)
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of staged tokenizers, for a gateway.
    #[must_use]
    pub fn staged(&self) -> &Path {
        &self.staged
    }

    /// The model's own directory, for an engine.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for StagedModel {
    fn drop(&mut self) {
        // Left behind, it is some small files in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.staged);
    }
}

/// A directory that did not exist before and that only its owner can enter.
fn fresh_directory() -> io::Result<PathBuf> {
    let random = RandomState::new();
    let mut last = None;
    for attempt in 0..8u8 {
        let number = random.hash_one((std::process::id(), attempt));
        let path = std::env::temp_dir().join(format!("kvasir-model-{number:016x}"));
        match create_private(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no free name")))
}

fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staged_model_is_whole_and_goes_away() {
        let model = StagedModel::create("org/name").unwrap();
        assert_eq!(model.dir(), model.staged().join("org__name"));
        let tokenizer = std::fs::read(model.dir().join("tokenizer.json")).unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&tokenizer).unwrap();
        let tokens = parsed["model"]["vocab"].as_object().unwrap().len();
        assert_eq!(tokens, StagedModel::VOCABULARY as usize);
        assert!(model.dir().join("tokenizer_config.json").is_file());
        let staged = model.staged().to_owned();
        assert!(staged.is_dir());
        drop(model);
        assert!(!staged.exists());
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["", ".", "..", "a\\b", "a\0"] {
            let error = StagedModel::create(name).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{name:?}");
        }
        assert_eq!(StagedModel::create("../up").unwrap().dir().file_name().unwrap(), "..__up");
    }
}
