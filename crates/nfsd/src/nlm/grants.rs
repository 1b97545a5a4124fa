//! GRANTED: a lock has become free for a host that waits for it.
//!
//! The server first takes the lock for the host, and then calls the host at the address from which it has called: by
//! GRANTED or, if the host has asked by LOCK_MSG, by GRANTED_MSG, whose answer is a call with our cookie. If the host
//! answers that it no longer waits, or does not answer several calls, the server gives the lock back: meanwhile all
//! others wait for it. Answers from other hosts, or with other cookies, change nothing.

use super::{
    Lockd,
    hosts::{Host, Waiting},
    limits::{BETWEEN_GRANTS, CALL_TIME, GRANT_ATTEMPTS},
    locks::Ask,
    room::UnderWay,
    waiting::{Standing, Waiter, again, bell},
};
use crate::{
    OutsideCall, OutsideError, OutsideTransport,
    claims::{Kind, LockRefused, LockRequest, LockedBy, Using},
};
use bytes::Bytes;
use futures_util::future::{Either, select};
use rpcrdma_nfs::{
    names::escaped,
    nlm::{Cookie, Form, PROGRAM, Procedure, Response, Status, TestArguments, VERSION_4},
};
use rpcrdma_oncrpc::ClientNetwork;
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder};
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::oneshot;

/// How often hosts have taken, refused or not answered a granted lock.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) granted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unanswered: AtomicU64,
}

/// Calls by GRANTED_MSG that wait for an answer: cookie, and the address from which it must come.
#[derive(Default)]
pub(super) struct Answers(Mutex<HashMap<u64, (IpAddr, oneshot::Sender<Status>)>>);

impl Answers {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (IpAddr, oneshot::Sender<Status>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call with this cookie goes out to this address.
    fn expect(&self, cookie: u64, from: IpAddr) -> oneshot::Receiver<Status> {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(cookie, (from, sender));
        receiver
    }

    fn forget(&self, cookie: u64) {
        self.lock().remove(&cookie);
    }

    /// A host answers a call of ours, or claims to. Only the called host's answer counts, and only once.
    pub(super) fn answered(&self, from: IpAddr, cookie: &Cookie, status: Status) -> bool {
        let Ok(octets) = cookie.as_slice().try_into() else { return false };
        let cookie = u64::from_be_bytes(octets);
        let mut expected = self.lock();
        match expected.remove(&cookie) {
            // NLM-GRANT-c
            Some((address, sender)) if address == from => sender.send(status).is_ok(),
            Some(other) => {
                expected.insert(cookie, other);
                false
            }
            None => false,
        }
    }
}

/// A host's answer to GRANTED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// It has the lock.
    Taken,
    /// It does not wait for it.
    Unwanted,
    /// No answer, or none that the server can understand.
    Nothing,
}

impl Said {
    fn of(status: Status) -> Self {
        match status {
            Status::Granted => Self::Taken,
            // The host has just started, and may know more in a moment.
            Status::DeniedGracePeriod => Self::Nothing,
            _ => Self::Unwanted,
        }
    }
}

impl Lockd {
    /// Asks for a lock again on behalf of its host, and calls the host if the lock is free.
    pub(super) fn grant_later(self: &Arc<Self>, host: Arc<Host>, waiter: Arc<Waiter>) {
        let lockd = Arc::downgrade(self);
        self.tasks.spawn(async move {
            if let Some(lockd) = lockd.upgrade() {
                lockd.grant(host, waiter).await;
            }
        });
    }

    async fn grant(self: Arc<Self>, host: Arc<Host>, waiter: Arc<Waiter>) {
        if waiter.is_over() {
            return;
        }
        let (origin, kind) = (waiter.file.caller.origin, waiter.kind);
        // The table recalls a conflicting delegation; the server asks for the lock again soon.
        let Ok(using) = self.server.using(&waiter.file, None, kind).await else {
            let _ = self.on_worker(origin, move |lockd| lockd.postpone(&host, &waiter, false)).await;
            return;
        };
        let (of, by) = (host.clone(), waiter.clone());
        let taken = self.on_worker(origin, move |lockd| lockd.take(&of, &by, using)).await;
        let Ok(Some((cookie, under_way))) = taken else { return };
        let said = self.tell(&waiter, cookie).await;
        drop(under_way);
        let _ = self.on_worker(origin, move |lockd| lockd.granted(&host, &waiter, cookie, said)).await;
    }

    /// Takes a lock for a host that waits for it, if it is free and the host can be called. Sleeps.
    fn take(self: &Arc<Self>, host: &Arc<Host>, waiter: &Arc<Waiter>, using: Using) -> Option<(u64, UnderWay)> {
        let mut held = host.held();
        let at = held.place_of(waiter)?;
        if !matches!(held.waiting.get(at)?.standing, Standing::Waiting(_)) {
            return None;
        }
        let known = held.files.contains_key(&(waiter.key, waiter.holder.clone()));
        let is_full = !known && held.owners() >= self.limits.owners_of_host;
        let place = if known || is_full { None } else { self.owners.take() };
        let under_way = self.calls.begin(ClientNetwork::of(host.address()));
        let (Some(under_way), true) = (under_way, known || place.is_some()) else {
            self.postpone_at(&mut held, at, false);
            return None;
        };
        let before = self.claims().ranges_of(waiter.key, &waiter.holder, waiter.range);
        let host_locks = self.host_locks(&waiter.file, &waiter.open);
        let Waiter { key, holder, range, kind, file, .. } = &**waiter;
        let wake = Some(bell(self, host, waiter));
        let request = LockRequest { file: *key, holder, range: *range, kind: *kind, host: host_locks.as_ref(), wake };
        match self.ask(file.caller.origin, &request, Ask::Lock) {
            Ok(()) => {
                let cookie = self.random.next_u64();
                held.keep(*key, holder, place, (*kind, waiter.open.clone(), Some(using)));
                held.waiting.get_mut(at)?.standing = Standing::Granting { cookie, before };
                Some((cookie, under_way))
            }
            Err(error) => {
                let by_host = matches!(&error, LockRefused::Denied(denied) if denied.by == LockedBy::Host);
                let is_denied = matches!(error, LockRefused::Denied(_));
                self.postpone_at(&mut held, at, is_denied && !by_host);
                None
            }
        }
    }

    fn postpone(&self, host: &Host, waiter: &Arc<Waiter>, is_told: bool) {
        let mut held = host.held();
        if let Some(at) = held.place_of(waiter) {
            self.postpone_at(&mut held, at, is_told);
        }
    }

    fn postpone_at(&self, held: &mut super::hosts::Held, at: usize, is_told: bool) {
        let next = again(self.clock.now(), is_told, held.waiting.len());
        if let Some(Waiting { standing: standing @ Standing::Waiting(_), .. }) = held.waiting.get_mut(at) {
            *standing = Standing::Waiting(next);
        }
    }

    /// Calls a host until it answers whether it takes a lock, [`GRANT_ATTEMPTS`] times at most.
    async fn tell(&self, waiter: &Waiter, cookie: u64) -> Said {
        for attempt in 0..GRANT_ATTEMPTS {
            if attempt > 0 {
                self.clock.sleep_until(self.clock.now() + BETWEEN_GRANTS).await;
            }
            if waiter.is_over() {
                return Said::Nothing;
            }
            let said = match waiter.form {
                Form::Message => self.tell_by_message(waiter, cookie).await,
                _ => match self.call_granted(waiter, cookie, Procedure::Granted).await {
                    Ok(results) => decoded(results),
                    Err(_) => Said::Nothing,
                },
            };
            if said != Said::Nothing {
                return said;
            }
        }
        Said::Nothing
    }

    async fn tell_by_message(&self, waiter: &Waiter, cookie: u64) -> Said {
        let mut answer = self.answers.expect(cookie, waiter.file.caller.origin.connection.ip().to_canonical());
        let late = self.clock.sleep_until(self.clock.now() + CALL_TIME);
        let said = match self.call_granted(waiter, cookie, Procedure::GrantedMessage).await {
            // Some hosts do not reply to a message, because they answer by a call of their own.
            Err(_) => answer.try_recv().map_or(Said::Nothing, Said::of),
            Ok(_) => match select(answer, late).await {
                Either::Left((Ok(status), _)) => Said::of(status),
                _ => Said::Nothing,
            },
        };
        self.answers.forget(cookie);
        said
    }

    // NLM-GRANT-a
    async fn call_granted(&self, waiter: &Waiter, cookie: u64, procedure: Procedure) -> Result<Bytes, OutsideError> {
        let cookie = Cookie::from(&cookie.to_be_bytes()[..]);
        let args = TestArguments { cookie, exclusive: waiter.kind == Kind::Write, lock: waiter.lock.clone() };
        let arguments = match waiter.version {
            VERSION_4 => encoded(&args),
            _ => encoded(&args.narrow::<u32>()),
        };
        let to = waiter.file.caller.origin.connection.ip().to_canonical();
        self.outside.call(outside((waiter.local, to), waiter.version, procedure, arguments)).await
    }

    /// The host has answered, or has not. Sleeps.
    fn granted(&self, host: &Host, waiter: &Arc<Waiter>, cookie: u64, said: Said) {
        let mut held = host.held();
        let Some(at) = held.place_of(waiter) else { return };
        let is_it =
            |waiting: &Waiting| matches!(waiting.standing, Standing::Granting { cookie: own, .. } if own == cookie);
        if !held.waiting.get(at).is_some_and(is_it) {
            return;
        }
        let ended = held.end_waiting(at);
        let total = match said {
            Said::Taken => &self.totals.granted,
            Said::Unwanted => &self.totals.refused,
            Said::Nothing => &self.totals.unanswered,
        };
        let count = total.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        // NLM-GRANT-b, NLM-GRANT-d
        if said != Said::Taken {
            self.give_back(&mut held, &ended);
        }
        if said == Said::Nothing && count.is_power_of_two() {
            tracing::warn!(
                client = %host.address(), name = %escaped(host.name()), count,
                "a client does not confirm that it got the lock that it waits for: the server gave the lock back; this \
                 server must be able to reach the client's lockd and portmapper"
            );
        }
    }
}

/// One call to a program of a host.
pub(super) fn outside(
    (from, to): (IpAddr, IpAddr),
    version: u32,
    procedure: Procedure,
    arguments: Bytes,
) -> OutsideCall {
    OutsideCall {
        from,
        to,
        transport: OutsideTransport::Tcp,
        program: PROGRAM,
        version,
        procedure: procedure as u32,
        arguments,
        limit: CALL_TIME,
    }
}

pub(super) fn encoded(value: &impl Encode) -> Bytes {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().to_bytes()
}

fn decoded(results: Bytes) -> Said {
    match Response::decode(&mut Decoder::new(results.into())) {
        Ok(response) => Said::of(response.status),
        Err(_) => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: NLM-GRANT-c
    #[test]
    fn only_who_was_called_answers_and_only_once() {
        let (answers, address) = (Answers::default(), IpAddr::from([192, 0, 2, 1]));
        let mut answer = answers.expect(7, address);
        let of = |cookie: u64| Cookie::from(&cookie.to_be_bytes()[..]);
        assert!(!answers.answered([192, 0, 2, 2].into(), &of(7), Status::Denied), "a stranger");
        assert!(!answers.answered(address, &of(8), Status::Denied), "another cookie");
        for cookie in [&b""[..], b"7", &[0; 9], &[0; 1024]] {
            assert!(!answers.answered(address, &Cookie::from(cookie), Status::Denied));
        }
        assert!(answer.try_recv().is_err());
        assert!(answers.answered(address, &of(7), Status::Granted));
        assert!(!answers.answered(address, &of(7), Status::Denied), "the second time");
        assert_eq!(answer.try_recv(), Ok(Status::Granted));
    }

    #[test]
    fn an_answer_is_what_its_status_says() {
        for status in Status::ALL {
            let said = decoded(encoded(&Response { cookie: Cookie::from("any"), status }));
            let expected = match status {
                Status::Granted => Said::Taken,
                Status::DeniedGracePeriod => Said::Nothing,
                _ => Said::Unwanted,
            };
            assert_eq!(said, expected, "{status}");
        }
        for octets in [&b""[..], &[0; 4], &[0, 0, 0, 0, 0, 0, 0, 77]] {
            assert_eq!(decoded(Bytes::copy_from_slice(octets)), Said::Nothing);
        }
    }
}
