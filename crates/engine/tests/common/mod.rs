//! The parts of a driver, and the hand-made messages, that the tests of both versions need.

#![allow(dead_code, reason = "the tests of each version use their share")]

use bytes::Bytes;
use rpcrdma_engine::{Action, CloseCause, ExposeError, ExposureId, Host, RequestId, Segment, Sink};
use rpcrdma_env::Timestamp;
use rpcrdma_xdr::Payload;

pub const T: Timestamp = Timestamp::from_nanos(1);

/// The XID before the host's first one.
const BEFORE_XIDS: u32 = 0x76FF;

/// A host whose handles are 1000 and up, and whose XIDs are 0x7700 and up, in order.
#[derive(Default)]
pub struct Handles {
    xids: u32,
    /// The lent memory, and its handles.
    pub lent: Vec<(ExposureId, u32)>,
    /// Why the host lends nothing, if it refuses.
    pub refuses: Option<ExposeError>,
}

impl Handles {
    fn lend(&mut self, id: ExposureId, length: usize) -> Result<Segment, ExposeError> {
        if let Some(error) = self.refuses {
            return Err(error);
        }
        let handle = 1000 + self.lent.len() as u32;
        self.lent.push((id, handle));
        Ok(segment(handle, length as u32))
    }

    /// The XID that the host gave last.
    pub fn last_xid(&self) -> u32 {
        BEFORE_XIDS + self.xids
    }
}

impl Host for Handles {
    fn expose_source(&mut self, id: ExposureId, octets: &Bytes) -> Result<Segment, ExposeError> {
        self.lend(id, octets.len())
    }

    fn expose_sink(&mut self, id: ExposureId, sink: Sink) -> Result<Segment, ExposeError> {
        self.lend(id, sink.octets)
    }

    fn next_xid(&mut self) -> u32 {
        self.xids += 1;
        self.last_xid()
    }
}

pub fn segment(handle: u32, length: u32) -> Segment {
    Segment { handle, length, offset: 0 }
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The beginning of a Call.
pub fn call(xid: u32) -> Vec<u8> {
    words(&[xid, 0, 2, 100_003, 3, 1])
}

/// The beginning of a Reply.
pub fn reply(xid: u32) -> Vec<u8> {
    words(&[xid, 1, 0, 0, 0, 0])
}

/// Behind `head`, a counted array of counted arrays and optional data of `present` bytes. The counts and flags before
/// an item stay. Returns the stream, the part that stays, and the items that move.
pub fn arrays(head: Vec<u8>, present: usize) -> (Payload, Vec<u8>, [Vec<u8>; 2]) {
    let elements: Vec<u8> = (0..3).flat_map(|n| [words(&[1996 + n % 2]), vec![0xE0; 2000]].concat()).collect();
    let present = vec![0xD0; present];
    let mut stream = Payload::from(Bytes::from(head.clone()));
    stream.push_run(Bytes::from(words(&[3])));
    stream.push_item(elements.clone().into());
    stream.push_run(Bytes::from(words(&[1])));
    stream.push_item(present.clone().into());
    (stream, [head, words(&[3, 1])].concat(), [elements, present])
}

/// The calls that these actions deliver.
pub fn delivered(actions: &[Action]) -> Vec<RequestId> {
    let request = |action: &Action| if let Action::Deliver { request, .. } = action { Some(*request) } else { None };
    actions.iter().filter_map(request).collect()
}

/// Why these actions close the connection, if they do.
pub fn closed(actions: &[Action]) -> Option<CloseCause> {
    actions.iter().find_map(|action| if let Action::Close(cause) = action { Some(*cause) } else { None })
}
