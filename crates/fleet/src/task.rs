//! A background task that ends with its owner.

use std::future::Future;

use tokio::task::JoinHandle;

/// A running task; aborted when dropped.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Aborts it and waits until it has really ended.
    pub(crate) async fn end(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
