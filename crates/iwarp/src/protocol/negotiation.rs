//! What the two ends agree on during set-up: CRC, depths of RDMA Reads, the ready-to-receive indication (RFC 5044
//! section 7.1, RFC 6581 section 9).

use super::{
    fault::Fault,
    mpa::{Enhanced, Frame, Head, NOT_NEGOTIATED},
};

/// What one end offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// It wants CRCs.
    pub crc: bool,
    /// RDMA Reads that it serves at a time.
    pub ird: u16,
    /// RDMA Reads that it issues at a time.
    pub ord: u16,
}

/// What the ends have agreed on, as one end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Whether both ends send and check CRCs.
    pub crc: bool,
    /// RDMA Reads of the peer that we serve at a time.
    pub ird: u16,
    /// Our RDMA Reads that the peer serves at a time.
    pub ord: u16,
    /// The peer's first FPDU may be a Send without data, which is not a message but tells us that the peer is ready.
    pub ready_by_send: bool,
    /// The peer's first FPDU may be a Read without octets, which tells us that the peer is ready. It needs no IRD.
    pub ready_by_read: bool,
}

/// The initiator's request: revision 2 with IRD and ORD, because Linux's responder takes the IRD from no other.
pub fn request(offer: Offer, private_data: &[u8]) -> Frame {
    let enhanced = Enhanced { ird: offer.ird, ord: offer.ord, ..Enhanced::default() };
    let head = Head { markers: false, crc: offer.crc, reject: false, enhanced: true, revision: 2, private_octets: 0 };
    Frame { head, enhanced: Some(enhanced), private_data: private_data.to_vec() }
}

/// Whether the responder can answer a request with anything but a rejection.
///
/// # Errors
/// The peer wants markers.
pub fn check_request(request: &Frame) -> Result<(), Fault> {
    // MPA-5044-7.1-f
    if request.head.markers { Err(Fault::Markers) } else { Ok(()) }
}

/// The peer's wishes in its request, seen from the responder: how many RDMA Reads it would issue (our IRD) and how many
/// it would serve (our ORD). `open` is used for what the request leaves open.
pub fn wishes(request: &Frame, open: (u16, u16)) -> (u16, u16) {
    let wish = |value: u16, open: u16| if value == NOT_NEGOTIATED { open } else { value };
    request.enhanced.map_or(open, |e| (wish(e.ord, open.0), wish(e.ird, open.1)))
}

// MPA-5044-7.1-e
fn reply_head(request: &Head, crc: bool, reject: bool) -> Head {
    Head { markers: false, crc, reject, enhanced: request.enhanced, revision: request.revision, private_octets: 0 }
}

/// The responder's answer to `request`, and what the ends have then agreed on.
pub fn accept(request: &Frame, offer: Offer, private_data: &[u8]) -> (Frame, Agreed) {
    // MPA-5044-7.1-d
    let crc = request.head.crc || offer.crc;
    let mut agreed = Agreed { crc, ird: offer.ird, ord: offer.ord, ready_by_send: false, ready_by_read: false };
    let enhanced = request.enhanced.map(|wish| {
        let mut answer = Enhanced { ird: NOT_NEGOTIATED, ord: NOT_NEGOTIATED, ..Enhanced::default() };
        // CM-6581-9.1-c
        if wish.ord != NOT_NEGOTIATED {
            agreed.ird = offer.ird.min(wish.ord);
            answer.ird = agreed.ird;
        }
        if wish.ird != NOT_NEGOTIATED {
            // CM-6581-9.1-a
            agreed.ord = offer.ord.min(wish.ird);
            answer.ord = agreed.ord;
        }
        // CM-6581-9.2-a, CM-6581-9.2-b
        if wish.peer_to_peer {
            answer.peer_to_peer = true;
            answer.ready_by_write = wish.ready_by_write;
            answer.ready_by_read = wish.ready_by_read;
            // A Send costs a number on the queue of Sends, so we offer it only if there is no other way in common.
            answer.ready_by_send = !(wish.ready_by_write || wish.ready_by_read);
            if answer.ready_by_read && answer.ird == 0 {
                answer.ird = 1;
            }
            agreed.ready_by_send = answer.ready_by_send;
            agreed.ready_by_read = answer.ready_by_read;
        }
        answer
    });
    let head = reply_head(&request.head, crc, false);
    (Frame { head, enhanced, private_data: private_data.to_vec() }, agreed)
}

/// The responder's rejection of `request`.
pub fn reject(request: &Frame, private_data: &[u8]) -> Frame {
    let enhanced = request.enhanced.map(|_| Enhanced::default());
    let head = reply_head(&request.head, request.head.crc, true);
    Frame { head, enhanced, private_data: private_data.to_vec() }
}

/// What the ends have agreed on, as the initiator sees it, after `reply`, which is not a rejection. `max_ird` is the
/// most that we can serve.
///
/// # Errors
/// The reply is of another kind than the request, or wants markers, or more RDMA Reads than we can serve.
pub fn conclude(reply: &Frame, offer: Offer, max_ird: u16) -> Result<Agreed, Fault> {
    if reply.head.revision != 2 {
        return Err(Fault::Revision { revision: reply.head.revision });
    }
    if reply.head.markers {
        return Err(Fault::Markers);
    }
    let answer = reply.enhanced.ok_or(Fault::Enhanced)?;
    // CM-6581-9.1-b, CM-6581-9.1-c
    let ord = if answer.ird == NOT_NEGOTIATED { offer.ord } else { offer.ord.min(answer.ird) };
    let ird = if answer.ord == NOT_NEGOTIATED { offer.ird } else { answer.ord };
    // CM-6581-9.1-b
    if ird > offer.ird.max(max_ird) {
        return Err(Fault::InsufficientIrd { wanted: ird, max: max_ird });
    }
    // MPA-5044-7.1-d
    let crc = offer.crc || reply.head.crc;
    Ok(Agreed { crc, ird, ord, ready_by_send: false, ready_by_read: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Offer = Offer { crc: false, ird: 16, ord: 8 };

    fn asked(enhanced: Enhanced, crc: bool) -> Frame {
        let mut frame = request(Offer { crc, ird: 0, ord: 0 }, b"");
        frame.enhanced = Some(enhanced);
        frame
    }

    /// proves: CM-6581-9.1-a, CM-6581-9.1-b
    #[test]
    fn depths_are_the_lower_of_both_wishes_at_both_ends() {
        for (ird, ord) in [(0, 0), (1, 1), (4, 32), (32, 4), (8, 16)] {
            let offer = Offer { crc: true, ird, ord };
            let (reply, there) = accept(&request(offer, b""), OURS, b"");
            let here = conclude(&reply, offer, 16).unwrap();
            assert_eq!((there.ird, there.ord), (16.min(ord), 8.min(ird)));
            assert_eq!((here.ird, here.ord), (there.ord, there.ird));
            let block = reply.enhanced.unwrap();
            assert!(!block.peer_to_peer && block.ord <= ird, "what Linux's initiator insists on");
        }
    }

    /// proves: CM-6581-9.1-c
    #[test]
    fn what_is_not_negotiated_stays_as_it_was() {
        let open = Enhanced { ird: NOT_NEGOTIATED, ord: NOT_NEGOTIATED, ..Enhanced::default() };
        let frame = asked(open, false);
        assert_eq!(wishes(&frame, (5, 6)), (5, 6));
        let (reply, agreed) = accept(&frame, OURS, b"");
        assert_eq!((agreed.ird, agreed.ord), (16, 8));
        assert_eq!(reply.enhanced, Some(open));
        let here = conclude(&reply, OURS, 16).unwrap();
        assert_eq!((here.ird, here.ord), (16, 8));
    }

    /// proves: MPA-5044-7.1-d
    #[test]
    fn crc_is_on_if_either_end_wants_it() {
        for (initiator, responder) in [(false, false), (false, true), (true, false), (true, true)] {
            let offer = Offer { crc: initiator, ..OURS };
            let (reply, there) = accept(&request(offer, b""), Offer { crc: responder, ..OURS }, b"");
            let here = conclude(&reply, offer, 16).unwrap();
            assert_eq!(there.crc, initiator || responder);
            assert_eq!(here.crc, there.crc);
            assert_eq!(reply.head.crc, there.crc);
        }
    }

    /// proves: CM-6581-9.2-a, CM-6581-9.2-b
    #[test]
    fn a_peer_to_peer_request_gets_an_indication_that_both_know() {
        let p2p = Enhanced { ird: 1, ord: 0, peer_to_peer: true, ..Enhanced::default() };
        let answer = |wish| {
            let (reply, agreed) = accept(&asked(wish, true), OURS, b"");
            (reply.enhanced.unwrap(), agreed)
        };
        let (block, agreed) = answer(Enhanced { ready_by_write: true, ready_by_send: true, ..p2p });
        assert!(block.peer_to_peer && block.ready_by_write && !block.ready_by_read && !agreed.ready_by_send);
        let (block, agreed) = answer(Enhanced { ready_by_read: true, ..p2p });
        assert!(block.ready_by_read && agreed.ready_by_read);
        assert_eq!((block.ird, agreed.ird), (1, 0), "room on the wire for the indication, not for real Reads");
        let (block, agreed) = answer(Enhanced { ready_by_send: true, ..p2p });
        assert!(block.ready_by_send && agreed.ready_by_send);
        let (block, _) = answer(p2p);
        assert!(block.ready_by_send, "one is named even if none was asked for");
    }

    /// proves: MPA-5044-7.1-e
    #[test]
    fn revision_1_is_answered_in_kind() {
        let mut frame = request(OURS, b"hello");
        frame.enhanced = None;
        frame.head.revision = 1;
        frame.head.enhanced = false;
        let (reply, agreed) = accept(&frame, OURS, b"there");
        assert_eq!((reply.head.revision, reply.enhanced), (1, None));
        assert_eq!((agreed.ird, agreed.ord), (16, 8));
        assert_eq!(reject(&frame, b"no").head.revision, 1);
    }

    #[test]
    fn replies_that_break_a_rule_are_named() {
        let (good, _) = accept(&request(OURS, b""), OURS, b"");
        assert!(conclude(&good, OURS, 16).is_ok());
        let with = |change: fn(&mut Frame)| {
            let mut frame = good.clone();
            change(&mut frame);
            conclude(&frame, OURS, 16)
        };
        assert_eq!(with(|f| f.head.revision = 1), Err(Fault::Revision { revision: 1 }));
        assert_eq!(with(|f| f.head.markers = true), Err(Fault::Markers));
        assert_eq!(with(|f| f.enhanced = None), Err(Fault::Enhanced));
        let greedy = |ord| with_ord(&good, ord);
        assert_eq!(greedy(16).map(|a| a.ird), Ok(16), "at the limit");
        assert_eq!(greedy(17), Err(Fault::InsufficientIrd { wanted: 17, max: 16 }));
    }

    fn with_ord(good: &Frame, ord: u16) -> Result<Agreed, Fault> {
        let mut frame = good.clone();
        frame.enhanced = good.enhanced.map(|e| Enhanced { ord, ..e });
        conclude(&frame, OURS, 16)
    }

    /// proves: MPA-5044-7.1-f
    #[test]
    fn markers_are_refused() {
        let mut frame = request(OURS, b"");
        assert_eq!(check_request(&frame), Ok(()));
        frame.head.markers = true;
        assert_eq!(check_request(&frame), Err(Fault::Markers));
    }
}
