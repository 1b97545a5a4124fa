//! Calls to clients that answer as a test wants: an honest one, a slow one, and a hostile one.

mod answers;
mod bound;
mod locks;
mod paths;

use super::{
    super::{
        state::{backchannel::MAX_CALLBACK_SLOTS, flags},
        testing::{
            Setup, TestClient, TestServer,
            back::{Back, Heard, Said, outcome},
            only,
        },
    },
    ANSWER_TIME, NoAnswer,
};
use crate::{CallbackEvent, Observer, testing};
use rpcrdma_nfs::v4::{
    Args, Handle, Opaque, SessionId, StateId, Status,
    callback::{self, CbRecall, Op, Outcome, ReferringCall, ReferringCalls},
    ops,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

type Answer = Result<Vec<Outcome>, NoAnswer>;

/// A call of the server that has begun.
#[derive(Clone, Default)]
struct Begun(Arc<Mutex<Option<Answer>>>);

impl Begun {
    fn answer(&self) -> Option<Answer> {
        self.0.lock().unwrap().clone()
    }
}

fn handle(octets: usize) -> Handle {
    Handle::new(&vec![7; octets]).unwrap()
}

/// CB_RECALL of a delegation that does not exist; good enough for a call.
fn recall() -> callback::Args {
    callback::Args::Recall(CbRecall { state: StateId::CURRENT, truncate: false, file: handle(16) })
}

/// Begins a call, and does not wait for its result.
fn begin(server: &TestServer, client: &TestClient, ops: Vec<callback::Args>) -> Begun {
    let (begun, shared) = (Begun::default(), server.shared().clone());
    let record = shared.state.client(client.id).unwrap();
    let (call, told) = (shared.call_back(&record, ops, Vec::new()), begun.clone());
    shared.tasks.spawn(async move {
        let answer = call.await;
        *told.0.lock().unwrap() = Some(answer);
    });
    server.drive();
    begun
}

/// A call to its end; nothing in it takes time.
fn call(server: &TestServer, client: &TestClient, ops: Vec<callback::Args>) -> Answer {
    begin(server, client, ops).answer().expect("it has ended")
}

fn can_call(server: &TestServer, client: &TestClient) -> bool {
    server.shared().can_call(&server.shared().state.client(client.id).unwrap())
}

/// The status flags of SEQUENCE.
fn told(client: &TestClient) -> u32 {
    let mut results = client.send(vec![client.sequence(0, false)]).results;
    only!(results.remove(0), Sequence).unwrap().status
}

const DOWN: u32 = flags::CB_PATH_DOWN | flags::CB_PATH_DOWN_SESSION;

/// The slots and sequence numbers of the calls.
fn numbers(calls: &[Heard]) -> Vec<(u32, u32)> {
    calls.iter().map(|heard| (heard.sequence().slot, heard.sequence().sequence)).collect()
}

/// How often the server has reported each event to the observer.
#[derive(Default)]
struct Counting(Mutex<HashMap<(Option<Op>, CallbackEvent), u32>>);

impl Observer for Counting {
    fn operation(&self, _: Option<rpcrdma_nfs::v4::Op>, _: Status, _: Option<Duration>) {}

    fn callback(&self, op: Option<Op>, event: CallbackEvent) {
        *self.0.lock().unwrap().entry((op, event)).or_default() += 1;
    }
}
