//! The contents of files: data, holes, reserved space, copies that are answered at once and copies in the background,
//! extended attributes, and permissions. No client has these files open, so that only a grace period can be in the way.

use super::{
    Run,
    model::{CLIENTS, SLOTS},
    session::only,
};
use crate::fuzz::mint::Mint;
use rpcrdma_nfs::v4::{
    Ace, Args, Attribute, Bitmap, FileAttributes, Handle, List, Name, Opaque, Outcome, Principal, StateId, Status,
    Value, ace,
    callback::{self, OffloadOutcome},
    ops::{self, Failure as _},
};
use rpcrdma_xdr::ItemData;
use std::collections::{BTreeMap, BTreeSet};

/// Files of this kind.
pub(super) const DATA_FILES: usize = 2;
/// Offsets at which operations begin: inside a page, at a page, and behind a hole that is too long to be copied at
/// once.
const PLACES: [u64; 8] = [0, 5, 4_096, 4_101, 8_192, FAR, FAR + 7, FAR + 4_096];
const FAR: u64 = 5 << 20;
/// The greatest length of a file here, in bytes.
const MAX_SIZE: u64 = 8 << 20;
/// The unit of CLONE, in bytes.
const UNIT: u64 = 4_096;
/// How many bytes COPY copies before its reply, if the server can report the end of the copy later.
const AT_ONCE: u64 = 4 << 20;
/// A stateid that the server has given to no client.
const UNKNOWN: StateId = StateId { sequence: 1, other: rpcrdma_nfs::v4::StateIdOther([7; 12]) };

/// The model of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    size: u64,
    /// Bytes that are not zero.
    octets: BTreeMap<u64, u8>,
    xattrs: BTreeMap<&'static str, Vec<u8>>,
    /// The mode, if a client has set it.
    mode: Option<u32>,
}

impl Content {
    fn put(&mut self, at: u64, octets: &[u8]) {
        self.clear(at, octets.len() as u64);
        let written = octets.iter().zip(at..).filter(|(octet, _)| **octet != 0);
        self.octets.extend(written.map(|(octet, at)| (at, *octet)));
        if !octets.is_empty() {
            self.size = self.size.max(at + octets.len() as u64);
        }
    }

    fn clear(&mut self, at: u64, len: u64) {
        self.octets.retain(|place, _| *place < at || *place - at >= len);
    }

    /// Copies a range of another file to here.
    fn copied(&mut self, source: &Self, (from, to, len): (u64, u64, u64)) {
        self.clear(to, len);
        let range = source.octets.range(from..from + len);
        self.octets.extend(range.map(|(place, octet)| (place - from + to, *octet)));
        if len > 0 {
            self.size = self.size.max(to + len);
        }
    }

    fn read(&self, at: u64, len: u64) -> Vec<u8> {
        let end = (at + len).min(self.size);
        (at..end).map(|place| self.octets.get(&place).copied().unwrap_or(0)).collect()
    }

    fn is_zero(&self, at: u64, end: u64) -> bool {
        at >= end || self.octets.range(at..end).next().is_none()
    }
}

fn place(mint: &mut Mint<'_>) -> u64 {
    PLACES[mint.below(PLACES.len())]
}

/// A length, from zero to some pages.
fn some(mint: &mut Mint<'_>) -> u64 {
    [0, 1, 6, 4_091, 4_096, 4_097, 8_192, 12_288][mint.below(8)]
}

fn put(file: &Handle) -> Args {
    Args::PutFh(ops::PutFh { file: file.clone() })
}

/// The ranges of two files that a client names.
struct Span {
    source: usize,
    target: usize,
    from: u64,
    to: u64,
    count: u64,
}

impl Run {
    /// Does one operation on the contents of files.
    pub(super) fn of_data(&mut self, client: usize, mint: &mut Mint<'_>) {
        match mint.below(16) {
            0..=2 => self.write_data(client, mint),
            3 => self.reserve(client, mint),
            4 => self.punch(client, mint),
            5 => self.seek(client, mint),
            6 => self.read_data(client, mint),
            7 | 8 => self.clone_data(client, mint),
            9..=11 => self.copy(client, mint),
            12 | 13 => self.xattr(client, mint),
            14 => self.rights(client, mint),
            _ => self.refused(client, mint),
        }
    }

    fn at(&mut self, client: usize, file: usize, mint: &mut Mint<'_>, op: Args) -> Option<Outcome<ItemData>> {
        let put = put(&self.data_files[file]);
        self.call(client, mint.below(SLOTS), mint.below(2) == 0, vec![put, op])?.pop()
    }

    /// The expected status of operations that need access to the data.
    fn allowed(&self) -> Status {
        if self.model.is_grace { Status::GRACE } else { Status::OK }
    }

    fn write_data(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (file, offset) = (mint.below(DATA_FILES), place(mint));
        let (first, len) = (mint.u8(), mint.below(9));
        let data: Vec<u8> = (0..len as u8).map(|at| first.wrapping_add(at)).collect();
        let (state, stability) = (StateId::ANONYMOUS, ops::Stability::FileSync);
        let write = ops::Write { state, offset, stability, data: data.clone().into() };
        let Some(outcome) = self.at(client, file, mint, Args::Write(write)) else { return };
        let wanted = self.allowed();
        self.is("WRITE of data", outcome.status(), wanted);
        if let Outcome::Write(Ok(written)) = outcome {
            assert_eq!(written.count as usize, data.len());
            self.data[file].put(offset, &data);
        }
    }

    fn reserve(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (file, offset, length) = (mint.below(DATA_FILES), place(mint), some(mint));
        let allocate = ops::Allocate { state: StateId::ANONYMOUS, offset, length };
        let Some(outcome) = self.at(client, file, mint, Args::Allocate(allocate)) else { return };
        let wanted = if length == 0 { Status::INVAL } else { Status::OK };
        let wanted = if self.model.is_grace { Status::GRACE } else { wanted };
        self.is("ALLOCATE", outcome.status(), wanted);
        if wanted == Status::OK {
            let content = &mut self.data[file];
            content.size = content.size.max(offset + length);
        }
    }

    fn punch(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (file, offset, length) = (mint.below(DATA_FILES), place(mint), some(mint));
        let deallocate = ops::Deallocate { state: StateId::ANONYMOUS, offset, length };
        let Some(outcome) = self.at(client, file, mint, Args::Deallocate(deallocate)) else { return };
        let wanted = if length == 0 { Status::INVAL } else { Status::OK };
        let wanted = if self.model.is_grace { Status::GRACE } else { wanted };
        self.is("DEALLOCATE", outcome.status(), wanted);
        if wanted == Status::OK {
            self.data[file].clear(offset, length);
        }
    }

    /// The server may report data where bytes are zero, but a hole only there.
    fn seek(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (file, offset) = (mint.below(DATA_FILES), place(mint));
        let what = if mint.below(2) == 0 { ops::Content::Data } else { ops::Content::Hole };
        let seek = ops::Seek { state: StateId::BYPASS, offset, what };
        let Some(outcome) = self.at(client, file, mint, Args::Seek(seek)) else { return };
        let content = &self.data[file];
        let wanted = if offset >= content.size { Status::NXIO } else { Status::OK };
        if let Outcome::Seek(Ok(found)) = &outcome {
            assert!(found.offset >= offset && found.offset <= content.size, "{found:?} of {content:?}");
            assert!(!found.end || found.offset == content.size, "{found:?} of {content:?}");
            let passed = what == ops::Content::Data;
            assert!(!passed || content.is_zero(offset, found.offset), "data is passed over: {found:?} of {content:?}");
            let is_hole = !passed && found.offset < content.size;
            assert!(!is_hole || content.is_zero(found.offset, found.offset + 1), "{found:?} of {content:?}");
        }
        self.is("SEEK", outcome.status(), wanted);
    }

    fn read_data(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (file, offset, count) = (mint.below(DATA_FILES), place(mint), some(mint).min(5_000));
        let (state, count) = (StateId::BYPASS, count as u32);
        if mint.below(2) == 0 {
            let read = Args::Read(ops::Read { state, offset, count });
            let Some(Outcome::Read(read)) = self.at(client, file, mint, read) else { return };
            let read = read.expect("anybody may");
            let (wanted, data) = (self.data[file].read(offset, count.into()), read.data.as_slice());
            // A reply that the server keeps has less room.
            let is_part = wanted.starts_with(data) && (!data.is_empty() || wanted.is_empty());
            assert!(is_part, "{count} bytes from {offset} of {:?}", self.data[file]);
            assert_eq!(read.end, offset + data.len() as u64 >= self.data[file].size);
            return self.saw("READ of data", Status::OK);
        }
        let plus = Args::ReadPlus(ops::ReadPlus { state, offset, count });
        let Some(Outcome::ReadPlus(told)) = self.at(client, file, mint, plus) else { return };
        let told = told.expect("anybody may");
        let (content, mut at) = (&self.data[file], offset);
        for piece in told.pieces.iter() {
            match piece {
                ops::Piece::Data(data) => {
                    let octets = data.data.as_slice();
                    let is_right = data.offset == at && octets == content.read(at, octets.len() as u64);
                    assert!(is_right, "{} bytes from {at} of {content:?}", octets.len());
                    at += octets.len() as u64;
                }
                ops::Piece::Hole(hole) => {
                    assert!(hole.offset == at && content.is_zero(at, at + hole.length), "{hole:?} of {content:?}");
                    at += hole.length;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(at <= content.size.max(offset), "{told:?} of {content:?}");
        assert_eq!(told.end, at >= content.size);
        assert!(told.end || at > offset || count == 0, "it goes on");
        self.saw("READ_PLUS", Status::OK);
    }

    fn span(&self, mint: &mut Mint<'_>) -> Span {
        let (source, target) = (mint.below(DATA_FILES), mint.below(DATA_FILES));
        let (from, to) = (place(mint), place(mint));
        // Often zero, which means everything up to the end.
        let count = if mint.below(2) == 0 { 0 } else { some(mint) };
        Span { source, target, from, to, count }
    }

    /// The length of the range, if it lies within the source.
    fn length(&self, span: &Span) -> Option<u64> {
        let size = self.data[span.source].size;
        let length = if span.count == 0 { size.checked_sub(span.from)? } else { span.count };
        (span.from + length <= size).then_some(length)
    }

    fn between(&self, span: &Span, op: Args) -> Vec<Args> {
        vec![put(&self.data_files[span.source]), Args::SaveFh, put(&self.data_files[span.target]), op]
    }

    fn take(&mut self, span: &Span, length: u64) {
        let source = self.data[span.source].clone();
        self.data[span.target].copied(&source, (span.from, span.to, length));
    }

    fn clone_data(&mut self, client: usize, mint: &mut Mint<'_>) {
        let span = self.span(mint);
        let length = self.length(&span);
        if length.is_some_and(|length| span.to + length > MAX_SIZE) {
            return;
        }
        let &Span { source, target, from: source_offset, to: offset, count } = &span;
        let (source_state, state) = (StateId::ANONYMOUS, StateId::ANONYMOUS);
        let call =
            self.between(&span, Args::Clone(ops::CloneRange { source_state, state, source_offset, offset, count }));
        let Some(mut outcomes) = self.call(client, mint.below(SLOTS), true, call) else { return };
        let status = outcomes.pop().expect("CLONE is answered").status();
        let is_unit = |octets: u64| octets.is_multiple_of(UNIT);
        let wanted = match length {
            _ if self.model.is_grace => Status::GRACE,
            None => Status::INVAL,
            Some(length) => {
                let is_whole = is_unit(length) || source_offset + length == self.data[source].size;
                let overlaps = source == target && source_offset.abs_diff(offset) < length;
                // Otherwise CLONE would replace the whole unit of the target in which the range ends.
                let is_end = is_unit(length) || offset + length >= self.data[target].size;
                let may = is_unit(source_offset) && is_unit(offset) && is_whole && !overlaps && (is_end || length == 0);
                if may { Status::OK } else { Status::INVAL }
            }
        };
        self.is("CLONE", status, wanted);
        if let (Status::OK, Some(length)) = (wanted, length) {
            self.take(&span, length);
        }
    }

    fn copy(&mut self, client: usize, mint: &mut Mint<'_>) {
        let span = self.span(mint);
        let length = self.length(&span);
        if length.is_some_and(|length| span.to + length > MAX_SIZE) {
            return;
        }
        let (synchronous, then) = (mint.below(4) == 0, mint.below(4));
        let copy = ops::CopyRange {
            source_state: StateId::ANONYMOUS,
            state: StateId::ANONYMOUS,
            source_offset: span.from,
            offset: span.to,
            count: span.count,
            consecutive: mint.below(2) == 0,
            synchronous,
            source_servers: List(Vec::new()),
        };
        let call = self.between(&span, Args::Copy(Box::new(copy)));
        let Some(mut outcomes) = self.call(client, mint.below(SLOTS), true, call) else { return };
        let outcome = outcomes.pop().expect("COPY is answered");
        let wanted = match length {
            _ if self.model.is_grace => Status::GRACE,
            Some(_) if span.source != span.target => Status::OK,
            _ => Status::INVAL,
        };
        let answer = match outcome {
            Outcome::Copy(answer) => answer,
            other => panic!("{other:?}"),
        };
        let status = answer.as_ref().err().map_or(Status::OK, |failure| failure.status());
        self.is("COPY", status, wanted);
        let (Ok(ok), Some(length)) = (answer, length) else { return };
        let goes_on = !synchronous && length > AT_ONCE;
        assert_eq!(ok.requirements.synchronous, !goes_on, "{length} bytes");
        match ok.response.callback {
            Some(copy) => {
                assert_eq!(ok.response.count, 0);
                self.goes_on(client, mint, (span, length, copy), then);
            }
            None => {
                let count = ok.response.count;
                assert!(count <= length && (count > 0 || length == 0), "{count} of {length} bytes");
                assert!(count == length || length > AT_ONCE, "{count} of {length} bytes");
                self.take(&span, count);
            }
        }
    }

    /// Follows a copy that is not finished yet.
    fn goes_on(
        &mut self,
        client: usize,
        mint: &mut Mint<'_>,
        (span, length, state): (Span, u64, StateId),
        then: usize,
    ) {
        let target = span.target;
        let ask = Args::OffloadStatus(ops::OffloadStatus { state });
        if then < 2 {
            let Some(Outcome::OffloadStatus(told)) = self.at(client, target, mint, ask.clone()) else { return };
            let told = told.expect("it is known");
            assert!(told.complete.is_none() && told.count <= length, "{told:?}");
            // Another client must not see this client's copy.
            let other = (client + 1) % CLIENTS;
            if self.model.clients[other].as_ref().is_some_and(|known| known.session.is_some())
                && let Some(outcome) = self.at(other, target, mint, ask.clone())
            {
                self.is("OFFLOAD_STATUS", outcome.status(), Status::BAD_STATEID);
            }
        }
        if then == 0 {
            let cancel = Args::OffloadCancel(ops::OffloadCancel { state });
            let Some(outcome) = self.at(client, target, mint, cancel) else { return };
            self.is("OFFLOAD_CANCEL", outcome.status(), Status::OK);
            self.world.drive();
            assert!(self.ends_heard(client).is_empty(), "nobody is told of what he has cancelled");
        } else {
            self.world.drive();
            let heard = self.ends_heard(client);
            let [callback::Args::Offload(told)] = &heard[..] else { panic!("the end of a copy: {heard:?}") };
            assert_eq!((told.state, &told.file), (state, &self.data_files[target]));
            match told.outcome {
                OffloadOutcome::Done(response) => assert_eq!((response.count, response.callback), (length, None)),
                other => panic!("{other:?}"),
            }
            self.take(&span, length);
            self.saw("CB_OFFLOAD", Status::OK);
        }
        // In both cases the server has forgotten the copy.
        let Some(outcome) = self.at(client, target, mint, ask) else { return };
        self.is("OFFLOAD_STATUS", outcome.status(), Status::BAD_STATEID);
    }

    /// The ends of copies that the server has reported to a client. Repeated recalls may come at any time, and are
    /// ignored here.
    fn ends_heard(&self, client: usize) -> Vec<callback::Args> {
        let mut heard = self.world.heard(client);
        heard.retain(|call| !matches!(call, callback::Args::Recall(_)));
        heard
    }

    fn xattr(&mut self, client: usize, mint: &mut Mint<'_>) {
        const NAMES: [&str; 3] = ["a", "b", "/"];
        let (file, name) = (mint.below(DATA_FILES), NAMES[mint.below(NAMES.len())]);
        let has = self.data[file].xattrs.get(name).cloned();
        let absent = if has.is_some() { Status::OK } else { Status::NOXATTR };
        match mint.below(5) {
            0 | 1 => {
                use ops::SetXattrOption::{Create, Either, Replace};
                let option = [Either, Create, Replace][mint.below(3)];
                let value = vec![mint.u8(); [0, 1, 5, 1_000][mint.below(4)]];
                let set = ops::SetXattr { option, name: Name::from(name), value: Opaque(value.clone().into()) };
                let Some(outcome) = self.at(client, file, mint, Args::SetXattr(Box::new(set))) else { return };
                let wanted = match (option, has.is_some()) {
                    (Create, true) => Status::EXIST,
                    (Replace, false) => Status::NOXATTR,
                    _ => Status::OK,
                };
                self.is("SETXATTR", outcome.status(), wanted);
                if wanted == Status::OK {
                    self.data[file].xattrs.insert(name, value);
                }
            }
            2 => {
                let get = Args::GetXattr(ops::GetXattr { name: Name::from(name) });
                let Some(Outcome::GetXattr(got)) = self.at(client, file, mint, get) else { return };
                self.is("GETXATTR", got.as_ref().err().copied().unwrap_or(Status::OK), absent);
                assert_eq!(got.ok().map(|got| got.value.as_slice().to_vec()), has);
            }
            3 => {
                let remove = Args::RemoveXattr(ops::RemoveXattr { name: Name::from(name) });
                let Some(outcome) = self.at(client, file, mint, remove) else { return };
                self.is("REMOVEXATTR", outcome.status(), absent);
                self.data[file].xattrs.remove(name);
            }
            _ => self.list_xattrs(client, file, mint),
        }
    }

    /// Lists all names, a few at a time.
    fn list_xattrs(&mut self, client: usize, file: usize, mint: &mut Mint<'_>) {
        let (mut cookie, mut names) = (0, BTreeSet::new());
        // With room for one name, two, or all.
        let max_count = [24, 32, 4_096][mint.below(3)];
        for _ in 0..8 {
            let list = Args::ListXattrs(ops::ListXattrs { cookie, max_count });
            let Some(Outcome::ListXattrs(told)) = self.at(client, file, mint, list) else { return };
            let told = told.expect("there is room for a name");
            assert!(told.end || !told.names.is_empty(), "it goes on");
            let fresh = told.names.iter().all(|name| names.insert(name.as_slice().to_vec()));
            assert!(fresh, "a name comes once");
            cookie = told.cookie;
            if told.end {
                let wanted: BTreeSet<_> = self.data[file].xattrs.keys().map(|name| name.as_bytes().to_vec()).collect();
                assert_eq!(names, wanted);
                return self.saw("LISTXATTRS", Status::OK);
            }
        }
        panic!("the names of {file} have no end");
    }

    /// The mode and the ACL agree, and an ACL that a client has set allows nothing beyond its entries.
    fn rights(&mut self, client: usize, mint: &mut Mint<'_>) {
        let file = mint.below(DATA_FILES);
        if mint.below(2) == 0 {
            let mode = u32::from(mint.u8()) & 0o777;
            let set = FileAttributes::of(&[Value::Mode(mode)]);
            let set = Args::SetAttr(ops::SetAttr { state: StateId::ANONYMOUS, attributes: set });
            let Some(outcome) = self.at(client, file, mint, set) else { return };
            self.is("SETATTR of a mode", outcome.status(), Status::OK);
            self.data[file].mode = Some(mode);
        } else {
            let allows = [mint.u8(), mint.u8(), mint.u8()].map(|bits| u32::from(bits) & 7);
            let rights = |bits: u32| {
                let all = [ace::READ_DATA, ace::WRITE_DATA | ace::APPEND_DATA, ace::EXECUTE];
                // Whatever the mode says, owners may change attributes, and everybody may read them.
                let base = ace::READ_ATTRIBUTES | ace::READ_ACL | ace::SYNCHRONIZE;
                (0..3).filter(|bit| bits & 4 >> bit != 0).fold(base, |rights, bit| rights | all[bit])
            };
            let who = [ace::OWNER, ace::GROUP, ace::EVERYONE];
            let entry = |(who, bits): (&str, u32)| Ace {
                kind: ace::ALLOWED,
                flags: 0,
                rights: rights(bits) | if who == ace::OWNER { ace::WRITE_ATTRIBUTES | ace::WRITE_ACL } else { 0 },
                who: Principal::from(who),
            };
            let list: Vec<_> = who.into_iter().zip(allows).map(entry).collect();
            let set = FileAttributes::of(&[Value::Acl(list.into())]);
            let set = Args::SetAttr(ops::SetAttr { state: StateId::ANONYMOUS, attributes: set });
            let Some(outcome) = self.at(client, file, mint, set) else { return };
            self.is("SETATTR of a list", outcome.status(), Status::OK);
            // A class that comes earlier may also have the permissions of all later ones.
            let [owner, group, others] = allows;
            let mode = (owner | others) << 6 | (group | others) << 3 | others;
            self.data[file].mode = Some(mode);
        }
        let asked = Bitmap::of(&[Attribute::Mode, Attribute::Acl]);
        let Some(Outcome::GetAttr(told)) = self.at(client, file, mint, Args::GetAttr(ops::GetAttr { asked })) else {
            return;
        };
        let values = told.expect("it is there").attributes.values().expect("attributes");
        let mode = values.iter().find_map(|value| if let Value::Mode(mode) = value { Some(*mode) } else { None });
        assert_eq!(mode.map(|mode| mode & 0o777), self.data[file].mode);
        let list = values.iter().find_map(|value| if let Value::Acl(list) = value { Some(list.clone()) } else { None });
        let list = list.expect("a list that says the same");
        let others = list.iter().rfind(|entry| entry.who == Principal::from(ace::EVERYONE)).expect("all others");
        assert_eq!(others.rights & ace::READ_DATA != 0, mode.is_some_and(|mode| mode & 4 != 0));
        self.saw("GETATTR of a list", Status::OK);
    }

    /// Calls with unknown stateids, and ranges beyond the largest offset.
    fn refused(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (file, kind) = (mint.below(DATA_FILES), mint.below(6));
        let (state, far) = (UNKNOWN, u64::MAX - 3);
        let (what, op, wanted) = match kind {
            0 => ("ALLOCATE", Args::Allocate(ops::Allocate { state, offset: 0, length: 1 }), Status::BAD_STATEID),
            1 => ("SEEK", Args::Seek(ops::Seek { state, offset: 0, what: ops::Content::Data }), Status::BAD_STATEID),
            2 => ("OFFLOAD_CANCEL", Args::OffloadCancel(ops::OffloadCancel { state }), Status::BAD_STATEID),
            3 => ("OFFLOAD_STATUS", Args::OffloadStatus(ops::OffloadStatus { state }), Status::BAD_STATEID),
            _ => {
                let state = StateId::ANONYMOUS;
                let allocate = Args::Allocate(ops::Allocate { state, offset: far, length: 9 });
                ("ALLOCATE", allocate, if self.model.is_grace { Status::GRACE } else { Status::INVAL })
            }
        };
        let Some(outcome) = self.at(client, file, mint, op) else { return };
        self.is(what, outcome.status(), wanted);
    }

    /// Checks that all contents are as in the model.
    pub(super) fn check_data(&mut self) {
        let Some(client) = (0..CLIENTS)
            .find(|client| self.model.clients[*client].as_ref().is_some_and(|known| known.session.is_some()))
        else {
            return;
        };
        for file in 0..DATA_FILES {
            let asked = Bitmap::of(&[Attribute::Size]);
            let get = Args::GetAttr(ops::GetAttr { asked });
            let mut told = self.call(client, 0, false, vec![put(&self.data_files[file]), get]).expect("a session");
            let told = only!(told, GetAttr).expect("it is there").attributes.values().expect("attributes");
            assert_eq!(told, [Value::Size(self.data[file].size)]);
            let places: Vec<_> = self.data[file].octets.keys().map(|at| at & !4_095).collect();
            for offset in places.into_iter().collect::<BTreeSet<_>>() {
                let read = Args::Read(ops::Read { state: StateId::BYPASS, offset, count: 4_096 });
                let call = vec![put(&self.data_files[file]), read];
                let mut told = self.call(client, 0, false, call).expect("a session");
                let read = only!(told, Read).expect("anybody may");
                let is_right = read.data.as_slice() == self.data[file].read(offset, 4_096);
                assert!(is_right, "a page from {offset} of {:?}", self.data[file]);
            }
        }
    }
}
