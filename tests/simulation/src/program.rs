//! The program that is called, and how it is called: octets in both directions, placed directly or not, once or repeatedly,
//! at once or after a while, and from the server back to the client.
//!
//! Every call carries its number; what it sends and what it gets depend on that number, so that an octet out of place shows.

use crate::{
    ledger::{Ledger, Process},
    record::Record,
};
use rpcrdma_env::{Allocator, BoxFuture, Env, Random};
use rpcrdma_oncrpc::{Answer, Call, CallContext, CallError, Client, ItemRoom, NoAuth, ReplyShape, Service};
use rpcrdma_xdr::{DecodeError, Decoder, Encoder, Payload, padded};
use std::{sync::Arc, time::Duration};

pub(crate) const PROGRAM: u32 = 0x2000_0010;
/// Octets in and out, each as an item that may be placed directly.
const ITEMS: u32 = 1;
/// The same, and not idempotent.
const ITEMS_ONCE: u32 = 2;
/// Octets in and out, as parts of the stream.
const RUNS: u32 = 3;
/// The same, and not idempotent.
const RUNS_ONCE: u32 = 4;
/// The server calls back, once as often as it is told.
const BACK: u32 = 5;
/// The most octets of an item or run.
const MAX_OCTETS: usize = 1 << 20;
/// The most octets each way of a call that goes back: it has to fit the least inline threshold.
const MAX_BACK_OCTETS: u64 = 400;
/// What a service allocates for results that are to be placed comes from the transport above this; below, from the encoder.
const ALLOCATED_OCTETS: usize = 512;

/// Octets that depend on a number and on their place.
fn pattern(len: usize, number: u64) -> Vec<u8> {
    let word =
        |at: u64| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93)).to_le_bytes();
    let mut octets: Vec<u8> = (0..len.div_ceil(8) as u64).flat_map(word).collect();
    octets.truncate(len);
    octets
}

/// What stands for results rather than arguments.
fn answer_to(number: u64) -> u64 {
    !number
}

/// What all who call and all who execute have in common.
pub(crate) struct Judges {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) record: Arc<Record>,
}

/// The program, as one process executes it.
pub(crate) struct Program {
    pub(crate) judges: Arc<Judges>,
    pub(crate) process: Process,
    pub(crate) env: Env,
}

impl Service for Program {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        1
    }

    fn is_idempotent(&self, procedure: u32) -> bool {
        !matches!(procedure, ITEMS_ONCE | RUNS_ONCE | BACK)
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        let Self { judges, process, env } = self;
        Box::pin(execute(judges.clone(), *process, env.clone(), context, procedure, args))
    }
}

/// What a call asks for.
struct Asked {
    number: u64,
    sleep: Duration,
    /// Octets of results; calls back, where that is what is asked for.
    wanted: usize,
    octets: bytes::Bytes,
}

fn read(procedure: u32, mut args: Decoder) -> Result<Asked, DecodeError> {
    let number = args.u64()?;
    let sleep = Duration::from_micros(u64::from(args.u32()?));
    let wanted = args.count(MAX_OCTETS)?;
    let octets = match procedure {
        ITEMS | ITEMS_ONCE => args.item(MAX_OCTETS)?.into_bytes(),
        _ => args.opaque(MAX_OCTETS)?,
    };
    args.finish()?;
    Ok(Asked { number, sleep, wanted, octets })
}

async fn execute(
    judges: Arc<Judges>,
    process: Process,
    env: Env,
    context: CallContext,
    procedure: u32,
    args: Decoder,
) -> Answer {
    let Asked { number, sleep, wanted, octets } = match read(procedure, args) {
        Ok(asked) => asked,
        Err(error) => {
            judges.record.found(format!("{process:?} got arguments that nobody sent: {error}"));
            return error.into();
        }
    };
    let once = matches!(procedure, ITEMS_ONCE | RUNS_ONCE | BACK);
    judges.ledger.executed(number, process, env.clock.now(), once);
    if octets != pattern(octets.len(), number) {
        judges.record.found(format!("the arguments of call {number} are not what was sent"));
    }
    drop(octets);
    if !sleep.is_zero() {
        env.clock.sleep_until(env.clock.now() + sleep).await;
    }
    let mut results = Encoder::new();
    results.u64(number);
    match procedure {
        ITEMS | ITEMS_ONCE if wanted >= ALLOCATED_OCTETS => {
            let mut buffer = context.connection.allocator.allocate(wanted).await;
            buffer.octets_mut()[..wanted].copy_from_slice(&pattern(wanted, answer_to(number)));
            buffer.set_len(wanted);
            results.item(buffer.freeze());
        }
        ITEMS | ITEMS_ONCE => results.item(pattern(wanted, answer_to(number)).into()),
        RUNS | RUNS_ONCE => results.opaque(&pattern(wanted, answer_to(number))),
        _ => results.u32(call_back(&judges, process, &env, &context, wanted).await),
    }
    Answer::Results(results.finish())
}

/// Calls the client back so many times. Returns how often that did not work.
async fn call_back(judges: &Judges, process: Process, env: &Env, context: &CallContext, times: usize) -> u32 {
    let Some(reverse) = context.connection.reverse.clone() else { return u32::MAX };
    let client = Client::new(reverse, Arc::new(NoAuth), PROGRAM, 1);
    let caller = Caller { judges, process, client: &client, env, lend: None };
    let mut failed = 0;
    for _ in 0..times {
        let once = env.random.below(2) == 0;
        let work = Work {
            procedure: if once { RUNS_ONCE } else { RUNS },
            sleep: Duration::ZERO,
            octets: env.random.below(MAX_BACK_OCTETS) as usize,
            wanted: env.random.below(MAX_BACK_OCTETS) as usize,
        };
        failed += u32::from(!caller.call(&work).await);
    }
    failed
}

/// One call to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    procedure: u32,
    sleep: Duration,
    octets: usize,
    wanted: usize,
}

impl Work {
    /// Anything that the program does; calling back only where the client can be called.
    pub(crate) fn draw(random: &dyn Random, can_call_back: bool) -> Self {
        let octets = |random: &dyn Random| match random.below(10) {
            0..4 => random.below(600),
            4..7 => random.below(9_000),
            7..9 => random.below(60_000),
            _ => random.below(300_000),
        } as usize;
        let procedure = match random.below(10) {
            0..3 => ITEMS,
            3..5 => ITEMS_ONCE,
            5..7 => RUNS,
            7 => RUNS_ONCE,
            _ if can_call_back => BACK,
            _ => ITEMS,
        };
        let sleep = match random.below(4) {
            0 => Duration::from_micros(random.below(100)),
            1 => Duration::from_micros(random.below(30_000)),
            _ => Duration::ZERO,
        };
        let work = Self { procedure, sleep, octets: octets(random), wanted: octets(random) };
        match procedure {
            BACK => Self { octets: work.octets % 64, wanted: 1 + work.wanted % 3, ..work },
            // Answers that are kept for duplicates: so small that no cache of these runs has to forget one.
            ITEMS_ONCE | RUNS_ONCE => Self { wanted: work.wanted % 10_000, ..work },
            _ => work,
        }
    }
}

/// Makes calls as a process.
pub(crate) struct Caller<'a> {
    pub(crate) judges: &'a Judges,
    pub(crate) process: Process,
    pub(crate) client: &'a Client,
    pub(crate) env: &'a Env,
    /// Where buffers for results come from, if they are to be lent.
    pub(crate) lend: Option<&'a dyn Allocator>,
}

impl Caller<'_> {
    /// Makes a call and checks its answer. Returns whether there was one.
    pub(crate) async fn call(&self, work: &Work) -> bool {
        let (number, call) = self.start(work);
        let ended = self.finish(work, number, call).await;
        match &ended {
            Ok(()) => self.judges.ledger.answered(number),
            Err(error) => self.judges.ledger.failed(number, error),
        }
        ended.is_ok()
    }

    /// Makes a call and takes it back after a while, if it is not answered by then.
    pub(crate) async fn cancel(&self, work: &Work, after: Duration) {
        let (number, mut call) = self.start(work);
        let mut patience = self.env.clock.sleep_until(self.env.clock.now() + after);
        let answered = std::future::poll_fn(|cx| {
            use std::{future::Future, pin::Pin, task::Poll};
            match Pin::new(&mut call).poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending => patience.as_mut().poll(cx).map(|()| None),
            }
        });
        match answered.await {
            None => {
                drop(call.cancel().await);
                self.judges.ledger.cancelled(number);
            }
            Some(Ok(_)) => self.judges.ledger.answered(number),
            Some(Err(error)) => self.judges.ledger.failed(number, &error),
        }
    }

    fn start(&self, work: &Work) -> (u64, Call) {
        let number = self.judges.ledger.begin(self.process, format!("{work:?}"));
        let shape = match work.procedure {
            ITEMS | ITEMS_ONCE => ReplyShape { max_len: 12 + padded(work.wanted), items: vec![self.room(work.wanted)] },
            RUNS | RUNS_ONCE => ReplyShape::inline(12 + padded(work.wanted)),
            _ => ReplyShape::inline(12),
        };
        let args = arguments(work, number);
        let call = match work.procedure {
            ITEMS | RUNS => self.client.call_repeatable(work.procedure, args, shape),
            _ => self.client.call(work.procedure, args, shape),
        };
        (number, call)
    }

    fn room(&self, len: usize) -> ItemRoom {
        let buffer = self.lend.filter(|_| len > 0).and_then(|allocator| allocator.try_allocate(len));
        ItemRoom { max_len: len, buffer }
    }

    async fn finish(&self, work: &Work, number: u64, call: Call) -> Result<(), CallError> {
        let mut results = call.await?;
        let mut right = results.decoder.u64()? == number;
        match work.procedure {
            ITEMS | ITEMS_ONCE => {
                let item = results.decoder.item(MAX_OCTETS)?;
                right &= item.as_slice() == pattern(work.wanted, answer_to(number));
            }
            RUNS | RUNS_ONCE => right &= results.decoder.opaque(MAX_OCTETS)? == pattern(work.wanted, answer_to(number)),
            // How often calling back did not work: with faults, that is no finding.
            _ => right &= results.decoder.u32()? <= work.wanted as u32,
        }
        results.decoder.finish()?;
        if !right {
            self.judges.record.found(format!("the results of call {number} ({work:?}) are not what was sent"));
        }
        Ok(())
    }
}

fn arguments(work: &Work, number: u64) -> Payload {
    let mut args = Encoder::new();
    args.u64(number);
    // At most 30,000 microseconds, and 1 MiB.
    args.u32(work.sleep.as_micros() as u32);
    args.u32(work.wanted as u32);
    let octets = pattern(work.octets, number);
    match work.procedure {
        ITEMS | ITEMS_ONCE => args.item(octets.into()),
        _ => args.opaque(&octets),
    }
    args.finish()
}
