//! Locks and atomics: the real ones, or those of a scheduler that tries interleavings.

#[cfg(not(feature = "shuttle"))]
pub(crate) use self::real::*;
#[cfg(feature = "shuttle")]
pub(crate) use self::scheduled::*;

#[cfg(not(feature = "shuttle"))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

    pub(crate) use parking_lot::{Mutex, RwLock};
}

#[cfg(feature = "shuttle")]
mod scheduled {
    use std::sync::PoisonError;

    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
    pub(crate) use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    /// A lock with the interface of the real one.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A lock with the interface of the real one.
    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
