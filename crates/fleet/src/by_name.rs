//! What is known of something by its name, for as long as anybody holds it: an engine that left and
//! comes back while requests are still there, or that is known in another way, goes on with it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Below so many names nothing is gained by looking for those that are gone.
const FEW_NAMES: usize = 64;

/// One `T` a name, and never two at one time.
#[derive(Debug)]
pub(crate) struct ByName<T>(Mutex<Names<T>>);

#[derive(Debug)]
struct Names<T> {
    by_name: HashMap<String, Weak<T>>,
    /// How many there may be before those that are gone are looked for.
    most: usize,
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(Mutex::new(Names { by_name: HashMap::new(), most: 0 }))
    }
}

impl<T: Default> ByName<T> {
    /// What goes by this name.
    pub(crate) fn of(&self, name: &str) -> Arc<T> {
        let mut names = self.0.lock();
        if let Some(known) = names.by_name.get(name).and_then(Weak::upgrade) {
            return known;
        }
        if names.by_name.len() >= names.most {
            names.by_name.retain(|_, one| one.strong_count() > 0);
            names.most = (2 * names.by_name.len()).max(FEW_NAMES);
        }
        let fresh = Arc::<T>::default();
        names.by_name.insert(name.to_owned(), Arc::downgrade(&fresh));
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_counters_while_somebody_holds_them_and_no_longer() {
        let accounts = ByName::<u8>::default();
        let one = accounts.of("a");
        assert!(Arc::ptr_eq(&one, &accounts.of("a")));
        assert!(!Arc::ptr_eq(&one, &accounts.of("b")));
        for n in 0..100_000 {
            drop(accounts.of(&n.to_string()));
        }
        assert!(Arc::ptr_eq(&one, &accounts.of("a")));
        assert!(accounts.0.lock().by_name.len() <= 2 * FEW_NAMES);
    }
}
