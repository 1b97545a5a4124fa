//! The state of NFS 4.0 to 4.2 between calls: state machines without any network (RFC 8881 sections 2.4, 2.10, 8, 9;
//! RFC 7530 section 9).
//!
//! [`State`] is the whole of it, one for a server. `P` is what an open pins, the file system's open file. Time comes
//! with each call. No function returns with a lock held, and none sleeps, except those whose documentation says so:
//! they wait for the disk, and belong on a worker. An `Err` is the status to answer, and nothing has changed.
//!
//! How the service stands on it, by operation:
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
//! The service puts the current stateid in the place of [`StateId::CURRENT`](rpcrdma_nfs::v4::StateId) before it asks
//! here: with sequence number 0, except for CLOSE and OPEN_DOWNGRADE. Where the claims say that another client stands
//! in the way, [`State::take_from`] takes it from a client whose lease is over; [`State::revoke`] takes a delegation
//! that is not returned, or is wanted from such a client. The program calls [`State::sweep`] every few seconds, and
//! [`State::connection_ended`] when a connection ends.
//!
//! Every [`Release`] has to be taken out of the claims, and its pins dropped: none comes twice. An operation that got
//! something from the claims and an `Err` here gives it back, since its client may have ended in between.
//!
//! Locks are taken in this order: the table of clients, a client's sessions, a shard of sessions, a session's
//! connections, its back channel, the index of connections; a client's lease, its copies, what it holds. Those of
//! [`Recovery`] come last. None is held while the disk is waited for but the journal's own, which only functions that
//! sleep take.

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

/// Who the server is, as EXCHANGE_ID says: two servers of one host have two identities, made of the state directory's
/// secret.
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
    /// Who it is.
    pub(crate) identity: Identity,
    random: Arc<dyn Random>,
    /// What survives a restart.
    pub(crate) recovery: Recovery,
    clients: Mutex<Table<P>>,
    sessions: Sessions<P>,
    budget: Arc<Budget>,
    totals: Arc<Totals>,
}

/// What a client loses that goes on.
pub(crate) struct Loss<P> {
    /// Who loses it.
    pub(crate) client: Arc<Client<P>>,
    /// What it loses.
    pub(crate) states: Vec<StateIdOther>,
    /// Why. What [expires](Why::Expired) stays if the client has come back in the meantime.
    pub(crate) why: Why,
}

/// What becomes of a claim that conflicts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<P> {
    /// It stays: its client's lease runs.
    Stays,
    /// It is taken away, with all else of the client on the file. The conflict is over once this is given back.
    Gone(Vec<Release<P>>),
}

impl<P> State<P> {
    /// The state of a server that starts.
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

    /// Where random numbers come from.
    pub(crate) fn random(&self) -> Arc<dyn Random> {
        self.random.clone()
    }

    /// Its limits.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes from clients whose leases are over what they hold on a file that another client wants, who gets it only if
    /// all of them lose it. Waits for the disk once, and once more if a client turned out to be alive. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the journal cannot be written: it stays. The request that wanted it is then answered with DELAY.
    pub(crate) fn take_from(&self, holders: &[ClientId], file: FileKey, now: Timestamp) -> Result<Taken<P>, Status> {
        // One that is no more holds nothing.
        let clients: Vec<_> = holders.iter().filter_map(|holder| self.client(*holder).ok()).collect();
        if clients.iter().any(|client| self.is_live(client, now)) {
            return Ok(Taken::Stays);
        }
        // A client that cannot learn of a part of a loss loses everything (RFC 7530 section 9.6.3). NFS4-7530-9.6.3-a
        let (of_zero, in_part): (Vec<_>, Vec<_>) = clients.into_iter().partition(|client| client.is_zero());
        // NFS4-8881-8.4.3-a: on the disk before another client gets it.
        self.recovery.note_losses(in_part.iter().map(|client| &**client), &of_zero)?;
        let count = of_zero.len() + in_part.len();
        let (mut released, mut stay) = self.end_those_away(of_zero, now);
        for client in &in_part {
            match client.lease.if_over(now, &self.limits, || client.held.revoke_file(file, Why::Expired)) {
                Some(of_client) => released.extend(of_client),
                // It has come back in the meantime.
                None => stay += 1,
            }
            self.mend(client);
        }
        self.recovery.write_waiting();
        Ok(if stay > 0 && stay == count { Taken::Stays } else { Taken::Gone(released) })
    }

    /// Ends clients of which the journal says that they are expired, if they are still away. Gives what they held, and
    /// how many have come back in the meantime.
    fn end_those_away(&self, clients: Vec<Arc<Client<P>>>, now: Timestamp) -> (Vec<Release<P>>, usize) {
        let (mut released, mut back) = (Vec::new(), 0);
        for client in clients {
            if client.lease.end_if(now, &self.limits, |standing| standing != Standing::Live) {
                let mut table = self.table();
                table.remove(&client);
                let next = table.confirmed(client.owner());
                drop(table);
                released.extend(self.purge(&client));
                // The journal knows owners by name: what it has just forgotten was also the record of an incarnation
                // that has taken the client's place in the meantime.
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

    /// If nothing was taken in the end, the journal must say so. What it says of a client that has not completed may
    /// date from before a restart, and stays. If something was taken, the journal still says it, unless the client has
    /// meanwhile acknowledged what it had lost before.
    fn mend(&self, client: &Client<P>) {
        if client.has_losses() {
            let _ = self.recovery.note_losses([client], &[]);
        } else if client.is_complete() || client.is_zero() {
            self.recovery.restore(client);
        }
    }

    /// Takes states from clients that go on. Gives what each has lost. The disk is waited for once. Sleeps.
    ///
    /// # Errors
    /// SERVERFAULT if the journal cannot be written: they stay.
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

    /// FREE_STATEID. True if it was the last that the client had lost: then it is answered when the journal has that on
    /// the disk ([`Recovery::write_waiting`]). From the answer on the client counts on what it gets, also after a
    /// restart.
    ///
    /// # Errors
    /// LOCKS_HELD while it stands for something, else as for every stateid.
    pub(crate) fn free_stateid(&self, client: &Client<P>, id: StateId) -> Result<bool, Status> {
        let is_last = client.held.free(id)?;
        if is_last {
            self.recovery.restore(client);
        }
        Ok(is_last)
    }

    /// Writes what was left for later. Sleeps.
    pub(crate) fn settle(&self, now: Timestamp) {
        // The log says why it failed, and what is on the disk is safe: a client too many is waited for.
        let _ = self.recovery.upkeep(now);
    }

    /// Ends the grace period when it is time, and clients: those that nobody confirmed for a lease, and those that were
    /// away for longer than the courtesy lasts, or whose place is wanted. Gives what these held. Sleeps.
    // NFS4-8881-18.35-g
    pub(crate) fn sweep(&self, now: Timestamp) -> Vec<Release<P>> {
        // If it fails it is tried again the next time.
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
