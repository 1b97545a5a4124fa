//! The state of NFS 4.0 to 4.2 between calls: state machines without any network (RFC 8881 sections 2.4, 2.10, 8, 9;
//! RFC 7530 section 9).
//!
//! [`State`] is all of it, one for each server. `P` is what an open pins: the file system's open file. The caller
//! passes the time. No function returns with a lock held, and none sleeps except those whose documentation says so:
//! they wait for the disk, and belong on a worker. An `Err` is the status to answer, and nothing has changed.
//!
//! Which functions the service uses, by operation:
//!
//! | operation | here |
//! |---|---|
//! | EXCHANGE_ID | [`State::exchange_id`], with [`State::identity`] for the owner and scope |
//! | SETCLIENTID, SETCLIENTID_CONFIRM, RENEW | [`State::set_client_id`], [`State::confirm_client_id`], [`State::client_of_zero`]; what is released is given back |
//! | OPEN to LOCKU of minor version 0 | [`Owners`](owners40::Owners): whose turn it is, by which number; [`State::client_of_state`]; then as below |
//! | OPEN_CONFIRM, RELEASE_LOCKOWNER | [`Held::confirm`](held::Held); `locked_files`, `forget_locks` |
//! | CREATE_SESSION | [`State::create_session`]; what it releases is given back to the claims before it is answered |
//! | DESTROY_SESSION, DESTROY_CLIENTID | [`State::destroy_session`], [`State::destroy_client`] |
//! | BIND_CONN_TO_SESSION | [`State::bind_connection`] |
//! | BACKCHANNEL_CTL | [`BackChannel::control`](backchannel::BackChannel), of which each session has one: slots for calls to the client |
//! | SEQUENCE | [`State::begin`]: a [`Begin::New`](session::Begin) is executed and finished with the whole reply |
//! | its limits | [`Session::fore`](session::Session): REQ_TOO_BIG, REP_TOO_BIG, REP_TOO_BIG_TO_CACHE and TOO_MANY_OPS are answered by the service |
//! | RECLAIM_COMPLETE | [`Recovery::complete`](grace::Recovery), which sleeps. With `rca_one_fs`: OK, and nothing |
//! | OPEN | [`Recovery::fresh`](grace::Recovery) or `reclaim`; `recorded`, or `record`, which sleeps; the claims; then [`Held::open`](held::Held) |
//! | LOCK, LOCKU | `fresh` or `reclaim`; [`Held::check`](held::Held); the claims; then `locked` or `unlocked` |
//! | CLOSE, OPEN_DOWNGRADE, DELEGRETURN | `close`, `downgrade`, `undelegate`; then the claims |
//! | READ, WRITE, SETATTR | [`stateids::special`], else `check`: the owner for the claims, and the pin |
//! | COPY, OFFLOAD_STATUS, OFFLOAD_CANCEL | [`Client::begin_copy`], `copy`, `cancel_copy` |
//! | TEST_STATEID, FREE_STATEID | [`Held::test`](held::Held), [`State::free_stateid`]; `write_waiting` after the last loss |
//!
//! Before it calls a function here, the service replaces [`StateId::CURRENT`](rpcrdma_nfs::v4::StateId) by the current
//! stateid: with sequence number 0, except for CLOSE and OPEN_DOWNGRADE. If the claims say that another client is in
//! the way, [`State::take_from`] takes the claim from a client whose lease is over; [`State::revoke`] takes a
//! delegation that its client does not return, or that such a client has. The program calls [`State::sweep`] every few
//! seconds, and [`State::connection_ended`] when a connection ends.
//!
//! The caller has to remove every [`Release`] from the claims, and drop its pins: none comes twice. If an operation
//! gets something from the claims and then an `Err` here, it gives that back, since its client may have ended in
//! between.
//!
//! The order of locks: the table of clients, a client's sessions, a shard of sessions, a session's connections, its
//! back channel, the index of connections; a client's lease, its copies, what it holds. The locks of [`Recovery`] come
//! last. No lock is held during a wait for the disk except the journal's own, which only functions that sleep take.

pub(crate) mod backchannel;
pub(crate) mod callers;
pub(crate) mod channel;
pub(crate) mod checked;
pub(crate) mod clients;
pub(crate) mod clients40;
pub(crate) mod connections;
pub(crate) mod copies;
pub(crate) mod counts;
pub(crate) mod exchange;
pub(crate) mod grace;
pub(crate) mod held;
pub(crate) mod held40;
mod journal;
pub(crate) mod lease;
pub(crate) mod limits;
pub(crate) mod owners;
pub(crate) mod owners40;
pub(crate) mod release;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod slots;
pub(crate) mod stateids;

use crate::claims::FileKey;
use bytes::Bytes;
use channel::Budget;
use clients::{Client, Table};
use grace::Recovery;
use held::Totals;
use lease::Standing;
use limits::Limits;
use release::{Release, Why};
use rpcrdma_env::{Random, Timestamp};
pub(crate) use rpcrdma_nfs::v4::ops::sequence_status as flags;
use rpcrdma_nfs::v4::{ClientId, StateId, StateIdOther, Status};
use sessions::Sessions;
use std::sync::{Arc, Mutex};

/// The server's identity, as EXCHANGE_ID returns it: two servers on one host have two identities, made from the secret
/// of the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `so_major_id`.
    pub(crate) major: Bytes,
    /// `so_minor_id`.
    pub(crate) minor: u64,
    /// `eir_server_scope`.
    pub(crate) scope: Bytes,
}

/// The state of a server.
pub(crate) struct State<P> {
    limits: Arc<Limits>,
    /// Its identity.
    pub(crate) identity: Identity,
    random: Arc<dyn Random>,
    /// What survives a restart.
    pub(crate) recovery: Recovery,
    clients: Mutex<Table<P>>,
    sessions: Sessions<P>,
    budget: Arc<Budget>,
    totals: Arc<Totals>,
}

/// What a client loses that still exists.
pub(crate) struct Loss<P> {
    /// The client.
    pub(crate) client: Arc<Client<P>>,
    /// The states that it loses.
    pub(crate) states: Vec<StateIdOther>,
    /// The reason. With [`Why::Expired`] the states stay if the client has come back in the meantime.
    pub(crate) why: Why,
}

/// What happens to a conflicting claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<P> {
    /// It stays: its client's lease runs.
    Stays,
    /// The server takes it away, with all else that the client holds on the file. The conflict is over once the caller
    /// has handled these releases.
    Gone(Vec<Release<P>>),
}

impl<P> State<P> {
    /// The state of a starting server.
    pub(crate) fn new(recovery: Recovery, identity: Identity, random: Arc<dyn Random>, limits: Limits) -> Self {
        Self {
            budget: Budget::new(limits.cache),
            limits: Arc::new(limits),
            identity,
            random,
            recovery,
            clients: Mutex::default(),
            sessions: Sessions::default(),
            totals: Arc::default(),
        }
    }

    /// The source of random numbers.
    pub(crate) fn random(&self) -> Arc<dyn Random> {
        self.random.clone()
    }

    /// Its limits.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes from clients whose leases are over their claims on a file that another client wants. The other client gets
    /// the file only if all of them lose their claims. Waits for the disk once, and once more if a client has turned
    /// out to be alive. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the server cannot write the journal: then the claims stay, and the request for the file gets
    /// DELAY.
    pub(crate) fn take_from(&self, holders: &[ClientId], file: FileKey, now: Timestamp) -> Result<Taken<P>, Status> {
        // A client that has ended holds nothing.
        let clients: Vec<_> = holders.iter().filter_map(|holder| self.client(*holder).ok()).collect();
        if clients.iter().any(|client| self.is_live(client, now)) {
            return Ok(Taken::Stays);
        }
        // A client that cannot learn of a partial loss loses everything (RFC 7530 section 9.6.3). NFS4-7530-9.6.3-a
        let (of_zero, in_part): (Vec<_>, Vec<_>) = clients.into_iter().partition(|client| client.is_zero());
        // NFS4-8881-8.4.3-a: on the disk before another client gets it.
        self.recovery.note_losses(in_part.iter().map(|client| &**client), &of_zero)?;
        let count = of_zero.len() + in_part.len();
        let (mut released, mut stay) = self.end_those_away(of_zero, now);
        for client in &in_part {
            match client.lease.if_over(now, &self.limits, || client.held.revoke_file(file, Why::Expired)) {
                Some(of_client) => released.extend(of_client),
                // The client has come back in the meantime.
                None => stay += 1,
            }
            self.mend(client);
        }
        self.recovery.write_waiting();
        Ok(if stay > 0 && stay == count { Taken::Stays } else { Taken::Gone(released) })
    }

    /// Ends clients that the journal no longer names, if they are still away. Returns what they held, and how many have
    /// come back in the meantime.
    fn end_those_away(&self, clients: Vec<Arc<Client<P>>>, now: Timestamp) -> (Vec<Release<P>>, usize) {
        let (mut released, mut back) = (Vec::new(), 0);
        for client in clients {
            if client.lease.end_if(now, &self.limits, |standing| standing != Standing::Live) {
                let mut table = self.table();
                table.remove(&client);
                let next = table.confirmed(client.owner());
                drop(table);
                released.extend(self.purge(&client));
                // The journal knows owners by name. The entry that it has just lost may also have been the record of a
                // new incarnation, which has taken the client's place in the meantime.
                // NFS4-7530-9.6.2-a
                if let Some(next) = next.filter(|next| next.is_recorded()) {
                    self.recovery.note_again(&next);
                }
            } else {
                self.recovery.note_again(&client);
                back += 1;
            }
        }
        (released, back)
    }

    /// Corrects the journal's note of a loss. If the client has lost nothing in the end, the note goes; but a note
    /// about a client that has not sent RECLAIM_COMPLETE may date from before a restart, and stays. If the client has
    /// lost something, the note may be gone because the client has acknowledged an earlier loss: then it is written
    /// again.
    fn mend(&self, client: &Client<P>) {
        if client.has_losses() {
            let _ = self.recovery.note_losses([client], &[]);
        } else if client.is_complete() || client.is_zero() {
            self.recovery.restore(client);
        }
    }

    /// Takes states from clients that still exist. Returns what each has lost. Waits for the disk once. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the server cannot write the journal: then the states stay.
    pub(crate) fn revoke(&self, losses: &[Loss<P>], now: Timestamp) -> Result<Vec<Vec<Release<P>>>, Status> {
        // NFS4-8881-8.4.3-a
        self.recovery.note_losses(losses.iter().map(|loss| &*loss.client), &[])?;
        let take = |loss: &Loss<P>| {
            let released = self.take(loss, now);
            self.mend(&loss.client);
            released
        };
        let released = losses.iter().map(take).collect();
        self.recovery.write_waiting();
        Ok(released)
    }

    fn take(&self, Loss { client, states, why }: &Loss<P>, now: Timestamp) -> Vec<Release<P>> {
        let take = || states.iter().flat_map(|state| client.held.revoke(*state, *why)).collect();
        match why {
            Why::Expired => client.lease.if_over(now, &self.limits, take).unwrap_or_default(),
            Why::Admin | Why::NotReturned => take(),
        }
    }

    /// FREE_STATEID. Returns whether it was the last state that the client had lost: then the server replies only when
    /// the disk has the journal's entry ([`Recovery::write_waiting`]). After the reply the client relies on what it
    /// gets, also after a restart.
    ///
    /// # Errors
    /// LOCKS_HELD while it names something, else as for every stateid.
    pub(crate) fn free_stateid(&self, client: &Client<P>, id: StateId) -> Result<bool, Status> {
        let is_last = client.held.free(id)?;
        if is_last {
            self.recovery.restore(client);
        }
        Ok(is_last)
    }

    /// Writes the entries that were left for later. Sleeps.
    pub(crate) fn settle(&self, now: Timestamp) {
        // The log has the reason of a failure, and the journal on the disk is safe: the next start only waits for a
        // client too many.
        let _ = self.recovery.upkeep(now);
    }

    /// Ends the grace period when it is time, and ends clients: those that have not been confirmed for a lease, and
    /// those that were away for longer than the courtesy, or whose place is needed. Returns what these held. Sleeps.
    // NFS4-8881-18.35-g
    pub(crate) fn sweep(&self, now: Timestamp) -> Vec<Release<P>> {
        // If it fails, the next sweep tries again.
        self.settle(now);
        let mut due = Vec::new();
        let mut table = self.table();
        let all: Vec<_> = table.by_id.values().cloned().collect();
        for client in all {
            match client.lease.standing(now, &self.limits) {
                Standing::Courtesy | Standing::Gone if !table.is_confirmed(&client) => table.remove(&client),
                Standing::Gone => due.push(client),
                Standing::Courtesy if client.is_unwanted() => due.push(client),
                Standing::Courtesy | Standing::Live => {}
            }
        }
        drop(table);
        // NFS4-8881-8.4.3-a
        if self.recovery.note_losses(None, &due).is_err() {
            return Vec::new();
        }
        self.end_those_away(due, now).0
    }
}

#[cfg(test)]
mod tests;
