//! Checks whether a silent peer is alive.
//!
//! We do not send a call twice on an open connection. But if calls are unanswered and nothing has come for
//! [`SILENCE_LIMIT`], we send a NULL call on the credit that we kept for it: any message within [`PROBE_TIMEOUT`] shows
//! that the peer is alive. If no credit could be kept, only [`SPENT_LIMIT`] decides. Owns nothing. The result is a
//! verdict: wait, probe, or close the connection.
//!
//! The probe is NULL in all versions of NFS, and not SEQUENCE: NULL needs no slot of a session, so it can be sent
//! although the only slot is in use, and every server answers it, whatever the state of its client.

use crate::{
    Side,
    config::{PROBE_TIMEOUT, SILENCE_LIMIT, SPENT_LIMIT},
};
use rpcrdma_env::Timestamp;
use rpcrdma_wire::rpc;
use rpcrdma_xdr::{Part, Payload};

/// What the connection does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It waits.
    Wait,
    /// It sends a probe.
    Probe,
    /// It closes.
    Dead,
}

/// The means to find out whether the peer is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// A credit was kept for a probe.
    Reserve,
    /// Every credit that the peer has granted is in use.
    Spent,
    /// None: a peer that posts receives only when it gets an answer has no receive for a probe, so we can only wait.
    None,
    /// Nothing has ever come from this peer, so we do not even know its grant.
    NeverHeard,
}

impl Means {
    /// The means of an end without a credit. A server waits: it gives up each of its calls by itself, and its client
    /// may have nothing to send.
    pub(crate) fn without_credit(side: Side) -> Self {
        match side {
            Side::Client => Self::Spent,
            Side::Server => Self::None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// The time since when calls are unanswered and nothing has come.
    since: Option<Timestamp>,
    /// The time until which the peer must answer the probe under way.
    probe_until: Option<Timestamp>,
}

impl Silence {
    /// We have sent a call.
    pub(crate) fn sent(&mut self, now: Timestamp) {
        self.since.get_or_insert(now);
    }

    /// A message has come from the peer; `waiting` says whether calls are still unanswered.
    pub(crate) fn heard(&mut self, now: Timestamp, waiting: bool) {
        self.since = waiting.then_some(now);
        self.probe_until = None;
    }

    /// When to call [`wake`](Self::wake) again.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.probe_until.or_else(|| self.since.map(|since| since + SILENCE_LIMIT))
    }

    /// The time at which we give the peer up if nothing comes, if it is already known.
    pub(crate) fn gives_up_at(&self) -> Option<Timestamp> {
        self.probe_until
    }

    /// Decides what to do at this time.
    pub(crate) fn wake(&mut self, now: Timestamp, means: Means) -> Verdict {
        match (self.next_wake(), self.probe_until) {
            (None, _) => Verdict::Wait,
            (Some(when), _) if now < when => Verdict::Wait,
            (Some(_), Some(_)) => Verdict::Dead,
            (Some(_), None) => match means {
                Means::None => {
                    self.since = Some(now);
                    Verdict::Wait
                }
                Means::Spent => {
                    self.probe_until = Some(now + (SPENT_LIMIT - SILENCE_LIMIT));
                    Verdict::Wait
                }
                Means::NeverHeard => {
                    self.probe_until = Some(now + PROBE_TIMEOUT);
                    Verdict::Wait
                }
                Means::Reserve => {
                    self.probe_until = Some(now + PROBE_TIMEOUT);
                    Verdict::Probe
                }
            },
        }
    }
}

/// Program and version of a call (RFC 5531 section 9).
pub(crate) fn program(call: &Payload) -> Option<(u32, u32)> {
    let Some(Part::Run(run)) = call.parts().first() else { return None };
    rpc::program(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const _: () = assert!(SPENT_LIMIT.as_secs() > SILENCE_LIMIT.as_secs() + PROBE_TIMEOUT.as_secs());

    const T: Timestamp = Timestamp::from_nanos(1_000);
    const NANO: Duration = Duration::from_nanos(1);

    #[test]
    fn silence_is_probed_at_its_limit_and_judged_at_the_probes() {
        let mut silence = Silence::default();
        assert_eq!((silence.next_wake(), silence.wake(T, Means::Reserve)), (None, Verdict::Wait));
        silence.sent(T);
        silence.sent(T + NANO);
        let limit = T + SILENCE_LIMIT;
        assert_eq!(silence.next_wake(), Some(limit));
        assert_eq!(silence.wake(T + (SILENCE_LIMIT - NANO), Means::Reserve), Verdict::Wait);
        assert_eq!(silence.wake(limit, Means::Reserve), Verdict::Probe);
        assert_eq!(silence.wake(limit + (PROBE_TIMEOUT - NANO), Means::Reserve), Verdict::Wait);
        assert_eq!(silence.wake(limit + PROBE_TIMEOUT, Means::Reserve), Verdict::Dead);
    }

    #[test]
    fn a_word_from_the_peer_starts_again() {
        let mut silence = Silence::default();
        silence.sent(T);
        let limit = T + SILENCE_LIMIT;
        assert_eq!(silence.wake(limit, Means::Reserve), Verdict::Probe);
        silence.heard(limit + NANO, true);
        assert_eq!(silence.wake(limit + SILENCE_LIMIT, Means::Reserve), Verdict::Wait);
        assert_eq!(silence.next_wake(), Some(limit + NANO + SILENCE_LIMIT));
        silence.heard(limit + PROBE_TIMEOUT, false);
        assert_eq!(silence.next_wake(), None, "nothing is owed");
    }

    #[test]
    fn without_a_reserve_it_takes_longer_to_give_a_peer_up() {
        let mut silence = Silence::default();
        silence.sent(T);
        let limit = T + SILENCE_LIMIT;
        assert_eq!(silence.wake(limit, Means::None), Verdict::Wait);
        assert_eq!(silence.next_wake(), Some(limit + SILENCE_LIMIT));
        let mut silence = Silence::default();
        silence.sent(T);
        assert_eq!(silence.wake(limit, Means::Spent), Verdict::Wait);
        assert_eq!(silence.next_wake(), Some(T + SPENT_LIMIT));
        assert_eq!(silence.wake(T + (SPENT_LIMIT - NANO), Means::Spent), Verdict::Wait, "at the limit");
        assert_eq!(silence.wake(T + SPENT_LIMIT, Means::Spent), Verdict::Dead, "one past it");
        let mut silence = Silence::default();
        silence.sent(T);
        assert_eq!(silence.wake(limit, Means::Spent), Verdict::Wait);
        silence.heard(limit, true);
        assert_eq!(silence.next_wake(), Some(limit + SILENCE_LIMIT), "whatever comes begins it anew");
        let mut silence = Silence::default();
        silence.sent(T);
        assert_eq!(silence.wake(limit, Means::NeverHeard), Verdict::Wait);
        assert_eq!(silence.wake(limit + PROBE_TIMEOUT, Means::NeverHeard), Verdict::Dead);
    }

    #[test]
    fn a_probe_is_a_null_call_to_the_same_program() {
        let call = rpc::null_call(7, Some((100_003, 3)));
        assert_eq!(program(&Payload::from(call.slice(..16))), None);
        let probe = rpc::null_call(9, program(&Payload::from(call.clone())));
        assert_eq!((probe.len(), &probe[4..]), (40, &call[4..]));
    }
}
