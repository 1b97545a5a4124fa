//! Results behind the header of their reply.
//!
//! Most replies are a header of six words and some results. If a service writes both together, nobody has to copy the
//! results behind the header later. The router says whether it may: a reply that a flavour protects, or that is kept
//! for repetitions of its call, gets its header later.

use crate::{Answer, CallContext, REPLY_HEADER_BYTES, ReplyHeader, WholeReply};
use rpcrdma_xdr::{Encoder, Payload};

/// The results of a call, for a service that writes them bit by bit.
///
/// ```
/// use rpcrdma_oncrpc::{Answer, ResultsEncoder};
/// let mut results = ResultsEncoder::apart(64);
/// results.encoder().u32(0);
/// assert_eq!(results.octets(), 4);
/// assert!(matches!(results.finish(), Answer::Results(results) if results.len() == 4));
/// ```
#[derive(Debug)]
pub struct ResultsEncoder {
    /// The XID in the header, if the results stand behind one.
    plain: Option<u32>,
    encoder: Encoder,
}

impl ResultsEncoder {
    /// Results in memory of their own, with room for `octets` inline octets.
    pub fn apart(octets: usize) -> Self {
        Self { plain: None, encoder: Encoder::with_capacity(octets) }
    }

    fn new(plain: Option<u32>, mut encoder: Encoder) -> Self {
        if let Some(xid) = plain {
            ReplyHeader::plain(xid, Ok(())).encode(&mut encoder);
        }
        Self { plain, encoder }
    }

    /// Appends results.
    pub fn encoder(&mut self) -> &mut Encoder {
        &mut self.encoder
    }

    /// The bytes of results so far.
    pub fn octets(&self) -> usize {
        self.encoder.position() - self.header_octets()
    }

    fn header_octets(&self) -> usize {
        if self.plain.is_some() { REPLY_HEADER_BYTES } else { 0 }
    }

    /// The results without a header.
    pub fn into_results(self) -> Payload {
        let header = self.header_octets();
        self.encoder.finish().behind(header)
    }

    /// The answer with these results.
    pub fn finish(self) -> Answer {
        match self.plain {
            None => Answer::Results(self.encoder.finish()),
            Some(xid) => Answer::Whole(WholeReply { xid, message: self.encoder.finish() }),
        }
    }
}

impl CallContext {
    /// The results that `fill` appends, which should have at most `octets` inline octets. They lie in memory that the
    /// connection's short replies share.
    pub fn results(&self, octets: usize, fill: impl FnOnce(&mut Encoder)) -> Answer {
        let scratch = &self.connection.scratch;
        let Some(xid) = self.plain else { return Answer::Results(scratch.write(octets, fill)) };
        let message = scratch.write(REPLY_HEADER_BYTES + octets, |encoder| {
            ReplyHeader::plain(xid, Ok(())).encode(encoder);
            fill(encoder);
        });
        Answer::Whole(WholeReply { xid, message })
    }

    /// Room for results of `octets` inline octets in the same memory, for a call that waits for nothing: other replies
    /// that begin before these results are complete take more memory.
    pub fn results_encoder(&self, octets: usize) -> ResultsEncoder {
        ResultsEncoder::new(self.plain, self.connection.scratch.encoder(REPLY_HEADER_BYTES + octets))
    }
}
