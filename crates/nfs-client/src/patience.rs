//! How long a call waits for a server that says "try again later".

use rpcrdma_env::Clock;
use std::{fmt::Display, time::Duration};

/// The first wait; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// The limit of all waits of one call together; then the caller gets the status. Servers ask for time to fetch a file
/// from slow storage, to announce lost writes, or until a grace period ends. But a server that asks for ever must not
/// delay a command for ever.
const LIMIT: Duration = Duration::from_secs(10 * 60);
/// After so long a wait the log says why.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// The waits of one call: how long the next one is, and how long all were so far.
#[derive(Debug)]
pub(crate) struct Patience {
    wait: Duration,
    waited: Duration,
    /// Whether the log has it.
    is_told: bool,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { wait: FIRST_WAIT, waited: Duration::ZERO, is_told: false }
    }

    /// Waits because of this answer of the server, as [`wait`](Self::wait), and says so in the log if it takes long.
    pub(crate) async fn wait_after(&mut self, answer: impl Display, clock: &dyn Clock) -> bool {
        if !self.is_told && self.waited >= TOLD_AFTER {
            self.is_told = true;
            let most = LIMIT.as_secs();
            tracing::info!(%answer, most, "the server asks to try again later: a call waits for at most so many seconds");
        }
        self.wait(clock).await
    }

    /// Waits. Returns false at once if the call has waited as long as it may.
    pub(crate) async fn wait(&mut self, clock: &dyn Clock) -> bool {
        if self.waited >= LIMIT {
            return false;
        }
        let wait = self.wait.min(LIMIT - self.waited);
        clock.sleep_until(clock.now() + wait).await;
        self.waited += wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        true
    }
}
