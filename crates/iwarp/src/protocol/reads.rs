//! Our own RDMA Reads: requests that wait because the ORD is reached, and responses that are due.
//!
//! This module owns the sinks while responses fill them. A sink's steering tag is visible on the wire, so each response
//! must match the request that is due: its tag, its offset, its length, in order. Nothing else can write to a sink:
//! sinks stand in no table of exposed memory.

use super::{fault::Fault, rdmap::Opcode, rdmap::ReadRequest};
use rpcrdma_fabric::{Buffer, Completion, ReadWork, RemoteSegment, Token, WorkError, WorkKind};
use std::collections::VecDeque;

struct Job {
    token: Token,
    sink: Buffer,
    sources: std::vec::IntoIter<RemoteSegment>,
    /// Octets that requests have asked for so far.
    asked: usize,
    total: usize,
}

/// A request that was handed out and has no complete answer yet.
struct Due {
    stag: u32,
    /// Where the request's data begins in the sink of its job, which is also the offset on the wire.
    at: usize,
    size: usize,
    done: usize,
    ends_job: bool,
}

pub(crate) struct Reads {
    ord: usize,
    jobs: VecDeque<Job>,
    /// Jobs at the front whose requests have all been handed out.
    asked_jobs: usize,
    due: VecDeque<Due>,
    segments: usize,
}

impl Reads {
    pub(crate) fn new(ord: u16) -> Self {
        Reads { ord: ord.into(), jobs: VecDeque::new(), asked_jobs: 0, due: VecDeque::new(), segments: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether the peer owes an answer.
    pub(crate) fn any_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Segments that are posted and not filled.
    pub(crate) fn segments(&self) -> usize {
        self.segments
    }

    /// Takes a Read whose sources hold `total` octets in all, at least one, and whose sink has room for them.
    pub(crate) fn post(&mut self, read: ReadWork, total: usize) {
        let mut sources = read.sources;
        sources.retain(|source| source.length > 0);
        self.segments += sources.len();
        self.jobs.push_back(Job { token: read.token, sink: read.sink, sources: sources.into_iter(), asked: 0, total });
    }

    /// The next request, if one may be issued now. `fresh_tag` names its sink.
    pub(crate) fn issue(&mut self, fresh_tag: impl FnOnce() -> u32) -> Option<ReadRequest> {
        // CM-6581-9.1-d
        if self.due.len() >= self.ord {
            return None;
        }
        let job = self.jobs.get_mut(self.asked_jobs)?;
        let source = job.sources.next()?;
        let ends_job = job.sources.as_slice().is_empty();
        let size = source.length as usize;
        let due = Due { stag: fresh_tag(), at: job.asked, size, done: 0, ends_job };
        job.asked += size;
        self.asked_jobs += usize::from(ends_job);
        let request = ReadRequest {
            sink_stag: due.stag,
            sink_offset: due.at as u64,
            size: source.length,
            source_stag: source.handle,
            source_offset: source.offset,
        };
        self.due.push_back(due);
        Some(request)
    }

    /// Where in the [sink](Self::sink) a response's segment goes, if this response is due.
    pub(crate) fn check(&self, stag: u32, offset: u64, octets: usize, last: bool) -> Result<usize, Fault> {
        let due = self.due.front().ok_or(Fault::Opcode { opcode: Opcode::ReadResponse as u8 })?;
        // RDMAP-5040-5.2-a
        if stag != due.stag {
            return Err(Fault::Stag { stag });
        }
        let at = due.at + due.done;
        let end = due.done.saturating_add(octets);
        // RDMAP-5040-5.2-a
        if offset != at as u64 || end > due.size || (last && end != due.size) {
            return Err(Fault::Bounds { stag, offset, octets });
        }
        Ok(at)
    }

    /// The sink that is being filled.
    pub(crate) fn sink(&mut self) -> Option<&mut Buffer> {
        self.jobs.front_mut().map(|job| &mut job.sink)
    }

    /// Where in the sink the response that is due ends.
    pub(crate) fn due_end(&self) -> usize {
        self.due.front().map_or(0, |due| due.at + due.size)
    }

    /// A checked segment is in place.
    pub(crate) fn placed(&mut self, octets: usize, last: bool) -> Option<Completion> {
        let due = self.due.front_mut()?;
        due.done += octets;
        if !last {
            return None;
        }
        self.segments = self.segments.saturating_sub(1);
        if !self.due.pop_front()?.ends_job {
            return None;
        }
        self.asked_jobs = self.asked_jobs.saturating_sub(1);
        let Job { token, mut sink, total, .. } = self.jobs.pop_front()?;
        sink.set_len(total);
        Some(Completion::Read { token, sink })
    }

    /// Gives everything back. The job with the request whose sink is `blamed` fails because the peer refused access. If
    /// no request has this sink, no job is blamed: otherwise a wrong quote would fail a call.
    pub(crate) fn flush(&mut self, blamed: Option<u32>, events: &mut VecDeque<Completion>) {
        let until = self.due.iter().position(|due| Some(due.stag) == blamed);
        let guilty = until.map(|until| self.due.iter().take(until).filter(|due| due.ends_job).count());
        for (index, job) in self.jobs.drain(..).enumerate() {
            let error = if guilty == Some(index) { WorkError::RemoteAccess } else { WorkError::Flushed };
            events.push_back(Completion::Failed {
                token: job.token,
                kind: WorkKind::Read,
                error,
                buffer: Some(job.sink),
            });
        }
        self.due.clear();
        self.asked_jobs = 0;
        self.segments = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(token: u64, lengths: &[u32]) -> (ReadWork, usize) {
        let total = lengths.iter().map(|l| *l as usize).sum();
        let sources = lengths.iter().map(|&length| RemoteSegment { handle: 7, length, offset: 1000 }).collect();
        (ReadWork { token: Token(token), sink: Buffer::from_vec(vec![0; total]), sources }, total)
    }

    fn reads(ord: u16, all: &[(u64, &[u32])]) -> Reads {
        let mut reads = Reads::new(ord);
        for (token, lengths) in all {
            let (read, total) = read(*token, lengths);
            reads.post(read, total);
        }
        reads
    }

    fn issue(reads: &mut Reads, tag: u32) -> Option<(u64, u32)> {
        reads.issue(|| tag).map(|r| (r.sink_offset, r.size))
    }

    /// proves: CM-6581-9.1-d, V1-3.3.1-k
    #[test]
    fn requests_wait_at_the_depth() {
        let mut reads = reads(2, &[(1, &[10, 0, 20]), (2, &[5])]);
        assert_eq!(reads.segments(), 3, "empty sources cost nothing");
        assert_eq!(issue(&mut reads, 100), Some((0, 10)));
        assert_eq!(issue(&mut reads, 101), Some((10, 20)));
        assert_eq!(issue(&mut reads, 102), None, "two are under way");
        assert!(reads.placed(10, true).is_none());
        assert_eq!(issue(&mut reads, 102), Some((0, 5)));
        assert!(matches!(reads.placed(20, true), Some(Completion::Read { token: Token(1), sink }) if sink.len() == 30));
        assert!(matches!(reads.placed(5, true), Some(Completion::Read { token: Token(2), .. })));
        assert!(reads.is_empty() && reads.segments() == 0);
    }

    /// proves: RDMAP-5040-5.2-a
    #[test]
    fn only_the_response_that_is_due_is_let_in() {
        let mut reads = reads(4, &[(1, &[100, 50])]);
        assert_eq!(reads.check(100, 0, 1, false), Err(Fault::Opcode { opcode: 2 }), "nothing was asked");
        issue(&mut reads, 100);
        issue(&mut reads, 101);
        assert_eq!(reads.check(100, 0, 60, false), Ok(0));
        assert_eq!(reads.check(100, 0, 100, true), Ok(0));
        assert!(matches!(reads.check(101, 100, 50, true), Err(Fault::Stag { stag: 101 })), "not its turn");
        assert!(matches!(reads.check(100, 1, 10, false), Err(Fault::Bounds { .. })), "a gap");
        assert!(matches!(reads.check(100, 0, 101, true), Err(Fault::Bounds { .. })), "too much");
        assert!(matches!(reads.check(100, 0, 99, true), Err(Fault::Bounds { .. })), "too little");
        reads.placed(60, false);
        assert!(matches!(reads.check(100, 0, 10, false), Err(Fault::Bounds { .. })), "again");
        assert_eq!(reads.check(100, 60, 40, true), Ok(60));
        reads.placed(40, true);
        assert_eq!(reads.check(101, 100, 50, true), Ok(100));
    }

    #[test]
    fn the_read_that_was_denied_is_told_apart() {
        let mut events = VecDeque::new();
        let cases = [
            (Some(100), Some(1)),
            (Some(101), Some(1)),
            (Some(102), Some(2)),
            (Some(103), Some(3)),
            (Some(99), None),
            (None, None),
        ];
        for (blamed, guilty) in cases {
            let mut all = reads(4, &[(1, &[1, 1]), (2, &[1]), (3, &[1]), (4, &[1])]);
            for tag in 100..104 {
                issue(&mut all, tag);
            }
            all.flush(blamed, &mut events);
            let errors: Vec<_> = events
                .drain(..)
                .map(|event| match event {
                    Completion::Failed { token, error, .. } => (token.0, error),
                    other => panic!("{other:?}"),
                })
                .collect();
            let error = |token| if guilty == Some(token) { WorkError::RemoteAccess } else { WorkError::Flushed };
            assert_eq!(errors, [1, 2, 3, 4].map(|token| (token, error(token))), "{blamed:?}");
        }
    }
}
