//! What clients of version 4 hold, on whole servers.

mod acl;
mod compound;
mod copy;
mod cost;
mod data;
mod delegation;
mod holders;
pub(in crate::nfs4) mod lock;
mod nlm;
mod offload;
mod open;
mod open_arguments;
mod owned;
mod recall;
mod recovery;
mod security;
mod silent;
mod space;
mod turns;
mod warnings;
mod zero;

use super::testing::{TestClient, TestServer, only};
use rpcrdma_nfs::v4::{
    Args, FileAttributes, Handle, Name, Outcome, StateId, Status, Value,
    ops::{self, Claim, CreateHow, OpenHow},
};

const READ: u32 = 1;
const WRITE: u32 = 2;
pub(in crate::nfs4) const BOTH: u32 = 3;

/// A server of a file system in memory, and one of a directory.
fn on_each(test: impl Fn(&TestServer)) {
    test(&TestServer::memory());
    test(&TestServer::directory());
}

/// A server of each file system whose files are delegated.
fn on_each_delegating(test: impl Fn(&TestServer)) {
    test(&TestServer::memory());
    test(&TestServer::directory());
}

/// An OPEN of a name in the root that makes no file.
pub(in crate::nfs4) fn to_open(client: &TestClient, name: &str, owner: &str, access: u32, deny: u32) -> ops::Open {
    let claim = Claim::Null(Name::from(name));
    ops::Open { sequence: 0, access, deny, owner: client.owner(owner), how: OpenHow::NoCreate, claim }
}

/// Executes an OPEN in the root.
pub(in crate::nfs4) fn open_with(client: &TestClient, open: ops::Open) -> Result<(Handle, ops::OpenOk), Status> {
    let mut outcomes = client.call(vec![Args::PutRootFh, Args::Open(Box::new(open)), Args::GetFh]);
    match (outcomes.pop().unwrap(), outcomes.pop().unwrap()) {
        (Outcome::GetFh(handle), Outcome::Open(opened)) => Ok((handle.unwrap().file, *opened.unwrap())),
        (failed, _) => Err(failed.status()),
    }
}

/// Opens a file of the root.
pub(in crate::nfs4) fn open(
    client: &TestClient,
    name: &str,
    owner: &str,
    access: u32,
    deny: u32,
) -> Result<(Handle, StateId), Status> {
    open_with(client, to_open(client, name, owner, access, deny)).map(|(file, opened)| (file, opened.state))
}

fn create_with(client: &TestClient, name: &str, owner: &str, how: CreateHow) -> Result<(Handle, ops::OpenOk), Status> {
    let open = ops::Open { how: OpenHow::Create(how), ..to_open(client, name, owner, BOTH, 0) };
    open_with(client, open)
}

/// Makes a file in the root, open for reading and writing.
pub(in crate::nfs4) fn create(client: &TestClient, name: &str, owner: &str) -> (Handle, StateId) {
    let how = CreateHow::Guarded(FileAttributes::of(&[Value::Mode(0o644)]));
    let (file, opened) = create_with(client, name, owner, how).unwrap();
    (file, opened.state)
}

fn close(client: &TestClient, file: &Handle, state: StateId) -> Status {
    client.on(file, Args::Close(ops::Close { sequence: 0, state })).status()
}

fn downgrade(client: &TestClient, file: &Handle, state: StateId, access: u32, deny: u32) -> Result<StateId, Status> {
    let downgrade = ops::OpenDowngrade { state, sequence: 0, access, deny };
    only!(client.on(file, Args::OpenDowngrade(downgrade)), OpenDowngrade).map(|ok| ok.state)
}
