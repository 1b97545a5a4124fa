//! One end of a connection: the memory that it has been given, the work under way, and how it ends.
//!
//! Memory that an end is given stays in exactly one of its fields until a completion takes it out. When the end closes,
//! it checks that nothing is left and that everything has come back; a failure is a bug of the simulation and panics
//! with the seed.

use crate::{config::Link, log::Side};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_fabric::{
    Capabilities, CloseReason, Completion, ConnectionInfo, Lent, ReadWork, ReceivePool, RemoteSegment, SendWork, Token,
    WorkError, WorkKind, WriteWork,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    task::Waker,
};

/// A kind of messages that keep their order among themselves.
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
    /// The end of the connection: after all others.
    Last,
}

/// How many channels there are besides [`Channel::Last`].
const CHANNELS: usize = 5;

/// How many Writes are remembered after they have left: as many as can be under way.
const MAX_DEPARTED: usize = 4096;

/// Work that is posted and not yet started.
#[derive(Debug)]
pub(crate) enum Work {
    Send(SendWork),
    Write(WriteWork),
    Read(ReadWork),
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

/// A Read with bytes still missing.
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
    /// Whether a local invalidation is under way.
    pub(crate) ending: bool,
}

/// The progress of an orderly end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fin {
    No,
    /// The owner wants it, after all posted work.
    Wanted,
    /// The peer knows it.
    Sent,
}

/// The life of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// Everything has been flushed; the last completion follows.
    Ending(CloseReason),
    /// The last completion can be delivered.
    Due(CloseReason),
    /// The last completion was delivered, or the queue pair was dropped.
    Over,
}

/// A failing peer's report about the work that failed.
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
    /// Unsignaled Writes that counted as done when they had left, by number: the peer can still refuse them.
    pub(crate) departed: VecDeque<(u64, Token)>,
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) reads: BTreeMap<u64, OpenRead>,
    /// Our own Read requests under way.
    pub(crate) reading: usize,
    /// Read requests of the peer that this end is serving.
    pub(crate) serving: usize,
    /// Sends, Writes and segments of Reads that are posted and not completed.
    pub(crate) outstanding: usize,
    pub(crate) next_number: u64,
    pub(crate) fin: Fin,
    pub(crate) phase: Phase,
    /// Whether the link is cut: nothing passes any more, but the end does not know it yet.
    pub(crate) severed: bool,
    /// Whether our messages do not pass, and the time-out for that runs.
    pub(crate) stalling: bool,
    /// Whether our messages went to a host that was down.
    pub(crate) lost: bool,
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) waker: Option<Waker>,
    last: [u64; CHANNELS],
    /// Whether Sends and Writes are done when they have left, and not only when they have arrived.
    pub(crate) early: bool,
    /// Whether work behind waiting Reads waits with them.
    pub(crate) stalls_behind_reads: bool,
    /// How many pieces of memory the end was given, and how many have come back.
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

    /// The real time of an arrival at `at`: later if it would overtake another of its kind.
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

    /// Checks at the close that nothing is left.
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
