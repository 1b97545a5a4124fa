//! Acts at the times at which a session must do something without an event of its queue pair.

use super::Session;
use crate::{ConnectionError, calls::Calls};
use std::task::Context;

pub(super) enum Timer {
    /// The timer will wake the task.
    Set,
    /// Something may be due.
    Fired,
    /// The queue pair must be dropped.
    Abandon,
}

impl Session {
    pub(super) fn poll_timer(&mut self, cx: &mut Context<'_>, calls: &mut Calls) -> Timer {
        let stalled = (self.owed > 0).then(|| self.owed_since + self.stall);
        // A connection that its provider reports as closed has ended, even if no completion says so: otherwise its
        // calls would wait for ever.
        let refused = self.refused;
        let wanted = match self.closing {
            Some(when) => Some(when),
            // The peer is not to blame for messages that wait here.
            None if self.parts.is_waiting() => [stalled, refused].into_iter().flatten().min(),
            None => [self.engine.next_wake(), stalled, refused].into_iter().flatten().min(),
        };
        let Some(wanted) = wanted else { return Timer::Set };
        // A timer that fires too early is kept: times change with every message, and a new timer for each would cost
        // too much.
        if self.timer.as_ref().is_none_or(|(when, _)| *when > wanted) {
            self.timer = Some((wanted, self.env.clock.sleep_until(wanted)));
        }
        if let Some((_, timer)) = &mut self.timer
            && timer.as_mut().poll(cx).is_pending()
        {
            return Timer::Set;
        }
        self.timer = None;
        let now = self.env.clock.now();
        match self.closing {
            Some(when) if when <= now => return Timer::Abandon,
            Some(_) => return Timer::Fired,
            None => {}
        }
        if refused.is_some_and(|when| when <= now) {
            return Timer::Abandon;
        }
        if stalled.is_some_and(|when| when <= now) {
            self.error = Some(ConnectionError::Stalled { after: self.stall });
            return Timer::Abandon;
        }
        let (engine, mut host) = self.host(calls);
        engine.wake(now, &mut host);
        Timer::Fired
    }
}
