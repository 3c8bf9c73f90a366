//! The gateway's side: which snapshots are followed, how far, and for how long.

pub mod follower;
mod judge;
mod status;
pub mod watch;

pub use self::follower::{Clock, Follower, FollowerSettings};
pub use self::judge::{Refusal, Services, Target};
pub use self::status::Status;
pub use self::watch::{Watch, WatchSettings};
