//! Calls of the server to its clients (RFC 8881 sections 2.10.3, 20; RFC 8167).
//!
//! ```text
//! mod.rs          what the rest of the server asks for: can a client be called, and call it
//! dial40.rs       minor version 0: by a connection that the server makes
//! channel.rs      one call by a session's back channel: slot, connection, answer
//! health.rs       whether a silent client that holds delegations is alive
//! holder.rs       what a holder of a delegation says of a file
//! message.rs      CB_COMPOUND, and what an answer means for its slot
//! notify_lock.rs  notifies a client that a lock for which it waits may be free
//! paths.rs        connections that clients can be called over
//! probe.rs        whether a client answers calls
//! recall.rs       asks for delegations
//! ```
//!
//! The server calls a client over connections that the client has bound for that. Each call has a time limit, and a
//! client that answers nothing uses up only the slots of its own sessions.

mod channel;
pub(in crate::nfs4) mod dial40;
mod health;
mod holder;
mod message;
mod notify_lock;
mod paths;
mod probe;
mod recall;
#[cfg(test)]
mod tests;

pub use dial40::Dial;
pub(crate) use dial40::Dialler;
pub(crate) use health::Health;
pub(crate) use notify_lock::Notices;
pub(crate) use paths::Paths;

use super::{
    service::{Pin, Shared},
    state::{backchannel::Standing, clients::Client, session::Session},
};
use crate::CallbackEvent;
use channel::{Attempt, Until};
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::v4::{
    Status,
    callback::{Args, Outcome, ReferringCalls},
};
use std::{sync::Arc, time::Duration};

/// How long a client may take to reply to a call, including the wait for a slot, in seconds. Linux's server waits for
/// nine. A recall is tried again until a lease is over.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Why the server does not know a client's results of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// There is no connection over which the client can be called.
    #[error("the client has no connection for calls of the server")]
    NoPath,
    /// The connection has ended, or the client has not replied in time.
    #[error("the client did not answer")]
    Lost,
    /// The client has replied that it executes nothing: the status of CB_SEQUENCE, or of the whole COMPOUND.
    /// REQ_TOO_BIG and TOO_MANY_OPS also stand for calls that exceed the limits of the client's back channel, and
    /// SERVERFAULT for calls that the client's RPC layer has rejected.
    #[error("the client refused the call ({0})")]
    Refused(Status),
}

impl Shared {
    /// Whether the server can call a client now, and the client has shown that it answers.
    pub(crate) fn can_call(&self, client: &Client<Pin>) -> bool {
        if client.is_zero() {
            return self.can_dial(client);
        }
        let sessions = self.state.sessions_by_age(client);
        // NFS4-8881-18.36-m
        sessions.iter().any(|session| session.calls.standing() == Standing::Proven && self.has_path(session))
    }

    fn has_path(&self, session: &Session<Pin>) -> bool {
        self.path_of(session, None).is_some()
    }

    /// The sessions over which the server may call a client now, the best first.
    fn sessions_to_call(&self, client: &Client<Pin>) -> Vec<Arc<Session<Pin>>> {
        let mut sessions = self.state.sessions_by_age(client);
        sessions.retain(|session| self.has_path(session));
        sessions.sort_by_key(|session| match session.calls.standing() {
            Standing::Proven => 0,
            Standing::Unproven => 1,
            Standing::Down => 2,
        });
        sessions
    }

    /// Calls a client: `ops` after CB_SEQUENCE, which this adds (for minor version 0 they go without). `referring` are
    /// calls of the client to whose results these operations refer. The outcomes belong to `ops`, up to the first
    /// failure. A call waits here for a slot of the client's back channel; the caller makes sure that not too many
    /// wait.
    ///
    /// # Errors
    /// As [`NoAnswer`] says. With `Refused` and `NoPath` the client has executed nothing; otherwise that is unknown.
    pub(crate) fn call_back(
        self: &Arc<Self>,
        client: &Arc<Client<Pin>>,
        ops: Vec<Args>,
        referring: Vec<ReferringCalls>,
    ) -> BoxFuture<'static, Result<Vec<Outcome>, NoAnswer>> {
        let (shared, client) = (self.clone(), client.clone());
        Box::pin(async move {
            let answer = match client.is_zero() {
                true => shared.call_dialled(&client, &ops).await,
                false => shared.call_any(&client, &ops, &referring).await,
            };
            shared.tell(&ops, &answer);
            answer
        })
    }

    /// Calls a client over any of its sessions.
    async fn call_any(
        self: &Arc<Self>,
        client: &Client<Pin>,
        ops: &[Args],
        referring: &[ReferringCalls],
    ) -> Result<Vec<Outcome>, NoAnswer> {
        let until = Until::new(&*self.clock, ANSWER_TIME);
        let mut tried = Vec::new();
        loop {
            let mut sessions = self.sessions_to_call(client).into_iter();
            // The same session would give the same answer again.
            let session = sessions.find(|session| !tried.contains(&session.id())).ok_or(NoAnswer::NoPath)?;
            match self.call_in(&session, ops, referring, &until).await {
                Attempt::Ended(answer) => return answer,
                Attempt::NotSent => tried.push(session.id()),
            }
        }
    }

    /// Reports to the observer how a call has ended.
    fn tell(&self, ops: &[Args], answer: &Result<Vec<Outcome>, NoAnswer>) {
        for (at, op) in ops.iter().map(Args::op).enumerate() {
            let event = match answer {
                Ok(outcomes) => match outcomes.get(at).map(Outcome::status) {
                    Some(Status::OK) => CallbackEvent::Answered,
                    Some(_) => CallbackEvent::Refused,
                    // An earlier operation has failed.
                    None => return,
                },
                Err(NoAnswer::Refused(_)) => CallbackEvent::Refused,
                Err(NoAnswer::Lost) => CallbackEvent::Lost,
                Err(NoAnswer::NoPath) => CallbackEvent::NotSent,
            };
            self.observe(|observer| observer.callback(Some(op), event));
        }
    }

    /// A connection has ended: it belongs to no session any more, and the server calls no client over it.
    pub(crate) fn connection_ended(&self, connection: u64) {
        self.paths.remove(connection);
        self.state.connection_ended(connection);
    }
}
