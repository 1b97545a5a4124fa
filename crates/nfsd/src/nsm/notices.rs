//! Notifies hosts of our restart: SM_NOTIFY to each on the list, over UDP and then over TCP, again and again for a
//! time.
//!
//! The program polls this with the rest of the upkeep. Several notices are under way at a time, at most one to each
//! address. The pauses for a host that does not answer become longer, and in the end the server gives it up: it stays
//! on the list for the next start. Time and number limit the cost, whichever hosts are on the list.

use super::{Monitor, hosts::NOTIFY_TIME, list::Listed};
use crate::{OutsideCall, OutsideError, OutsideTransport};
use futures_util::{
    StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use rpcrdma_env::{BoxFuture, Timestamp};
use rpcrdma_nfs::nsm::{self, procedure};
use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How long one attempt over one transport may take, in seconds, including the question for the port.
pub(crate) const NOTICE_LIMIT: Duration = Duration::from_secs(5);
/// How often the server looks for hosts that hold nothing.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

impl Monitor {
    /// Notifies hosts of our restart, and removes hosts that hold nothing any more from the list. Only the first caller
    /// gets this.
    pub(crate) fn drive(self: &Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        if self.is_driven.swap(true, Ordering::Relaxed) {
            return None;
        }
        let monitor = Arc::downgrade(self);
        Some(Box::pin(async move {
            let mut under_way = FuturesUnordered::new();
            let mut swept = Timestamp::ZERO;
            loop {
                let Some(monitor) = monitor.upgrade() else { return };
                let now = monitor.clock.now();
                if now.since(swept) >= SWEEP_INTERVAL {
                    swept = now;
                    monitor.sweep().await;
                }
                let begun = monitor.hosts().begin_notices(now);
                under_way.extend(begun.into_iter().map(|listed| monitor.clone().tell(listed)));
                // A notice that is due but not begun waits for one that is under way.
                let next = monitor.hosts().next_notice().filter(|next| *next > now);
                let next = next.map_or(swept + SWEEP_INTERVAL, |next| next.min(swept + SWEEP_INTERVAL));
                let sleep = monitor.clock.sleep_until(next);
                drop(monitor);
                if under_way.is_empty() {
                    sleep.await;
                } else if let Either::Left((ended, _)) = select(pin!(under_way.next()), sleep).await {
                    debug_assert!(ended.is_some(), "one is under way");
                }
            }
        }))
    }

    async fn sweep(self: &Arc<Self>) {
        let (now, holders) = (self.clock.now(), self.holders());
        let holds = |address, name: &[u8]| holders.as_ref().is_some_and(|holders| holders.holds(address, name));
        let files = self.hosts().sweep(now, holds);
        self.remove(files).await;
    }

    /// One attempt to notify one host.
    async fn tell(self: Arc<Self>, listed: Listed) {
        match self.call(&listed).await {
            Ok(()) => {
                self.totals.told.fetch_add(1, Ordering::Relaxed);
                let now = self.clock.now();
                self.hosts().told(&listed, now);
            }
            Err(error) => {
                self.totals.unanswered.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(client = %listed.address, %error, "cannot notify a host of the restart");
                let now = self.clock.now();
                if self.hosts().not_told(&listed, now, self.restarted) {
                    self.totals.given_up.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.say_when_done();
    }

    async fn call(&self, listed: &Listed) -> Result<(), OutsideError> {
        let over = |transport| {
            self.outside.call(OutsideCall {
                from: listed.local,
                to: listed.address,
                transport,
                program: nsm::PROGRAM,
                version: nsm::VERSION,
                procedure: procedure::NOTIFY,
                arguments: nsm::notice(&self.name, self.state),
                limit: NOTICE_LIMIT,
            })
        };
        match over(OutsideTransport::Udp).await {
            Ok(_) => return Ok(()),
            Err(OutsideError::Busy) => return Err(OutsideError::Busy),
            Err(_) => {}
        }
        // NSM-1-c
        over(OutsideTransport::Tcp).await.map(|_| ())
    }

    /// Logs the results of the notices, once.
    fn say_when_done(&self) {
        let untold = self.hosts().sizes().untold;
        if untold > 0 || self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let [told, given_up] = [&self.totals.told, &self.totals.given_up].map(|total| total.load(Ordering::Relaxed));
        if given_up > 0 {
            tracing::warn!(
                told,
                not_told = given_up,
                "some hosts that had locks could not be notified of this restart within {} s: programs there believe \
                 that they have locks that they do not have; the next start notifies these hosts again",
                NOTIFY_TIME.as_secs()
            );
        } else {
            tracing::info!(told, "all hosts that had locks have been notified of this restart");
        }
    }
}
