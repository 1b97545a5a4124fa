//! How large a call of the server may be: the session and the transport set limits.
//!
//! CB_NOTIFY_LOCK names the owner of the lock, which may be long: it is the largest call that the server makes. If the
//! client's receives are small, it does not fit into a Send of version 1, which has no other way. Receives of version 2
//! are never so small; for a call that still does not fit, the announced level decides, which the transport's own tests
//! show.

use crate::{
    called::{Calls, MAX_CALL, PATIENCE, PAUSE, Session, Way, connect, connect_with},
    common::Server,
    start,
};
use rpcrdma_env::Env;
use rpcrdma_nfs::v4::{
    Args, Handle, Status, VERSION, callback,
    ops::{self, LockKind, OpenOk, open_result},
};
use rpcrdma_transport::Versions;
use rpcrdma_wire::v2::ReverseSupport;
use tokio::time::timeout;

/// The client's receives, in bytes. A call with a long name is larger, and one with a short name is not.
const RECEIVES: u32 = 1_024;
const SHORT: &str = "short";

fn long() -> String {
    "l".repeat(RECEIVES as usize)
}

/// A client that locks, and one that waits.
struct World {
    has: Session,
    waits: Session,
    calls: Calls,
}

impl World {
    async fn new(server: &Server, env: &Env, name: &str, way: Way, support: ReverseSupport, max_call: u32) -> Self {
        let has = Session::new(connect(server, way, VERSION, env).await.0, &format!("has {name}")).await;
        let connecting = connect_with(server, way, VERSION, env, |options| {
            (options.inline_bytes, options.reverse_support) = (RECEIVES, support);
        });
        let (client, calls) = connecting.await;
        Self { has, waits: Session::with(client, &format!("waits {name}"), 2, max_call).await, calls }
    }

    /// Opens the file until the server knows that the client can be called.
    async fn opened(&self, name: &str) -> (Handle, OpenOk) {
        let opening = async {
            loop {
                let (file, opened) = self.waits.open(name).await;
                if opened.flags & open_result::MAY_NOTIFY_LOCK != 0 {
                    return (file, opened);
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, opening).await.expect("the client can be called")
    }

    /// Lets an owner of this name wait for a lock, and then frees the lock.
    async fn waits_for(&self, name: &str, owner: &str) {
        let (file, of_has) = self.has.open(name).await;
        let locked = self.has.lock(&file, of_has.state, LockKind::Write).await.unwrap();
        let (_, opened) = self.opened(name).await;
        let waiting = self.waits.lock_by(owner, &file, opened.state, LockKind::WriteWaiting).await;
        assert_eq!(waiting, Err(Status::DENIED));
        let unlock = ops::LockU { kind: LockKind::Write, sequence: 0, state: locked, offset: 0, length: u64::MAX };
        assert_eq!(self.has.on(&file, Args::LockU(unlock)).await.status(), Status::OK);
    }

    /// The owner in the server's next call.
    async fn told(&mut self) -> Vec<u8> {
        let call = timeout(PATIENCE, self.calls.recv()).await.expect("the client is told").unwrap();
        match &call.ops[..] {
            [callback::Args::Sequence(_), callback::Args::NotifyLock(notify)] => notify.owner.name.0.to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

/// proves: ULB-6.2-d, ULB-6.2-f, ULB-6.2-g
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_as_large_as_the_session_and_the_announced_level_both_allow() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), &[]);
    let env = rpcrdma_env::tokio_env().unwrap();
    let (one, two) = (Way::Rdma(Versions::One), Way::Rdma(Versions::Two));
    for (way, support, max_call, is_told) in [
        (one, ReverseSupport::General, MAX_CALL, false),
        (two, ReverseSupport::Simple, MAX_CALL, true),
        (two, ReverseSupport::General, MAX_CALL, true),
        (two, ReverseSupport::Simple, RECEIVES, false),
        (two, ReverseSupport::General, RECEIVES, false),
        (Way::Tcp, ReverseSupport::General, RECEIVES, false),
        (Way::Tcp, ReverseSupport::General, MAX_CALL, true),
    ] {
        let name = format!("{way:?} {support:?} {max_call}");
        let mut world = World::new(&server, &env, &name, way, support, max_call).await;
        world.waits_for(&format!("long {name}"), &long()).await;
        if is_told {
            assert_eq!(world.told().await, long().as_bytes(), "{name}");
        }
        // The connection and its slots still work.
        world.waits_for(&format!("short {name}"), SHORT).await;
        assert_eq!(world.told().await, SHORT.as_bytes(), "{name}");
        assert!(world.calls.try_recv().is_err(), "{name}: once");
    }
}
