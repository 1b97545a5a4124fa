//! The arguments of each operation of a COMPOUND.

use super::attributes::{attributes, lock, range, share, slot, stability, state};
use crate::content::{Operation, Value, info};
use rpcrdma_nfs::v4::{Args, SessionId, StateId, ops};

/// The operation with the arguments in which a person is interested.
pub(super) fn operation(args: &Args) -> Operation {
    let mut operation = Operation::new(args.op().name());
    describe(args, &mut operation);
    operation
}

fn describe(args: &Args, to: &mut Operation) {
    match args {
        Args::Access(access) => info::rights(access.rights, to),
        Args::Commit(commit) => {
            to.put("offset", Value::Offset(commit.offset)).put("count", Value::Count(commit.count.into()));
        }
        Args::Create(create) => self::create(create, to),
        Args::Lookup(lookup) => put_name(to, lookup.name.as_slice()),
        Args::Link(link) => put_name(to, link.name.as_slice()),
        Args::Remove(remove) => put_name(to, remove.name.as_slice()),
        Args::SecInfo(info) => put_name(to, info.name.as_slice()),
        Args::Rename(rename) => {
            to.name("from", rename.from.as_slice()).name("to", rename.to.as_slice()).is_target();
        }
        Args::PutFh(put) => {
            to.octets("file", put.file.as_slice());
        }
        Args::Read(read) => data(to, read.count.into(), read.offset, &read.state),
        Args::ReadPlus(read) => data(to, read.count.into(), read.offset, &read.state),
        Args::Write(write) => {
            to.put("count", Value::Count(write.data.len() as u64)).put("offset", Value::Offset(write.offset));
            to.put("stability", stability(write.stability));
            state(to, &write.state);
        }
        Args::ReadDir(read) => {
            to.number("cookie", read.cookie);
            to.number("dircount", read.directory_count).number("maxcount", read.max_count);
            if read.cookie != 0 {
                to.put("verifier", Value::Verifier(read.verifier.0));
            }
        }
        Args::SetAttr(set) => {
            attributes(&set.attributes, to);
            // Without a size, the stateid means nothing.
            if set.state != StateId::ANONYMOUS {
                state(to, &set.state);
            }
        }
        Args::Verify(verify) | Args::NVerify(verify) => attributes(&verify.attributes, to),
        Args::OpenAttr(open) => {
            to.flag("create", open.create);
        }
        Args::Open(open) => self::open(open, to),
        Args::OpenConfirm(confirm) => state(to, &confirm.state),
        Args::OpenDowngrade(open) => {
            share(to, open.access, open.deny);
            state(to, &open.state);
        }
        Args::Close(close) => state(to, &close.state),
        Args::DelegReturn(returned) => state(to, &returned.state),
        Args::FreeStateId(free) => state(to, &free.state),
        Args::TestStateId(test) => {
            to.number("states", test.states.len() as u64);
        }
        Args::Lock(_) | Args::LockT(_) | Args::LockU(_) => locks(args, to),
        _ => clients(args, to),
    }
}

fn put_name(to: &mut Operation, name: &[u8]) {
    to.name("name", name);
}

fn data(to: &mut Operation, count: u64, offset: u64, of: &StateId) {
    to.put("count", Value::Count(count)).put("offset", Value::Offset(offset));
    state(to, of);
}

fn create(create: &ops::Create, to: &mut Operation) {
    use ops::CreateKind::{Block, Character, Directory, Fifo, Other, Socket, Symlink};
    let word = match &create.kind {
        Directory => "directory",
        Block(_) => "block device",
        Character(_) => "character device",
        Symlink(_) => "symbolic link",
        Socket => "socket",
        Fifo => "named pipe",
        Other(_) => "a type that CREATE does not make",
    };
    to.name("name", create.name.as_slice()).put("file_type", Value::Word(word));
    if let Symlink(text) = &create.kind {
        to.put("path", crate::content::read::path(&text.0)).is_target();
    }
    attributes(&create.attributes, to);
}

fn open(open: &ops::Open, to: &mut Operation) {
    use ops::{Claim, CreateHow, OpenHow};
    let (word, name) = match &open.claim {
        Claim::Null(name) => (None, Some(name)),
        Claim::Previous(_) => (Some("reclaim"), None),
        Claim::DelegateCurrent(current) => (Some("delegate_cur"), Some(&current.name)),
        Claim::DelegatePrevious(name) => (Some("delegate_prev"), Some(name)),
        Claim::Handle => (Some("fh"), None),
        Claim::DelegateCurrentHandle(_) => (Some("deleg_cur_fh"), None),
        Claim::DelegatePreviousHandle => (Some("deleg_prev_fh"), None),
    };
    if let Some(name) = name {
        put_name(to, name.as_slice());
    }
    share(to, open.access, open.deny);
    if let Some(word) = word {
        to.put("claim", Value::KeyedWord(word));
    }
    let OpenHow::Create(how) = &open.how else { return };
    match how {
        CreateHow::Unchecked(new) => attributes(new, to.put("create", Value::KeyedWord("unchecked"))),
        CreateHow::Guarded(new) => attributes(new, to.put("create", Value::KeyedWord("guarded"))),
        CreateHow::Exclusive(verifier) => {
            to.put("create", Value::KeyedWord("exclusive")).put("verifier", Value::Verifier(verifier.0));
        }
        CreateHow::Exclusive41(create) => {
            to.put("create", Value::KeyedWord("exclusive")).put("verifier", Value::Verifier(create.verifier.0));
            attributes(&create.attributes, to);
        }
    }
}

fn locks(args: &Args, to: &mut Operation) {
    match args {
        Args::Lock(args) => {
            lock(to, args.kind);
            range(to, args.offset, args.length);
            to.flag("reclaim", args.reclaim);
            match &args.locker {
                ops::Locker::Known(known) => state(to, &known.state),
                ops::Locker::New(new) => {
                    to.flag("new_owner", true);
                    state(to, &new.open_state);
                }
            }
        }
        Args::LockT(args) => {
            lock(to, args.kind);
            range(to, args.offset, args.length);
        }
        Args::LockU(args) => {
            lock(to, args.kind);
            range(to, args.offset, args.length);
            state(to, &args.state);
        }
        _ => {}
    }
}

/// Clients and sessions.
fn clients(args: &Args, to: &mut Operation) {
    let session = |to: &mut Operation, session: &SessionId| {
        to.put("session", Value::Session(session.0));
    };
    match args {
        Args::Sequence(of) => {
            slot(to, &of.session, of.slot, of.sequence);
            to.flag("cache", of.cache);
        }
        Args::ExchangeId(of) => {
            to.name("owner", of.owner.name.as_slice()).put("flags", Value::Flags(of.flags));
        }
        Args::CreateSession(of) => {
            to.put("client", Value::Client(of.client.0)).put("seq", Value::Keyed(of.sequence.into()));
            to.number("slots", of.fore.max_requests).number("back_slots", of.back.max_requests);
            to.number("callback_program", of.callback_program);
        }
        Args::DestroySession(of) => session(to, &of.session),
        Args::BindConnToSession(of) => session(to, &of.session),
        Args::BackchannelCtl(of) => {
            to.number("callback_program", of.program);
        }
        Args::DestroyClientId(of) => {
            to.put("client", Value::Client(of.client.0));
        }
        Args::Renew(of) => {
            to.put("client", Value::Client(of.client.0));
        }
        Args::SetClientId(of) => {
            to.name("owner", of.owner.name.as_slice()).number("callback_program", of.callback.program);
        }
        Args::SetClientIdConfirm(of) => {
            to.put("client", Value::Client(of.client.0));
        }
        Args::ReclaimComplete(of) => {
            to.flag("one_file_system", of.one_file_system);
        }
        _ => later(args, to),
    }
}

/// Operations of minor version 2, and layouts.
fn later(args: &Args, to: &mut Operation) {
    let copied = |to: &mut Operation, (source, offset, count): (u64, u64, u64), of: &StateId| {
        to.put("count", Value::Count(count)).put("source_offset", Value::Offset(source));
        to.put("offset", Value::Offset(offset)).is_target();
        state(to, of);
    };
    match args {
        Args::Allocate(of) => {
            range(to, of.offset, of.length);
            state(to, &of.state);
        }
        Args::Deallocate(of) => {
            range(to, of.offset, of.length);
            state(to, &of.state);
        }
        Args::IoAdvise(of) => {
            range(to, of.offset, of.length);
            state(to, &of.state);
        }
        Args::Copy(of) => copied(to, (of.source_offset, of.offset, of.count), &of.state),
        Args::Clone(of) => copied(to, (of.source_offset, of.offset, of.count), &of.state),
        Args::OffloadCancel(of) => state(to, &of.state),
        Args::OffloadStatus(of) => state(to, &of.state),
        Args::Seek(of) => {
            let word = if of.what == ops::Content::Data { "data" } else { "hole" };
            to.put("what", Value::Word(word)).put("offset", Value::Offset(of.offset));
            state(to, &of.state);
        }
        Args::WriteSame(of) => {
            to.put("offset", Value::Offset(of.offset));
            to.number("block_size", of.block_size).number("blocks", of.block_count);
        }
        Args::GetXattr(of) => put_name(to, of.name.as_slice()),
        Args::RemoveXattr(of) => put_name(to, of.name.as_slice()),
        Args::SetXattr(of) => {
            to.name("name", of.name.as_slice()).put("count", Value::Count(of.value.0.len() as u64));
        }
        Args::ListXattrs(of) => {
            to.number("cookie", of.cookie).number("maxcount", of.max_count);
        }
        Args::LayoutGet(of) => range(to, of.offset, of.length),
        Args::LayoutCommit(of) => range(to, of.offset, of.length),
        _ => {}
    }
}
