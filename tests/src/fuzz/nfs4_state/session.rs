//! Clients and their sessions: the answers to SEQUENCE, EXCHANGE_ID and similar operations, and what a restart leaves.

use super::{
    Run, delegated,
    model::{CLIENTS, Known, Model, SLOTS, Slot},
    world::{LEASE, World, decoded, encoded},
    zero,
};
use crate::fuzz::mint::Mint;
use rpcrdma_nfs::v4::{
    Args, Arguments, ClientName, FileAttributes, Handle, Name, Outcome, Owner, OwnerName, SessionId, Status, Verifier,
    ops::{self, sequence_status},
};
use rpcrdma_xdr::ItemData;

/// The results of the only operation in a call.
macro_rules! only {
    ($outcomes:expr, $op:ident) => {
        match $outcomes.pop() {
            Some(Outcome::$op(answer)) => answer,
            other => panic!("results of another operation: {other:?}"),
        }
    };
}
pub(super) use only;

fn channel() -> ops::ChannelAttributes {
    ops::ChannelAttributes::new(8_192, 2_048, 8, SLOTS as u32)
}

fn exchange_id(name: &str, incarnation: u64) -> Args {
    Args::ExchangeId(Box::new(ops::ExchangeId::new(ClientName::from(name), Verifier(incarnation.to_be_bytes()), 0)))
}

fn create_session(known: &ops::ExchangeIdOk) -> Args {
    Args::CreateSession(Box::new(ops::CreateSession::new(known, channel())))
}

/// The same over a connection on which the server calls.
fn create_session_called(known: &ops::ExchangeIdOk) -> Args {
    let flags = ops::create_session::CONN_BACK_CHAN;
    Args::CreateSession(Box::new(ops::CreateSession { flags, ..ops::CreateSession::new(known, channel()) }))
}

fn sequence(session: SessionId, slot: usize, sequence: u32, cache: bool) -> Args {
    Args::Sequence(ops::Sequence { session, sequence, slot: slot as u32, highest_slot: SLOTS as u32 - 1, cache })
}

/// Makes the files, with a client that leaves no state behind.
fn make_files(world: &World) -> ([Handle; super::FILES], [Handle; super::DATA_FILES], [Handle; 2]) {
    let send = |ops| decoded(&world.call(1, &encoded(&Arguments::new(2, ops)))).results;
    let known = only!(send(vec![exchange_id("maker", 1)]), ExchangeId).expect("a client");
    let session = only!(send(vec![create_session(&known)]), CreateSession).expect("a session").session;
    let mut number = 0;
    let mut call = |ops: Vec<Args>| {
        number += 1;
        send([vec![sequence(session, 0, number, false)], ops].concat())
    };
    let complete = Args::ReclaimComplete(ops::ReclaimComplete { one_file_system: false });
    only!(call(vec![complete]), ReclaimComplete).expect("nothing to reclaim");
    let mut make = |name: &'static str| {
        let how = ops::OpenHow::Create(ops::CreateHow::Unchecked(FileAttributes::default()));
        let owner = Owner { client: known.client, name: OwnerName::from("o") };
        let claim = ops::Claim::Null(Name::from(name));
        let open = ops::Open { sequence: 0, access: 3, deny: 0, owner, how, claim };
        let mut made = call(vec![Args::PutRootFh, Args::Open(Box::new(open)), Args::GetFh]);
        let file = only!(made, GetFh).expect("a file").file;
        let state = only!(made, Open).expect("a file").state;
        let close = Args::Close(ops::Close { sequence: 0, state });
        only!(call(vec![Args::PutFh(ops::PutFh { file: file.clone() }), close]), Close).expect("it was open");
        file
    };
    let files = ([make("0"), make("1")], [make("2"), make("3")], [make(zero::FILE), make(delegated::FILE)]);
    only!(call(vec![Args::DestroySession(ops::DestroySession { session })]), DestroySession).expect("a session");
    let destroy = Args::DestroyClientId(ops::DestroyClientId { client: known.client });
    only!(send(vec![destroy]), DestroyClientId).expect("a client");
    files
}

impl Run {
    pub(super) fn new() -> Self {
        let world = World::new();
        let (files, data_files, [zero_file, delegated_file]) = make_files(&world);
        Self {
            world,
            model: Model::default(),
            files,
            data_files,
            data: Default::default(),
            zero: Default::default(),
            zero_file,
            delegated_file,
            sessions: [SessionId([0; 16]); CLIENTS],
            incarnations: [1; CLIENTS],
            seen: Default::default(),
        }
    }

    fn send(&self, client: usize, ops: Vec<Args>) -> Vec<Outcome<ItemData>> {
        decoded(&self.world.call(10 + client as u64, &encoded(&Arguments::new(2, ops)))).results
    }

    /// Sends EXCHANGE_ID and makes a session if the client has none: as the same incarnation, or as a new one.
    pub(super) fn greet(&mut self, client: usize, is_new: bool) {
        self.incarnations[client] += u64::from(is_new);
        let (incarnation, name) = (self.incarnations[client], ["a", "b"][client]);
        let exchanged = only!(self.send(client, vec![exchange_id(name, incarnation)]), ExchangeId).expect("a client");
        let known = self.model.clients[client].take();
        let is_same = known.as_ref().is_some_and(|known| known.incarnation == incarnation);
        assert_eq!(
            exchanged.flags & ops::exchange_id::CONFIRMED != 0,
            is_same,
            "a record is confirmed as long as its incarnation lives"
        );
        let was_recorded = known.as_ref().is_some_and(|known| known.is_recorded);
        let known = match known {
            Some(known) if is_same => {
                assert_eq!((exchanged.client, exchanged.sequence), (known.id, known.creation));
                known
            }
            _ => Known {
                id: exchanged.client,
                incarnation,
                creation: 1,
                session: None,
                slots: Default::default(),
                renewed: self.model.now,
                is_complete: false,
                is_recorded: was_recorded,
                opens: Default::default(),
                lost: Default::default(),
                delegation: None,
                not_returned: Default::default(),
            },
        };
        let needs = known.session.is_none();
        self.model.clients[client] = Some(known);
        if !needs {
            return;
        }
        let create = vec![create_session_called(&exchanged)];
        let created = only!(self.send(client, create.clone()), CreateSession).expect("a session");
        let again = only!(self.send(client, create), CreateSession).expect("the same session");
        assert_eq!(created.session, again.session, "CREATE_SESSION has a slot of its own");
        let now = self.model.now;
        let known = self.model.known(client);
        known.session = Some(created.session);
        (known.slots, known.renewed, known.creation) = (Default::default(), now, exchanged.sequence + 1);
        self.sessions[client] = created.session;
        // The client answers CB_NULL here.
        self.world.drive();
        self.hear(client);
    }

    /// Makes a call in the client's session, and returns the results behind SEQUENCE. `None` if the model says that
    /// there is no session.
    pub(super) fn call(
        &mut self,
        client: usize,
        slot: usize,
        cache: bool,
        ops: Vec<Args>,
    ) -> Option<Vec<Outcome<ItemData>>> {
        self.call_telling(client, (slot, cache, true), ops)
    }

    /// The same, if it is not known whether the client has lost something.
    pub(super) fn call_telling(
        &mut self,
        client: usize,
        (slot, cache, knows): (usize, bool, bool),
        ops: Vec<Args>,
    ) -> Option<Vec<Outcome<ItemData>>> {
        let session = self.model.clients[client].as_ref().and_then(|known| known.session);
        let Some(session) = session else {
            let mut refused = self.send(client, [vec![sequence(self.sessions[client], slot, 1, cache)], ops].concat());
            let status = only!(refused, Sequence).expect_err("a session that is no more");
            self.is("SEQUENCE", status, Status::BADSESSION);
            return None;
        };
        let now = self.model.now;
        let known = self.model.known(client);
        known.slots[slot].sequence += 1;
        known.renewed = now;
        let first = sequence(session, slot, known.slots[slot].sequence, cache);
        let arguments = encoded(&Arguments::new(2, [vec![first], ops].concat()));
        let answered = self.world.call(10 + client as u64, &arguments);
        let known = self.model.known(client);
        known.slots[slot].last = Some((arguments, cache, answered.clone()));
        let expired = if known.lost.is_empty() { 0 } else { sequence_status::EXPIRED_SOME_STATE_REVOKED };
        let recallable = if known.not_returned.is_empty() { 0 } else { sequence_status::RECALLABLE_STATE_REVOKED };
        let wanted = expired | recallable;
        let mut outcomes = decoded(&answered).results;
        let Outcome::Sequence(first) = outcomes.remove(0) else { panic!("SEQUENCE is answered first") };
        let told = first.expect("the session is there");
        assert!(!knows || told.status == wanted, "flags {:#x}, {wanted:#x} wanted", told.status);
        self.saw("SEQUENCE", Status::OK);
        Some(outcomes)
    }

    /// Repeats the last call of a slot: the answer must be the same to the byte, if the server had to keep it.
    pub(super) fn repeat(&mut self, client: usize, mint: &mut Mint<'_>) {
        let slot = mint.below(SLOTS);
        let now = self.model.now;
        let Some(known) = &mut self.model.clients[client] else { return };
        let (Some(_), Slot { last: Some((arguments, cache, answered)), .. }) =
            (known.session, known.slots[slot].clone())
        else {
            return;
        };
        known.renewed = now;
        let again = self.world.call(20 + client as u64, &arguments);
        if cache {
            assert_eq!(again, answered, "a repetition has the answer of the first");
            self.saw("repeated", Status::OK);
        } else {
            let outcomes = decoded(&again).results;
            assert_eq!((outcomes.len(), outcomes[0].status()), (2, Status::OK));
            self.is("repeated", outcomes[1].status(), Status::RETRY_UNCACHED_REP);
        }
    }

    /// Sends a call that a slot does not expect: the server must refuse it and execute nothing.
    pub(super) fn misuse(&mut self, client: usize, mint: &mut Mint<'_>) {
        let slot = mint.below(SLOTS);
        let Some(known) = &self.model.clients[client] else { return };
        let Some(session) = known.session else { return };
        let (last, was_used) = (known.slots[slot].sequence, known.slots[slot].last.is_some());
        let (slot, number, wanted) = match mint.below(4) {
            0 => (SLOTS, 1, Status::BADSLOT),
            1 => (slot, last.wrapping_add(2), Status::SEQ_MISORDERED),
            2 => (slot, last.wrapping_sub(1), Status::SEQ_MISORDERED),
            _ if was_used => (slot, last, Status::SEQ_FALSE_RETRY),
            _ => (slot, last, Status::SEQ_MISORDERED),
        };
        // No other directory ever has this name.
        let mut refused =
            self.send(client, vec![sequence(session, slot, number, true), Args::PutRootFh, Args::LookupP]);
        let status = only!(refused, Sequence).expect_err("no call of the slot's");
        self.is("SEQUENCE", status, wanted);
    }

    pub(super) fn complete(&mut self, client: usize) {
        let complete = Args::ReclaimComplete(ops::ReclaimComplete { one_file_system: false });
        let Some(mut outcomes) = self.call(client, 0, true, vec![complete]) else { return };
        let status = only!(outcomes, ReclaimComplete).err().unwrap_or(Status::OK);
        let wanted = self.model.complete(client);
        self.is("RECLAIM_COMPLETE", status, wanted);
    }

    pub(super) fn end_session(&mut self, client: usize) {
        let session = self.sessions[client];
        let destroy = Args::DestroySession(ops::DestroySession { session });
        let Some(mut outcomes) = self.call(client, 1, false, vec![destroy]) else { return };
        only!(outcomes, DestroySession).expect("its own session");
        self.model.known(client).session = None;
    }

    pub(super) fn end_client(&mut self, client: usize) {
        let Some(known) = &self.model.clients[client] else { return };
        let is_busy = known.session.is_some() || !known.opens.is_empty() || known.delegation.is_some();
        let was_recorded = known.is_recorded;
        let destroy = Args::DestroyClientId(ops::DestroyClientId { client: known.id });
        let status = only!(self.send(client, vec![destroy]), DestroyClientId).err().unwrap_or(Status::OK);
        self.is("DESTROY_CLIENTID", status, if is_busy { Status::CLIENTID_BUSY } else { Status::OK });
        if !is_busy {
            self.model.clients[client] = None;
            if was_recorded {
                self.model.journal.remove(&client);
            }
        }
    }

    pub(super) fn wait(&mut self, mint: &mut Mint<'_>) {
        let day = 24 * 60 * 60;
        let seconds = [2, LEASE / 2, LEASE, LEASE + 1, LEASE + 1, LEASE + 1, 2 * LEASE, day + 2 * LEASE][mint.below(8)];
        self.pass(seconds);
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.world.pass(seconds);
        (0..CLIENTS).for_each(|client| _ = self.hear(client));
        self.model.passed(self.world.now());
        self.zero.passed(&mut self.model);
    }

    /// The server writes what it has postponed, then restarts.
    pub(super) fn restart(&mut self) {
        self.pass(2);
        self.world.restart();
        self.model.restarted();
        self.zero.restarted();
    }
}
