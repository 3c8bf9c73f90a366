//! What outlives the process: changes that were made, and counts.

use std::path::{Path, PathBuf};

use kvasir_config::Overlay;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::aside::Aside;
use crate::stats::{Key, Stats, Tally};

/// Changes, as JSON, under one key.
const CHANGES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("changes");
/// Counts, as JSON, by hour and pool.
const COUNTS: TableDefinition<'_, (u64, &str), &[u8]> = TableDefinition::new("counts");
/// The form of what is in it.
const FORMS: TableDefinition<'_, &str, u64> = TableDefinition::new("form");
/// The form that is written.
const FORM: u64 = 1;
const OVERLAY: &str = "overlay";
const ASIDE: &str = "aside";
const FORM_KEY: &str = "form";

/// A file with changes and counts.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    database: Database,
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("{}: another process uses it", .0.display())]
    Locked(PathBuf),
    /// It cannot be opened, read or written.
    #[error("{}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
    /// What is in it is not what was written there.
    #[error("{}: {what}; move it away to begin anew, which loses the changes made through the admin API", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl Store {
    /// Opens a store, or makes one.
    ///
    /// # Errors
    /// When another process has it open, it cannot be opened, or what is in it is not understood.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // A damaged file may make the library give up in its own way.
        let opened = std::panic::catch_unwind(|| Database::create(path));
        let database = match opened {
            Ok(Ok(database)) => database,
            Ok(Err(redb::DatabaseError::DatabaseAlreadyOpen)) => {
                return Err(StoreError::Locked(path.to_owned()));
            }
            Ok(Err(error)) => return Err(failed(path, error)),
            Err(_) => return Err(damaged(path, "it is damaged")),
        };
        let store = Self { path: path.to_owned(), database };
        store.prepare()?;
        Ok(store)
    }

    fn prepare(&self) -> Result<(), StoreError> {
        let form = self.write(|write| {
            write.open_table(CHANGES)?;
            write.open_table(COUNTS)?;
            let mut forms = write.open_table(FORMS)?;
            let form = forms.get(FORM_KEY)?.map(|form| form.value());
            if form.is_none() {
                forms.insert(FORM_KEY, FORM)?;
            }
            Ok(form)
        })?;
        match form {
            Some(form) if form != FORM => {
                let what = format!("it has form {form}, and form {FORM} is known");
                Err(damaged(&self.path, &what))
            }
            _ => Ok(()),
        }
    }

    /// The changes that were made, and those that were dropped.
    ///
    /// # Errors
    /// When they cannot be read or understood.
    pub fn changes(&self) -> Result<(Overlay, Aside), StoreError> {
        let overlay: Overlay = self.changes_at(OVERLAY)?;
        Ok((overlay.in_present_form(), self.changes_at(ASIDE)?))
    }

    fn changes_at<T: Default + DeserializeOwned>(&self, key: &str) -> Result<T, StoreError> {
        let bytes = self.read(|read| {
            let table = read.open_table(CHANGES)?;
            Ok(table.get(key)?.map(|bytes| bytes.value().to_vec()))
        })?;
        let Some(bytes) = bytes else { return Ok(T::default()) };
        serde_json::from_slice(&bytes)
            .map_err(|error| damaged(&self.path, &format!("its changes cannot be read: {error}")))
    }

    /// Keeps the changes that were made; on the disk when this returns.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn keep_overlay(&self, overlay: &Overlay) -> Result<(), StoreError> {
        let overlay = self.bytes(overlay)?;
        self.write(|write| {
            write.open_table(CHANGES)?.insert(OVERLAY, overlay.as_slice())?;
            Ok(())
        })
    }

    /// The same with the changes that were dropped.
    ///
    /// # Errors
    /// When they cannot be written: then none of it is.
    pub fn keep_all(&self, overlay: &Overlay, aside: &Aside) -> Result<(), StoreError> {
        let (overlay, aside) = (self.bytes(overlay)?, self.bytes(aside)?);
        self.write(|write| {
            let mut table = write.open_table(CHANGES)?;
            table.insert(OVERLAY, overlay.as_slice())?;
            table.insert(ASIDE, aside.as_slice())?;
            Ok(())
        })
    }

    fn bytes(&self, value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
        serde_json::to_vec(value).map_err(|error| damaged(&self.path, &error.to_string()))
    }

    /// The counts of before; entries that cannot be understood are left out.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn stats(&self) -> Result<Stats, StoreError> {
        let entries = self.read(|read| {
            let mut entries: Vec<(Key, Tally)> = Vec::new();
            for entry in read.open_table(COUNTS)?.iter()? {
                let (key, bytes) = entry?;
                let (hour, pool) = key.value();
                if let Ok(tally) = serde_json::from_slice(bytes.value()) {
                    entries.push(((pool.to_owned(), hour), tally));
                }
            }
            Ok(entries)
        })?;
        Ok(Stats::of(entries))
    }

    /// Keeps the counts that changed, and forgets those that are too old.
    ///
    /// # Errors
    /// When they cannot be written: they are written the next time then.
    pub fn keep_stats(&self, stats: &Stats) -> Result<(), StoreError> {
        let (changed, first) = stats.changed();
        if changed.is_empty() {
            return Ok(());
        }
        let written = self.write(|write| {
            let mut table = write.open_table(COUNTS)?;
            for ((pool, hour), tally) in &changed {
                let bytes = serde_json::to_vec(&**tally).unwrap_or_default();
                table.insert((*hour, pool.as_str()), bytes.as_slice())?;
            }
            table.retain_in(..(first, ""), |_, _| false)?;
            Ok(())
        });
        if written.is_err() {
            stats.put_back(changed.into_iter().map(|(key, _)| key));
        }
        written
    }

    fn write<T>(
        &self,
        work: impl FnOnce(&redb::WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let all = || {
            let write = self.database.begin_write()?;
            let done = work(&write)?;
            write.commit()?;
            Ok(done)
        };
        all().map_err(|error: redb::Error| failed(&self.path, error))
    }

    fn read<T>(
        &self,
        work: impl FnOnce(&redb::ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let all = || work(&self.database.begin_read()?);
        all().map_err(|error: redb::Error| failed(&self.path, error))
    }
}

fn failed(path: &Path, error: impl Into<redb::Error>) -> StoreError {
    StoreError::File { path: path.to_owned(), source: Box::new(error.into()) }
}

fn damaged(path: &Path, what: &str) -> StoreError {
    StoreError::Content { path: path.to_owned(), what: what.to_owned() }
}
