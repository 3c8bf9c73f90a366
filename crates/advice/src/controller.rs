//! The controller: what it reads of engines, the weights it makes of that, and when it says so.

pub mod advisor;
pub mod emission;
mod page;
pub mod run;
mod scrape;
mod service;
pub mod telemetry;
pub mod weights;

pub use self::advisor::{Advisor, AdvisorSettings, Verdict};
pub use self::run::{Controller, ControllerError, ControllerSettings, GatewaySource};
