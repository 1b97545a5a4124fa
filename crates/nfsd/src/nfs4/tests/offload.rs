//! Copies that go on after COPY's reply: their pieces, and how they end.

mod disk;
mod ends;

use super::{
    copy::{End, copy_args, copy_with, whole},
    delegation::{delegated, give_back},
    *,
};
use crate::{
    Queue, Workers,
    nfs4::{
        state::copies::{KEPT, MAX_COPIES},
        tasks::Driver,
        testing::back::{Back, Heard, Said},
    },
};
use rpcrdma_nfs::v4::{
    callback::{self, CbOffload, OffloadOutcome},
    ops::OffloadStatusOk,
};
use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

const MIB: u64 = 1 << 20;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that work at once, until a test wants to see each job.
#[derive(Default)]
struct Steps(Mutex<Option<Vec<Job>>>);

impl Workers for Steps {
    fn run(&self, job: Job) {
        let mut waiting = self.0.lock().unwrap();
        match &mut *waiting {
            Some(jobs) => jobs.push(job),
            None => {
                drop(waiting);
                job();
            }
        }
    }

    fn threads(&self) -> usize {
        8
    }
}

impl Steps {
    /// From now on jobs wait.
    fn hold(&self) {
        *self.0.lock().unwrap() = Some(Vec::new());
    }

    /// Does the waiting jobs, and from now on each job at once.
    fn go_on(&self) {
        let jobs = self.0.lock().unwrap().take();
        jobs.into_iter().flatten().for_each(|job| job());
    }
}

/// A server with a file of six mebibytes, a client that it can call, and a driver of work that goes on after a reply.
struct World {
    server: TestServer,
    steps: Arc<Steps>,
    driver: Driver,
    client: TestClient,
    back: Arc<Back>,
    from: End,
    to: End,
}

/// Lets the driver do all that can be done.
fn drive(driver: &mut Driver) {
    assert!(Pin::new(driver).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// A client that the server can call, and its end of the connection. It puts off notices about copies, like a client
/// whose COPY is still under way, until a test says otherwise.
fn client_of(server: &TestServer, driver: &mut Driver, name: &str) -> (TestClient, Arc<Back>) {
    let back = Back::new();
    back.answer_by(|heard| match heard.ops() {
        [callback::Args::Offload(_)] => Said::Results(heard.of_one(Status::DELAY)),
        _ => Said::Well,
    });
    let client = server.client_over(name, &back);
    drive(driver);
    client.reclaim_complete();
    (client, back)
}

/// Makes a file in the root, open for reading and writing, and not delegated, since other clients want it, too.
fn made(client: &TestClient, name: &str) -> End {
    let how = OpenHow::Create(CreateHow::Guarded(FileAttributes::of(&[Value::Mode(0o644)])));
    let open = ops::Open { how, ..to_open(client, name, "o", BOTH | ops::share::WANT_NONE, 0) };
    let (file, opened) = open_with(client, open).unwrap();
    (file, opened.state)
}

impl World {
    fn new() -> Self {
        let steps = Arc::new(Steps::default());
        let server = TestServer::directory_in(Queue::new(steps.clone()));
        let mut driver = server.shared().tasks.driver().unwrap();
        let (client, back) = client_of(&server, &mut driver, "a");
        let (from, to) = (made(&client, "from"), made(&client, "to"));
        for at in 0..6 {
            client.write(&from.0, from.1, at * MIB, &vec![at as u8 + 1; MIB as usize]).unwrap();
        }
        Self { server, steps, driver, client, back, from, to }
    }

    /// Begins a copy of the whole file.
    fn begin(&self) -> StateId {
        let ends = (&self.from, &self.to);
        let ok = copy_with(&self.client, ends, copy_args(ends, (0, 0, 0), false)).unwrap();
        assert_eq!((ok.response.count, ok.requirements.synchronous), (0, false));
        ok.response.callback.expect("it goes on")
    }

    fn drive(&mut self) {
        drive(&mut self.driver);
    }

    /// The notices about copies since this was last asked.
    fn told(&self) -> Vec<CbOffload> {
        let calls = self.back.calls();
        let offload = |heard: &Heard| match heard.ops() {
            [callback::Args::Offload(offload)] => offload.clone(),
            other => panic!("{other:?}"),
        };
        calls.iter().map(offload).collect()
    }

    fn status(&self, state: StateId) -> Result<(u64, Option<Status>), Status> {
        status(&self.client, &self.to.0, state)
    }

    /// Copies that go on, and copied bytes, as the program's metrics show them.
    fn counts(&self) -> (usize, u64) {
        let counts = self.server.nfsd.version_4_counts().unwrap();
        (counts.copies, counts.copied)
    }

    fn cancel(&self, state: StateId) -> Status {
        self.client.on(&self.to.0, Args::OffloadCancel(ops::OffloadCancel { state })).status()
    }
}

fn status(client: &TestClient, file: &Handle, state: StateId) -> Result<(u64, Option<Status>), Status> {
    let outcome = client.on(file, Args::OffloadStatus(ops::OffloadStatus { state }));
    only!(outcome, OffloadStatus).map(|OffloadStatusOk { count, complete }| (count, complete))
}

/// proves: NFS4-7862-15.9.3-a, NFS4-7862-4.8-a
#[test]
fn a_long_copy_goes_on_and_can_be_asked_for() {
    let mut world = World::new();
    let state = world.begin();
    assert_eq!(world.status(state), Ok((0, None)), "it has not begun");
    world.steps.hold();
    world.drive();
    assert_eq!(world.status(state), Ok((0, None)));
    world.steps.go_on();
    world.steps.hold();
    world.drive();
    assert_eq!(world.status(state), Ok((MIB, None)), "a piece is made");
    assert_eq!(world.counts(), (1, MIB));
    world.steps.go_on();
    world.drive();
    assert_eq!(world.status(state), Ok((6 * MIB, Some(Status::OK))));
    assert_eq!(world.counts(), (0, 6 * MIB), "under way, and copied in all");
    assert!(whole(&world.client, &world.from) == whole(&world.client, &world.to));
    assert_eq!(status(&world.client, &world.from.0, state), Err(Status::BAD_STATEID), "of another file");
    assert_eq!(world.status(StateId { sequence: 0, ..state }), Err(Status::BAD_STATEID));
    let other = world.server.client("b");
    assert_eq!(status(&other, &world.to.0, state), Err(Status::BAD_STATEID), "another's");
    // The server remembers it for a while, and as long as it tries to report the end.
    for _ in 0..crate::nfs4::offload::TELLS {
        world.server.clock.pass(crate::nfs4::offload::TELL_AGAIN);
        world.drive();
    }
    assert_eq!(world.status(state), Ok((6 * MIB, Some(Status::OK))));
    world.server.clock.pass(KEPT);
    assert_eq!(world.status(state), Err(Status::BAD_STATEID));
}

/// proves: NFS4-7862-16.1.3-a
#[test]
fn a_client_is_told_of_the_end_until_it_has_taken_note() {
    let mut world = World::new();
    let state = world.begin();
    world.drive();
    let told = world.told();
    let [CbOffload { file, state: of, outcome: OffloadOutcome::Done(response) }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((file, *of), (&world.to.0, state));
    assert_eq!((response.count, response.committed, response.callback), (6 * MIB, ops::Stability::FileSync, None));
    assert_eq!(world.status(state), Ok((6 * MIB, Some(Status::OK))), "it has put it off");
    world.back.answer_by(|heard| Said::Results(heard.of_one(Status::OK)));
    world.server.clock.pass(crate::nfs4::offload::TELL_AGAIN);
    world.drive();
    assert_eq!(world.told(), told, "the same again");
    assert_eq!(world.status(state), Err(Status::BAD_STATEID), "it knows now");
    world.server.clock.pass(crate::nfs4::offload::TELL_AGAIN);
    world.drive();
    assert_eq!(world.told(), [], "once is enough");
}

/// The server could not report the end to it.
#[test]
fn a_client_that_cannot_be_called_has_its_answer_when_a_part_is_copied() {
    let world = World::new();
    world.server.end(&world.client.rpc, &world.back);
    let ends = (&world.from, &world.to);
    let ok = copy_with(&world.client, ends, copy_args(ends, (0, 0, 0), false)).unwrap();
    assert_eq!((ok.response.callback, ok.response.count), (None, 4 * MIB));
}

/// The data of a copy that has ended is on the disk.
#[test]
fn a_copy_that_has_ended_is_committed() {
    let mut world = World::new();
    let state = world.begin();
    world.drive();
    let client = world.server.shared().state.client(world.client.id).unwrap();
    let ended = client.known_copies().remove(0).outcome().unwrap().unwrap();
    assert_eq!((ended.count, ended.committed, ended.callback), (6 * MIB, ops::Stability::FileSync, None));
    assert_eq!(world.status(state), Ok((6 * MIB, Some(Status::OK))));
}

/// proves: NFS4-7862-4.8-b, NFS4-7862-4.1.2-a
#[test]
fn a_copy_that_is_cancelled_has_stopped_when_that_is_answered() {
    let mut world = World::new();
    let state = world.begin();
    world.steps.hold();
    world.drive();
    let answered = AtomicBool::new(false);
    let World { client, to, steps, driver, .. } = &mut world;
    std::thread::scope(|scope| {
        let cancelling = scope.spawn(|| {
            let status = client.on(&to.0, Args::OffloadCancel(ops::OffloadCancel { state })).status();
            answered.store(true, Ordering::SeqCst);
            status
        });
        // The server still has to write this piece.
        std::thread::sleep(Duration::from_millis(50));
        assert!(!answered.load(Ordering::SeqCst));
        steps.go_on();
        super::offload::drive(driver);
        assert_eq!(cancelling.join().unwrap(), Status::OK);
    });
    assert_eq!(super::space::size(&world.client, &world.to.0), MIB, "what was copied stays");
    world.drive();
    assert_eq!(super::space::size(&world.client, &world.to.0), MIB, "and there is no more");
    assert_eq!((world.status(state), world.cancel(state)), (Err(Status::BAD_STATEID), Status::BAD_STATEID));
    assert_eq!(world.server.shared().state.client(world.client.id).unwrap().known_copies().len(), 0);
}

/// proves: NFS4-LIMITS-COPIES-a
#[test]
fn one_copy_too_many_is_made_before_it_is_answered() {
    let mut world = World::new();
    let states: Vec<_> = (0..MAX_COPIES).map(|_| world.begin()).collect();
    let ends = (&world.from, &world.to);
    let ok = copy_with(&world.client, ends, copy_args(ends, (0, 0, 0), false)).unwrap();
    assert_eq!((ok.response.callback, ok.response.count), (None, 4 * MIB));
    let (other, _) = client_of(&world.server, &mut world.driver, "b");
    let (from, to) = (open(&other, "from", "o", READ, 0).unwrap(), made(&other, "of b"));
    let ends = (&from, &to);
    let ok = copy_with(&other, ends, copy_args(ends, (0, 0, 0), false)).unwrap();
    assert!(ok.response.callback.is_some(), "another's do not count");
    world.drive();
    for state in states {
        assert_eq!(world.status(state), Ok((6 * MIB, Some(Status::OK))));
        assert_eq!(world.cancel(state), Status::OK, "the client needs to know it no more");
    }
    // Until the server gives up its reports.
    world.server.clock.pass(crate::nfs4::offload::TELL_AGAIN);
    world.drive();
    world.begin();
}

#[test]
fn a_copy_that_is_demanded_at_once_is_made_at_once_and_so_is_a_short_one() {
    let world = World::new();
    let ends = (&world.from, &world.to);
    for (range, synchronous) in [((0, 0, 0), true), ((0, 0, 4 * MIB), false)] {
        let ok = copy_with(&world.client, ends, copy_args(ends, range, synchronous)).unwrap();
        assert_eq!((ok.response.callback, ok.response.count), (None, 4 * MIB));
    }
    assert_eq!(world.counts(), (0, 8 * MIB));
    assert!(
        copy_with(&world.client, ends, copy_args(ends, (0, 0, 4 * MIB + 1), false))
            .unwrap()
            .response
            .callback
            .is_some()
    );
}
