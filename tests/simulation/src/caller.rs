//! Makes calls as a process does, and checks the result of each.

use crate::{
    ledger::Process,
    program::Judges,
    work::{BACK, ITEMS, ITEMS_ONCE, MAX_OCTETS, PAIR, RUNS, RUNS_ONCE, Work},
    work::{answer_to, pattern, second_octets, second_of},
};
use bytes::Bytes;
use rpcrdma_env::{Allocator, Env};
use rpcrdma_oncrpc::{Call, CallError, Client, ItemRoom, ReplyShape, Results, TransportError};
use rpcrdma_xdr::{DecodeError, padded};
use std::{
    future::{Future, poll_fn},
    net::IpAddr,
    pin::Pin,
    task::Poll,
    time::Duration,
};

/// Makes calls as a process.
pub(crate) struct Caller<'a> {
    pub(crate) judges: &'a Judges,
    pub(crate) process: Process,
    pub(crate) client: &'a Client,
    pub(crate) env: &'a Env,
    /// Where buffers for results come from, if the caller lends them.
    pub(crate) lend: Option<&'a dyn Allocator>,
    /// The host whose connections carry the calls.
    pub(crate) over: IpAddr,
    /// Whether those connections do not count in the judgement.
    pub(crate) doubted: bool,
}

/// A call under way.
struct Open {
    number: u64,
    call: Call,
    /// The items that it lends for the server to read.
    items: Vec<Bytes>,
}

/// What happens to a call that is not answered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The caller cancels it, and gets its memory back.
    Cancel,
    /// The caller drops it.
    Drop,
}

impl Caller<'_> {
    /// Makes a call and checks its reply. Returns whether a reply came.
    pub(crate) async fn call(&self, work: &Work) -> bool {
        let Open { number, call, items } = self.start(work);
        let ended = call.await;
        self.ended(work, number, &items, ended)
    }

    /// Makes a call, and waits only for a limited time.
    pub(crate) async fn try_for(&self, work: &Work, patience: Duration, then: Then) {
        let Open { number, mut call, items } = self.start(work);
        let mut patience = self.env.clock.sleep_until(self.env.clock.now() + patience);
        let answered = poll_fn(|cx| match Pin::new(&mut call).poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => patience.as_mut().poll(cx).map(|()| None),
        });
        match answered.await {
            Some(ended) => {
                self.ended(work, number, &items, ended);
            }
            None => {
                self.judges.tally.count(format!("call: {then:?}"));
                match then {
                    Then::Cancel => {
                        drop(call.cancel().await);
                        self.look_at_memory(number, &items);
                    }
                    Then::Drop => drop(call),
                }
                self.judges.ledger.cancelled(number);
            }
        }
    }

    fn start(&self, work: &Work) -> Open {
        let number = self.judges.ledger.begin(self.process, self.over, self.doubted, format!("{work:?}"));
        let room = work.room_octets();
        let shape = match work.procedure {
            PAIR => {
                let second = second_octets(room);
                let max_len = 20 + padded(room) + padded(second);
                ReplyShape { max_len, items: vec![self.room(room), self.room(second)].into() }
            }
            RUNS | RUNS_ONCE => ReplyShape::inline(12 + padded(room)),
            BACK => ReplyShape::inline(12),
            _ => ReplyShape { max_len: 12 + padded(room), items: vec![self.room(room)].into() },
        };
        let (args, items) = work.arguments(number);
        let call = match work.procedure {
            ITEMS | RUNS | PAIR => self.client.call_repeatable(work.procedure, args, shape),
            _ => self.client.call(work.procedure, args, shape),
        };
        self.judges.tally.count(format!("call: procedure {}, room {:?}", work.procedure, work.room));
        Open { number, call, items }
    }

    fn room(&self, len: usize) -> ItemRoom {
        let buffer = self.lend.filter(|_| len > 0).and_then(|allocator| allocator.try_allocate(len));
        ItemRoom { max_len: len, buffer }
    }

    /// Memory that was lent for a call must have come back before its caller learns that the call has ended.
    fn look_at_memory(&self, number: u64, items: &[Bytes]) {
        if items.iter().any(|item| !item.is_empty() && self.judges.registry.is_readable(item)) {
            self.judges.record.found(format!("call {number} has ended, and a peer may read what it lent"));
        }
    }

    fn ended(&self, work: &Work, number: u64, items: &[Bytes], ended: Result<Results, CallError>) -> bool {
        self.look_at_memory(number, items);
        let ledger = &self.judges.ledger;
        let (empty, doubted) = (work.octets == 0 && !items.is_empty(), ledger.is_doubted(number));
        let checked = ended.and_then(|results| Ok(check(work, number, results)?));
        match &checked {
            Ok(right) => {
                if !*right && !doubted {
                    self.judges.record.found(format!("the results of call {number} ({work:?}) are not what was sent"));
                }
                let tally = &self.judges.tally;
                tally.count(format!("answer: procedure {}, room {:?}", work.procedure, work.room));
                if doubted {
                    tally.count(if *right { "answer: doubted and right" } else { "answer: doubted and wrong" });
                } else if empty {
                    tally.count("answer: an empty item was sent");
                } else if work.wanted == 0 && !items.is_empty() {
                    tally.count("answer: an empty item came");
                }
                ledger.answered(number);
            }
            Err(error) => {
                let asked = work.is_to_fail() && is_refusal(error);
                if asked {
                    self.judges.tally.count(format!("refused: {}", name(error)));
                }
                ledger.failed(number, error, asked);
            }
        }
        checked.is_ok()
    }
}

/// Whether results are those of the call, to the last byte.
fn check(work: &Work, number: u64, mut results: Results) -> Result<bool, DecodeError> {
    let decoder = &mut results.decoder;
    let mut right = decoder.u64()? == number;
    match work.procedure {
        RUNS | RUNS_ONCE => right &= decoder.opaque(MAX_OCTETS)? == pattern(work.wanted, answer_to(number)),
        // The result is how often calling back failed: with faults, failures are no finding.
        BACK => right &= decoder.u32()? <= work.wanted as u32,
        ITEMS | ITEMS_ONCE | PAIR => {
            right &= decoder.item(MAX_OCTETS)?.as_slice() == pattern(work.wanted, answer_to(number));
        }
        _ => right = false,
    }
    if work.procedure == PAIR {
        right &= decoder.u32()? == work.procedure;
        let second = pattern(second_octets(work.wanted), second_of(answer_to(number)));
        right &= decoder.item(MAX_OCTETS)?.as_slice() == second;
    }
    results.decoder.finish()?;
    Ok(right)
}

/// Whether a server, or the client's transport, says by this error that it does not answer such a call.
fn is_refusal(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Rejected(_)
            | CallError::Transport(TransportError::Remote { .. } | TransportError::ReplyTooLarge { .. })
    )
}

fn name(error: &CallError) -> &'static str {
    match error {
        CallError::Rejected(_) => "rejected",
        CallError::Transport(TransportError::ReplyTooLarge { .. }) => "reply too large",
        _ => "error of the transport",
    }
}
