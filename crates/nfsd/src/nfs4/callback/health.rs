//! Whether a silent client that holds delegations is alive (ULB section 5.4.2).
//!
//! Others may have to wait for what it holds, and some transports keep connections open for ever although the peer is
//! gone. If the server has not heard from a client for [`SILENT_PARTS`] of a lease, it calls it by a CB_SEQUENCE alone:
//! the answer renews the lease. If the client does not answer for [`ANSWER_TIME`], and has sent nothing else meanwhile,
//! the server ends the connections by which it is called. A client that lives notices that, connects again, and can
//! still renew its lease in time; otherwise, what it held is free when the lease is over, and nobody waits for its
//! answer to a recall.
//!
//! A client that renews its lease as it should, after two thirds of it at the latest as Linux does, is never called. In
//! minor version 0 the server makes a connection when it calls, so that there is none to watch.
//!
//! Owns the times when each client was looked at. Nothing fails.

use super::{
    super::{
        service::{Pin, Shared},
        state::{clients::Client, lease::Standing},
    },
    NoAnswer,
};
use crate::HealthEvent;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::ClientId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// A client is called when it was silent for so many parts of a lease, and so many are a lease.
const SILENT_PARTS: (u32, u32) = (3, 4);

/// Why such a client's connections are ended.
const WHY: &str = "the client holds delegations, was silent, and left a call of the server's unanswered";

/// When the last call of each called client had come, so that the server calls a client once in each silence. There are
/// no more than clients that hold delegations.
#[derive(Default)]
pub(crate) struct Health(Mutex<HashMap<ClientId, Timestamp>>);

impl Health {
    /// Which of the clients that are silent have not been called in this silence. Others are forgotten.
    fn not_called(&self, silent: Vec<(Arc<Client<Pin>>, Timestamp)>) -> Vec<(Arc<Client<Pin>>, Timestamp)> {
        let mut called = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *called);
        called.extend(silent.iter().map(|(client, heard)| (client.id(), *heard)));
        silent.into_iter().filter(|(client, heard)| before.get(&client.id()) != Some(heard)).collect()
    }
}

impl Shared {
    /// Calls those who hold delegations and are silent.
    pub(in crate::nfs4) fn check_health(self: &Arc<Self>) {
        let (now, limits) = (self.now(), self.limits());
        let (parts, of) = SILENT_PARTS;
        let silence = limits.lease.saturating_mul(parts) / of;
        let silent = self.delegations.holders().into_iter().filter_map(|client| {
            let heard = client.lease.renewed();
            let is_due = now.since(heard) >= silence && client.lease.standing(now, limits) == Standing::Live;
            (is_due && !client.is_zero()).then_some((client, heard))
        });
        for (client, heard) in self.health.not_called(silent.collect()) {
            let shared = self.clone();
            self.tasks.spawn(async move { shared.ask_after(&client, heard).await });
        }
    }

    async fn ask_after(self: &Arc<Self>, client: &Arc<Client<Pin>>, heard: Timestamp) {
        self.observer.health(HealthEvent::Asked);
        match self.call_back(client, Vec::new(), Vec::new()).await {
            // A client that refuses is alive.
            Ok(_) | Err(NoAnswer::Refused(_)) => self.observer.health(HealthEvent::Answered),
            Err(NoAnswer::NoPath) => {}
            // What it has sent meanwhile counts more.
            Err(NoAnswer::Lost) if client.lease.renewed() > heard => {}
            Err(NoAnswer::Lost) => {
                tracing::debug!(client = client.id().0, "a silent client that holds delegations answers nothing");
                self.observer.health(HealthEvent::GivenUp);
                let sessions = self.state.sessions_by_age(client);
                let connections = sessions.iter().flat_map(|session| session.back_connections());
                for path in connections.filter_map(|connection| self.paths.get(connection)) {
                    path.transport.give_up(WHY);
                }
            }
        }
    }
}
