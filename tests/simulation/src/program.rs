//! The RPC program of these runs: bytes in both directions, placed directly or not, idempotent or not, answered at once
//! or after a while, and calls from the server back to the client.
//!
//! Every call carries its number; its arguments and results depend on that number, so that a misplaced byte shows.

use crate::{
    caller::Caller,
    ledger::{Ledger, Process},
    memory::Registry,
    record::Record,
    tally::Tally,
    work::{BACK, ITEMS, ITEMS_ONCE, MAX_KEPT_BYTES, MAX_OCTETS, PAIR, PROGRAM, RUNS, RUNS_ONCE, Work},
    work::{answer_to, is_once, pattern, second_octets, second_of},
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Env};
use rpcrdma_oncrpc::{Answer, CallContext, Client, NoAuth, Service};
use rpcrdma_xdr::{DecodeError, Decoder, Encoder};
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Results that will be placed come from the transport's allocator if they are longer than this, and from the encoder
/// if they are not.
const ALLOCATED_OCTETS: usize = 512;
/// The longest execution of a call that was corrupted, or whose peer is not trusted.
const DOUBTED_SLEEP: Duration = Duration::from_millis(50);
/// How often, at most, such a call calls back.
const DOUBTED_TIMES: usize = 3;

/// What all callers and all executors share.
pub(crate) struct Judges {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) record: Arc<Record>,
    pub(crate) tally: Arc<Tally>,
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
        !is_once(procedure)
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        let Self { judges, process, env } = self;
        let executor = Executor { judges: judges.clone(), process: *process, env: env.clone(), context };
        Box::pin(executor.execute(procedure, args))
    }
}

/// The arguments of a call.
struct Asked {
    number: u64,
    sleep: Duration,
    /// Bytes of results, or the number of calls back.
    wanted: usize,
    octets: Bytes,
    /// The second item of a pair.
    second: Option<Bytes>,
}

fn read(procedure: u32, mut args: Decoder) -> Result<Asked, DecodeError> {
    let number = args.u64()?;
    let sleep = Duration::from_micros(u64::from(args.u32()?));
    let wanted = args.count(MAX_OCTETS)?;
    let octets = match procedure {
        ITEMS | ITEMS_ONCE | PAIR => args.item(MAX_OCTETS)?.into_bytes(),
        _ => args.opaque(MAX_OCTETS)?,
    };
    let second = if procedure == PAIR {
        args.u32()?;
        Some(args.item(MAX_OCTETS)?.into_bytes())
    } else {
        None
    };
    args.finish()?;
    Ok(Asked { number, sleep, wanted, octets, second })
}

/// Executes one call.
struct Executor {
    judges: Arc<Judges>,
    process: Process,
    env: Env,
    context: CallContext,
}

impl Executor {
    async fn execute(self, procedure: u32, args: Decoder) -> Answer {
        if !matches!(procedure, ITEMS..=PAIR) {
            return Answer::ProcUnavail;
        }
        let record = &self.judges.record;
        let read = read(procedure, args);
        // Only after the bytes have arrived it is known whether they were corrupted.
        let counts = self.counts();
        let mut asked = match read {
            Ok(asked) => asked,
            Err(error) => {
                if counts {
                    record.found(format!("{:?} got arguments that nobody sent: {error}", self.process));
                }
                return error.into();
            }
        };
        let number = asked.number;
        let once = is_once(procedure);
        if counts {
            self.judges.ledger.executed(number, self.process, self.env.clock.now(), once);
            let second = asked.second.as_ref().is_none_or(|second| *second == pattern(second.len(), second_of(number)));
            if asked.octets != pattern(asked.octets.len(), number) || !second {
                record.found(format!("the arguments of call {number} are not what was sent"));
            }
        } else {
            self.judges.tally.count("executed: a call that does not count");
            asked.sleep = asked.sleep.min(DOUBTED_SLEEP);
            asked.wanted = match procedure {
                BACK => asked.wanted.min(DOUBTED_TIMES),
                _ if once => asked.wanted % MAX_KEPT_BYTES,
                _ => asked.wanted,
            };
        }
        (asked.octets, asked.second) = (Bytes::new(), None);
        if !asked.sleep.is_zero() {
            self.env.clock.sleep_until(self.env.clock.now() + asked.sleep).await;
        }
        Answer::Results(self.results(procedure, number, asked.wanted).await)
    }

    async fn results(&self, procedure: u32, number: u64, wanted: usize) -> rpcrdma_xdr::Payload {
        let mut results = Encoder::new();
        results.u64(number);
        match procedure {
            ITEMS | ITEMS_ONCE => results.item(self.item(pattern(wanted, answer_to(number))).await),
            PAIR => {
                // Both in one buffer: a call that waits for a second buffer while it has the first may wait for ever.
                let mut both = pattern(wanted, answer_to(number));
                both.extend(pattern(second_octets(wanted), second_of(answer_to(number))));
                let mut first = self.item(both).await;
                let second = first.split_off(wanted);
                results.item(first);
                results.u32(procedure);
                results.item(second);
            }
            RUNS | RUNS_ONCE => results.opaque(&pattern(wanted, answer_to(number))),
            _ => results.u32(self.call_back(wanted).await),
        }
        results.finish()
    }

    /// Memory for results that are placed; if they are long, from the transport's allocator.
    async fn item(&self, octets: Vec<u8>) -> Bytes {
        if octets.len() < ALLOCATED_OCTETS {
            return octets.into();
        }
        let mut buffer = self.context.connection.allocator.allocate(octets.len()).await;
        buffer.bytes_mut()[..octets.len()].copy_from_slice(&octets);
        buffer.set_len(octets.len());
        buffer.freeze()
    }

    /// The address of the connection's initiator.
    fn initiator(&self) -> SocketAddr {
        let connection = &self.context.connection;
        if self.process.is_server() { connection.peer } else { connection.local }
    }

    /// Whether the peer's messages count in the judgement.
    fn counts(&self) -> bool {
        let connection = &self.context.connection;
        let acceptor = if self.process.is_server() { connection.local } else { connection.peer };
        self.judges.ledger.trust.counts(self.initiator(), acceptor.ip())
    }

    /// Calls the client back so many times. Returns how often that failed.
    async fn call_back(&self, times: usize) -> u32 {
        let Some(reverse) = self.context.connection.reverse.clone() else { return u32::MAX };
        let client = Client::new(reverse, Arc::new(NoAuth), PROGRAM, 1);
        let (over, doubted) = (self.initiator().ip(), !self.counts());
        let Self { judges, process, env, .. } = self;
        let caller = Caller { judges, process: *process, client: &client, env, lend: None, over, doubted };
        let mut failed = 0;
        for _ in 0..times {
            failed += u32::from(!caller.call(&Work::back(&*env.random)).await);
        }
        failed
    }
}
