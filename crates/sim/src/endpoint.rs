//! One end of a connection: what it has been given, what is under way, and how it ends.
//!
//! Whatever an end is given stays in exactly one of its fields until a completion takes it out. When the end closes, it
//! checks that nothing is left and that as much came back as was given; a failure is a mistake of the simulation and
//! panics with the seed.

use crate::{config::Link, log::Side};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_fabric::{
    Capabilities, CloseReason, Completion, ConnectionInfo, Lent, Read, ReceivePool, RemoteSegment, Send, Token,
    WorkError, WorkKind, Write,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    task::Waker,
};

/// What travels in order among its own kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Sends, Writes, Read requests.
    Ordered,
    /// Read responses.
    Responses,
    /// Acknowledgements.
    Acks,
    /// Read requests of the peer that wait to be served here.
    Service,
    /// Completions that need no peer.
    Local,
    /// The end of everything: after all others.
    Last,
}

/// How many channels there are besides [`Channel::Last`].
const CHANNELS: usize = 5;

/// Writes that are remembered when they have left: as many as can be under way.
const MAX_DEPARTED: usize = 4096;

/// Work that has been posted and not started.
#[derive(Debug)]
pub(crate) enum Work {
    Send(Send),
    Write(Write),
    Read(Read),
}

/// A Send or Write under way.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) token: Token,
    pub(crate) kind: WorkKind,
    pub(crate) signaled: bool,
}

/// A segment of a Read that waits for its turn.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) read: u64,
    pub(crate) at: usize,
    pub(crate) source: RemoteSegment,
}

/// A Read whose bytes have not all come.
#[derive(Debug)]
pub(crate) struct OpenRead {
    pub(crate) token: Token,
    pub(crate) sink: Buffer,
    pub(crate) octets: usize,
    pub(crate) segments_left: usize,
    pub(crate) segments: usize,
}

/// Lent memory.
#[derive(Debug)]
pub(crate) struct Exposure {
    pub(crate) token: Token,
    pub(crate) memory: Lent,
    pub(crate) base: u64,
    /// A local invalidation is under way.
    pub(crate) ending: bool,
}

/// How far an orderly end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fin {
    No,
    /// Wanted, after what is posted.
    Wanted,
    /// The peer knows it.
    Sent,
}

/// How far the end of an end has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// All has been flushed; the last completion follows.
    Ending(CloseReason),
    /// The last completion may be handed out.
    Due(CloseReason),
    /// It has been, or the queue pair was dropped.
    Over,
}

/// What a failing peer says about the work that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) number: u64,
    pub(crate) error: WorkError,
}

/// One end of a connection.
pub(crate) struct Endpoint {
    pub(crate) info: ConnectionInfo,
    pub(crate) link: Link,
    pub(crate) capabilities: Arc<Capabilities>,
    pub(crate) receives: VecDeque<Buffer>,
    pub(crate) shared: Option<Arc<dyn ReceivePool>>,
    pub(crate) exposures: BTreeMap<u32, Exposure>,
    pub(crate) posted: VecDeque<Work>,
    pub(crate) sent: VecDeque<Sent>,
    /// Writes without signal that were done when they had left, by number: the peer can still refuse them.
    pub(crate) departed: VecDeque<(u64, Token)>,
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) reads: BTreeMap<u64, OpenRead>,
    /// Read requests of ours under way.
    pub(crate) reading: usize,
    /// Read requests of the peer being served.
    pub(crate) serving: usize,
    /// Sends, Writes and segments of Reads posted and not completed.
    pub(crate) outstanding: usize,
    pub(crate) next_number: u64,
    pub(crate) fin: Fin,
    pub(crate) phase: Phase,
    /// The link is cut: nothing comes or goes, though the end does not know it yet.
    pub(crate) severed: bool,
    /// Messages of ours do not pass, and the time-out for that runs.
    pub(crate) stalling: bool,
    /// Messages of ours went to a host that was down.
    pub(crate) lost: bool,
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) waker: Option<Waker>,
    last: [u64; CHANNELS],
    /// Sends and Writes are done when they have left, not when they have arrived.
    pub(crate) early: bool,
    /// Work posted behind Reads that wait for their turn waits with them.
    pub(crate) stalls_behind_reads: bool,
    /// Pieces of memory that have been given, and that have come back.
    pub(crate) given: u64,
    pub(crate) returned: u64,
}

impl Endpoint {
    pub(crate) fn new(
        info: ConnectionInfo,
        link: Link,
        capabilities: Arc<Capabilities>,
        receives: Vec<Buffer>,
        shared: Option<Arc<dyn ReceivePool>>,
        quirks: u64,
    ) -> Self {
        Self {
            info,
            link,
            capabilities,
            given: receives.len() as u64,
            receives: receives.into(),
            shared,
            exposures: BTreeMap::new(),
            posted: VecDeque::new(),
            sent: VecDeque::new(),
            departed: VecDeque::new(),
            segments: VecDeque::new(),
            reads: BTreeMap::new(),
            reading: 0,
            serving: 0,
            outstanding: 0,
            next_number: 1,
            fin: Fin::No,
            phase: Phase::Open,
            severed: false,
            stalling: false,
            lost: false,
            completions: VecDeque::new(),
            waker: None,
            last: [0; CHANNELS],
            early: quirks & 1 != 0,
            stalls_behind_reads: quirks & 2 != 0,
            returned: 0,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(crate) fn describe(&self, id: u64) -> String {
        format!(
            "connection {} from {} to {}: {:?}, {} receives, {} exposures, {} Reads, {} posted, {} sent, {} \
             completions not polled{}",
            id / 2,
            self.info.local,
            self.info.peer,
            self.phase,
            self.receives.len(),
            self.exposures.len(),
            self.reads.len(),
            self.posted.len(),
            self.sent.len(),
            self.completions.len(),
            if self.waker.is_none() { ", nobody polls it" } else { "" }
        )
    }

    /// Remembers a Write that is done before it has arrived.
    pub(crate) fn depart(&mut self, sent: &Sent) {
        if sent.kind == WorkKind::Write && !sent.signaled {
            if self.departed.len() == MAX_DEPARTED {
                self.departed.pop_front();
            }
            self.departed.push_back((sent.number, sent.token));
        }
    }

    /// A number for work or a Read.
    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// When something that would arrive at `at` does, so that nothing overtakes its own kind.
    pub(crate) fn arrival(&mut self, channel: Channel, at: u64) -> u64 {
        let earliest = match channel {
            Channel::Last => self.last.iter().copied().max().unwrap_or(0),
            _ => self.last[channel as usize],
        };
        let at = at.max(earliest);
        match channel {
            Channel::Last => self.last = [at; CHANNELS],
            _ => self.last[channel as usize] = at,
        }
        at
    }

    pub(crate) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Checks at its close that nothing is left.
    pub(crate) fn assert_settled(&self, id: u64, seed: u64) {
        let left = self.receives.len()
            + self.exposures.len()
            + self.posted.len()
            + self.sent.len()
            + self.segments.len()
            + self.reads.len()
            + self.completions.len();
        assert!(left == 0, "seed {seed}: connection {} closes with work left: {}", id / 2, self.describe(id));
        assert!(
            self.given == self.returned,
            "seed {seed}: connection {} was given {} pieces of memory and gave back {}",
            id / 2,
            self.given,
            self.returned
        );
    }
}

/// The side that the end with this number has in its connection.
pub(crate) fn side(id: u64) -> Side {
    if id.is_multiple_of(2) { Side::Initiator } else { Side::Acceptor }
}

/// The slices of a message, laid one after the other into `sink`, which is large enough.
pub(crate) fn gather(octets: &[Bytes], sink: &mut [u8]) {
    let mut at = 0;
    for slice in octets {
        sink[at..at + slice.len()].copy_from_slice(slice);
        at += slice.len();
    }
}

/// How many bytes the slices of a message have in all.
pub(crate) fn total(octets: &[Bytes]) -> usize {
    octets.iter().map(Bytes::len).fold(0, usize::saturating_add)
}
