//! From ULPDUs to RDMAP's messages: segments of one message are joined, as far as their bytes are looked at.
//!
//! Holds one untagged message for each queue and one tagged one, each direction: at most [`MAX_SEND_BYTES`] of each.

use rpcrdma_iwarp::protocol::{
    ddp::{Header, Placement, QUEUE_READ_REQUEST, QUEUE_SEND, QUEUE_TERMINATE, header_bytes},
    rdmap::{Opcode, ReadRequest},
};

/// Bytes of a Send that are kept: more than any transport header with the RPC header behind it.
pub(super) const MAX_SEND_BYTES: usize = 64 << 10;
/// Bytes of a tagged message that are kept: as many as of a Send, since it may be a long call or reply.
pub(super) const MAX_TAGGED_BYTES: usize = MAX_SEND_BYTES;

/// A message.
#[derive(Debug)]
pub(super) enum Whole {
    Send { opcode: Opcode, invalidate: Option<u32>, octets: u64, fpdus: u32, head: Vec<u8>, partial: bool },
    ReadRequest(ReadRequest),
    Tagged(TaggedRun),
    Terminate(Vec<u8>),
}

/// A tagged message, or the part of it that has come.
#[derive(Debug)]
pub(super) struct TaggedRun {
    pub(super) opcode: Opcode,
    pub(super) handle: u32,
    pub(super) offset: u64,
    pub(super) octets: u64,
    pub(super) fpdus: u32,
    pub(super) complete: bool,
    pub(super) head: Vec<u8>,
}

/// An untagged message of which more is to come.
#[derive(Debug)]
struct Begun {
    opcode: Opcode,
    msn: u32,
    invalidate: u32,
    octets: u64,
    fpdus: u32,
    head: Vec<u8>,
    partial: bool,
}

#[derive(Debug, Default)]
pub(super) struct Messages {
    untagged: [Option<Begun>; 3],
    tagged: Option<TaggedRun>,
}

fn keep(head: &mut Vec<u8>, octets: &[u8], most: usize) {
    let room = most.saturating_sub(head.len()).min(octets.len());
    head.extend_from_slice(octets.get(..room).unwrap_or_default());
}

impl Messages {
    /// Takes a ULPDU whose header decodes; gives the messages that it completes or breaks off.
    pub(super) fn ulpdu(&mut self, ulpdu: &[u8]) -> Vec<Whole> {
        let mut whole = Vec::new();
        let (Ok(header), Some(&control)) = (Header::decode(ulpdu), ulpdu.first()) else { return whole };
        let payload = ulpdu.get(header_bytes(control)..).unwrap_or_default();
        match header.placement {
            Placement::Tagged { stag, offset } => self.tagged(&header, (stag, offset), payload, &mut whole),
            Placement::Untagged { queue, msn, offset, invalidate } => {
                let slot = match queue {
                    QUEUE_SEND => &mut self.untagged[0],
                    QUEUE_READ_REQUEST => &mut self.untagged[1],
                    QUEUE_TERMINATE => &mut self.untagged[2],
                    _ => return whole,
                };
                let goes_on =
                    slot.as_ref().is_some_and(|begun| (begun.msn, begun.octets) == (msn, offset.into()) && offset > 0);
                if !goes_on && let Some(begun) = slot.take() {
                    whole.extend(Begun { partial: true, ..begun }.whole());
                }
                let mut begun = slot.take().unwrap_or(Begun {
                    opcode: header.opcode,
                    msn,
                    invalidate,
                    octets: offset.into(),
                    fpdus: 0,
                    head: Vec::new(),
                    partial: offset > 0,
                });
                begun.octets = begun.octets.saturating_add(payload.len() as u64);
                begun.fpdus = begun.fpdus.saturating_add(1);
                keep(&mut begun.head, payload, MAX_SEND_BYTES);
                if header.last {
                    whole.extend(begun.whole());
                } else {
                    *slot = Some(begun);
                }
            }
        }
        whole
    }

    fn tagged(&mut self, header: &Header, (handle, offset): (u32, u64), payload: &[u8], whole: &mut Vec<Whole>) {
        let goes_on = self.tagged.as_ref().is_some_and(|run| {
            (run.opcode, run.handle) == (header.opcode, handle) && run.offset.checked_add(run.octets) == Some(offset)
        });
        if !goes_on && let Some(run) = self.tagged.take() {
            whole.push(Whole::Tagged(run));
        }
        let mut run = self.tagged.take().unwrap_or(TaggedRun {
            opcode: header.opcode,
            handle,
            offset,
            octets: 0,
            fpdus: 0,
            complete: false,
            head: Vec::new(),
        });
        run.octets = run.octets.saturating_add(payload.len() as u64);
        run.fpdus = run.fpdus.saturating_add(1);
        run.complete = header.last;
        keep(&mut run.head, payload, MAX_TAGGED_BYTES);
        if header.last {
            whole.push(Whole::Tagged(run));
        } else {
            self.tagged = Some(run);
        }
    }

    /// The messages that the capture does not finish, as far as they have come.
    pub(super) fn finish(&mut self) -> Vec<Whole> {
        let untagged = self.untagged.iter_mut().filter_map(Option::take);
        let mut whole: Vec<_> = untagged.filter_map(|begun| Begun { partial: true, ..begun }.whole()).collect();
        whole.extend(self.tagged.take().map(Whole::Tagged));
        whole
    }
}

impl Begun {
    /// The message, if the part that has come shows what it is.
    fn whole(self) -> Option<Whole> {
        match self.opcode {
            Opcode::ReadRequest => Some(Whole::ReadRequest(ReadRequest::decode(self.head.first_chunk()?))),
            Opcode::Terminate => Some(Whole::Terminate(self.head)),
            opcode if opcode.is_send() => Some(Whole::Send {
                opcode,
                invalidate: opcode.invalidates().then_some(self.invalidate),
                octets: self.octets,
                fpdus: self.fpdus,
                head: self.head,
                partial: self.partial,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_iwarp::protocol::ddp::UNTAGGED_OCTETS;

    fn ulpdu(opcode: Opcode, last: bool, placement: Placement, payload: &[u8]) -> Vec<u8> {
        let mut header = [0; UNTAGGED_OCTETS];
        let len = Header { opcode, last, placement }.encode(&mut header);
        [&header[..len], payload].concat()
    }

    fn send(msn: u32, offset: u32, last: bool, payload: &[u8]) -> Vec<u8> {
        ulpdu(Opcode::Send, last, Placement::Untagged { queue: 0, msn, offset, invalidate: 0 }, payload)
    }

    #[test]
    fn segments_are_joined_and_holes_are_told() {
        let mut messages = Messages::default();
        assert!(messages.ulpdu(&send(1, 0, false, b"ab")).is_empty());
        let whole = messages.ulpdu(&send(1, 2, true, b"c"));
        let [Whole::Send { octets: 3, fpdus: 2, partial: false, head, .. }] = &whole[..] else { panic!("{whole:?}") };
        assert_eq!(head, b"abc");
        let whole = messages.ulpdu(&send(2, 4, true, b"tail"));
        assert!(matches!(whole[..], [Whole::Send { octets: 8, partial: true, .. }]), "{whole:?}");
        assert!(messages.ulpdu(&send(3, 0, false, b"ab")).is_empty());
        let whole = messages.ulpdu(&send(4, 0, true, b"x"));
        assert!(
            matches!(whole[..], [Whole::Send { octets: 2, partial: true, .. }, Whole::Send { partial: false, .. }]),
            "{whole:?}"
        );
    }

    #[test]
    fn what_is_kept_ends_at_its_limit() {
        let mut messages = Messages::default();
        let piece = vec![1; 40_000];
        assert!(messages.ulpdu(&send(1, 0, false, &piece)).is_empty());
        let whole = messages.ulpdu(&send(1, 40_000, true, &piece));
        let [Whole::Send { octets: 80_000, head, .. }] = &whole[..] else { panic!("{whole:?}") };
        assert_eq!(head.len(), MAX_SEND_BYTES);
        let write = |offset, last| ulpdu(Opcode::Write, last, Placement::Tagged { stag: 7, offset }, &piece);
        assert!(messages.ulpdu(&write(100, false)).is_empty());
        assert!(messages.ulpdu(&write(40_100, false)).is_empty());
        let whole = messages.ulpdu(&write(0, true));
        let [Whole::Tagged(cut), Whole::Tagged(last)] = &whole[..] else { panic!("{whole:?}") };
        assert!(!cut.complete && last.complete && cut.octets == 80_000 && cut.head.len() == MAX_TAGGED_BYTES);
        assert!(messages.ulpdu(&write(u64::MAX, false)).is_empty(), "the end of the range is no next offset");
        assert_eq!(messages.ulpdu(&write(0, true)).len(), 2);
    }
}
