//! RPC over plain TCP: records in a stream of bytes (RFC 5531 section 11), as MOUNT and NFS without RDMA are carried.
//!
//! A stream is taken for one of records when a segment begins like a record with a Call, or, once that was seen, with
//! the Reply to one. Holds the beginning of one record. Where bytes are missing, it goes on with the next segment that
//! begins like a record.

use rpcrdma_oncrpc::RPC_VERSION;
use std::borrow::Cow;

/// Bytes of a record that are kept: as many as of a Send. All calls but WRITE are shorter, and most listings.
const MAX_KEPT_BYTES: usize = 64 << 10;
/// A mark that announces more bytes than this is not a mark: records in use have some MiB.
const MAX_RECORD_BYTES: u64 = 64 << 20;
/// The mark of a fragment.
const MARK_BYTES: usize = 4;
/// The bit of a mark that says: this is the record's last fragment.
const LAST: u32 = 1 << 31;
/// Bytes that show whether something looks like a record: the mark, the XID, the kind, and what follows it.
const LOOK_BYTES: usize = MARK_BYTES + 12;
/// The shortest Call: a header without credential and verifier.
const MIN_CALL_BYTES: u32 = 40;
/// The shortest Reply: a rejection.
const MIN_REPLY_BYTES: u32 = 20;

/// A record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) octets: u64,
    pub(super) fragments: u32,
    pub(super) head: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Where the next record begins is not known.
    Search,
    /// A mark comes.
    Mark,
    /// This many bytes of a fragment come, of the last one or not.
    Fragment(u32, bool),
}

#[derive(Debug)]
pub(super) struct Records {
    state: State,
    /// The bytes of a mark, or those that a search looks at, as far as they have come.
    held: Vec<u8>,
    record: Record,
}

impl Records {
    pub(super) fn new() -> Self {
        Records { state: State::Search, held: Vec::new(), record: Record::default() }
    }

    /// Bytes are missing here.
    pub(super) fn gap(&mut self) {
        *self = Records::new();
    }

    /// The part of the next bytes, which begin with a segment, that belongs to records: all of them, once a record was
    /// found. `is_called`: whether a call waits for a Reply with this XID.
    pub(super) fn sought<'a>(&mut self, octets: &'a [u8], is_called: impl Fn(u32) -> bool) -> Cow<'a, [u8]> {
        if self.state != State::Search {
            return Cow::Borrowed(octets);
        }
        self.held.extend_from_slice(octets);
        if self.held.len() < LOOK_BYTES {
            return Cow::Borrowed(&[]);
        }
        let held = std::mem::take(&mut self.held);
        if looks_right(&held, &is_called) {
            self.state = State::Mark;
            return Cow::Owned(held);
        }
        if looks_right(octets, &is_called) {
            self.state = State::Mark;
            return Cow::Borrowed(octets);
        }
        Cow::Borrowed(&[])
    }

    /// Takes the bytes that were [sought](Self::sought).
    pub(super) fn octets<E>(&mut self, octets: &[u8], out: &mut dyn FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        let mut rest = octets;
        while let [first, behind @ ..] = rest {
            match self.state {
                State::Search => return Ok(()),
                State::Mark => {
                    self.held.push(*first);
                    rest = behind;
                    let Some(&mark) = self.held.first_chunk::<MARK_BYTES>() else { continue };
                    self.held.clear();
                    let mark = u32::from_be_bytes(mark);
                    let (octets, last) = (mark & !LAST, mark & LAST != 0);
                    self.record.octets = self.record.octets.saturating_add(octets.into());
                    self.record.fragments = self.record.fragments.saturating_add(1);
                    if self.record.octets > MAX_RECORD_BYTES {
                        self.gap();
                        return Ok(());
                    }
                    self.state = State::Fragment(octets, last);
                }
                State::Fragment(left, last) => {
                    let here = rest.get(..left as usize).unwrap_or(rest);
                    let room = MAX_KEPT_BYTES.saturating_sub(self.record.head.len());
                    self.record.head.extend(here.iter().take(room));
                    rest = rest.get(here.len()..).unwrap_or_default();
                    // At most `left`.
                    self.state = State::Fragment(left.saturating_sub(here.len() as u32), last);
                }
            }
            if let State::Fragment(0, last) = self.state {
                self.state = State::Mark;
                if last {
                    out(std::mem::take(&mut self.record))?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a record with a Call begins here, or with a Reply for which a call waits.
fn looks_right(octets: &[u8], is_called: &dyn Fn(u32) -> bool) -> bool {
    let word = |index: usize| {
        let at = MARK_BYTES * index;
        octets.get(at..)?.first_chunk().map(|raw| u32::from_be_bytes(*raw))
    };
    let (Some(mark), Some(xid), Some(kind), Some(behind)) = (word(0), word(1), word(2), word(3)) else { return false };
    let (octets, last) = (mark & !LAST, mark & LAST != 0);
    let long_enough = |least| !last || octets >= least;
    u64::from(octets) <= MAX_RECORD_BYTES
        && match kind {
            0 => behind == RPC_VERSION && long_enough(MIN_CALL_BYTES),
            1 => behind <= 1 && long_enough(MIN_REPLY_BYTES) && is_called(xid),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(words: &[u32], more: usize) -> Vec<u8> {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        body.resize(body.len() + more, 7);
        [&(LAST | body.len() as u32).to_be_bytes()[..], &body].concat()
    }

    fn call(xid: u32, more: usize) -> Vec<u8> {
        record(&[xid, 0, 2, 100_005, 3, 1, 0, 0, 0, 0], more)
    }

    fn read(records: &mut Records, pieces: &[&[u8]], called: bool) -> Vec<(u64, u32, usize)> {
        let mut found = Vec::new();
        for piece in pieces {
            let mut out = |record: Record| {
                found.push((record.octets, record.fragments, record.head.len()));
                Ok::<(), ()>(())
            };
            let sought = records.sought(piece, |_| called).into_owned();
            records.octets(&sought, &mut out).unwrap();
        }
        found
    }

    /// proves: RPC-5531-11-a
    #[test]
    fn records_are_found_however_they_are_cut() {
        let stream = [call(1, 0), call(2, 9), call(3, 100_000)].concat();
        for size in [1, 3, 16, 17, 100, stream.len()] {
            let pieces: Vec<&[u8]> = stream.chunks(size).collect();
            let found = read(&mut Records::new(), &pieces, false);
            assert_eq!(found, [(40, 1, 40), (49, 1, 49), (100_040, 1, MAX_KEPT_BYTES)], "pieces of {size}");
        }
        let mut cut = call(4, 0);
        cut[..4].copy_from_slice(&16_u32.to_be_bytes());
        let tail = cut.split_off(4 + 16);
        let stream = [&cut[..], &0_u32.to_be_bytes(), &(LAST | tail.len() as u32).to_be_bytes(), &tail].concat();
        assert_eq!(read(&mut Records::new(), &[&stream], false), [(40, 3, 40)]);
    }

    #[test]
    fn other_streams_are_passed_over() {
        let mut records = Records::new();
        let other: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
            b"SSH-2.0-",
            &[0; 100],
            &[0xFF; 100],
            b"MPA ID Req Frame\x50\x02\0\x0c",
        ];
        assert_eq!(read(&mut records, &other, true), []);
        assert!(records.held.len() < LOOK_BYTES);
        // A Reply is only taken for one when there was a Call.
        let reply = record(&[9, 1, 0, 0, 0, 0], 0);
        assert_eq!(read(&mut Records::new(), &[&reply], false), []);
        assert_eq!(read(&mut Records::new(), &[&reply], true), [(24, 1, 24)]);
        let short = record(&[9, 0, 2, 100_005, 3, 1, 0, 0, 0], 0);
        assert_eq!(read(&mut Records::new(), &[&short], true), [], "no Call is so short");
    }

    #[test]
    fn after_a_gap_the_next_segment_that_begins_a_record_is_read() {
        let mut records = Records::new();
        let long = call(1, 3000);
        assert_eq!(read(&mut records, &[&long[..1000]], false), []);
        records.gap();
        assert_eq!(read(&mut records, &[&long[2000..], &call(2, 0)], false), [(40, 1, 40)]);
        records.gap();
        assert_eq!(read(&mut records, &[&[7; 3], &call(3, 0)], false), [(40, 1, 40)], "behind an end of some bytes");
    }

    #[test]
    fn a_record_ends_at_the_limit() {
        let most = MAX_RECORD_BYTES as usize;
        let head = call(1, 0);
        let marked = |octets: u32| [&octets.to_be_bytes()[..], &head[4..]].concat();
        let fits = marked(LAST | most as u32);
        assert_eq!(read(&mut Records::new(), &[&fits, &vec![0; most - 40]], false), [(most as u64, 1, MAX_KEPT_BYTES)]);
        assert_eq!(read(&mut Records::new(), &[&marked(LAST | (most as u32 + 1)), &vec![0; most]], false), []);
        // In two fragments, one byte more: what follows is searched for the next record.
        let two = [&marked(40)[..], &(LAST | (most as u32 - 39)).to_be_bytes()].concat();
        assert_eq!(read(&mut Records::new(), &[&two, &call(2, 0)], false), [(40, 1, 40)]);
    }
}
