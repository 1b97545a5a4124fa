//! A client of minor version 0, written from RFC 7530: it has no session, confirms its id by SETCLIENTID_CONFIRM, and
//! numbers the operations of its owners.

use super::{
    Compound, Results,
    client::{BOTH, State, WRITE_LOCK, state_of},
    link::{Link, Place},
    op, status,
};
use crate::rpc::{Xdr, word};
use std::sync::atomic::{AtomicU64, Ordering};

/// The callback program that clients here name.
pub const PROGRAM: u32 = 0x4000_0000;
/// OPEN4_RESULT_CONFIRM.
pub const CONFIRM: u32 = 2;
/// The callback address of a client that cannot be called: the port is 0.
pub const NOWHERE: (&[u8], &[u8]) = (b"tcp", b"127.0.0.1.0.0");

/// SETCLIENTID with a callback address: a netid and a universal address, which may be any bytes.
pub fn set_client_id(name: &[u8], incarnation: u64, (netid, address): (&[u8], &[u8])) -> Xdr {
    Xdr::default().u64(incarnation).opaque(name).u32(PROGRAM).opaque(netid).opaque(address).u32(7)
}

/// SETCLIENTID_CONFIRM with the id and the verifier that SETCLIENTID has returned.
pub fn confirm_client_id(told: &[u8]) -> Xdr {
    Xdr::default().raw(&told[..16])
}

/// The id at the beginning of SETCLIENTID's results.
pub fn id_of(told: &[u8]) -> u64 {
    u64::from(word(told, 0)) << 32 | u64::from(word(told, 4))
}

/// A COMPOUND of one operation.
pub fn one(number: u32, args: Xdr) -> Compound {
    Compound::new(0).op(number, args)
}

/// An owner of opens or of locks, and its last sequence number.
#[derive(Clone, Debug)]
pub struct Owner {
    pub client: u64,
    pub name: Vec<u8>,
    pub last: u32,
}

impl Owner {
    /// The next sequence number.
    pub fn number(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    fn start(&mut self, access: u32, deny: u32) -> Xdr {
        Xdr::default().words(&[self.number(), access, deny]).u64(self.client).opaque(&self.name)
    }

    /// OPEN of a name in the root with GUARDED4: the file must not exist.
    pub fn create(&mut self, name: &[u8]) -> Compound {
        let open = self.start(BOTH, 0).words(&[1, 1, 2, 0, 1 << 1, 4, 0o666, 0]).opaque(name);
        Compound::new(0).plain(op::PUTROOTFH).op(op::OPEN, open).plain(op::GETFH)
    }

    /// The same whether the file exists or not.
    pub fn open_or_create(&mut self, name: &[u8]) -> Compound {
        let open = self.start(BOTH, 0).words(&[1, 0, 2, 0, 1 << 1, 4, 0o666, 0]).opaque(name);
        Compound::new(0).plain(op::PUTROOTFH).op(op::OPEN, open).plain(op::GETFH)
    }

    /// The same owner, whose next sequence number follows the last one at this distance; 1 is right.
    #[must_use]
    pub fn clone_at(&self, distance: u32) -> Self {
        Self { last: self.last.wrapping_add(distance).wrapping_sub(1), ..self.clone() }
    }

    /// OPEN of an existing name in the root.
    pub fn open(&mut self, name: &[u8], access: u32, deny: u32) -> Compound {
        let open = self.start(access, deny).words(&[0, 0]).opaque(name);
        Compound::new(0).plain(op::PUTROOTFH).op(op::OPEN, open).plain(op::GETFH)
    }

    /// OPEN_CONFIRM.
    pub fn confirm(&mut self, state: &State) -> Xdr {
        Xdr::default().raw(state).u32(self.number())
    }

    /// CLOSE.
    pub fn close(&mut self, state: &State) -> Xdr {
        Xdr::default().u32(self.number()).raw(state)
    }

    /// LOCK for writing, by a new lock owner of the file.
    pub fn lock(&mut self, open: &State, locker: &mut Self, (offset, len): (u64, u64)) -> Xdr {
        let xdr = Xdr::default().words(&[WRITE_LOCK, 0]).u64(offset).u64(len).words(&[1, self.number()]).raw(open);
        xdr.u32(locker.number()).u64(locker.client).opaque(&locker.name)
    }

    /// LOCKU.
    pub fn unlock(&mut self, state: &State, (offset, len): (u64, u64)) -> Xdr {
        Xdr::default().words(&[WRITE_LOCK, self.number()]).raw(state).u64(offset).u64(len)
    }

    /// RELEASE_LOCKOWNER.
    pub fn release(&self) -> Xdr {
        Xdr::default().u64(self.client).opaque(&self.name)
    }
}

/// A confirmed client.
pub struct Zero {
    pub link: Link,
    pub id: u64,
    pub name: Vec<u8>,
    /// SETCLIENTID's results: the id and the verifier.
    pub told: Vec<u8>,
}

impl Zero {
    /// Registers a client that the server cannot call.
    pub fn new(place: &Place, name: &[u8]) -> Self {
        Self::called_at(place, name, NOWHERE)
    }

    /// The same with a callback address.
    pub fn called_at(place: &Place, name: &[u8], address: (&[u8], &[u8])) -> Self {
        // Each client is a new incarnation of its name: the state of a former incarnation is gone.
        static INCARNATIONS: AtomicU64 = AtomicU64::new(1);
        let incarnation = INCARNATIONS.fetch_add(1, Ordering::Relaxed);
        let mut link = Link::to(place);
        let told = link.call(&one(op::SETCLIENTID, set_client_id(name, incarnation, address)));
        let told = told.body(op::SETCLIENTID).to_vec();
        let confirmed = link.call(&one(op::SETCLIENTID_CONFIRM, confirm_client_id(&told)));
        assert_eq!(confirmed.status, status::OK, "SETCLIENTID_CONFIRM");
        Self { link, id: id_of(&told), name: name.to_vec(), told }
    }

    /// An owner that was not used.
    pub fn owner(&self, name: &[u8]) -> Owner {
        Owner { client: self.id, name: name.to_vec(), last: 0 }
    }

    /// Makes a call with one operation on a file.
    pub fn on(&mut self, file: &[u8], number: u32, args: Xdr) -> Results {
        let call = Compound::new(0).op(op::PUTFH, Xdr::default().opaque(file)).op(number, args);
        self.link.call(&call)
    }

    /// Opens a file of the root with an OPEN that the owner has made, and confirms the owner if the server asks for it.
    /// Returns the stateid and the handle.
    pub fn opened(&mut self, owner: &mut Owner, call: &Compound) -> (State, Vec<u8>) {
        let results = self.link.call(call);
        let (body, handle) = (results.body(op::OPEN), results.body(op::GETFH));
        let file = handle[4..4 + word(handle, 0) as usize].to_vec();
        if word(body, 36) & CONFIRM == 0 {
            return (state_of(body), file);
        }
        let confirmed = self.on(&file, op::OPEN_CONFIRM, owner.confirm(&state_of(body)));
        (state_of(confirmed.body(op::OPEN_CONFIRM)), file)
    }

    /// RENEW.
    pub fn renew(&mut self) -> u32 {
        self.link.call(&one(op::RENEW, Xdr::default().u64(self.id))).status
    }
}
