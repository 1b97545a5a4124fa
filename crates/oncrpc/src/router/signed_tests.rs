//! What the router does with a flavour that itself answers calls, drops them, needs time, and protects each
//! transmission anew.

use super::tests::{Sample, context, env, outcome_to_header};
use super::*;
use crate::{CallHeader, Credential, OpaqueAuth, ReplyHeader, Unanswered};
use bytes::Bytes;
use futures_util::FutureExt;
use rpcrdma_xdr::Encoder;
use std::net::SocketAddr;
use tokio::sync::Semaphore;

const NUMBER: u32 = 0x3000_0002;
/// Sequence numbers of calls with which the flavour does something of its own.
const DROPPED: u32 = 1000;
const ANSWERED: u32 = 1001;
const LATER: u32 = 1002;
/// Sequence numbers of calls whose replies cannot be protected.
const DENIED: u32 = 1003;
const SILENT: u32 = 1004;

/// A credential of two words, caller and sequence number; arguments and results begin with the sequence number.
struct Signed(Arc<Semaphore>);

impl ServerFlavour for Signed {
    fn number(&self) -> u32 {
        NUMBER
    }
    fn signs_each_transmission(&self) -> bool {
        true
    }
    fn accept(&self, _: SocketAddr, call: &CallHeader, mut args: Decoder) -> Verdict {
        let mut words = Decoder::new(Stream::from(call.credential.body.clone()));
        let (caller, sequence) = (words.u32().unwrap(), words.u32().unwrap());
        let results = move || {
            let mut encoder = Encoder::new();
            encoder.u32(sequence);
            Answered { verifier: verifier(sequence), result: Ok(encoder.finish()) }
        };
        let gate = self.0.clone();
        match sequence {
            DROPPED => Verdict::Dropped,
            ANSWERED => Verdict::Answered(results()),
            LATER => Verdict::Later(Box::pin(async move {
                gate.acquire().await.unwrap().forget();
                results()
            })),
            _ if args.u32() != Ok(sequence) => Verdict::Answered(Answered::rejected(Rejection::GarbageArgs)),
            _ => Verdict::Accepted(Accepted {
                reply: Some(Box::new(Seal(sequence))),
                caller: Some(caller.into()),
                ..Accepted::plain(Credential::None, args)
            }),
        }
    }
}

struct Seal(u32);

impl ReplyFlavour for Seal {
    fn wrap(&self, results: Option<Payload>) -> Result<(OpaqueAuth, Payload), Unanswered> {
        match self.0 {
            DENIED => return Err(Unanswered::Denied(AuthStat(14))),
            SILENT => return Err(Unanswered::Silent),
            _ => {}
        }
        let mut encoder = Encoder::new();
        if let Some(results) = results {
            encoder.u32(self.0);
            encoder.payload(results);
        }
        Ok((verifier(self.0), encoder.finish()))
    }
}

fn verifier(sequence: u32) -> OpaqueAuth {
    OpaqueAuth { flavour: NUMBER, body: Bytes::copy_from_slice(&sequence.to_be_bytes()) }
}

fn call(xid: u32, procedure: u32, caller: u32, sequence: u32, args: &[u8]) -> Stream {
    let mut encoder = Encoder::new();
    let id = CallId { xid, program: 77, version: 1, procedure };
    let body = [caller.to_be_bytes(), sequence.to_be_bytes()].concat();
    let credential = OpaqueAuth { flavour: NUMBER, body: body.into() };
    CallHeader { id, credential, verifier: verifier(sequence) }.encode(&mut encoder);
    encoder.u32(sequence);
    encoder.opaque_fixed(args);
    Stream::from(encoder.finish().to_bytes())
}

struct House {
    router: Router,
    gate: Arc<Semaphore>,
    service: Arc<Sample>,
}

fn house() -> House {
    let gate = Arc::new(Semaphore::new(0));
    let service = Arc::new(Sample { version: 1, ..Sample::default() });
    let router = Router::new(&env()).with_service(service.clone()).with_flavour(Arc::new(Signed(gate.clone())));
    House { router, gate, service }
}

impl House {
    async fn outcome(&self, message: Stream) -> Outcome {
        let (_signal, context) = context(700);
        self.router.handle(context, message).await
    }

    /// The header, and all words of the results.
    async fn ask(&self, message: Stream) -> (ReplyHeader, Vec<u32>) {
        let (header, mut decoder) = outcome_to_header(self.outcome(message).await);
        let words = std::iter::from_fn(|| decoder.u32().ok()).collect();
        (header, words)
    }
}

/// Procedure 2 counts how often it is executed.
///
/// proves: GSS-2203-5.3.3.1-f
#[tokio::test]
async fn a_call_that_comes_again_is_answered_anew_and_not_executed() {
    let house = house();
    for sequence in 5..9 {
        let (header, words) = house.ask(call(1, 2, 70, sequence, b"same")).await;
        assert_eq!((header.verifier, header.status), (verifier(sequence), Ok(())));
        assert_eq!(words, [sequence, 0], "executed once, and each reply has its own sequence number");
    }
    assert_eq!(house.ask(call(1, 2, 71, 9, b"same")).await.1, [9, 1], "another caller's is another call");
    assert_eq!(house.ask(call(1, 2, 70, 10, b"else")).await.1, [10, 2], "and so are other arguments");
    assert_eq!(house.ask(call(2, 2, 70, 11, b"same")).await.1, [11, 3], "and another XID");
}

/// Procedure 9 writes its results behind the header of a reply that nobody protects.
#[tokio::test]
async fn results_are_protected_however_their_service_writes_them() {
    let (header, words) = house().ask(call(1, 9, 70, 5, b"")).await;
    assert_eq!((header.verifier, header.status, words), (verifier(5), Ok(()), vec![5, 9]));
}

/// Procedure 3 waits. Both transmissions get the reply, each with its verifier.
#[tokio::test]
async fn a_call_that_comes_again_while_it_is_executed_waits() {
    let house = house();
    let ((_first, one), (_second, mut two)) = (context(700), context(701));
    let connection = &two.connection;
    let other = crate::Connection::new(
        connection.peer,
        connection.local,
        2,
        connection.kind,
        connection.limits,
        connection.allocator.clone(),
        connection.gone.clone(),
    );
    two.connection = Arc::new(other);
    let first = house.router.handle(one.clone(), call(1, 3, 70, 5, b""));
    assert!(matches!(house.router.handle(one, call(1, 3, 70, 6, b"")).await, Outcome::Nothing), "on its connection");
    let second = house.router.handle(two, call(1, 3, 70, 7, b""));
    house.service.gate.notify_one();
    for (outcome, sequence) in [(first.await, 5), (second.await, 7)] {
        let (header, mut decoder) = outcome_to_header(outcome);
        assert_eq!(header.verifier, verifier(sequence));
        assert_eq!((decoder.u32(), decoder.u32()), (Ok(sequence), Ok(0)));
    }
}

#[tokio::test]
async fn a_flavour_answers_drops_and_takes_its_time() {
    let house = house();
    assert!(matches!(house.outcome(call(1, 2, 70, DROPPED, b"")).await, Outcome::Nothing));
    let (header, words) = house.ask(call(1, 2, 70, ANSWERED, b"")).await;
    assert_eq!((header.verifier, words), (verifier(ANSWERED), vec![ANSWERED]));
    let (_signal, context) = context(700);
    let later = house.router.handle(context, call(1, 2, 70, LATER, b""));
    assert_eq!(house.ask(call(2, 2, 70, 5, b"")).await.1, [5, 0], "nobody else waits, and none was executed");
    house.gate.add_permits(1);
    assert_eq!(outcome_to_header(later.await).0.verifier, verifier(LATER));
    let mut wrong = Stream::new();
    for part in call(3, 2, 70, 6, b"").parts() {
        let rpcrdma_xdr::StreamPart::Run(run) = part else { panic!("a chunk") };
        wrong.push_run(Bytes::copy_from_slice(&run[..run.len() - 4]));
    }
    assert_eq!(house.ask(wrong).await.0.status, Err(Rejection::GarbageArgs));
}

/// Once the connection has ended, the router does not wait for a flavour's work that precedes the execution of a call.
#[tokio::test]
async fn a_flavour_that_takes_its_time_is_not_waited_for_when_the_caller_is_gone() {
    let house = house();
    let (signal, context) = context(700);
    let mut later = house.router.handle(context, call(1, 2, 70, LATER, b""));
    assert!(later.as_mut().now_or_never().is_none());
    drop(signal);
    assert!(matches!(later.now_or_never(), Some(Outcome::Nothing)));
}

/// proves: GSS-2203-5.3.3.4.1-a, GSS-2203-5.3.3.4.1-b
#[tokio::test]
async fn a_reply_that_cannot_be_protected_is_no_reply_without_protection() {
    let house = house();
    assert_eq!(house.ask(call(1, 2, 70, DENIED, b"")).await.0.status, Err(Rejection::Auth(AuthStat(14))));
    assert!(matches!(house.outcome(call(2, 2, 70, SILENT, b"")).await, Outcome::Nothing));
    let (header, words) = house.ask(call(2, 2, 70, 5, b"")).await;
    assert_eq!((header.status, words), (Ok(()), vec![5, 1]), "what it was is kept all the same");
}

#[tokio::test]
async fn rejections_have_the_flavours_verifier_unless_the_call_is_denied() {
    let house = house();
    let (header, _) = house.ask(call(1, 99, 70, 5, b"")).await;
    assert_eq!((header.verifier, header.status), (verifier(5), Err(Rejection::ProcedureUnavailable)));
    let (header, _) = house.ask(call(1, 5, 70, 6, b"")).await;
    let denied = Err(Rejection::Auth(AuthStat::TOO_WEAK));
    assert_eq!((header.verifier, header.status), (OpaqueAuth::none(), denied));
    let (header, words) = house.ask(call(1, 0, 70, 7, b"")).await;
    assert_eq!((header.verifier, header.status, words), (verifier(7), Ok(()), vec![7]), "procedure 0, too");
}

/// An observer that counts by status gets the status before the results are protected.
#[tokio::test]
async fn what_results_begin_with_is_told_before_they_are_protected() {
    let house = house();
    for (xid, sequence) in [(1, 5), (1, 6), (2, 7)] {
        let (_signal, context) = context(700);
        let told = Arc::new(crate::FirstWord::default());
        let outcome = house.router.handle(context.with_first_word(told.clone()), call(xid, 2, 70, sequence, b"")).await;
        let (_, mut decoder) = outcome_to_header(outcome);
        assert_eq!((decoder.u32(), decoder.u32()), (Ok(sequence), Ok(xid - 1)));
        assert_eq!(told.get(), Some(xid - 1), "of a kept reply, too");
    }
    let (_signal, context) = context(700);
    let told = Arc::new(crate::FirstWord::default());
    house.router.handle(context.with_first_word(told.clone()), call(3, 99, 70, 8, b"")).await;
    assert_eq!(told.get(), None, "there are no results");
}
