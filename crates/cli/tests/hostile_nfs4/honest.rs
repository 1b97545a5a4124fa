//! An honest client of version 4 beside the hostile ones: it has a file open and a part of it locked, and uses both.

use crate::stage::Stage;
use rpcrdma_peers::{
    nfs4::{
        client::{self, Client, State},
        link::Place,
        op, status,
    },
    rpc::{Xdr, word},
};

/// A server of versions 3, 4.1 and 4.2 that trusts the identities that callers claim.
pub(crate) fn stage(more: &[&str]) -> Stage {
    stage_of("3,4.1,4.2", more)
}

/// The same with minor version 0.
pub(crate) fn stage_of_all(more: &[&str]) -> Stage {
    stage_of("3,4.0,4.1,4.2", more)
}

fn stage_of(versions: &str, more: &[&str]) -> Stage {
    let versions = ["--nfs", versions, "--tcp", "127.0.0.1:0", "--no-root-squash"];
    Stage::after(&[&versions[..], more].concat(), |stage| {
        // The first client makes the server open its journal of clients.
        for place in places(stage) {
            Honest::new(&place).works();
        }
        stage.settled_descriptors();
    })
}

/// The addresses of the server.
pub(crate) fn places(stage: &Stage) -> [Place; 2] {
    [Place::Tcp(stage.server.tcp.clone().unwrap()), Place::Rdma(stage.server.rdma.clone())]
}

/// The honest client.
pub(crate) struct Honest {
    pub(crate) client: Client,
    pub(crate) open: State,
    pub(crate) file: Vec<u8>,
    pub(crate) lock: State,
    written: u8,
}

/// The range of the file that it has locked.
pub(crate) const LOCKED: (u64, u64) = (0, 100);

impl Honest {
    pub(crate) fn new(place: &Place) -> Self {
        let mut client = Client::new(place, b"honest", 2);
        let (open, file) = client.open(b"honest", b"owner", 0);
        let wrote = client.on(&file, op::WRITE, client::write(&open, &[0; 64]));
        assert_eq!(word(wrote.body(op::WRITE), 0), 64);
        let locked = client.on(&file, op::LOCK, client::lock(&open, b"locks", LOCKED));
        let lock = client::state_of(locked.body(op::LOCK));
        Self { client, open, file, lock, written: 0 }
    }

    /// Its session, open and lock work, and its data are there.
    pub(crate) fn works(&mut self) {
        let Self { client, open, file, lock, written } = self;
        let read = client.on(file, op::READ, client::read(open, 64));
        let had = &read.body(op::READ)[8..];
        assert!(had.iter().all(|octet| octet == written), "{had:?} instead of {written}");
        *written = written.wrapping_add(1);
        let wrote = client.on(file, op::WRITE, client::write(lock, &[*written; 64]));
        assert_eq!(word(wrote.body(op::WRITE), 0), 64);
        let tested = client.call(&client.compound().op(op::TEST_STATEID, Xdr::default().u32(2).raw(open).raw(lock)));
        assert_eq!(tested.body(op::TEST_STATEID), Xdr::default().words(&[2, 0, 0]).0);
        assert_eq!(client.flags(), 0, "it has lost nothing");
    }

    /// Another client does not get what it has locked.
    pub(crate) fn excludes(&self, other: &mut Client) {
        let (open, file) = other.open(b"honest", b"other", 0);
        let refused = other.on(&file, op::LOCK, client::lock(&open, b"other", LOCKED));
        assert_eq!(refused.status, status::DENIED);
        assert_eq!(other.on(&file, op::CLOSE, client::close(&open)).status, status::OK);
    }
}
