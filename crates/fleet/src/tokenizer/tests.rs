use std::fs;
use std::path::Path;

use super::*;

/// A model's staging directory, gone with the value.
struct Staged(PathBuf);

impl Staged {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("kvasir-fleet-{}-{name}", std::process::id()));
        fs::create_dir_all(dir.join("m")).unwrap();
        Self(dir)
    }

    fn put(&self, text: &[u8]) {
        // As one does it: written beside, then moved.
        let new = self.0.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.0.join("m/tokenizer.json")).unwrap();
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tokenizer() -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    fs::read(root.join("chat-models/tokenizer.json")).unwrap()
}

/// Lets the next look happen without waiting for it.
async fn look(prompts: &Arc<ModelPrompts>) -> Arc<PromptState> {
    *prompts.attempt.lock().await = None;
    prompts.ensure(None, true).await;
    prompts.state()
}

fn renderer(state: &PromptState) -> &Arc<Renderer> {
    match state {
        PromptState::Ready(renderer) => renderer,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_failed_load_is_tried_again() {
    let staged = Staged::new("retry");
    let prompts =
        Arc::new(ModelPrompts::new("m".to_owned(), Some(staged.0.clone()), Limits::default()));
    assert!(matches!(&*look(&prompts).await, PromptState::Missing(_)));
    staged.put(b"{");
    assert!(matches!(&*look(&prompts).await, PromptState::Missing(_)));
    staged.put(&tokenizer());
    // Not at once.
    prompts.ensure(None, true).await;
    assert!(matches!(&*prompts.state(), PromptState::Missing(_)));
    let state = look(&prompts).await;
    renderer(&state);
}

#[tokio::test]
async fn which_place_it_was_found_in_is_known() {
    let (staged, root) = (Staged::new("source-staged"), Staged::new("source-root"));
    root.put(&tokenizer());
    let prompts =
        Arc::new(ModelPrompts::new("m".to_owned(), Some(staged.0.clone()), Limits::default()));
    assert_eq!(prompts.source(), None);
    let dir = root.0.join("m").to_str().unwrap().to_owned();
    prompts.ensure(Some(dir), true).await;
    assert_eq!(prompts.source(), Some(Source::Root));
    let prompts =
        Arc::new(ModelPrompts::new("m".to_owned(), Some(root.0.clone()), Limits::default()));
    prompts.ensure(None, true).await;
    assert_eq!(prompts.source(), Some(Source::Staged));
}

#[tokio::test]
async fn changed_files_are_loaded_anew_if_they_load() {
    let staged = Staged::new("reload");
    staged.put(&tokenizer());
    let prompts =
        Arc::new(ModelPrompts::new("m".to_owned(), Some(staged.0.clone()), Limits::default()));
    let first = look(&prompts).await;
    let same = look(&prompts).await;
    assert!(Arc::ptr_eq(renderer(&first), renderer(&same)));
    staged.put(b"not a tokenizer");
    let kept = look(&prompts).await;
    assert!(Arc::ptr_eq(renderer(&first), renderer(&kept)));
    let mut other = tokenizer();
    other.push(b'\n');
    staged.put(&other);
    let second = look(&prompts).await;
    assert!(!Arc::ptr_eq(renderer(&first), renderer(&second)));
    let third = look(&prompts).await;
    assert!(Arc::ptr_eq(renderer(&second), renderer(&third)));
}
