//! Finds out whether a client answers calls: by CB_NULL, once after the client has bound a connection for calls.
//!
//! The probe is handed over while the client's call is executed, and goes over the same connection, so that it comes
//! behind the reply. CB_NULL needs neither a session nor a slot, so a client that is still making its session can
//! answer. There are no further probes: between two calls of its own, Linux's client has receives for only a few calls.

use super::{
    super::{
        compound::Compound,
        service::{Pin, Shared},
        state::{backchannel::Standing, session::Session},
    },
    ANSWER_TIME,
};
use crate::CallbackEvent;
use futures_util::future::{Either, select};
use rpcrdma_nfs::v4::callback::VERSION;
use rpcrdma_oncrpc::{Client as RpcClient, NoAuth};
use std::{pin::pin, sync::Arc};

impl Compound {
    /// From now on the server may call the client over the connection of this call: finds out whether it answers.
    pub(in crate::nfs4) fn begin_calling(&self, session: &Arc<Session<Pin>>) {
        self.shared.paths.add(&self.context.connection);
        session.set_standing(Standing::Unproven);
        session.calls.notice();
        self.shared.probe(session);
    }
}

impl Shared {
    /// Finds out whether a client answers, by a task.
    pub(in crate::nfs4) fn probe(self: &Arc<Self>, session: &Arc<Session<Pin>>) {
        if !session.calls.begin_probe() {
            return;
        }
        let (shared, session) = (self.clone(), session.clone());
        self.tasks.spawn(async move {
            let mut answers = shared.answers(&session).await;
            while session.calls.end_probe() {
                answers = shared.answers(&session).await;
            }
            // If another call has shown it meanwhile, that counts more.
            if session.calls.standing() == Standing::Unproven {
                session.set_standing(if answers { Standing::Proven } else { Standing::Down });
            }
        });
    }

    // NFS4-8881-18.36-m
    async fn answers(&self, session: &Session<Pin>) -> bool {
        let Some(path) = self.path_of(session, None) else { return false };
        let (program, context) = session.calls.signed();
        // With a context, the reply shows that it is valid; otherwise the caller of NULL does not matter.
        let flavour = context.unwrap_or_else(|| Arc::new(NoAuth));
        let client = RpcClient::new(path.transport, flavour, program, VERSION);
        self.observe(|observer| observer.callback(None, CallbackEvent::Sent));
        let ended = pin!(session.calls.until_ended());
        let over = select(self.clock.sleep_until(self.now() + ANSWER_TIME), ended);
        let answered = match select(pin!(client.null()), over).await {
            Either::Left((answer, _)) => answer.is_ok(),
            Either::Right(_) => false,
        };
        self.observe(|observer| {
            observer.callback(None, if answered { CallbackEvent::Answered } else { CallbackEvent::Lost })
        });
        answered
    }
}
