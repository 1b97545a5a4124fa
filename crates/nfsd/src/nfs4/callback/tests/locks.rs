//! CB_NOTIFY_LOCK: which clients get a notice, about what, and how often.

use super::{
    super::super::tests::{BOTH, create, lock, open, open_with, to_open},
    *,
};
use crate::nfs4::callback::notify_lock::MAX_LOCK_NOTICES;
use rpcrdma_nfs::v4::ops::{LockFailure, LockKind, open_result};

/// Two clients: one has locked a file, and the server can call the other.
struct Scene {
    server: TestServer,
    back: Arc<Back>,
    has: TestClient,
    waits: TestClient,
    file: Handle,
    /// The stateids of their opens, and of the lock.
    open_of_has: StateId,
    open_of_waits: StateId,
    locked: StateId,
}

impl Scene {
    fn new() -> Self {
        let (server, back) = (TestServer::memory(), Back::new());
        let (has, waits) = (server.client("has"), server.client_with("waits", &back));
        let (file, open_of_has) = create(&has, "f", "o");
        let (_, open_of_waits) = open(&waits, "f", "o", BOTH, 0).unwrap();
        let locked = lock::lock(&has, &file, lock::first(&has, open_of_has, "l"), LockKind::Write, (0, 1_000)).unwrap();
        Self { server, back, has, waits, file, open_of_has, open_of_waits, locked }
    }

    fn wait(&self, owner: &str, kind: LockKind, range: (u64, u64)) {
        let locker = lock::first(&self.waits, self.open_of_waits, owner);
        let refused = lock::lock(&self.waits, &self.file, locker, kind, range);
        assert!(matches!(refused, Err(LockFailure::Told(_))), "{refused:?}");
    }

    fn unlock(&self) {
        lock::unlock(&self.has, &self.file, self.locked, (0, 1_000)).unwrap();
        self.server.drive();
    }

    /// The owners in the notices.
    fn told(&self) -> Vec<Vec<u8>> {
        let calls = self.back.calls();
        calls
            .iter()
            .map(|heard| match heard.ops() {
                [callback::Args::NotifyLock(notify)] => {
                    assert_eq!((&notify.file, notify.owner.client), (&self.file, self.waits.id));
                    notify.owner.name.0.to_vec()
                }
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

/// proves: NFS4-8881-20.11-a
#[test]
fn opens_say_that_locks_are_told_of_where_the_client_can_be_called() {
    let (server, back) = (TestServer::memory(), Back::new());
    let (plain, called) = (server.client("plain"), server.client_with("called", &back));
    let flags = |client: &TestClient| open_with(client, to_open(client, "f", "o", BOTH, 0)).unwrap().1.flags;
    create(&plain, "f", "o");
    assert_eq!(flags(&plain) & open_result::MAY_NOTIFY_LOCK, 0);
    assert_eq!(flags(&called) & open_result::MAY_NOTIFY_LOCK, open_result::MAY_NOTIFY_LOCK);
    server.end(&called.rpc, &back);
    assert_eq!(flags(&called) & open_result::MAY_NOTIFY_LOCK, 0);
}

/// proves: NFS4-8881-20.11-b, NFS4-8881-9.6-c
#[test]
fn who_waits_is_told_when_the_lock_is_free_and_has_to_ask_for_it() {
    for kind in [LockKind::ReadWaiting, LockKind::WriteWaiting] {
        let scene = Scene::new();
        scene.wait("waiting", kind, (10, 10));
        scene.server.drive();
        assert!(scene.told().is_empty(), "it is locked");
        scene.unlock();
        assert_eq!(scene.told(), [b"waiting"]);
        // The notice granted nothing: the first client can lock the file again.
        let locker = lock::first(&scene.has, scene.open_of_has, "other");
        lock::lock(&scene.has, &scene.file, locker, LockKind::Write, (10, 1)).unwrap();
        scene.wait("waiting", kind, (10, 10));
    }
}

#[test]
fn who_does_not_wait_is_not_told() {
    let scene = Scene::new();
    scene.wait("tries", LockKind::Write, (10, 10));
    // This owner waited, and has given up.
    scene.wait("gives up", LockKind::WriteWaiting, (30, 10));
    scene.wait("gives up", LockKind::Write, (30, 10));
    scene.unlock();
    assert!(scene.told().is_empty());
}

/// The first waiter would exclude the next one.
#[test]
fn waiters_are_told_in_their_order() {
    let scene = Scene::new();
    scene.wait("first", LockKind::WriteWaiting, (0, 10));
    scene.wait("second", LockKind::WriteWaiting, (5, 10));
    scene.wait("elsewhere", LockKind::WriteWaiting, (500, 10));
    scene.unlock();
    assert_eq!(scene.told(), [&b"first"[..], b"elsewhere"]);
    // The first one does not come.
    scene.server.clock.pass(crate::claims::WOKEN_TIME);
    scene.server.shared().sweep();
    scene.server.drive();
    assert_eq!(scene.told(), [b"second"]);
}

/// At most as many notices are under way to a client as it may wait for locks. One more is left out: the client asks by
/// itself.
#[test]
fn no_more_notices_are_under_way_than_a_client_may_wait_for() {
    let scene = Scene::new();
    scene.back.answer_by(|_| Said::Nothing);
    for round in 0..2 {
        for number in 0..=MAX_LOCK_NOTICES as u64 {
            scene.wait(&format!("{round} {number}"), LockKind::ReadWaiting, (number, 1));
        }
        if round == 0 {
            scene.unlock();
            let locker = lock::first(&scene.has, scene.open_of_has, "again");
            lock::lock(&scene.has, &scene.file, locker, LockKind::Write, (0, 1_000)).unwrap();
        }
    }
    let under_way = || {
        let record = scene.server.shared().state.client(scene.waits.id).unwrap();
        record.notices.count()
    };
    assert_eq!(under_way(), MAX_LOCK_NOTICES, "one past it has no place in the queue");
    scene.server.clock.pass(ANSWER_TIME);
    scene.server.drive();
    assert_eq!(under_way(), 0);
    assert_eq!(scene.told().len(), MAX_CALLBACK_SLOTS as usize, "and no more were sent than there are slots");
}
