//! Checks, from outside, the messages of one direction: credits, parts, flags, chunks.

use rpcrdma_wire::v2::{Body, Header, MIN_SIZE_OCTETS, Properties, ReverseSupport};

/// One end, as far as its peer can know it.
pub struct Watched {
    /// Whether this end is the client.
    pub client: bool,
    balance: u32,
    on_reserve: bool,
    /// The end's properties, as announced so far; `over` when the end has announced all.
    pub announced: Properties,
    pub over: bool,
    sent: usize,
    open: Option<(u32, bool)>,
    pub seen: Seen,
}

/// How often each kind was sent: the cases that have tested the rules.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    /// Calls and replies that fit one message, and messages that continue another.
    pub simple: u64,
    pub parts: u64,
    pub special_calls: u64,
    pub special_replies: u64,
    pub read_chunks: u64,
    pub write_chunks: u64,
    pub reply_chunks: u64,
    pub grants: u64,
    pub errors: u64,
    /// Messages of the reverse direction: calls of the server, replies of the client.
    pub reverse: u64,
}

impl Watched {
    pub fn new(client: bool) -> Self {
        Self {
            client,
            balance: u32::from(client),
            on_reserve: false,
            announced: Properties::default(),
            over: false,
            sent: 0,
            open: None,
            seen: Seen::default(),
        }
    }

    /// This end sends a message to `peer`.
    pub fn sends(&mut self, peer: &Watched, message: &[u8]) -> Header {
        let message = bytes::Bytes::copy_from_slice(message);
        let later = self.open.is_some();
        let (header, len) =
            if later { Header::decode_piece(&message) } else { Header::decode(&message) }.expect("a header");
        assert_ne!(header.credits.granted, 0, "every message grants");
        assert!(header.credits.maximum > 0);
        // Each message needs a credit; only a bare grant may go without one.
        if self.balance > 0 {
            self.balance -= 1;
        } else {
            assert!(header.is_grant() && !self.on_reserve, "no credit for {header:?}");
            self.on_reserve = true;
        }
        // The exchange comes first, and RPC messages only when it is over.
        if self.sent == 0 {
            assert!(
                matches!(header.body, Body::Connprop(_) | Body::ConnpropPiece(_)),
                "properties come first: {header:?}"
            );
            assert!(message.len() <= if self.client { 1024 } else { 4096 });
        }
        self.sent += 1;
        let threshold = match self.over && peer.over {
            true => self.announced.inline_threshold_to(&peer.announced),
            false => Properties::default().inline_threshold_to(&Properties::default()),
        };
        assert!(message.len() <= threshold as usize && threshold >= MIN_SIZE_OCTETS, "{} bytes", message.len());
        let response = header.flags.response;
        match &header.body {
            Body::Msg(chunks) | Body::Nomsg(chunks) if !header.is_grant() => {
                assert!(self.over && peer.over, "no RPC before the exchange is over");
                assert_ne!(header.xid, 0);
                let payload = &message[len..];
                assert_eq!(payload.len() % 4, 0);
                assert_eq!(
                    payload.is_empty(),
                    matches!(header.body, Body::Nomsg(_)),
                    "bytes in each MSG, none in NOMSG"
                );
                if let Some(open) = self.open {
                    assert_eq!(open, (header.xid, response), "parts of one message follow each other");
                    self.seen.parts += 1;
                } else if !payload.is_empty() {
                    assert_eq!(payload[..4], header.xid.to_be_bytes(), "the payload begins with the XID");
                    assert_eq!(payload[4..8], u32::from(response).to_be_bytes(), "the flag is the direction");
                }
                self.open = header.flags.more.then_some((header.xid, response));
                assert!(!header.flags.more || chunks.is_empty() && chunks.inv_handle == 0, "chunks go with the last");
                assert!(!response || chunks.lists.reads.is_empty() && chunks.inv_handle == 0);
                // The limits that the peer has announced.
                let lists = &chunks.lists;
                if !response {
                    assert!(lists.segment_count() <= peer.announced.segment_count as usize);
                    let written = lists.writes.chunks().iter().chain(&lists.reply).flat_map(|chunk| chunk.segments());
                    let read = lists.reads.segments().iter().map(|entry| &entry.segment);
                    for segment in written.chain(read) {
                        assert!(segment.length <= peer.announced.segment_size, "{segment:?}");
                    }
                    assert!(lists.reads.segments().is_sorted_by_key(|entry| entry.position));
                    assert!(lists.reads.segments().iter().all(|entry| entry.position % 4 == 0));
                    assert_eq!(chunks.inv_handle != 0, chunks.invalidatable().is_some());
                }
                self.count(&header, later);
                // In the reverse direction messages keep to the client's support level.
                if self.client == response {
                    self.seen.reverse += 1;
                    let client = if self.client { &self.announced } else { &peer.announced };
                    assert!(client.reverse >= ReverseSupport::Simple);
                    assert!(client.reverse >= ReverseSupport::Continued || !header.flags.more && !later);
                    assert!(client.reverse == ReverseSupport::General || chunks.is_empty());
                }
            }
            Body::Nomsg(_) => {
                self.seen.grants += 1;
                assert_eq!((header.xid, response), (0, false));
            }
            Body::Connprop(set) => {
                assert!(!self.over, "the last is the last");
                assert!(!response && header.xid != 0);
                self.announced.apply(set);
                self.over = !header.flags.tpmore;
            }
            Body::Error(_) => {
                assert!(response, "an error is a response");
                self.seen.errors += 1;
            }
            other => panic!("{other:?}"),
        }
        header
    }

    fn count(&mut self, header: &Header, later: bool) {
        let Some(chunks) = header.body.chunks() else { return };
        let (response, whole) = (header.flags.response, matches!(header.body, Body::Nomsg(_)));
        self.seen.special_calls += u64::from(whole && !response);
        self.seen.special_replies += u64::from(whole && response);
        self.seen.simple += u64::from(!whole && !later && !header.flags.more);
        self.seen.read_chunks += chunks.lists.reads.segments().len() as u64;
        self.seen.write_chunks += chunks.lists.writes.chunks().len() as u64;
        self.seen.reply_chunks += u64::from(chunks.lists.reply.is_some());
    }

    /// This end receives a message.
    pub fn hears(&mut self, header: &Header) {
        let maximum = header.credits.maximum.max(header.credits.granted).min(rpcrdma_engine::v2::MAX_PEER_CREDITS);
        self.balance = (self.balance + u32::from(header.credits.granted)).min(maximum.into());
        self.on_reserve = false;
    }
}
