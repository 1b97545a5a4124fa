//! When a client's transport connects again, and when its calls fail: the same rules over TCP and over RDMA.
//!
//! A connection counts only when the server has answered something on it. If it did and the connection lasted for a
//! while, or left nothing unanswered, the transport replaces it at once when a call needs it. Every other connection is
//! followed by a pause that doubles, so that a server that ends connections at once does not get thousands of them a
//! second; all these together are one outage. An outage ends with the first answer, or fails the calls:
//!
//! * after [`OutageLimits::outage`], if the server has answered before or cannot be reached;
//! * after [`OutageLimits::first_answer`], if it ends the connections that it accepts and has never answered on any:
//!   then something else listens on that port, and the user should know it soon;
//! * after [`OutageLimits::first_sign`], if it accepts connections and has never sent anything: it may be something
//!   else, or a server that is stopped or has too much to do, so it has longer.
//!
//! Owns no connection and no timer. It returns what the transport has to do next.

use crate::{NoAnswer, TransportError, TransportKind};
use rpcrdma_env::{Random, Timestamp};
use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

/// How long a client tries to connect again before its calls fail.
pub const DEFAULT_OUTAGE: Duration = Duration::from_secs(120);

/// The pause before the second attempt to connect. It doubles up to [`DEFAULT_MAX_PAUSE`].
pub const DEFAULT_MIN_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between attempts to connect. Each has up to its half added at random.
pub const DEFAULT_MAX_PAUSE: Duration = Duration::from_secs(5);

/// How long a client keeps connecting to a server that ends its connections and has never answered.
pub const DEFAULT_FIRST_ANSWER: Duration = Duration::from_secs(10);

/// The same for a server that has never sent anything: a healthy server may be stopped for some seconds, or wait for
/// its disk.
pub const DEFAULT_FIRST_SIGN: Duration = Duration::from_secs(30);

/// At least this many connections must end without an answer before the error says that the server does not speak the
/// protocol: a single one may have met a server that was just restarting.
pub const MIN_UNANSWERED: u32 = 2;

/// How long an outage may be, and how fast connections follow each other in it.
#[derive(Clone, Copy, Debug)]
pub struct OutageLimits {
    /// How long the client tries to reach a lost server before calls fail.
    pub outage: Duration,
    /// The same for a server that ends the connections that it accepts, and has never answered anything.
    pub first_answer: Duration,
    /// The same for a server that accepts connections and says nothing.
    pub first_sign: Duration,
    /// The pause before the second attempt to connect; it doubles up to `max_pause`.
    pub min_pause: Duration,
    /// The longest pause between attempts. Each has up to its half added at random. A connection that was answered and
    /// has stood for so long is replaced without a pause.
    pub max_pause: Duration,
}

impl Default for OutageLimits {
    /// 120 s of outage, 10 s for the first answer and 30 s for the first sign; pauses of 0.1 to 5 s.
    fn default() -> Self {
        Self {
            outage: DEFAULT_OUTAGE,
            first_answer: DEFAULT_FIRST_ANSWER,
            first_sign: DEFAULT_FIRST_SIGN,
            min_pause: DEFAULT_MIN_PAUSE,
            max_pause: DEFAULT_MAX_PAUSE,
        }
    }
}

/// The server of the outage, for its errors.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// The server.
    pub server: SocketAddr,
    /// The protocol that it should speak, as users name it: `NFS`.
    pub service: &'static str,
    /// The transport to it.
    pub over: TransportKind,
}

/// What an attempt to connect, or a connection without an answer, has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Met {
    /// Perhaps no program listens there.
    #[default]
    Nobody,
    /// A program that accepted the connection and ended it, or sent something that is not an answer.
    Ended,
    /// A program that accepted the connection and sent nothing until the time limit.
    Silence,
}

/// Why there is no connection.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// What the transport found.
    pub met: Met,
    /// What happened, for the error of the calls.
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

/// A connection that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Since when it stood.
    pub started: Timestamp,
    /// Whether the server has answered anything on it.
    pub answered: bool,
    /// Whether calls wait for answers that did not come.
    pub waited_for: bool,
}

/// An established connection without answers.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Since when it has brought nothing.
    pub since: Timestamp,
    /// How long it may bring nothing before it counts as lost.
    pub patience: Duration,
    /// Whether silence on it from the beginning counts as a sign that the server speaks another protocol.
    pub is_proof: bool,
}

/// What a transport does next.
#[derive(Debug)]
pub enum Next {
    /// Connect, if a call wants it.
    Now,
    /// Connect after this time.
    After(Duration),
    /// Calls fail with this error. The next call starts a new attempt.
    Fail(TransportError),
}

/// What is known of one server's connections.
#[derive(Debug)]
pub struct Outage {
    sought: Sought,
    limits: OutageLimits,
    /// The server has answered, on any connection.
    has_answered: bool,
    /// Since when a call has waited.
    asked: Timestamp,
    /// Since when the server has sent nothing.
    since: Option<Timestamp>,
    /// Connections that the server accepted and did not answer on, since then.
    unanswered: u32,
    /// Those of them on which it sent nothing.
    silent: u32,
    pause: Duration,
}

impl Outage {
    /// No outage, at `now`.
    pub fn new(sought: Sought, limits: OutageLimits, now: Timestamp) -> Self {
        let pause = limits.min_pause;
        Self { sought, limits, has_answered: false, asked: now, since: None, unanswered: 0, silent: 0, pause }
    }

    /// A call waits, and none did until now: for this call, an outage begins no earlier.
    pub fn asked(&mut self, now: Timestamp) {
        self.asked = now;
        self.over();
    }

    /// The server has answered something.
    pub fn answered(&mut self) {
        self.has_answered = true;
        self.over();
    }

    fn over(&mut self) {
        self.since = None;
        self.unanswered = 0;
        self.silent = 0;
    }

    /// Whether the server has ever answered.
    pub fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// A connection has ended.
    pub fn ended(&mut self, ended: Ended, failure: Failure, now: Timestamp, random: &dyn Random) -> Next {
        // RPC-OUTAGE-a, RPC-OUTAGE-b
        if ended.answered {
            self.answered();
            // RPC-OUTAGE-b
            if !ended.waited_for || now.since(ended.started) >= self.limits.max_pause {
                self.since = Some(now);
                self.pause = self.limits.min_pause;
                return Next::Now;
            }
        }
        self.failed(failure, now, random)
    }

    /// An attempt to connect has failed.
    pub fn failed(&mut self, failure: Failure, now: Timestamp, random: &dyn Random) -> Next {
        let is_unknown = !self.has_answered && failure.met != Met::Nobody;
        // The time that an unknown server has had to answer counts.
        let after = now.since(*self.since.get_or_insert(if is_unknown { self.asked } else { now }));
        self.unanswered = self.unanswered.saturating_add((failure.met != Met::Nobody).into());
        // RPC-OUTAGE-c
        self.silent = self.silent.saturating_add((failure.met == Met::Silence).into());
        let OutageLimits { first_answer, first_sign, outage, .. } = self.limits;
        let verdict = if self.silent > 0 { first_sign } else { first_answer }.min(outage);
        // RPC-OUTAGE-a
        if is_unknown && self.unanswered >= MIN_UNANSWERED && after >= verdict {
            let no_answer = NoAnswer { connections: self.unanswered, after, source: failure.source };
            return self.fail(match failure.met {
                Met::Silence => says_nothing(self.sought, no_answer),
                _ => not_spoken(self.sought, Arc::new(no_answer)),
            });
        }
        // RPC-TCP-c
        if after >= self.limits.outage {
            return self.fail(TransportError::Lost { server: self.sought.server, after, source: failure.source });
        }
        let half_millis = u64::try_from(self.pause.as_millis() / 2).unwrap_or(u64::MAX);
        let pause = self.pause + Duration::from_millis(random.below(half_millis.saturating_add(1)));
        self.pause = (self.pause * 2).min(self.limits.max_pause);
        // The last attempt before a verdict is not made later than the verdict is due.
        let left = verdict.saturating_sub(after).max(self.limits.min_pause);
        Next::After(if is_unknown { pause.min(left) } else { pause })
    }

    /// When calls will fail if nothing comes from now on, if that is known. Nothing has come since `silent`.
    pub fn until(&self, silent: Timestamp, standing: Option<Standing>) -> Timestamp {
        let is_proof = standing.is_some_and(|standing| standing.is_proof);
        let is_unknown = !self.has_answered && (is_proof || self.unanswered > 0);
        let OutageLimits { first_answer, first_sign, outage, .. } = self.limits;
        let limit = match is_unknown {
            true if is_proof || self.silent > 0 => first_sign.min(outage),
            true => first_answer.min(outage),
            false => outage,
        };
        let lost = standing.map(|standing| standing.since + standing.patience);
        match (self.since, lost) {
            (Some(since), lost) => lost.map_or(since + limit, |lost| lost.max(since + limit)),
            // The outage of a server that has never answered begins with the connection.
            (None, Some(lost)) if is_unknown => lost.max(silent + limit),
            (None, Some(lost)) => lost + limit,
            (None, None) => silent + limit,
        }
    }

    fn fail(&mut self, error: TransportError) -> Next {
        self.over();
        self.pause = self.limits.min_pause;
        Next::Fail(error)
    }
}

/// The error of a server that does not speak what it should.
pub fn not_spoken(sought: Sought, source: Arc<dyn Error + Send + Sync>) -> TransportError {
    let Sought { server, service, over } = sought;
    TransportError::NotSpoken { server, service, over, source }
}

fn says_nothing(sought: Sought, source: NoAnswer) -> TransportError {
    let Sought { server, service, over } = sought;
    TransportError::SaysNothing { server, service, over, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::SeededRandom;

    const T: Timestamp = Timestamp::from_nanos(7);
    const SECOND: Duration = Duration::from_secs(1);
    const LIMITS: OutageLimits = OutageLimits {
        outage: Duration::from_secs(120),
        first_answer: DEFAULT_FIRST_ANSWER,
        first_sign: DEFAULT_FIRST_SIGN,
        min_pause: Duration::from_millis(100),
        max_pause: Duration::from_secs(5),
    };

    fn outage() -> Outage {
        let sought = Sought { server: ([192, 0, 2, 1], 2049).into(), service: "NFS", over: TransportKind::Tcp };
        Outage::new(sought, LIMITS, T)
    }

    fn met(met: Met) -> Failure {
        Failure { met, source: None }
    }

    /// Lets a server treat every connection in the same way until calls fail. Returns the error, when, and how many
    /// connections there were.
    fn until_it_fails(outage: &mut Outage, stands: Duration, whom: Met) -> (TransportError, Duration, u32) {
        let random = SeededRandom::new(1);
        let mut now = T;
        for connections in 1..1000 {
            let started = now;
            now = now + stands;
            let next = match whom {
                Met::Nobody => outage.failed(Failure::default(), now, &random),
                _ => outage.ended(Ended { started, answered: false, waited_for: true }, met(whom), now, &random),
            };
            match next {
                Next::Now => {}
                Next::After(pause) => now = now + pause,
                Next::Fail(error) => return (error, now.since(T), connections),
            }
        }
        panic!("calls never fail")
    }

    /// proves: RPC-OUTAGE-a
    #[test]
    fn a_server_that_accepts_and_never_answers_is_named_within_seconds() {
        let (error, after, connections) = until_it_fails(&mut outage(), Duration::ZERO, Met::Ended);
        assert!(
            matches!(error, TransportError::NotSpoken { service: "NFS", over: TransportKind::Tcp, .. }),
            "{error:?}"
        );
        assert!((DEFAULT_FIRST_ANSWER..DEFAULT_FIRST_ANSWER + SECOND).contains(&after), "{after:?}");
        assert!((6..=9).contains(&connections), "{connections} connections, each after twice the pause of the last");
        assert_eq!(error.to_string(), "192.0.2.1:2049 answers, but does not speak NFS over TCP");
        let (_, after, connections) = until_it_fails(&mut outage(), DEFAULT_FIRST_ANSWER, Met::Ended);
        assert_eq!((connections, after.as_secs()), (MIN_UNANSWERED, 20), "one connection is not enough");
        let (_, after, _) = until_it_fails(&mut outage(), DEFAULT_FIRST_ANSWER / 2, Met::Ended);
        assert_eq!(after.as_secs(), 10, "the time that it had for an answer counts");
    }

    /// proves: RPC-OUTAGE-c
    #[test]
    fn a_server_that_says_nothing_has_longer_and_is_not_called_a_foreign_one() {
        let (error, after, connections) = until_it_fails(&mut outage(), DEFAULT_FIRST_SIGN / 2, Met::Silence);
        assert!(matches!(error, TransportError::SaysNothing { service: "NFS", .. }), "{error:?}");
        assert_eq!((connections, after.as_secs()), (2, DEFAULT_FIRST_SIGN.as_secs()));
        assert_eq!(
            error.to_string(),
            "192.0.2.1:2049 accepts connections but says nothing: it is stopped, has too much to do, or is no NFS server over TCP"
        );
        let (_, after, connections) = until_it_fails(&mut outage(), 2 * DEFAULT_FIRST_SIGN, Met::Silence);
        assert_eq!((connections, after.as_secs()), (MIN_UNANSWERED, 120), "one silent connection is not enough");
        // A server that was silent once and then ends connections, as during its start, has the longer time, too.
        let mut outage = outage();
        let silent = Ended { started: T, answered: false, waited_for: true };
        let random = SeededRandom::new(1);
        let next = outage.ended(silent, met(Met::Silence), T + SECOND, &random);
        assert!(matches!(next, Next::After(_)), "{next:?}");
        let (error, after, _) = until_it_fails(&mut outage, Duration::ZERO, Met::Ended);
        assert!(matches!(error, TransportError::NotSpoken { .. }), "{error:?}");
        assert_eq!(after.as_secs(), DEFAULT_FIRST_SIGN.as_secs());
    }

    /// proves: RPC-TCP-c
    #[test]
    fn a_server_that_has_answered_or_cannot_be_reached_has_the_whole_outage() {
        for (has_answered, whom) in
            [(true, Met::Ended), (true, Met::Silence), (true, Met::Nobody), (false, Met::Nobody)]
        {
            let mut outage = outage();
            if has_answered {
                outage.answered();
            }
            let (error, after, _) = until_it_fails(&mut outage, Duration::ZERO, whom);
            assert!(matches!(error, TransportError::Lost { .. }), "{error:?}");
            assert!((LIMITS.outage..LIMITS.outage + 8 * SECOND).contains(&after), "{after:?}");
            assert_eq!(outage.has_answered(), has_answered);
        }
    }

    #[test]
    fn only_an_answer_and_time_make_the_next_connection_follow_at_once() {
        let random = SeededRandom::new(2);
        let just_below = Duration::from_nanos(LIMITS.max_pause.as_nanos() as u64 - 1);
        for (answered, waited_for, stood, at_once) in [
            (true, true, LIMITS.max_pause, true),
            (true, true, just_below, false),
            (true, false, just_below, true),
            (false, true, LIMITS.max_pause, false),
            (false, false, LIMITS.max_pause, false),
        ] {
            let mut outage = outage();
            let next = outage.ended(Ended { started: T, answered, waited_for }, met(Met::Ended), T + stood, &random);
            assert_eq!(matches!(next, Next::Now), at_once, "{answered} {waited_for} {stood:?} {next:?}");
        }
        // Answers that keep coming make no pause shorter: each connection is answered, and ends at once.
        let mut outage = outage();
        let mut least = LIMITS.min_pause;
        for _ in 0..12 {
            let next = outage.ended(
                Ended { started: T, answered: true, waited_for: true },
                met(Met::Ended),
                T + just_below,
                &random,
            );
            let Next::After(pause) = next else { panic!("{next:?}") };
            assert!(pause >= least && pause <= least + least / 2, "{pause:?}");
            least = (least * 2).min(LIMITS.max_pause);
        }
    }

    /// The announced time agrees with what happens.
    #[test]
    fn when_calls_fail_is_known_beforehand() {
        let random = SeededRandom::new(4);
        let standing = |is_proof| Some(Standing { since: T, patience: 70 * SECOND, is_proof });
        let quick = Standing { patience: 5 * SECOND, ..standing(true).unwrap() };
        assert_eq!(outage().until(T, Some(quick)), T + DEFAULT_FIRST_SIGN);
        assert_eq!(outage().until(T, standing(false)), T + 190 * SECOND, "a silent one may be slow");
        let mut outage = outage();
        outage.answered();
        assert_eq!(outage.until(T, standing(true)), T + 190 * SECOND);
        assert_eq!(outage.until(T, None), T + LIMITS.outage);
        let late = T + 70 * SECOND;
        let ended = Ended { started: T, answered: true, waited_for: true };
        let _ = outage.ended(ended, met(Met::Ended), late, &random);
        assert_eq!(outage.until(T, None), late + LIMITS.outage, "the same, once the connection is lost");
        let new = Standing { since: late + 100 * SECOND, patience: 70 * SECOND, is_proof: false };
        assert_eq!(outage.until(T, Some(new)), late + 170 * SECOND, "a connection is not given up before its time");
    }

    #[test]
    fn the_time_in_which_nobody_asked_is_no_outage() {
        let random = SeededRandom::new(3);
        let mut outage = outage();
        let late = T + 1000 * SECOND;
        outage.asked(late);
        for _ in 0..MIN_UNANSWERED {
            let ended = Ended { started: T, answered: false, waited_for: true };
            let next = outage.ended(ended, met(Met::Ended), late, &random);
            assert!(matches!(next, Next::After(_)), "{next:?}");
        }
        outage.asked(late + 500 * SECOND);
        let next = outage.failed(Failure::default(), late + 500 * SECOND, &random);
        assert!(matches!(next, Next::After(_)), "{next:?}");
    }
}
