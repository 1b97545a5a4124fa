//! One connection of the version that both ends speak (version 2 draft, section 4.2.3).
//!
//! A client that speaks version 2 begins with a message of version 2, and holds its calls until the server has
//! answered. The answer settles the version, or makes the client continue in version 1; if no answer comes in time, the
//! connection is closed. A server follows the client's first message that it does not refuse. Owns the connection of
//! the settled version, and held calls.
//!
//! | state | means | leaves it when |
//! |---|---|---|
//! | `Probing` | a client has sent its properties | the server has answered, or refused version 2 |
//! | `Listening` | a server has received nothing that it speaks | a message of a version that it speaks has come |
//! | `One`, `Two` | the version is settled | never |

use crate::{
    Action, Answer, Call, CallError, CallId, CallRefused, CloseCause, Config, ExposureId, Host, Link, MessageKind,
    Negotiated, NoVersion2, PeerFault, RequestId, Sent, Side, Stats,
    config::{MAX_CREDITS, VERSION_TIMEOUT, Versions},
    v1, v2,
};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_wire::{
    FixedWords, PrivateData,
    v1::VERSION as VERSION_1,
    v2::{PREFIX_OCTETS, VERSION as VERSION_2, probe},
};
use std::collections::VecDeque;

#[derive(Debug)]
struct Probing {
    two: v2::Connection,
    deadline: Option<Timestamp>,
}

#[derive(Debug)]
struct Listening {
    posted: usize,
    /// Refusals whose Sends are not done.
    undrained: usize,
    discarded: u64,
}

#[derive(Debug)]
enum State {
    One(Box<v1::Connection>),
    Two(Box<v2::Connection>),
    Probing(Box<Probing>),
    Listening(Listening),
}

/// One connection, in one of the versions of [`Config::versions`].
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    peer: Option<PrivateData>,
    state: State,
    /// Calls that wait until the version is settled.
    held: Vec<Call>,
    actions: VecDeque<Action>,
    closing: bool,
}

impl Endpoint {
    /// A connection that has just been established. `peer` is the private data of the other end. A client then calls
    /// [`start`](Self::start).
    pub fn new(config: Config, peer: Option<&PrivateData>) -> Self {
        let posted = config.initial_receives;
        let peer = peer.copied();
        let mut actions = VecDeque::new();
        let mut closing = false;
        let state = match (config.versions, config.side) {
            (Versions::One, _) => {
                let one = v1::Connection::new(config.clone(), peer.as_ref());
                if refuses_silence(&config) {
                    closing = true;
                    actions.push_back(Action::Close(CloseCause::Unauthenticated));
                } else {
                    actions.push_back(Action::Negotiated(of_version_1(&config, *one.link(), None)));
                }
                State::One(Box::new(one))
            }
            (_, Side::Client) => {
                let two = v2::Connection::new(config.clone(), posted);
                State::Probing(Box::new(Probing { two, deadline: None }))
            }
            (_, Side::Server) => State::Listening(Listening { posted, undrained: 0, discarded: 0 }),
        };
        Self { config, peer, state, held: Vec::new(), actions, closing }
    }

    /// Sends a client's first message, if it must send one before any call.
    // V2-4.2.3-a, V2-4.2.3-b
    pub fn start(&mut self, now: Timestamp, host: &mut dyn Host) {
        if let State::Probing(probing) = &mut self.state {
            probing.two.start(now, host);
            probing.deadline = Some(now + VERSION_TIMEOUT);
        }
    }

    /// Whether a client does not know yet which version its server speaks.
    pub fn is_probing(&self) -> bool {
        matches!(self.state, State::Probing(_))
    }

    /// The present limits of this connection.
    pub fn link(&self) -> Link {
        match &self.state {
            State::One(one) => *one.link(),
            State::Two(two) => two.link(),
            State::Probing(_) | State::Listening(_) => Link::new(&self.config, self.peer.as_ref()),
        }
    }

    /// Present numbers of the connection.
    // Most callers want one of them: inlined, the others cost nothing.
    #[inline]
    pub fn stats(&self) -> Stats {
        let mut stats = match &self.state {
            State::One(one) => one.stats(),
            State::Two(two) => two.stats(),
            State::Probing(probing) => probing.two.stats(),
            State::Listening(Listening { posted, discarded, .. }) => {
                Stats { receives: *posted, discarded: *discarded, ..Stats::default() }
            }
        };
        stats.queued += self.held.len();
        stats
    }

    /// The next action.
    pub fn poll(&mut self) -> Option<Action> {
        // Actions are large: each branch passes its own on, without a copy in between.
        if !self.actions.is_empty() {
            return self.actions.pop_front();
        }
        match &mut self.state {
            State::One(one) => one.poll(),
            State::Two(two) => two.poll(),
            State::Probing(probing) => probing.two.poll(),
            State::Listening(_) => None,
        }
    }

    /// Whether there is a next action.
    pub fn has_action(&self) -> bool {
        !self.actions.is_empty()
            || match &self.state {
                State::One(one) => one.has_action(),
                State::Two(two) => two.has_action(),
                State::Probing(probing) => probing.two.has_action(),
                State::Listening(_) => false,
            }
    }

    /// Starts a call of ours, as [`v1::Connection::call`] and [`v2::Connection::call`] do.
    ///
    /// # Errors
    /// As theirs. A call that is held until the version is settled may also fail later, by [`Action::Fail`].
    #[inline]
    pub fn call(&mut self, call: Call, now: Timestamp, host: &mut dyn Host) -> Result<(), CallRefused> {
        match &mut self.state {
            State::One(one) => one.call(call, now, host),
            State::Two(two) => two.call(call, now, host),
            _ if self.config.credits_wanted == 0 => Err(CallRefused::NotEnabled),
            _ if self.held.iter().any(|held| held.xid == call.xid) => Err(CallRefused::XidInUse { xid: call.xid }),
            _ => {
                self.held.push(call);
                Ok(())
            }
        }
    }

    /// Cancels a call: its memory is fenced at once, and [`Action::Cancelled`] follows. Its credit and XID stay in use
    /// until the peer answers. `xid` is the call's. A call that has ended is ignored.
    pub fn cancel(&mut self, call: CallId, xid: u32) {
        if self.take_held(call) {
            return self.actions.push_back(Action::Cancelled { call });
        }
        match &mut self.state {
            State::One(one) => one.cancel(call, xid),
            State::Two(two) => two.cancel(call, xid),
            State::Probing(_) | State::Listening(_) => {}
        }
    }

    /// Forgets a call, whose XID is `xid`, and leaves its memory lent. [`Action::Released`] follows when the memory is
    /// fenced: after the reply, or after [`FORGOTTEN_CALL_DEADLINE`](crate::FORGOTTEN_CALL_DEADLINE).
    pub fn forget(&mut self, call: CallId, xid: u32, now: Timestamp) {
        if self.take_held(call) {
            return self.actions.push_back(Action::Released { call });
        }
        match &mut self.state {
            State::One(one) => one.forget(call, xid, now),
            State::Two(two) => two.forget(call, xid, now),
            State::Probing(_) | State::Listening(_) => {}
        }
    }

    fn take_held(&mut self, call: CallId) -> bool {
        let at = self.held.iter().position(|held| held.id == call);
        at.map(|at| self.held.remove(at)).is_some()
    }

    /// As [`v2::Connection::send_extension`].
    ///
    /// # Errors
    /// As there, and if version 2 is not settled.
    pub fn send_extension(
        &mut self,
        xid: u32,
        response: bool,
        body: v2::OtherBody,
        now: Timestamp,
        host: &mut dyn Host,
    ) -> Result<(), v2::ExtensionRefused> {
        match &mut self.state {
            State::Two(two) => two.send_extension(xid, response, body, now, host),
            _ => Err(v2::ExtensionRefused::Version),
        }
    }

    /// As [`v2::Connection::begins_parts`], also for the first message, which settles the version.
    pub fn begins_parts(&self, message: &[u8]) -> bool {
        match &self.state {
            State::One(_) => false,
            State::Two(two) => two.begins_parts(message),
            State::Probing(_) | State::Listening(_) => v2::begins_parts(message),
        }
    }

    /// As [`v2::Connection::holds_parts`].
    pub fn holds_parts(&self) -> bool {
        matches!(&self.state, State::Two(two) if two.holds_parts())
    }

    /// As [`v2::Connection::extension_room`]; always true in version 1, because sending then reports that the version
    /// is another.
    pub fn extension_room(&self) -> bool {
        match &self.state {
            State::Two(two) => two.extension_room(),
            _ => true,
        }
    }

    /// As [`v2::Connection::refuse_extension`].
    pub fn refuse_extension(&mut self, xid: u32, now: Timestamp, host: &mut dyn Host) {
        if let State::Two(two) = &mut self.state {
            two.refuse_extension(xid, now, host);
        }
    }

    /// A Send of the peer has arrived.
    pub fn received(&mut self, message: Bytes, now: Timestamp, host: &mut dyn Host) {
        match &mut self.state {
            _ if self.closing => {}
            State::One(one) => one.received(message, now, host),
            State::Two(two) => two.received(message, now, host),
            State::Probing(_) => self.answered(message, now, host),
            State::Listening(_) => self.first(message, now, host),
        }
    }

    /// Handles the server's answer to the first message, or another message.
    // V2-4.2.3.2-h, V2-4.2.3-c
    fn answered(&mut self, message: Bytes, now: Timestamp, host: &mut dyn Host) {
        let State::Probing(probing) = &mut self.state else { return };
        let ours = probing.two.exchange_xid();
        let refused = match probe::answer(&message) {
            probe::Answer::Version2 => return self.settle_2(message, now, host),
            probe::Answer::Versions { xid, low, high } if xid == ours => NoVersion2::Range { low, high },
            probe::Answer::OtherError { xid } if xid == ours => NoVersion2::OtherError,
            // Not an answer to our message. Its receive is replaced, and we wait on.
            _ => return probing.two.received(Bytes::new(), now, host),
        };
        let (low, high) = match refused {
            NoVersion2::Range { low, high } => (low, high),
            NoVersion2::OtherError => (VERSION_1, VERSION_1),
        };
        // V2-4.2.3.2-c, V2-7.1.1-c
        // V2-7.1.1-d
        if self.config.versions == Versions::Auto && (low..=high).contains(&VERSION_1) {
            self.settle_1(message, Some(refused), now, host);
        } else {
            // V2-4.2.3.2-c
            self.close(CloseCause::NoCommonVersion { low, high });
        }
    }

    /// Handles a client's first message, or another one after a refusal.
    // V2-4.2.3.3-a, V2-4.2.3-g
    fn first(&mut self, message: Bytes, now: Timestamp, host: &mut dyn Host) {
        let (one, two) = match self.config.versions {
            Versions::One => (true, false),
            Versions::Two => (false, true),
            Versions::Auto => (true, true),
        };
        let is_two = |words: FixedWords| two && words.version == VERSION_2;
        match FixedWords::decode(&message) {
            Some(words) if one && words.version == VERSION_1 => self.settle_1(message, None, now, host),
            Some(words) if is_two(words) && message.len() >= PREFIX_OCTETS => self.settle_2(message, now, host),
            // A version that this end does not speak. A message of version 2 that is too short gets no answer.
            Some(words) if !words.is_error() && !is_two(words) => {
                self.replace_receive();
                self.refuse(words.xid, words.version);
            }
            // Too short for its version, or an error that answers nothing.
            _ => {
                self.replace_receive();
                self.discard();
            }
        }
    }

    fn discard(&mut self) {
        if let State::Listening(listening) = &mut self.state {
            listening.discarded += 1;
        }
    }

    fn replace_receive(&mut self) {
        self.actions.push_back(Action::PostReceives { count: 1 });
    }

    /// Answers a message of a version that this end does not speak.
    // V2-4.2.3.2-a, V2-4.2.3.2-b, V2-7.1.1-a
    fn refuse(&mut self, xid: u32, version: u32) {
        let State::Listening(listening) = &mut self.state else { return };
        if listening.undrained > v1::FAULT_ANSWERS {
            return self.close(CloseCause::Peer(PeerFault::AnswersNotTaken));
        }
        listening.undrained += 1;
        let (low, high) = match self.config.versions {
            Versions::One => (VERSION_1, VERSION_1),
            Versions::Two => (VERSION_2, VERSION_2),
            Versions::Auto => (VERSION_1, VERSION_2),
        };
        let credit = self.config.credits_granted.clamp(1, MAX_CREDITS);
        let octets = probe::refusal(xid, version, credit, low, high);
        let about = Sent { xid, credit, inline_bytes: octets.len(), ..Sent::of(MessageKind::Error) };
        self.actions.push_back(Action::Send { octets: vec![octets].into(), signaled: true, about });
    }

    // V2-4.2.3.3-c, V2-4.2.3.2-f
    fn settle_1(&mut self, message: Bytes, refused: Option<NoVersion2>, now: Timestamp, host: &mut dyn Host) {
        if refuses_silence(&self.config) {
            return self.close(CloseCause::Unauthenticated);
        }
        let config = Config { initial_receives: self.stats().receives, ..self.config.clone() };
        self.flush();
        let mut one = v1::Connection::new(config, self.peer.as_ref());
        self.actions.push_back(Action::Negotiated(of_version_1(&self.config, *one.link(), refused)));
        one.received(message, now, host);
        self.state = State::One(Box::new(one));
        self.release_held(now, host);
    }

    // V2-4.2.3.1-a, V2-4.2.3.3-b, V2-4.2.3.3-d
    fn settle_2(&mut self, message: Bytes, now: Timestamp, host: &mut dyn Host) {
        let placeholder = State::Listening(Listening { posted: 0, undrained: 0, discarded: 0 });
        let mut two = match std::mem::replace(&mut self.state, placeholder) {
            State::Probing(probing) => probing.two,
            State::Listening(listening) => v2::Connection::new(self.config.clone(), listening.posted),
            settled => {
                self.state = settled;
                return;
            }
        };
        two.received(message, now, host);
        self.state = State::Two(Box::new(two));
        self.release_held(now, host);
    }

    fn release_held(&mut self, now: Timestamp, host: &mut dyn Host) {
        for held in std::mem::take(&mut self.held) {
            let call = held.id;
            if let Err(refused) = self.call(held, now, host) {
                self.actions.push_back(Action::Fail { call, error: CallError::Refused(refused) });
            }
        }
    }

    /// Takes over the actions of the probing connection before its end: the receives that it has counted must be
    /// posted.
    fn flush(&mut self) {
        while let State::Probing(probing) = &mut self.state
            && let Some(action) = probing.two.poll()
        {
            self.actions.push_back(action);
        }
    }

    fn close(&mut self, cause: CloseCause) {
        if !self.closing {
            self.flush();
            self.closing = true;
            self.actions.push_back(Action::Close(cause));
        }
    }

    /// The peer can no longer reach an exposure's memory.
    pub fn fenced(&mut self, exposure: ExposureId) {
        match &mut self.state {
            State::One(one) => one.fenced(exposure),
            State::Two(two) => two.fenced(exposure),
            State::Probing(_) | State::Listening(_) => {}
        }
    }

    /// The driver has fetched the chunks of a peer's call. `head` is their beginning, at least four bytes if they have
    /// so many. Returns whether [`Action::Deliver`] follows: if not, the chunks are no call, the engine answers by
    /// itself, and the driver keeps nothing of them.
    pub fn pulled(&mut self, request: RequestId, head: &[u8]) -> bool {
        match &mut self.state {
            State::One(one) => one.pulled(request, head),
            State::Two(two) => two.pulled(request, head),
            State::Probing(_) | State::Listening(_) => false,
        }
    }

    /// A signaled Send is done.
    pub fn drained(&mut self) {
        match &mut self.state {
            State::One(one) => one.drained(),
            State::Two(two) => two.drained(),
            State::Probing(probing) => probing.two.drained(),
            State::Listening(listening) => listening.undrained = listening.undrained.saturating_sub(1),
        }
    }

    /// A service's answer to a call of the peer, or [`Answer::NotEligible`] if the driver cannot serve the call. A call
    /// that the engine no longer knows is ignored.
    pub fn answer(&mut self, request: RequestId, answer: Answer) {
        match &mut self.state {
            State::One(one) => one.answer(request, answer),
            State::Two(two) => two.answer(request, answer),
            State::Probing(_) | State::Listening(_) => {}
        }
    }

    /// Sends calls of ours that waited for our next answer to the peer. Call it after [`answer`](Self::answer). In
    /// version 2 no call waits for answers.
    pub fn resume(&mut self, now: Timestamp, host: &mut dyn Host) {
        if let State::One(one) = &mut self.state {
            one.resume(now, host);
        }
    }

    /// The latest time at which to call [`wake`](Self::wake).
    pub fn next_wake(&self) -> Option<Timestamp> {
        match &self.state {
            _ if self.closing => None,
            State::One(one) => one.next_wake(),
            State::Two(two) => two.next_wake(),
            State::Probing(probing) => probing.deadline,
            State::Listening(_) => None,
        }
    }

    /// The time at which we close the connection if nothing comes from the peer, if it is already known.
    pub fn gives_up_at(&self) -> Option<Timestamp> {
        match &self.state {
            State::One(one) => one.gives_up_at(),
            State::Two(two) => two.gives_up_at(),
            State::Probing(_) | State::Listening(_) => None,
        }
    }

    /// Does what is due at this time.
    pub fn wake(&mut self, now: Timestamp, host: &mut dyn Host) {
        match &mut self.state {
            _ if self.closing => {}
            State::One(one) => one.wake(now, host),
            State::Two(two) => two.wake(now, host),
            State::Probing(probing) if probing.deadline.is_some_and(|deadline| deadline <= now) => {
                // V2-4.2.3.2-e, IE-4.6-a
                self.close(CloseCause::NoAnswer);
            }
            State::Probing(_) | State::Listening(_) => {}
        }
    }

    /// The connection is over, and every exposure has been reported as fenced. Returns the unanswered calls of ours
    /// whose callers still wait, in the order in which to send them again. Call [`poll`](Self::poll) until it returns
    /// `None` once more.
    pub fn closed(&mut self) -> Vec<CallId> {
        self.closing = true;
        let held = std::mem::take(&mut self.held);
        let mut left = match &mut self.state {
            State::One(one) => one.closed(),
            State::Two(two) => two.closed(),
            State::Probing(_) | State::Listening(_) => Vec::new(),
        };
        left.extend(held.into_iter().map(|held| held.id));
        left
    }
}

/// Whether the authenticator rejects a peer that cannot authenticate itself.
fn refuses_silence(config: &Config) -> bool {
    config.host_authentication.as_ref().is_some_and(|made| !made.begin(config.side).silent())
}

fn of_version_1(config: &Config, link: Link, refused: Option<NoVersion2>) -> Negotiated {
    let credits = match config.side {
        Side::Client => config.credits_wanted,
        Side::Server => config.credits_granted,
    };
    Negotiated { version: VERSION_1, refused, link, credits, peer_credits: 0, peer: None, authenticated: false }
}
