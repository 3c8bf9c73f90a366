//! What is asked of the program around this crate: ports, and the fleets behind them.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use kvasir_config::PoolConfig;
use kvasir_fleet::Fleet;

/// An answer that comes later.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// All rules of one address and port.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// The address of the rules (their VIP) and the port.
    pub at: SocketAddr,
    /// Where the port is bound instead where the address is not this machine's.
    pub otherwise: IpAddr,
    /// The pools of its rules.
    pub pools: Vec<ScopePool>,
}

/// The pool of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopePool {
    /// The rule's service id.
    pub service: u32,
    /// The pool; one without a model serves whatever its engines do.
    pub pool: PoolConfig,
}

/// Ports, and the fleets behind them.
pub trait Gateway: Send + Sync {
    /// Puts a scope into effect, in place of the one at the same address; where its port is bound. A scope
    /// without pools ends.
    ///
    /// The error says why it cannot; nothing is changed then.
    fn put(&self, scope: Scope) -> Later<Result<SocketAddr, String>>;

    /// The fleet behind an address and port of rules.
    fn fleet(&self, at: SocketAddr) -> Option<Arc<Fleet>>;
}
