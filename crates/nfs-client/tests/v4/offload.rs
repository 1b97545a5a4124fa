//! Copies whose end the server reports by CB_OFFLOAD: late, early, twice, about another copy, with an error, or with a
//! lie.

use crate::{
    callbacks::{call, called, of, sequence},
    every::{contents, mode, name},
    house::{Fate, House, Wire},
};
use futures_util::FutureExt as _;
use rpcrdma_nfs::v4::{
    Op, Outcome, SessionId, StateId, StateIdOther, Status, Verifier,
    callback::{self, CbOffload, OffloadOutcome},
    ops::{Stability, WriteResponse},
};
use rpcrdma_nfs_client::v4::{Access, Copied, Error, How, Nfs4, Opened, Span};
use rpcrdma_oncrpc::Service;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// The stateid of the copies in the tests, and another one.
const NAME: StateId = StateId { sequence: 1, other: StateIdOther([0xC0; 12]) };
const ANOTHER: StateId = StateId { sequence: 1, other: StateIdOther([0xC1; 12]) };
const SPAN: Span = Span { source_offset: 0, offset: 0, count: 1_000 };
const VERIFIER: Verifier = Verifier([5; 8]);
/// A time before the client asks how far a copy has come.
const SOON: Duration = Duration::from_millis(500);
/// How many ends of copies the client keeps before COPY's reply, as in `src/v4/awaited.rs`.
const MOST_EARLY: u8 = 16;

fn wrote(count: u64) -> OffloadOutcome {
    let response = WriteResponse { callback: None, count, committed: Stability::FileSync, verifier: VERIFIER };
    OffloadOutcome::Done(response)
}

fn failed(status: Status) -> OffloadOutcome {
    OffloadOutcome::Failed { status, copied: 7 }
}

/// The server's end of the back channel.
#[derive(Clone)]
struct Server {
    service: Arc<dyn Service>,
    session: SessionId,
    number: Arc<AtomicU32>,
}

impl Server {
    /// Reports the end of a copy. Returns the client's answer.
    fn tells(&self, state: StateId, outcome: OffloadOutcome) -> Status {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        self.says(number, state, outcome)
    }

    fn says(&self, number: u32, state: StateId, outcome: OffloadOutcome) -> Status {
        let file = rpcrdma_nfs::v4::Handle::new(b"whichever").unwrap();
        let offload = callback::Args::Offload(CbOffload { file, state, outcome });
        let ops = vec![callback::Args::Sequence(sequence(self.session, number, 0)), offload];
        call(&self.service, &of(2, ops)).now_or_never().expect("nothing that a server calls waits").status
    }
}

/// A client with two open files; the server answers its COPY by "it goes on", with this stateid.
struct World {
    _house: House,
    nfs: Nfs4,
    wire: Arc<Wire>,
    server: Server,
    from: Opened,
    to: Opened,
}

impl World {
    async fn new() -> Self {
        let (house, nfs, wire, service, session) = called().await;
        let root = nfs.root().await.unwrap().file;
        let open = async |file| nfs.open(&root, &name(file), Access::Both, How::Guarded(mode(0o644))).await.unwrap().0;
        let (from, to) = (open("from").await, open("to").await);
        nfs.write(&from, 0, Stability::FileSync, contents(SPAN.count as usize)).await.unwrap();
        let server = Server { service, session, number: Arc::default() };
        Self { _house: house, nfs, wire, server, from, to }
    }

    /// From now on, this is the reply to COPY; `early` runs before it arrives. OFFLOAD_STATUS says that the copy goes
    /// on, or how it has ended.
    fn goes_on(&self, early: impl Fn(&Server) + Send + 'static, asked: Option<(u64, Status)>) {
        let server = self.server.clone();
        self.wire.after(move |call, results| {
            for (args, outcome) in call.ops.iter().zip(&mut results.results) {
                match outcome {
                    Outcome::Copy(answer) => {
                        early(&server);
                        let ok = answer.as_mut().expect("the house copies");
                        (ok.response.callback, ok.response.count) = (Some(NAME), 0);
                    }
                    Outcome::OffloadStatus(answer) => {
                        assert_eq!(args.op(), Op::OffloadStatus);
                        let count = asked.map_or(3, |(count, _)| count);
                        let complete = asked.map(|(_, status)| status);
                        *answer = Ok(rpcrdma_nfs::v4::ops::OffloadStatusOk { count, complete });
                        results.status = Status::OK;
                    }
                    _ => {}
                }
            }
            Fate::Arrives
        });
        self.wire.calls();
    }

    async fn copies(&self) -> Result<Copied, Error> {
        self.nfs.copy(&self.from, &self.to, SPAN).await
    }

    /// How often the client asked how far the copy has come.
    fn asked(&self) -> usize {
        self.wire.calls().iter().filter(|call| call.ops.iter().any(|args| args.op() == Op::OffloadStatus)).count()
    }
}

/// proves: NFS4-7862-16.1.3-a
#[tokio::test(start_paused = true)]
async fn a_long_copy_of_our_server_ends_by_its_call() {
    const LONG: usize = 9 << 20;
    const PIECE: usize = 1 << 20;
    let house = House::new();
    let (nfs, wire, called) = house.client_called(2).await;
    let root = nfs.root().await.unwrap().file;
    let data = contents(LONG);
    let (from, _) = nfs.open(&root, &name("from"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    for at in (0..LONG).step_by(PIECE) {
        let piece = data.slice(at..at + PIECE);
        nfs.write(&from, at as u64, Stability::FileSync, piece).await.unwrap();
    }
    let (to, _) = nfs.open(&root, &name("to"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    tokio::time::sleep(SOON).await;
    wire.calls();
    let before = called.load(Ordering::Relaxed);
    let since = tokio::time::Instant::now();
    let copied = nfs.copy(&from, &to, Span { source_offset: 0, offset: 0, count: 0 }).await.unwrap();
    assert_eq!((copied.count, copied.committed), (LONG as u64, Stability::FileSync));
    assert!(copied.verifier.is_some(), "only CB_OFFLOAD tells it");
    assert!(called.load(Ordering::Relaxed) > before, "the server has called");
    assert!(since.elapsed() < SOON);
    let asked: Vec<_> = wire.calls().iter().flat_map(|call| &call.ops).map(|args| args.op()).collect();
    assert!(asked.contains(&Op::Copy) && !asked.contains(&Op::OffloadStatus), "{asked:?}");
    for at in (0..LONG).step_by(PIECE) {
        assert!(nfs.read(&to, at as u64, PIECE as u32).await.unwrap().data == data[at..at + PIECE], "at {at}");
    }
}

/// The call may overtake COPY's reply, which alone has the copy's stateid.
#[tokio::test(start_paused = true)]
async fn an_end_that_comes_before_the_answer_to_copy_counts() {
    let world = World::new().await;
    world.goes_on(|server| assert_eq!(server.tells(NAME, wrote(1_000)), Status::OK), None);
    let since = tokio::time::Instant::now();
    let copied = world.copies().await.unwrap();
    let wanted = Copied { count: 1_000, committed: Stability::FileSync, verifier: Some(VERIFIER) };
    assert_eq!((copied, world.asked()), (wanted, 0));
    assert!(since.elapsed() < SOON);

    // First a failure, and then a success of the same copy: the first report counts.
    world.goes_on(
        |server| {
            assert_eq!(server.tells(NAME, failed(Status::NOSPC)), Status::OK);
            assert_eq!(server.tells(NAME, wrote(1_000)), Status::OK);
        },
        None,
    );
    let error = world.copies().await.unwrap_err();
    assert_eq!((error.operation(), error.status()), (Some(Op::Copy), Some(Status::NOSPC)));
}

/// The client refuses an end for which it does not wait, and that does not end a later copy with the same stateid.
#[tokio::test(start_paused = true)]
async fn the_end_of_another_copy_ends_none_of_ours() {
    let world = World::new().await;
    assert_eq!(world.server.tells(ANOTHER, wrote(1)), Status::BAD_STATEID, "nothing is copied");
    // Before COPY's reply has come, each end may belong to its copy.
    world.goes_on(|server| assert_eq!(server.tells(ANOTHER, wrote(1)), Status::OK), None);
    let copying = async { world.copies().await };
    let telling = async {
        tokio::time::sleep(SOON).await;
        assert_eq!(world.server.tells(ANOTHER, wrote(1)), Status::BAD_STATEID, "the name of ours is known now");
        assert_eq!(world.server.tells(NAME, wrote(999)), Status::OK);
    };
    let (copied, ()) = tokio::join!(copying, telling);
    assert_eq!(copied.unwrap().count, 999);
    // The client kept the end of the other copy only for the reply to that COPY.
    world.wire.honest();
    let server = world.server.clone();
    world.wire.after(move |_, results| {
        for outcome in &mut results.results {
            if let Outcome::Copy(Ok(ok)) = outcome {
                (ok.response.callback, ok.response.count) = (Some(ANOTHER), 0);
            }
        }
        Fate::Arrives
    });
    let telling = async {
        tokio::time::sleep(SOON).await;
        assert_eq!(server.tells(ANOTHER, wrote(42)), Status::OK);
    };
    let (copied, ()) = tokio::join!(world.copies(), telling);
    assert_eq!(copied.unwrap().count, 42);
}

/// If the server reports an end twice, even by the same call again, the copy has ended once, as first reported.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_told_twice_is_one_end() {
    let world = World::new().await;
    world.goes_on(|_| {}, None);
    let telling = async {
        tokio::time::sleep(SOON).await;
        let number = world.server.number.load(Ordering::Relaxed) + 1;
        assert_eq!(world.server.tells(NAME, wrote(10)), Status::OK);
        assert_eq!(world.server.says(number, NAME, wrote(10)), Status::OK, "a repetition");
        assert_eq!(world.server.tells(NAME, failed(Status::IO)), Status::OK);
        assert_eq!(world.server.tells(NAME, wrote(20)), Status::OK);
    };
    let (copied, ()) = tokio::join!(world.copies(), telling);
    assert_eq!(copied.unwrap().count, 10);
    assert_eq!(world.server.tells(NAME, wrote(10)), Status::BAD_STATEID, "nobody waits any more");
}

#[tokio::test(start_paused = true)]
async fn an_end_in_an_error_is_the_copys_error() {
    let world = World::new().await;
    for status in [Status::NOSPC, Status::IO, Status::DQUOT, Status::STALE, Status(0x7FFF_FFFF)] {
        world.goes_on(|_| {}, None);
        let telling = async {
            tokio::time::sleep(SOON).await;
            assert_eq!(world.server.tells(NAME, failed(status)), Status::OK);
        };
        let (copied, ()) = tokio::join!(world.copies(), telling);
        let error = copied.unwrap_err();
        assert_eq!((error.operation(), error.status(), world.asked()), (Some(Op::Copy), Some(status), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_tells_more_than_there_was_to_copy_is_nonsense() {
    let world = World::new().await;
    for count in [SPAN.count + 1, u64::MAX] {
        world.goes_on(move |server| assert_eq!(server.tells(NAME, wrote(count)), Status::OK), None);
        let error = world.copies().await.unwrap_err();
        let Error::Nonsense { operation: Op::Copy, what } = error else { panic!("{error:?}") };
        assert_eq!(what, "copied more bytes than it was asked to");
    }
}

/// If a server reports the ends of many unknown copies, they do not fill the memory: the client may forget the end of
/// its own copy for them, and then asks for it.
#[tokio::test(start_paused = true)]
async fn many_early_ends_push_each_other_out_and_the_copy_is_asked_about() {
    let others = |count: u8| {
        move |server: &Server| {
            assert_eq!(server.tells(NAME, wrote(1_000)), Status::OK);
            for number in 0..count {
                let state = StateId { sequence: 1, other: StateIdOther([number; 12]) };
                assert_eq!(server.tells(state, wrote(1)), Status::OK);
            }
        }
    };
    let world = World::new().await;
    world.goes_on(others(MOST_EARLY - 1), None);
    assert_eq!(world.copies().await.unwrap().verifier, Some(VERIFIER));
    assert_eq!(world.asked(), 0);
    world.goes_on(others(MOST_EARLY), Some((1_000, Status::OK)));
    let copied = world.copies().await.unwrap();
    let wanted = Copied { count: 1_000, committed: Stability::Unstable, verifier: None };
    assert_eq!((copied, world.asked()), (wanted, 1));
}

/// If the call never comes, the client asks instead: seldom, and until the copy has ended.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_never_told_is_asked_for() {
    let world = World::new().await;
    world.goes_on(|_| {}, None);
    let telling = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.server.tells(NAME, wrote(5)), Status::OK);
    };
    let (copied, ()) = tokio::join!(world.copies(), telling);
    assert_eq!(copied.unwrap().count, 5);
    let asked = world.asked();
    assert!((4..=8).contains(&asked), "{asked} times in a minute");
    world.goes_on(|_| {}, Some((9, Status::IO)));
    assert_eq!(world.copies().await.unwrap_err().status(), Some(Status::IO));
}
