//! Checks, from outside, the messages of one direction of version 1: credits, forms, chunks.

use rpcrdma_wire::v1::{Body, Header};

/// The messages of one end, as its checker sees them.
#[derive(Default)]
pub struct Watched {
    /// The number of calls that the peer has not answered, and the peer's grant: one until its first message.
    unanswered: usize,
    granted: Option<usize>,
    pub reduced: u64,
    pub long_calls: u64,
    pub long_replies: u64,
}

/// Whether a message is a call; its payload, if it has one, says so.
fn is_call(header: &Header, payload: &[u8]) -> bool {
    match &header.body {
        Body::Msg(_) => payload[4..8] == [0; 4],
        Body::Nomsg(lists) => !lists.reads.is_empty(),
        other => panic!("{other:?} is never sent here"),
    }
}

impl Watched {
    /// This end sends a message of at most `inline` bytes.
    pub fn sends(&mut self, inline: usize, message: &[u8]) {
        assert!(message.len() <= inline, "inline threshold: {} of {inline}", message.len());
        let (header, len) = Header::decode(message).expect("a header");
        let payload = &message[len..];
        let call = is_call(&header, payload);
        let zero =
            header.body.lists().into_iter().flat_map(|lists| lists.reads.segments()).any(|read| read.position == 0);
        match &header.body {
            Body::Nomsg(_) => {
                assert!(payload.is_empty(), "nothing but the header");
                assert_eq!(zero, call, "a call's stream is in its Position Zero chunk");
                *if call { &mut self.long_calls } else { &mut self.long_replies } += 1;
            }
            Body::Msg(lists) => {
                assert!(!zero, "one message, one payload");
                assert_eq!(payload[..4], header.xid.to_be_bytes(), "the payload begins with the XID");
                self.reduced += u64::from(call && !lists.reads.is_empty());
            }
            _ => {}
        }
        assert!(call || header.body.lists().is_some_and(|lists| lists.reads.is_empty()));
        assert_eq!(header.version, 1);
        if call {
            self.unanswered += 1;
            assert!(self.unanswered <= self.granted.unwrap_or(1), "sent by us <= granted to us");
        }
    }

    /// This end receives a message.
    pub fn hears(&mut self, message: &[u8]) {
        let (header, len) = Header::decode(message).expect("a header");
        if !is_call(&header, &message[len..]) {
            self.unanswered -= 1;
            self.granted = Some(header.credit as usize);
        }
    }
}
