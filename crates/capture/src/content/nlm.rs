//! NLM: locks of clients of NFS version 3. Versions 1 and 3 differ from version 4 in the width of offsets alone.

use super::{Content, Describe, Operation, Value, read::Reading};
use rpcrdma_nfs::nlm::{
    CancelArguments, Cookie, Form, Lock, LockArguments, Notice, Procedure, Response, ShareAccess, ShareArguments,
    ShareDeny, ShareResponse, Status, TestArguments, TestResponse, Tested, UnlockArguments, VERSION_4, Width,
};

/// The arguments of a call. A call that answers another call has the answer as its arguments.
pub(super) fn arguments(procedure: u32, version: u32, reading: Reading) -> Option<Content> {
    let procedure = Procedure::from_number(procedure).filter(|procedure| procedure.is_in(version))?;
    Some(match version {
        VERSION_4 => arguments_of::<u64>(procedure, reading),
        _ => arguments_of::<u32>(procedure, reading),
    })
}

fn arguments_of<W: Width>(procedure: Procedure, reading: Reading) -> Content {
    match procedure {
        Procedure::Null => reading.read::<()>(),
        Procedure::Test | Procedure::TestMessage | Procedure::Granted | Procedure::GrantedMessage => {
            reading.read::<TestArguments<W>>()
        }
        Procedure::Lock | Procedure::LockMessage | Procedure::UnmonitoredLock => reading.read::<LockArguments<W>>(),
        Procedure::Cancel | Procedure::CancelMessage => reading.read::<CancelArguments<W>>(),
        Procedure::Unlock | Procedure::UnlockMessage => reading.read::<UnlockArguments<W>>(),
        Procedure::TestResponse => reading.read::<TestResponse<W>>(),
        Procedure::LockResponse
        | Procedure::CancelResponse
        | Procedure::UnlockResponse
        | Procedure::GrantedResponse => reading.read::<Response>(),
        Procedure::Share | Procedure::Unshare => reading.read::<ShareArguments>(),
        Procedure::FreeAll => reading.read::<Notice>(),
    }
}

/// The results of a call. A call that another call answers has none.
pub(super) fn results(procedure: u32, version: u32, reading: Reading) -> Option<Content> {
    let procedure = Procedure::from_number(procedure).filter(|procedure| procedure.is_in(version))?;
    Some(match procedure {
        Procedure::Null | Procedure::FreeAll => reading.read::<()>(),
        _ if procedure.form() != Form::Answered => reading.read::<()>(),
        Procedure::Test if version == VERSION_4 => reading.read::<TestResponse<u64>>(),
        Procedure::Test => reading.read::<TestResponse<u32>>(),
        Procedure::Share | Procedure::Unshare => reading.read::<ShareResponse>(),
        _ => reading.read::<Response>(),
    })
}

fn place(to: &mut Operation, offset: impl Into<u64>, length: impl Into<u64>) {
    // A length of 0 goes to the end of the file.
    let length = match length.into() {
        0 => u64::MAX,
        length => length,
    };
    to.put("count", Value::Length(length)).put("offset", Value::Offset(offset.into()));
}

fn lock<W: Width>(to: &mut Operation, lock: &Lock<W>) {
    to.handle("file", &lock.file);
    place(to, lock.offset, lock.length);
    to.name("host", lock.caller.as_slice()).put("owner", Value::Octets(lock.owner.0.clone()));
    to.number("svid", lock.process as u32);
}

fn kind(to: &mut Operation, exclusive: bool) -> &mut Operation {
    to.put("kind", Value::Word(if exclusive { "exclusive" } else { "shared" }))
}

fn cookie(to: &mut Operation, cookie: &Cookie) {
    to.put("cookie", Value::Octets(cookie.0.clone()));
}

fn status(to: &mut Operation, status: Status) -> &mut Operation {
    to.put("status", Value::Word(status.name()))
}

impl<W: Width> Describe for LockArguments<W> {
    fn describe(&self, to: &mut Operation) {
        kind(to, self.exclusive).flag("block", self.block).flag("reclaim", self.reclaim);
        lock(to, &self.lock);
        cookie(to, &self.cookie);
    }
}

impl<W: Width> Describe for CancelArguments<W> {
    fn describe(&self, to: &mut Operation) {
        kind(to, self.exclusive).flag("block", self.block);
        lock(to, &self.lock);
        cookie(to, &self.cookie);
    }
}

impl<W: Width> Describe for TestArguments<W> {
    fn describe(&self, to: &mut Operation) {
        lock(kind(to, self.exclusive), &self.lock);
        cookie(to, &self.cookie);
    }
}

impl<W: Width> Describe for UnlockArguments<W> {
    fn describe(&self, to: &mut Operation) {
        lock(to, &self.lock);
        cookie(to, &self.cookie);
    }
}

impl<W: Width> Describe for TestResponse<W> {
    fn describe(&self, to: &mut Operation) {
        status(to, self.tested.status());
        if let Tested::Denied(holder) = &self.tested {
            kind(to, holder.exclusive);
            place(to, holder.offset, holder.length);
            to.put("owner", Value::Octets(holder.owner.0.clone())).number("svid", holder.process as u32);
        }
        cookie(to, &self.cookie);
    }
}

impl Describe for Response {
    fn describe(&self, to: &mut Operation) {
        cookie(status(to, self.status), &self.cookie);
    }
}

impl Describe for ShareArguments {
    fn describe(&self, to: &mut Operation) {
        let share = &self.share;
        to.handle("file", &share.file);
        let access = match share.access {
            ShareAccess::None => "none",
            ShareAccess::Read => "read",
            ShareAccess::Write => "write",
            ShareAccess::Both => "both",
        };
        let deny = match share.deny {
            ShareDeny::None => "none",
            ShareDeny::Read => "read",
            ShareDeny::Write => "write",
            ShareDeny::Both => "both",
        };
        to.put("access", Value::KeyedWord(access)).put("deny", Value::KeyedWord(deny)).flag("reclaim", self.reclaim);
        to.name("host", share.caller.as_slice()).put("owner", Value::Octets(share.owner.0.clone()));
        cookie(to, &self.cookie);
    }
}

impl Describe for ShareResponse {
    fn describe(&self, to: &mut Operation) {
        cookie(status(to, self.status), &self.cookie);
    }
}

impl Describe for Notice {
    fn describe(&self, to: &mut Operation) {
        to.name("host", self.name.as_slice()).number("state", self.state as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Body, arguments, results},
        *,
    };
    use crate::event::ProcedureName;
    use bytes::Bytes;
    use rpcrdma_nfs::{
        nlm::{CallerName, OwnerHandle, PROGRAM, VERSIONS},
        v3::Handle,
    };
    use rpcrdma_xdr::{Decoder, Encode, Encoder, Stream};

    fn name(procedure: Procedure, version: u32) -> ProcedureName {
        ProcedureName { program: PROGRAM, version, procedure: procedure as u32, callback: false }
    }

    fn bytes_of(value: &impl Encode) -> Bytes {
        let mut encoder = Encoder::new();
        value.encode(&mut encoder);
        encoder.finish().to_bytes()
    }

    /// The fields that are shown for bytes, whole and cut off.
    fn told(name: ProcedureName, octets: &Bytes, is_call: bool) -> Vec<(&'static str, Value)> {
        let body = Body { kept: octets.clone(), missing_bytes: Some(0), items: &[] };
        let read = if is_call { arguments } else { results };
        let decoder = |octets: &Bytes| Decoder::new(Stream::from(octets.clone()));
        let content = read(name, decoder(octets), &body).unwrap();
        let [operation] = &content.operations[..] else { panic!("{content:?}") };
        assert_eq!((Some(operation.name), &content.problem), (name.procedure_name(), &None));
        if let Some(last) = octets.len().checked_sub(1) {
            assert!(read(name, decoder(&octets.slice(..last)), &body).unwrap().problem.is_some());
        }
        operation.fields.iter().map(|field| (field.key, field.value.clone())).collect()
    }

    fn octets(text: &'static str) -> Value {
        Value::Octets(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_lock_is_told_with_its_place_and_owner_in_either_width() {
        let file = Handle::new(b"handle").unwrap();
        let (caller, owner) = (CallerName::from("host\x1b"), OwnerHandle::from("owner"));
        let lock = Lock { caller, file: file.clone(), owner, process: 7, offset: 5_u32, length: 0 };
        let cookie = Cookie::from("cookie");
        let args = LockArguments { cookie, block: true, exclusive: true, lock: lock.clone(), reclaim: false, state: 1 };
        let expected = [
            ("kind", Value::Word("exclusive")),
            ("block", Value::Flag),
            ("file", Value::Handle(file)),
            ("count", Value::Length(u64::MAX)),
            ("offset", Value::Offset(5)),
            ("host", Value::Name(Bytes::from_static(b"host\x1b"))),
            ("owner", octets("owner")),
            ("svid", Value::Number(7)),
            ("cookie", octets("cookie")),
        ];
        assert_eq!(told(name(Procedure::Lock, 1), &bytes_of(&args), true), expected);
        let wide = rpcrdma_nfs::nlm::Widen::widen(args);
        assert_eq!(told(name(Procedure::LockMessage, 4), &bytes_of(&wide), true), expected);
        let test = TestArguments { cookie: Cookie::default(), exclusive: false, lock };
        let told = told(name(Procedure::Granted, 3), &bytes_of(&test), true);
        assert_eq!(told.first(), Some(&("kind", Value::Word("shared"))));
    }

    #[test]
    fn an_answer_is_told_as_a_reply_and_as_a_call() {
        let blocked = bytes_of(&Response { cookie: Cookie::from("c"), status: Status::Blocked });
        let expected = [("status", Value::Word("NLM4_BLOCKED")), ("cookie", octets("c"))];
        assert_eq!(told(name(Procedure::Lock, 4), &blocked, false), expected);
        assert_eq!(told(name(Procedure::LockResponse, 4), &blocked, true), expected);
        assert_eq!(told(name(Procedure::LockMessage, 4), &Bytes::new(), false), []);
        let owner = OwnerHandle::from("o");
        let holder = rpcrdma_nfs::nlm::Holder { exclusive: true, process: 3, owner, offset: 1_u64 << 40, length: 2 };
        let denied = TestResponse { cookie: Cookie::default(), tested: Tested::Denied(holder) };
        let told = told(name(Procedure::Test, 4), &bytes_of(&denied), false);
        assert!(told.contains(&("offset", Value::Offset(1 << 40))) && told.contains(&("svid", Value::Number(3))));
    }

    #[test]
    fn every_procedure_of_every_version_has_its_name() {
        for version in VERSIONS {
            for procedure in Procedure::ALL {
                let named = name(*procedure, version);
                let expected = procedure.is_in(version).then(|| procedure.name());
                assert_eq!(named.procedure_name(), expected, "{version} {procedure:?}");
                assert!(named.to_string().starts_with(&format!("NLM {version} ")));
            }
        }
    }
}
