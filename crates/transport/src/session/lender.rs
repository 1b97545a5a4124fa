//! Exposes memory to the peer while the engine builds a message.
//!
//! Owns nothing: exposed memory goes to the queue pair, and memory that cannot be exposed back to the table of calls.

use crate::{CLOSE_TIMEOUT, calls::Calls};
use bytes::Bytes;
use foldhash::HashMap;
use rpcrdma_engine::{ExposeError, ExposureId, Host, Segment, Sink};
use rpcrdma_env::{Clock, Timestamp};
use rpcrdma_fabric::{Lent, QueuePair, Refused, RefusedReason, RemoteSegment, Token};

/// Exposes memory for the engine.
pub(super) struct Lender<'a> {
    pub(super) qp: &'a mut dyn QueuePair,
    pub(super) exposures: &'a mut HashMap<ExposureId, Option<Sink>>,
    pub(super) calls: &'a mut Calls,
    pub(super) clock: &'a dyn Clock,
    /// Set if the queue pair refuses memory because the connection is closed: the time by which the end must follow.
    pub(super) refused: &'a mut Option<Timestamp>,
}

impl Lender<'_> {
    fn why(&mut self, reason: RefusedReason) -> ExposeError {
        if reason != RefusedReason::Closed {
            return ExposeError::Refused;
        }
        self.refused.get_or_insert_with(|| self.clock.now() + CLOSE_TIMEOUT);
        ExposeError::Closed
    }
}

impl Host for Lender<'_> {
    // V2-11.1.2-b, V2-C.7-b
    fn expose_source(&mut self, exposure: ExposureId, octets: &Bytes) -> Result<Segment, ExposeError> {
        let exposed = self.qp.expose(Token(exposure.0), Lent::Source(octets.clone()));
        let segment = exposed.map_err(|refused| self.why(refused.reason))?;
        self.exposures.insert(exposure, None);
        Ok(wire(segment))
    }

    // V2-11.1.2-b, V2-C.7-b
    fn expose_sink(&mut self, exposure: ExposureId, sink: Sink) -> Result<Segment, ExposeError> {
        let buffer = self.calls.lend(sink.call, sink.place, sink.octets)?;
        match self.qp.expose(Token(exposure.0), Lent::Sink(buffer)) {
            Ok(segment) => {
                self.exposures.insert(exposure, Some(sink));
                Ok(wire(segment))
            }
            Err(Refused { reason, returned }) => {
                if let Lent::Sink(buffer) = returned {
                    self.calls.restore(sink.call, sink.place, buffer);
                }
                Err(self.why(reason))
            }
        }
    }

    fn next_xid(&mut self) -> u32 {
        self.calls.xids.next_xid()
    }
}

fn wire(segment: RemoteSegment) -> Segment {
    Segment { handle: segment.handle, length: segment.length, offset: segment.offset }
}
