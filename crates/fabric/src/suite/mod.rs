//! The behaviour that every provider must have, as a suite that a provider's own tests run (feature `suite`).
//!
//! Each [`Case`] takes two fabrics, one that connects and one that listens, makes its connections and checks the
//! contract on them: order, visibility, bounds, fences, the end. Where providers differ, it asks the
//! [`Capabilities`](crate::Capabilities), never for a name. Cases are plain futures and start nothing: any executor can
//! run them, and time-outs come from the [`Env`], so that a hang fails. A case that fails panics with what it waited
//! for.
//!
//! Every buffer of a case is counted. Everything that a queue pair was given must come back exactly once and before it
//! is closed, and when a case is over nothing may still hold any of its memory.
//!
//! Connections of the suite begin with a Send of the connecting side, because on some fabrics (iWARP) the accepting
//! side may not be the first to send.
//!
//! ```
//! use rpcrdma_fabric::{BoxFuture, suite::{Setup, Verdict, cases}};
//!
//! fn run_all(setup: impl Fn() -> Setup, block_on: impl Fn(BoxFuture<'static, Verdict>) -> Verdict) {
//!     for case in cases() {
//!         println!("{}: {:?}", case.name(), block_on(case.run(setup())));
//!     }
//! }
//! ```

mod connecting;
mod end;
mod ending;
mod exposures;
mod ledger;
mod limits;
mod load;
mod pair;
mod placement;
mod sends;

use crate::{BoxFuture, Fabric};
use rpcrdma_env::Env;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// The input of a case.
#[derive(Clone)]
pub struct Setup {
    /// The fabric that connects.
    pub a: Arc<dyn Fabric>,
    /// The fabric that listens. It may be the same fabric.
    pub b: Arc<dyn Fabric>,
    /// The address at which to listen: an address of `b`, port 0.
    pub listen: SocketAddr,
    /// Time and randomness.
    pub env: Env,
}

/// The result of a case that did not panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The provider keeps the promise.
    Passed,
    /// The provider does not have the capability that the case checks.
    Skipped(&'static str),
}

/// A case: it checks one promise of the contract.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    run: fn(Given) -> BoxFuture<'static, Verdict>,
}

/// The input of a case's function.
#[derive(Clone)]
struct Given {
    setup: Setup,
    /// Whether the provider distinguishes the reasons of failures.
    exact_reasons: bool,
}

impl std::ops::Deref for Given {
    type Target = Setup;

    fn deref(&self) -> &Setup {
        &self.setup
    }
}

impl Case {
    /// The promise.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Checks the promise.
    ///
    /// # Panics
    /// If the provider does not keep the promise, or does not answer within half a minute.
    pub fn run(&self, setup: Setup) -> BoxFuture<'static, Verdict> {
        (self.run)(Given { setup, exact_reasons: true })
    }

    /// Checks the promise, except the reasons that the provider gives for failures and ends: devices report one error
    /// in different words, or report only a flush.
    ///
    /// # Panics
    /// As [`run`](Case::run).
    pub fn run_without_reasons(&self, setup: Setup) -> BoxFuture<'static, Verdict> {
        (self.run)(Given { setup, exact_reasons: false })
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Case({})", self.name)
    }
}

/// Every case, in an order in which the first failure explains the most.
pub fn cases() -> Vec<Case> {
    [connecting::CASES, sends::CASES, placement::CASES, exposures::CASES, ending::CASES, limits::CASES, load::CASES]
        .concat()
}

/// How long a case waits for any one event.
const PATIENCE: Duration = Duration::from_secs(30);

/// A case, by its function's name.
macro_rules! case {
    ($name:ident) => {
        $crate::suite::Case { name: stringify!($name), run: |given| Box::pin($name(given)) }
    };
}
use case;
