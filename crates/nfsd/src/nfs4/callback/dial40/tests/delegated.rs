//! Delegations of clients of minor version 0: recalled, returned, and taken from clients that are away.

use super::*;
use crate::nfs4::{testing::TestClient, testing40::Counter};
use rpcrdma_nfs::v4::{
    Args, callback,
    ops::{Delegation, OpenOk, open_result},
};

const READ: u32 = 1;

/// A client without sessions that the server can call, a file of four bytes that is delegated to it, and another
/// client.
struct Delegating {
    stage: Stage,
    client: Client40,
    other: TestClient,
    owner: Counter,
    file: Handle,
}

impl Delegating {
    fn new() -> Self {
        let stage = Stage::new(Manner::Honest);
        let (client, _) = stage.client("a", "tcp", HERE);
        let mut caller = Caller::of(&stage.nfsd);
        caller.connection = 2;
        let other = TestClient::new(caller, "b", 2, 1);
        other.reclaim_complete();
        let owner = client.owner("o");
        let (file, state) = client.create(&owner, "f");
        client.write(&file, state, b"data").unwrap();
        assert_eq!(client.close(&owner, &file, state), Status::OK);
        stage.settle();
        Self { stage, client, other, owner, file }
    }
}

/// proves: NFS4-7530-16.18-d
#[test]
fn what_is_delegated_to_a_client_without_sessions_is_called_back_and_returned() {
    let Delegating { stage, client, other, owner, file } = Delegating::new();
    let state_of = |opened: &OpenOk| match &opened.delegation {
        Delegation::Read(delegation) => Some(delegation.state),
        _ => None,
    };

    let new = client.owner("new");
    let (_, unconfirmed) = client.open_as_is(client.to_open(&new, "f", READ, 0)).unwrap();
    assert_eq!(state_of(&unconfirmed), None, "who has not confirmed it gets nothing");
    let (_, opened) = client.open_as_is(client.to_open(&owner, "f", READ, 0)).unwrap();
    assert_eq!(opened.flags & open_result::MAY_NOTIFY_LOCK, 0);
    let delegation = state_of(&opened).unwrap_or_else(|| panic!("{:?}", opened.delegation));
    assert_eq!(client.read(&file, delegation), Ok(b"data".to_vec()));

    let recalls = || {
        let heard = stage.called.heard.lock().unwrap();
        let recalled = |(call, _): &(Arguments, Credential)| match &call.ops[..] {
            [callback::Args::Recall(recall)] => Some((call.minor, call.ident, recall.state, recall.file.clone())),
            _ => None,
        };
        heard.iter().filter_map(recalled).collect::<Vec<_>>()
    };
    let write = |what: &str| {
        let written = other.write(&file, StateId::ANONYMOUS, 0, b"more").err().unwrap_or(Status::OK);
        stage.settle();
        assert_eq!(recalls(), [(0, 7, delegation, file.clone())], "{what}");
        written
    };
    assert_eq!(write("it is called back"), Status::DELAY);
    assert_eq!(write("once"), Status::DELAY);
    let give_back = ops::DelegReturn { state: delegation };
    assert_eq!(client.on(&file, Args::DelegReturn(give_back)).status(), Status::OK);
    assert_eq!(write("and is back"), Status::OK);
}

/// The server cannot tell it of a partial loss, but may take a delegation alone.
///
/// proves: NFS4-7530-9.6.3-a
#[test]
fn a_client_without_sessions_that_is_away_loses_the_delegation_that_is_wanted_and_nothing_else() {
    let Delegating { stage, client, other, owner, file } = Delegating::new();
    let (_, opened) = client.open_as_is(client.to_open(&owner, "f", READ, 0)).unwrap();
    let Delegation::Read(delegation) = &opened.delegation else { panic!("{:?}", opened.delegation) };
    for _ in 0..7 {
        stage.pass(13);
        other.walk("").unwrap();
    }
    let write = || other.write(&file, StateId::ANONYMOUS, 0, b"more").err().unwrap_or(Status::OK);
    assert_eq!(write(), Status::DELAY);
    stage.settle();
    assert_eq!(write(), Status::OK, "it was taken from it at once");
    assert_eq!(client.read(&file, opened.state), Ok(b"more".to_vec()), "its open is in nobody's way");
    assert_eq!(client.read(&file, delegation.state), Err(Status::BAD_STATEID));
    assert_eq!(client.renew(), Status::OK);
}
