//! A client with one session: the calls of an honest client, and their parts, from which hostile clients make other
//! calls.

use super::{
    Compound, Results,
    link::{Link, Place},
    op,
};
use crate::rpc::{Xdr, word};
use std::sync::atomic::{AtomicU64, Ordering};

/// A session id.
pub type Session = [u8; 16];
/// A stateid.
pub type State = [u8; 16];

/// Slots that the client asks for.
const SLOTS: u32 = 8;
/// Bytes of calls and replies that the client asks for.
const MESSAGE_OCTETS: u32 = 1 << 20;
/// Bytes of replies that the server shall remember.
const CACHED_BYTES: u32 = 2_048;

/// READ and WRITE, for share access and share deny.
pub const BOTH: u32 = 3;
/// WRITE_LT.
pub const WRITE_LOCK: u32 = 2;

/// EXCHANGE_ID without optional flags.
pub fn exchange_id(name: &[u8], incarnation: u64) -> Xdr {
    Xdr::default().u64(incarnation).opaque(name).words(&[0, 0, 0])
}

/// CREATE_SESSION that asks for so many slots.
pub fn create_session(client: u64, sequence: u32, slots: u32) -> Xdr {
    create_session_with(client, sequence, slots, 0)
}

/// CREATE_SESSION4_FLAG_CONN_BACK_CHAN.
pub const BACK: u32 = 2;

/// The same with these flags.
pub fn create_session_with(client: u64, sequence: u32, slots: u32, flags: u32) -> Xdr {
    let channel = |xdr: Xdr| xdr.words(&[0, MESSAGE_OCTETS, MESSAGE_OCTETS, CACHED_BYTES, 64, slots, 0]);
    let xdr = channel(channel(Xdr::default().u64(client).words(&[sequence, flags])));
    // The server calls with AUTH_NONE.
    xdr.words(&[0x4000_0000, 1, 0])
}

/// SEQUENCE.
pub fn sequence(session: &Session, sequence: u32, slot: u32, cache: bool) -> Xdr {
    Xdr::default().raw(session).words(&[sequence, slot, slot, u32::from(cache)])
}

/// OPEN of a name in the current directory; makes the file if it does not exist.
pub fn open(name: &[u8], owner: &[u8], access: u32, deny: u32) -> Xdr {
    let xdr = Xdr::default().words(&[0, access, deny]).u64(0).opaque(owner);
    // OPEN4_CREATE, UNCHECKED4, mode 0666; CLAIM_NULL.
    xdr.words(&[1, 0, 2, 0, 1 << 1, 4, 0o666, 0]).opaque(name)
}

/// OPEN of an existing name.
pub fn open_existing(name: &[u8], owner: &[u8], access: u32, deny: u32) -> Xdr {
    Xdr::default().words(&[0, access, deny]).u64(0).opaque(owner).words(&[0, 0]).opaque(name)
}

/// CREATE of a directory.
pub fn create_directory(name: &[u8]) -> Xdr {
    Xdr::default().u32(2).opaque(name).words(&[0, 0])
}

/// LOCK for writing, by a new lock owner of the file.
pub fn lock(open: &State, owner: &[u8], (offset, len): (u64, u64)) -> Xdr {
    let xdr = Xdr::default().words(&[WRITE_LOCK, 0]).u64(offset).u64(len).words(&[1, 0]);
    xdr.raw(open).u32(0).u64(0).opaque(owner)
}

/// LOCKU.
pub fn unlock(state: &State, (offset, len): (u64, u64)) -> Xdr {
    Xdr::default().words(&[WRITE_LOCK, 0]).raw(state).u64(offset).u64(len)
}

/// WRITE, FILE_SYNC4.
pub fn write(state: &State, data: &[u8]) -> Xdr {
    Xdr::default().raw(state).u64(0).u32(2).opaque(data)
}

/// READ from the beginning.
pub fn read(state: &State, count: u32) -> Xdr {
    Xdr::default().raw(state).u64(0).u32(count)
}

/// CLOSE.
pub fn close(state: &State) -> Xdr {
    Xdr::default().u32(0).raw(state)
}

/// The stateid at the beginning of an operation's results.
pub fn state_of(body: &[u8]) -> State {
    body[..16].try_into().expect("a stateid")
}

/// A client with one session.
pub struct Client {
    pub link: Link,
    pub minor: u32,
    pub id: u64,
    pub session: Session,
    /// The sequence number of the next CREATE_SESSION.
    pub creation: u32,
    /// The last sequence number of each slot.
    pub slots: [u32; SLOTS as usize],
}

impl Client {
    /// Registers a client, makes a session, and says that the client reclaims nothing.
    pub fn new(place: &Place, name: &[u8], minor: u32) -> Self {
        let mut client = Self::in_grace(place, name, minor);
        let complete = Compound::new(minor).op(op::RECLAIM_COMPLETE, Xdr::default().u32(0));
        assert_eq!(client.call(&complete).status, 0, "RECLAIM_COMPLETE");
        client
    }

    /// The same over a connection on which the server calls: CB_NULL has arrived and is answered.
    pub fn called(place: &Place, name: &[u8], minor: u32) -> Self {
        let mut client = Self::made(place, name, minor, BACK);
        let null = client.link.next_call();
        assert_eq!((null.program, null.procedure, null.args.len()), (0x4000_0000, 0, 0), "CB_NULL");
        client.link.answer(null.xid, &[]);
        let complete = Compound::new(minor).op(op::RECLAIM_COMPLETE, Xdr::default().u32(0));
        assert_eq!(client.call(&complete).status, 0, "RECLAIM_COMPLETE");
        client
    }

    /// The same before RECLAIM_COMPLETE.
    pub fn in_grace(place: &Place, name: &[u8], minor: u32) -> Self {
        Self::made(place, name, minor, 0)
    }

    fn made(place: &Place, name: &[u8], minor: u32, flags: u32) -> Self {
        // Each client is a new incarnation of its name: the state of a former incarnation is gone.
        static INCARNATIONS: AtomicU64 = AtomicU64::new(1_000);
        let incarnation = INCARNATIONS.fetch_add(1, Ordering::Relaxed);
        let mut link = Link::to(place);
        let known = link.call(&Compound::new(minor).op(op::EXCHANGE_ID, exchange_id(name, incarnation)));
        let body = known.body(op::EXCHANGE_ID);
        let id = u64::from(word(body, 0)) << 32 | u64::from(word(body, 4));
        let creation = word(body, 8);
        let create = Compound::new(minor).op(op::CREATE_SESSION, create_session_with(id, creation, SLOTS, flags));
        let made = link.call(&create);
        assert_eq!(word(made.body(op::CREATE_SESSION), 20), flags, "the server calls, as it was asked to");
        let session = made.body(op::CREATE_SESSION)[..16].try_into().expect("a session");
        Self { link, minor, id, session, creation: creation + 1, slots: [0; SLOTS as usize] }
    }

    /// An empty COMPOUND of its minor version.
    pub fn compound(&self) -> Compound {
        Compound::new(self.minor)
    }

    /// SEQUENCE for the next call on a slot, and the operations after it.
    pub fn next(&mut self, slot: u32, cache: bool, call: &Compound) -> Compound {
        let last = &mut self.slots[slot as usize];
        *last += 1;
        let first = sequence(&self.session, *last, slot, cache);
        Compound::new(self.minor).op(op::SEQUENCE, first).then(call)
    }

    /// Makes a call on the session's first slot, and returns the results behind SEQUENCE.
    pub fn call(&mut self, call: &Compound) -> Results {
        let next = self.next(0, false, call);
        let mut results = self.link.call(&next);
        assert_eq!((results.outcomes[0].op, results.outcomes[0].status), (op::SEQUENCE, 0), "{results:?}");
        results.outcomes.remove(0);
        results
    }

    /// The status flags in SEQUENCE's results.
    pub fn flags(&mut self) -> u32 {
        let next = self.next(0, false, &Compound::new(self.minor));
        word(self.link.call(&next).body(op::SEQUENCE), 32)
    }

    /// Opens a file of the root for reading and writing, and returns its stateid and handle.
    pub fn open(&mut self, name: &[u8], owner: &[u8], deny: u32) -> (State, Vec<u8>) {
        let call = self.compound().plain(op::PUTROOTFH).op(op::OPEN, open(name, owner, BOTH, deny)).plain(op::GETFH);
        let results = self.call(&call);
        let handle = results.body(op::GETFH);
        (state_of(results.body(op::OPEN)), handle[4..4 + word(handle, 0) as usize].to_vec())
    }

    /// Makes a call with one operation on a file.
    pub fn on(&mut self, file: &[u8], number: u32, args: Xdr) -> Results {
        let call = self.compound().op(op::PUTFH, Xdr::default().opaque(file)).op(number, args);
        self.call(&call)
    }
}
