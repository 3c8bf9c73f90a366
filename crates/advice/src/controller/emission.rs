//! When a snapshot is given, and what it is called by: at least once an epoch, so that advice which still
//! holds does not run out, at most once an epoch, and not while nobody was heard of.

use std::time::Duration;

use crate::wire::aictrl::{ServiceSnapshot, Snapshot};

/// Epochs after which advice runs out.
const EPOCHS_TO_DEADLINE: u64 = 3;

/// Numbers the snapshots of one process.
#[derive(Clone, Debug)]
pub struct Emission {
    boot_id: String,
    epoch: u64,
    last: Option<Duration>,
}

impl Emission {
    /// Of a process with this id, which no other has had.
    #[must_use]
    pub fn new(boot_id: String) -> Self {
        Self { boot_id, epoch: 0, last: None }
    }

    /// The number of the last snapshot; 0 before the first.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether an epoch is over, `now` after the start.
    #[must_use]
    pub fn is_due(&self, now: Duration, period: Duration) -> bool {
        self.last.is_none_or(|last| now.saturating_sub(last) >= period)
    }

    /// The next snapshot. To be asked when one [is due](Self::is_due).
    pub fn emit(
        &mut self,
        (now, unix_ms): (Duration, u64),
        period: Duration,
        service: ServiceSnapshot,
    ) -> Snapshot {
        self.epoch += 1;
        self.last = Some(now);
        let period_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        let left = period_ms.saturating_mul(EPOCHS_TO_DEADLINE);
        Snapshot {
            epoch: self.epoch,
            boot_id: self.boot_id.clone(),
            staleness_deadline_unix_ms: unix_ms.saturating_add(left),
            services: vec![service],
            min_applier_version: 1,
            nonce: format!("{}-{}", self.boot_id, self.epoch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_an_epoch_apart_and_run_out_after_three() {
        let period = Duration::from_secs(10);
        let mut emission = Emission::new("b".to_owned());
        let at = Duration::from_secs;
        assert!(emission.is_due(at(0), period));
        let first = emission.emit((at(0), 1_000), period, ServiceSnapshot::default());
        assert_eq!((first.epoch, first.staleness_deadline_unix_ms), (1, 31_000));
        assert_eq!((&*first.boot_id, &*first.nonce), ("b", "b-1"));
        assert!(!emission.is_due(Duration::from_millis(9_999), period));
        assert!(emission.is_due(at(10), period));
        let second = emission.emit((at(10), 11_000), period, ServiceSnapshot::default());
        assert_eq!((second.epoch, emission.epoch(), &*second.nonce), (2, 2, "b-2"));
    }
}
