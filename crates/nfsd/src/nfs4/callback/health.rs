//! Whether a silent client that holds delegations is alive (ULB section 5.4.2).
//!
//! Others may wait for the files that it holds, and some transports keep connections open for ever although the peer is
//! gone. If the server has heard nothing from a client for [`SILENT_PARTS`] of a lease, it calls the client by a
//! CB_SEQUENCE alone: the reply renews the lease. If the client sends neither a reply nor anything else for
//! [`ANSWER_TIME`], the server ends the connections over which it calls the client. A living client notices that,
//! connects again, and can still renew its lease in time. Otherwise its files are free when the lease is over, and
//! nobody has to wait for its reply to a recall.
//!
//! The server never calls a client that renews its lease in good time (Linux does so after two thirds of it at the
//! latest). In minor version 0 the server makes a connection only for a call, so there is none to watch.
//!
//! Owns, for each silent client that the server has called, the time of that client's last call. Nothing fails.

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

/// The part of a lease, as a fraction, for which a client must be silent before the server calls it.
const SILENT_PARTS: (u32, u32) = (3, 4);

/// Why such a client's connections are ended.
const WHY: &str = "the client holds delegations, was silent, and did not answer a call of the server";

/// For each client that was called, when its last call had come: so the server calls a client once in each silence.
/// There are at most as many entries as clients with delegations.
#[derive(Default)]
pub(crate) struct Health(Mutex<HashMap<ClientId, Timestamp>>);

impl Health {
    /// The silent clients that the server has not yet called in this silence. Forgets all others.
    fn not_called(&self, silent: Vec<(Arc<Client<Pin>>, Timestamp)>) -> Vec<(Arc<Client<Pin>>, Timestamp)> {
        let mut called = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *called);
        called.extend(silent.iter().map(|(client, heard)| (client.id(), *heard)));
        silent.into_iter().filter(|(client, heard)| before.get(&client.id()) != Some(heard)).collect()
    }
}

impl Shared {
    /// Calls clients that hold delegations and are silent.
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
        self.observe(|observer| observer.health(HealthEvent::Asked));
        match self.call_back(client, Vec::new(), Vec::new()).await {
            // A client that refuses is alive.
            Ok(_) | Err(NoAnswer::Refused(_)) => self.observe(|observer| observer.health(HealthEvent::Answered)),
            Err(NoAnswer::NoPath) => {}
            // If the client has sent something meanwhile, it is alive.
            Err(NoAnswer::Lost) if client.lease.renewed() > heard => {}
            Err(NoAnswer::Lost) => {
                tracing::debug!(client = client.id().0, "a silent client that holds delegations answers nothing");
                self.observe(|observer| observer.health(HealthEvent::GivenUp));
                let sessions = self.state.sessions_by_age(client);
                let connections = sessions.iter().flat_map(|session| session.back_connections());
                for path in connections.filter_map(|connection| self.paths.get(connection)) {
                    path.transport.give_up(WHY);
                }
            }
        }
    }
}
