//! The server calls clients of minor version 0 where they ask for it, within limits, and only at their own address.

mod called;
mod delegated;
mod limits;

use super::*;
use crate::{
    Export, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory, Version4,
    nfs4::{state::owners::Share, testing::only, testing40::Client40},
    testing::{Client as Caller, SECRET},
};
use called::{Called, Manner, PROGRAM, StepClock, Steps};
use rpcrdma_env::SeededRandom;
use rpcrdma_nfs::v4::{
    Handle, Opaque, StateId, Status,
    callback::{CbGetAttr, CbRecall},
    ops,
};
use rpcrdma_oncrpc::Credential;
use tokio::runtime::Runtime;

/// A server and a clock that a test moves.
struct Stage {
    runtime: Runtime,
    steps: Arc<Steps>,
    nfsd: Arc<Nfsd>,
    called: Called,
    _scratch: tempfile::TempDir,
}

impl Stage {
    fn new(manner: Manner) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (steps, scratch) = (Arc::new(Steps::default()), tempfile::tempdir().unwrap());
        let called = Called::new(manner, steps.clone());
        let env = Env { clock: Arc::new(StepClock(steps.clone())), random: Arc::new(SeededRandom::new(1)) };
        let state = StateDirectory::open(scratch.path(), &*env.random).unwrap();
        let version_4 = Version4::new(&state, Queue::in_place()).with_dialler(Arc::new(called.clone()));
        // A client that wants a delegated file asks again.
        let version_4 = version_4.with_recall_wait(Duration::ZERO);
        let trusting = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", Arc::new(MemoryFs::new(1 << 20, &env))).with_identities(trusting);
        let nfsd = Nfsd::new(vec![export], SECRET, &env).unwrap().with_version_4(version_4, false, &env).unwrap();
        runtime.spawn(nfsd.upkeep());
        Self { runtime, steps, nfsd: Arc::new(nfsd), called, _scratch: scratch }
    }

    fn shared(&self) -> Arc<Shared> {
        self.nfsd.shared_of_version_4().clone()
    }

    /// Lets time pass, and does what is due.
    fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.settle();
            self.steps.step(1);
        }
        self.settle();
    }

    /// Does all that can be done now.
    fn settle(&self) {
        self.runtime.block_on(async {
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// A client that asks to be called at this address, and the server's record of it.
    fn client(&self, name: &str, netid: &str, address: &str) -> (Client40, Arc<Client<Pin>>) {
        let mut client = Client40::over(Caller::of(&self.nfsd), name);
        let id = self.register(&client, name, netid, address, 7);
        client.id = id;
        (client, self.shared().state.client_of_zero(id).unwrap())
    }

    fn register(
        &self,
        client: &Client40,
        name: &str,
        netid: &str,
        address: &str,
        ident: u32,
    ) -> rpcrdma_nfs::v4::ClientId {
        let set = ops::SetClientId {
            owner: ops::ClientOwner { verifier: rpcrdma_nfs::v4::Verifier([1; 8]), name: name.into() },
            callback: said(netid, address),
            callback_ident: ident,
        };
        let told = only!(client.one(rpcrdma_nfs::v4::Args::SetClientId(Box::new(set))), SetClientId).unwrap();
        let confirm = ops::SetClientIdConfirm { client: told.client, confirm: told.confirm };
        assert_eq!(client.one(rpcrdma_nfs::v4::Args::SetClientIdConfirm(confirm)).status(), Status::OK);
        told.client
    }

    fn call(&self, client: &Arc<Client<Pin>>, ops: Vec<Args>) -> Result<Vec<Outcome>, NoAnswer> {
        self.timed(client, ops).0
    }

    /// Makes calls that begin one second after the other, up to their end. Returns the results, and how many seconds
    /// all of them took.
    fn together(&self, client: &Arc<Client<Pin>>, count: usize) -> (Vec<Result<Vec<Outcome>, NoAnswer>>, u64) {
        let mut calls = Vec::new();
        for _ in 0..count {
            calls.push(self.runtime.spawn(self.shared().call_back(client, vec![recall()], Vec::new())));
            self.pass(1);
        }
        let mut took = count as u64;
        while !calls.iter().all(tokio::task::JoinHandle::is_finished) {
            self.pass(1);
            took += 1;
        }
        (calls.into_iter().map(|call| self.runtime.block_on(call).unwrap()).collect(), took)
    }

    /// The same, and how many seconds it took.
    fn timed(&self, client: &Arc<Client<Pin>>, ops: Vec<Args>) -> (Result<Vec<Outcome>, NoAnswer>, u64) {
        let calling = self.runtime.spawn(self.shared().call_back(client, ops, Vec::new()));
        let mut took = 0;
        self.settle();
        while !calling.is_finished() {
            self.pass(1);
            took += 1;
        }
        (self.runtime.block_on(calling).unwrap(), took)
    }
}

fn said(netid: &str, address: &str) -> CallbackClient {
    let of = |text: &str| Opaque(text.to_owned().into());
    CallbackClient { program: PROGRAM, address: ops::NetAddress { netid: of(netid), address: of(address) } }
}

const HERE: &str = "127.0.0.1.8.1";

fn recall() -> Args {
    let state = StateId { sequence: 1, other: rpcrdma_nfs::v4::StateIdOther([1; 12]) };
    Args::Recall(CbRecall { state, truncate: false, file: Handle::new(b"file").unwrap() })
}

/// proves: ULB-6.1-a, ULB-6.1-b, ULB-6.1-c
#[test]
fn only_the_address_that_a_client_calls_from_is_called_and_only_by_tcp() {
    let v4: IpAddr = [192, 0, 2, 1].into();
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    let to = |netid, address, peer| target(&said(netid, address), peer).map(|to| to.to_string());
    assert_eq!(to("tcp", "192.0.2.1.8.1", v4).as_deref(), Some("192.0.2.1:2049"));
    assert_eq!(to("tcp6", "2001:db8::1.3.255", v6).as_deref(), Some("[2001:db8::1]:1023"));
    let mapped = "::ffff:192.0.2.1".parse().unwrap();
    assert_eq!(to("tcp", "192.0.2.1.8.1", mapped).as_deref(), Some("192.0.2.1:2049"), "as an IPv6 socket tells it");
    for (netid, address, peer) in [
        ("tcp", "192.0.2.2.8.1", v4),
        ("tcp6", "2001:db8::2.8.1", v6),
        ("tcp", "127.0.0.1.8.1", v4),
        ("tcp", "192.0.2.1.0.0", v4),
        ("tcp6", "192.0.2.1.8.1", v4),
        ("tcp", "2001:db8::1.8.1", v6),
        ("rdma", "192.0.2.1.8.1", v4),
        ("rdma6", "2001:db8::1.8.1", v6),
        ("udp", "192.0.2.1.8.1", v4),
        ("", "", v4),
        ("tcp", "192.0.2.1", v4),
        ("tcp", "host.8.1", v4),
        ("tcp", "192.0.2.1.8.256", v4),
    ] {
        assert_eq!(to(netid, address, peer), None, "{netid} {address} by {peer}");
    }
    let strange = ops::NetAddress { netid: Opaque("tcp".into()), address: Opaque(vec![0xFF; 9].into()) };
    assert_eq!(target(&CallbackClient { program: 1, address: strange }, v4), None);
    // The server does not try to call, either.
    let stage = Stage::new(Manner::Answers);
    for (name, netid, address) in [("a", "tcp", "192.0.2.1.8.1"), ("b", "rdma", HERE)] {
        let (_, client) = stage.client(name, netid, address);
        stage.pass(1);
        assert!(!stage.shared().can_call(&client));
        assert_eq!(stage.call(&client, vec![recall()]), Err(NoAnswer::NoPath));
    }
    assert_eq!(stage.called.dials(), 0);
}

/// proves: NFS4-7530-15-a, ULB-6.1-b
#[test]
fn a_client_that_answers_is_called_with_what_it_said() {
    let stage = Stage::new(Manner::Answers);
    let (caller, client) = stage.client("a", "tcp", HERE);
    assert!(!stage.shared().can_call(&client), "it has not shown that it answers");
    stage.pass(1);
    assert!(stage.shared().can_call(&client));
    let local: IpAddr = [127, 0, 0, 1].into();
    assert_eq!(*stage.called.dialled.lock().unwrap(), [(local, SocketAddr::new(local, 2049))]);
    let get = Args::GetAttr(CbGetAttr { file: Handle::new(b"file").unwrap(), asked: Default::default() });
    for op in [recall(), get] {
        let outcomes = stage.call(&client, vec![op.clone()]).unwrap();
        assert_eq!((outcomes.len(), outcomes[0].op(), outcomes[0].status()), (1, Some(op.op()), Status::BADHANDLE));
        let (call, credential) = stage.called.heard.lock().unwrap().pop().unwrap();
        assert_eq!((call.minor, call.ident, call.ops), (0, 7, vec![op]));
        assert!(matches!(credential, Credential::Sys(_)), "{credential:?}");
    }
    assert_eq!((stage.called.dials(), stage.called.standing()), (1, 1), "over one connection");
    // A new SETCLIENTID changes the address from then on.
    stage.register(&caller, "a", "tcp", "127.0.0.1.9.1", 8);
    assert!(!stage.shared().can_call(&client));
    stage.pass(1);
    assert!(stage.shared().can_call(&client));
    stage.call(&client, vec![recall()]).unwrap();
    assert_eq!(stage.called.heard.lock().unwrap().pop().unwrap().0.ident, 8);
    assert_eq!(stage.called.dialled.lock().unwrap()[1].1.port(), 2305);
    assert_eq!(stage.called.standing(), 1);
}

/// proves: NFS4-7530-15-a
#[test]
fn a_connection_that_is_not_used_is_ended_and_made_again() {
    let stage = Stage::new(Manner::Answers);
    let (_, client) = stage.client("a", "tcp", HERE);
    stage.pass(9);
    stage.call(&client, vec![recall()]).unwrap();
    stage.pass(9);
    assert_eq!((stage.called.dials(), stage.called.standing()), (1, 1));
    stage.pass(12);
    assert_eq!(stage.called.standing(), 0);
    assert!(stage.shared().can_call(&client));
    stage.call(&client, vec![recall()]).unwrap();
    assert_eq!((stage.called.dials(), stage.called.standing()), (2, 1));
    assert_eq!(lock(&stage.shared().dialler.counts).all, 1);
}

/// A hostile or broken client loses only its own callbacks, and harms no other client.
///
/// proves: NFS4-7530-15-b
#[test]
fn a_client_that_does_not_answer_is_given_up_in_time() {
    for manner in [Manner::Away, Manner::Silent, Manner::HangsUp, Manner::Lies, Manner::Refuses] {
        let stage = Stage::new(manner);
        let (_, client) = stage.client("a", "tcp", HERE);
        stage.pass(30);
        let answers_null = matches!(manner, Manner::Lies | Manner::Refuses);
        assert_eq!(stage.shared().can_call(&client), answers_null, "{manner:?}");
        let expected = match manner {
            Manner::Away => NoAnswer::NoPath,
            Manner::Refuses => NoAnswer::Refused(Status::MINOR_VERS_MISMATCH),
            _ => NoAnswer::Lost,
        };
        let (answer, took) = stage.timed(&client, vec![recall()]);
        assert_eq!(answer, Err(expected), "{manner:?}");
        assert!(took <= ANSWER_TIME.as_secs(), "{manner:?} took {took} s");
        stage.pass(30);
        let counted = lock(&stage.shared().dialler.counts).all;
        assert_eq!((stage.called.standing(), counted), (0, 0), "{manner:?}");
    }
}

/// proves: NFS4-7530-16.29-a
#[test]
fn who_has_answered_once_and_cannot_be_reached_any_more_counts_as_such() {
    let stage = Stage::new(Manner::Answers);
    let (_, client) = stage.client("a", "tcp", HERE);
    stage.pass(30);
    assert!(stage.shared().can_call(&client));
    stage.called.set(Manner::Away);
    assert_eq!(stage.timed(&client, vec![recall()]).0, Err(NoAnswer::NoPath));
    assert!(!stage.shared().can_call(&client), "it gets no delegations, and RENEW says why");
}

/// proves: NFS4-7530-16.29-a
#[test]
fn renew_says_when_a_client_with_delegations_cannot_be_called_and_tries_again() {
    let stage = Stage::new(Manner::Away);
    let (caller, client) = stage.client("a", "tcp", HERE);
    let owner = caller.owner("o");
    let (_, state) = caller.create(&owner, "f");
    assert_eq!(caller.renew(), Status::OK, "it has no delegation");
    let shared = stage.shared();
    let recorded = shared.state.recovery.recorded(&client).unwrap();
    let (_, name) = client.held.owner_of(state).unwrap();
    assert_eq!(name, owner.owner.name);
    let file = crate::claims::FileKey { file_system: 1, file: crate::FileId::new(b"f").unwrap() };
    let pin = {
        let root = caller.open(&owner, "f", 1, 0).unwrap();
        let key = client.held.file_of(root.1).unwrap();
        client.held.pin(root.1, key, 1).unwrap().unwrap()
    };
    client.held.delegate(&recorded, file, Share::new(1, 0).unwrap(), pin).unwrap();
    assert_eq!(caller.renew(), Status::CB_PATH_DOWN);
    stage.pass(31);
    stage.called.set(Manner::Answers);
    assert_eq!(caller.renew(), Status::CB_PATH_DOWN, "it is tried");
    stage.pass(1);
    assert_eq!(caller.renew(), Status::OK);
}
