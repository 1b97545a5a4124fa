//! Calls, by program, procedure, transport and status, and how long they take.
//!
//! The program, procedure and status are read from the messages themselves, so that answers of the duplicate request
//! cache and refusals of the RPC layer count like all others. Some counters exist from the start; each other one is
//! registered at its first use. From then on a call costs a few additions, and no memory.
//!
//! To count another program, add an entry to [`PROGRAMS`]. A COMPOUND of NFS version 4 counts as one procedure, with
//! the status of its last operation. `operations.rs` counts the operations, so that the sum of the series here is the
//! number of calls.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::{
    mount, nfsacl, nsm, v2,
    v3::{self, Status},
    v4,
};
use rpcrdma_oncrpc::{
    Begun, CallContext, FirstWord, Handler, Outcome, Rejection, Replied, TransportKind, gss::RPCSEC_GSS, peek_call,
    peek_flavour, peek_reply, portmap, rpcbind::RPCBIND_PROGRAM,
};
use rpcrdma_xdr::Stream;
use std::{
    sync::{Arc, OnceLock},
    task::Context,
    time::Instant,
};

/// By [`transport_index`].
pub(super) const TRANSPORTS: [&str; 3] = ["tcp", "rdma", "udp"];

/// The status of a call without an answer: a message that is not a call, a duplicate of a call in progress, or a call
/// that gets no reply.
const NOT_ANSWERED: &str = "none";
/// The status of a call that placed data where the binding does not allow it; RPC-over-RDMA answers it.
const NOT_ELIGIBLE: &str = "ERR_CHUNK";
/// A procedure or a status that has no name.
const OTHER: &str = "other";

/// Statuses that mean a failure of the server, not of a client or user. Their counters exist from the start, so that an
/// alarm sees the first failure.
pub(super) const ALARMING: [&str; 5] = ["IO", "NOSPC", "DQUOT", "STALE", "SERVERFAULT"];

/// Names a status.
type Word = fn(u32) -> Option<&'static str>;

/// A program whose calls are counted by procedure.
struct Program {
    number: u32,
    versions: &'static [u32],
    label: &'static str,
    /// The names of its procedures, by number.
    procedures: fn() -> Vec<&'static str>,
    /// Whether a procedure's results begin with a status.
    has_status: fn(u32) -> bool,
    /// The name of a status.
    word: Word,
    /// The transports over which it is served.
    transports: &'static [usize],
}

const PROGRAMS: [Program; 8] = [
    Program {
        number: v2::PROGRAM,
        versions: &[v2::VERSION],
        label: "nfs2",
        procedures: || v2::Procedure::ALL.into_iter().map(v2::Procedure::name).collect(),
        has_status: |procedure| v2::Procedure::from_number(procedure).is_some_and(v2::Procedure::has_status),
        word: |status| v2::Status(status).word(),
        transports: &[0, 1],
    },
    Program {
        number: v3::PROGRAM,
        versions: &[v3::VERSION],
        label: "nfs3",
        procedures: || v3::Procedure::ALL.into_iter().map(v3::Procedure::name).collect(),
        has_status: |procedure| procedure != v3::Procedure::Null as u32,
        word: |status| Status(status).word(),
        transports: &[0, 1],
    },
    Program {
        number: v4::PROGRAM,
        versions: &[v4::VERSION],
        label: "nfs4",
        procedures: || vec!["NULL", "COMPOUND"],
        has_status: |procedure| procedure == 1,
        word: |status| v4::Status(status).word(),
        transports: &[0, 1],
    },
    Program {
        number: mount::PROGRAM,
        versions: &[mount::VERSION_1, mount::VERSION_2, mount::VERSION_3],
        label: "mount",
        procedures: || mount::procedure::NAMES.to_vec(),
        has_status: |procedure| procedure == mount::procedure::MOUNT,
        // MNT has the same numbers for its statuses as NFS version 3.
        word: |status| Status(status).word(),
        transports: &[0],
    },
    Program {
        number: nsm::PROGRAM,
        versions: &[nsm::VERSION],
        label: "nsm",
        procedures: || nsm::procedure::NAMES.to_vec(),
        has_status: |_| false,
        word: |_| None,
        transports: &[0, 2],
    },
    Program {
        number: RPCBIND_PROGRAM,
        versions: &[2],
        label: "portmap",
        procedures: || (0..=5).filter_map(|number| portmap::procedure::name(2, number)).collect(),
        has_status: |_| false,
        word: |_| None,
        transports: &[0, 2],
    },
    Program {
        number: RPCBIND_PROGRAM,
        versions: &[3, 4],
        label: "rpcbind",
        procedures: || (0..=12).filter_map(|number| portmap::procedure::name(4, number)).collect(),
        has_status: |_| false,
        word: |_| None,
        transports: &[0, 2],
    },
    Program {
        number: nfsacl::PROGRAM,
        versions: &[nfsacl::VERSION_3],
        label: "nfsacl",
        procedures: || vec!["NULL", "GETACL", "SETACL"],
        has_status: |procedure| procedure != nfsacl::procedure::NULL,
        word: |status| Status(status).word(),
        transports: &[0, 1],
    },
];

fn transport_index(kind: TransportKind) -> usize {
    match kind {
        TransportKind::Rdma => 1,
        TransportKind::Udp => 2,
        // TCP, and any other transport.
        _ => 0,
    }
}

/// Every value that the label `status` can have. It is bounded: all other statuses count as [`OTHER`].
fn statuses() -> Vec<&'static str> {
    let mut all: Vec<_> = Status::ALL.iter().filter_map(|status| status.word()).collect();
    let of_2 = v2::Status::ALL.iter().filter_map(|status| status.word());
    let of_4 = v4::Status::ALL.iter().filter_map(|status| status.word());
    for word in of_2.chain(of_4).chain(Rejection::names()).chain([NOT_ELIGIBLE, NOT_ANSWERED, OTHER]) {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all
}

/// The value of the label `status`.
fn status(outcome: &Outcome, word: Option<Word>, told: Option<&FirstWord>) -> &'static str {
    match outcome {
        Outcome::NotEligible => NOT_ELIGIBLE,
        Outcome::Nothing => NOT_ANSWERED,
        Outcome::Reply(reply) => match peek_reply(reply) {
            Some(Replied::Rejected(rejection)) => rejection.name(),
            // Signed or sealed results do not begin with the status.
            Some(Replied::Results(first)) => match (word, told.map_or(first, FirstWord::get)) {
                (Some(word), Some(first)) => word(first).unwrap_or(OTHER),
                (Some(_), None) => OTHER,
                (None, _) => "OK",
            },
            None => OTHER,
        },
    }
}

/// The numbers of one procedure, or of one operation.
struct Procedure {
    program: &'static str,
    name: &'static str,
    /// Names the status at the beginning of its results, if they have one.
    word: Option<Word>,
    seconds: Histogram,
    /// By transport, and by status as [`Calls`] lists them.
    counted: [Box<[OnceLock<Counter>]>; TRANSPORTS.len()],
}

impl Procedure {
    fn new(program: &'static str, name: &'static str, word: Option<Word>, statuses: usize) -> Self {
        let counted = [(); TRANSPORTS.len()].map(|()| (0..statuses).map(|_| OnceLock::new()).collect());
        let seconds = histogram!("rpcrdma_call_seconds", "program" => program, "procedure" => name);
        Self { program, name, word, seconds, counted }
    }

    /// The counter of a transport and a status, which this call registers at its first use.
    fn counter(&self, statuses: &[&'static str], transport: usize, status: &'static str) -> Option<&Counter> {
        let at = statuses.iter().position(|known| *known == status)?;
        let place = self.counted.get(transport)?.get(at)?;
        Some(place.get_or_init(|| {
            counter!(
                "rpcrdma_calls_total",
                "program" => self.program, "procedure" => self.name,
                "transport" => TRANSPORTS[transport], "status" => status
            )
        }))
    }

    fn count(&self, statuses: &[&'static str], transport: usize, status: &'static str) {
        if let Some(counter) = self.counter(statuses, transport, status) {
            counter.increment(1);
        }
    }
}

/// The numbers of all procedures.
pub(in crate::server) struct Calls {
    statuses: Vec<&'static str>,
    /// In the order of [`PROGRAMS`]; the last entry of each is for the procedures without a name.
    programs: Vec<Vec<Procedure>>,
    /// All other programs and versions, and messages that are not calls.
    other: Procedure,
    in_progress: Gauge,
}

impl Calls {
    /// Registers the counters that exist from the start.
    pub(in crate::server) fn new() -> Arc<Self> {
        let statuses = statuses();
        let procedures = |program: &Program| -> Vec<Procedure> {
            let names = (program.procedures)().into_iter().chain([OTHER]).zip(0..);
            let one = |(name, number)| {
                let word = (program.has_status)(number).then_some(program.word);
                Procedure::new(program.label, name, word, statuses.len())
            };
            names.map(one).collect()
        };
        let programs: Vec<Vec<_>> = PROGRAMS.iter().map(procedures).collect();
        let other = Procedure::new(OTHER, OTHER, None, statuses.len());
        let calls = Self { programs, other, in_progress: gauge!("rpcrdma_calls_in_progress"), statuses };
        for (program, procedures) in PROGRAMS.iter().zip(&calls.programs) {
            for transport in program.transports {
                for procedure in procedures {
                    let status = if procedure.name == OTHER { Rejection::ProcedureUnavailable.name() } else { "OK" };
                    procedure.counter(&calls.statuses, *transport, status);
                    for status in ALARMING.into_iter().filter(|_| procedure.word.is_some() && procedure.name != OTHER) {
                        procedure.counter(&calls.statuses, *transport, status);
                    }
                }
            }
        }
        for transport in 0..TRANSPORTS.len() {
            calls.other.counter(&calls.statuses, transport, Rejection::ProgramUnavailable.name());
        }
        Arc::new(calls)
    }

    /// The place of the numbers for a call's procedure: its program's place, and its own.
    fn place(&self, message: &Stream) -> Option<(usize, usize)> {
        let id = peek_call(message)?;
        let is_its = |program: &Program| program.number == id.program && program.versions.contains(&id.version);
        let program = PROGRAMS.iter().position(is_its)?;
        let unnamed = self.programs.get(program)?.len() - 1;
        Some((program, usize::try_from(id.procedure).unwrap_or(unnamed).min(unnamed)))
    }

    fn at(&self, place: Option<(usize, usize)>) -> &Procedure {
        let of_place = |(program, procedure): (usize, usize)| self.programs.get(program)?.get(procedure);
        place.and_then(of_place).unwrap_or(&self.other)
    }
}

/// Counts and times calls.
pub(in crate::server) struct Timed {
    inner: Arc<dyn Handler>,
    calls: Arc<Calls>,
}

impl Timed {
    pub(in crate::server) fn new(inner: Arc<dyn Handler>, calls: &Arc<Calls>) -> Arc<Self> {
        Arc::new(Self { inner, calls: calls.clone() })
    }
}

impl Handler for Timed {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        let (call, context) = Call::new(&self.calls, context, &message);
        let outcome = self.inner.handle(context, message);
        self.wait(call, outcome)
    }

    fn begin(&self, context: CallContext, message: Stream, cx: &mut Context<'_>) -> Begun {
        let (call, context) = Call::new(&self.calls, context, &message);
        match self.inner.begin(context, message, cx) {
            Begun::Done(outcome) => {
                call.end(&self.calls, &outcome);
                Begun::Done(outcome)
            }
            Begun::Waits(outcome) => Begun::Waits(self.wait(call, outcome)),
        }
    }
}

impl Timed {
    /// Counts a call that is not over at once. Until then it is in progress.
    fn wait(&self, call: Call, outcome: BoxFuture<'static, Outcome>) -> BoxFuture<'static, Outcome> {
        let calls = self.calls.clone();
        calls.in_progress.increment(1);
        Box::pin(async move {
            let outcome = outcome.await;
            calls.in_progress.decrement(1);
            call.end(&calls, &outcome);
            outcome
        })
    }
}

/// A call that is to be counted.
struct Call {
    place: Option<(usize, usize)>,
    transport: usize,
    begin: Instant,
    /// The status, if it cannot be read from the reply because that is signed or sealed.
    told: Option<Arc<FirstWord>>,
}

impl Call {
    fn new(calls: &Calls, context: CallContext, message: &Stream) -> (Self, CallContext) {
        let told = (peek_flavour(message) == Some(RPCSEC_GSS)).then(Arc::<FirstWord>::default);
        let transport = transport_index(context.connection.kind);
        let call = Self { place: calls.place(message), transport, begin: Instant::now(), told };
        let context = match &call.told {
            Some(told) => context.with_first_word(told.clone()),
            None => context,
        };
        (call, context)
    }

    fn end(&self, calls: &Calls, outcome: &Outcome) {
        let procedure = calls.at(self.place);
        procedure.seconds.record(self.begin.elapsed());
        let status = status(outcome, procedure.word, self.told.as_deref());
        procedure.count(&calls.statuses, self.transport, status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use rpcrdma_oncrpc::{AuthStat, OpaqueAuth, ReplyHeader};
    use rpcrdma_xdr::Encoder;

    fn reply(status: Result<(), Rejection>, word: u32) -> Outcome {
        let mut encoder = Encoder::new();
        ReplyHeader { xid: 1, verifier: OpaqueAuth::none(), status }.encode(&mut encoder);
        let mut reply = encoder.finish();
        reply.push_run(Bytes::copy_from_slice(&word.to_be_bytes()));
        Outcome::Reply(reply)
    }

    #[test]
    fn every_outcome_has_a_status_of_the_list() {
        let of = [
            (reply(Ok(()), 0), "OK"),
            (reply(Ok(()), 28), "NOSPC"),
            (reply(Ok(()), 4711), OTHER),
            (reply(Err(Rejection::GarbageArgs), 0), "GARBAGE_ARGS"),
            (reply(Err(Rejection::Auth(AuthStat::TOO_WEAK)), 0), "AUTH_TOOWEAK"),
            (Outcome::Nothing, "none"),
            (Outcome::NotEligible, "ERR_CHUNK"),
        ];
        let known = statuses();
        for (outcome, expected) in of {
            assert_eq!(status(&outcome, Some(|status| Status(status).word()), None), expected);
            assert!(known.contains(&expected), "{expected}");
        }
        let of_4: Word = |status| v4::Status(status).word();
        assert_eq!(status(&reply(Ok(()), 10_052), Some(of_4), None), "BADSESSION");
        assert_eq!(status(&reply(Ok(()), 28), None, None), "OK", "no status stands there");
    }

    #[test]
    fn the_list_of_statuses_names_each_once() {
        let mut known = statuses();
        known.sort_unstable();
        known.dedup();
        assert_eq!(known.len(), statuses().len());
    }
}
