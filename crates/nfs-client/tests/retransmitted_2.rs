//! Calls of version 2 whose reply was lost: the server executes every call, and when a call comes again it has
//! forgotten that it has executed it, like a server that was restarted.

#[allow(dead_code, reason = "each test file uses its share")]
mod scripted;

use rpcrdma_nfs::v2::{
    self, Answer, Attributes, Handle, LookupOk, Name, NewAttributes, Path, Procedure, ReadLinkOk, Status, file_type,
};
use rpcrdma_nfs_client::{Cause, Error, Nfs2};
use rpcrdma_xdr::{Decoder, Encode, Encoder, Payload, Stream};
use scripted::{Scripted, args, client_2};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

const ROOT: Handle = Handle([0; 32]);

/// A file; if it is a symbolic link, with its target.
#[derive(Clone)]
struct Node {
    attributes: Attributes,
    path: Path,
}

/// A directory of a server.
#[derive(Default)]
struct Names {
    names: BTreeMap<Name, u8>,
    nodes: BTreeMap<u8, Node>,
}

fn attributes(file_type: u32, mode: u32, file_id: u32) -> Attributes {
    let time = v2::Time::default();
    Attributes {
        file_type,
        mode,
        links: 1,
        uid: 0,
        gid: 0,
        size: 0,
        block_bytes: 4096,
        device: 0,
        blocks: 0,
        file_system: 1,
        file_id,
        accessed: time,
        modified: time,
        changed: time,
    }
}

fn payload(answer: &impl Encode) -> Payload {
    let mut encoder = Encoder::new();
    answer.encode(&mut encoder);
    encoder.finish()
}

fn answered<T: Encode>(result: Result<T, Status>) -> Payload {
    match result {
        Ok(results) => payload(&Answer::Ok(results)),
        Err(status) => payload(&Answer::<()>::Failed(status)),
    }
}

impl Names {
    fn find(&self, name: &Name) -> Result<LookupOk, Status> {
        let number = *self.names.get(name).ok_or(Status::NOENT)?;
        Ok(LookupOk { file: Handle([number; 32]), attributes: self.nodes[&number].attributes.clone() })
    }

    fn make(&mut self, name: &Name, (what, mode): (u32, u32), path: Path) -> Result<LookupOk, Status> {
        if self.names.contains_key(name) {
            return Err(Status::EXIST);
        }
        let number = self.nodes.len() as u8 + 1;
        self.nodes.insert(number, Node { attributes: attributes(what, mode, number.into()), path });
        self.names.insert(name.clone(), number);
        self.find(name)
    }

    fn remove(&mut self, name: &Name) -> Result<(), Status> {
        self.names.remove(name).map(drop).ok_or(Status::NOENT)
    }

    fn rename(&mut self, from: &Name, to: Name) -> Result<(), Status> {
        let number = self.names.remove(from).ok_or(Status::NOENT)?;
        self.names.insert(to, number);
        Ok(())
    }

    fn link(&mut self, file: Handle, name: Name) -> Result<(), Status> {
        if self.names.contains_key(&name) {
            return Err(Status::EXIST);
        }
        self.names.insert(name, file.0[0]);
        Ok(())
    }

    /// Executes a call.
    fn execute(&mut self, procedure: Procedure, decoder: Decoder) -> Payload {
        match procedure {
            Procedure::Lookup => answered(self.find(&args::<v2::Lookup>(decoder).name)),
            Procedure::GetAttributes => {
                let file = args::<v2::GetAttributes>(decoder).file;
                answered(self.nodes.get(&file.0[0]).map(|node| node.attributes.clone()).ok_or(Status::STALE))
            }
            Procedure::ReadLink => {
                let link = args::<v2::ReadLink>(decoder).link;
                answered(Ok(ReadLinkOk { path: self.nodes[&link.0[0]].path.clone() }))
            }
            Procedure::Create => {
                let asked: v2::Create = args(decoder);
                let what = if asked.attributes.names_type() { file_type::CHARACTER } else { file_type::REGULAR };
                let mode = if what == file_type::REGULAR { 0o100_644 } else { 0o010_644 };
                answered(self.make(&asked.name, (what, mode), Path("".into())))
            }
            Procedure::MakeDirectory => {
                let asked: v2::MakeDirectory = args(decoder);
                answered(self.make(&asked.name, (file_type::DIRECTORY, 0o040_755), Path("".into())))
            }
            Procedure::SymbolicLink => {
                let asked: v2::SymbolicLink = args(decoder);
                answered(self.make(&asked.name, (file_type::SYMLINK, 0o120_777), asked.path).map(drop))
            }
            Procedure::Remove => answered(self.remove(&args::<v2::Remove>(decoder).name)),
            Procedure::RemoveDirectory => answered(self.remove(&args::<v2::RemoveDirectory>(decoder).name)),
            Procedure::Rename => {
                let asked: v2::Rename = args(decoder);
                answered(self.rename(&asked.from, asked.to))
            }
            Procedure::Link => {
                let asked: v2::Link = args(decoder);
                answered(self.link(asked.file, asked.name))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What happens to replies to calls that must not be executed twice.
#[derive(Clone, Copy, Debug)]
enum Replies {
    Arrive,
    AreLost,
    /// The same, and another client does this before the call comes again.
    AreLostAnd(fn(&mut Names)),
}

fn server(replies: Replies) -> (Nfs2, Arc<Mutex<Names>>) {
    let names = Arc::new(Mutex::new(Names::default()));
    let kept = names.clone();
    let nfs = client_2(move |procedure, mut decoder| {
        let mut names = kept.lock().unwrap();
        let octets = decoder.opaque_fixed(decoder.remaining()).unwrap();
        let again = || Decoder::new(Stream::from(octets.clone()));
        let first = names.execute(procedure, again());
        if procedure.is_idempotent() || matches!(replies, Replies::Arrive) {
            return Scripted { results: first, retransmitted: false };
        }
        if let Replies::AreLostAnd(others) = replies {
            others(&mut names);
        }
        Scripted { results: names.execute(procedure, again()), retransmitted: true }
    });
    (nfs, names)
}

fn cause<T>(result: Result<T, Error>) -> Result<(), Option<Cause>> {
    result.map(drop).map_err(|error| error.cause())
}

fn plain() -> NewAttributes {
    NewAttributes { mode: Some(0o644), ..NewAttributes::default() }
}

/// The attributes of a new file that is a named pipe, which the mode says.
fn pipe() -> NewAttributes {
    NewAttributes { mode: Some(0o020_644), ..NewAttributes::default() }
}

/// Makes each kind of object, with names that begin with `prefix`.
async fn make_all(nfs: &Nfs2, prefix: &str) -> Vec<Result<(), Option<Cause>>> {
    let name = |what: &str| Name::from(&*format!("{prefix}{what}"));
    vec![
        cause(nfs.create(ROOT, &name("file"), plain()).await),
        cause(nfs.create(ROOT, &name("pipe"), pipe()).await),
        cause(nfs.mkdir(ROOT, &name("directory"), plain()).await),
        cause(nfs.symlink(ROOT, &name("symlink"), plain(), &Path("there".into())).await),
        cause(nfs.link(Handle([1; 32]), ROOT, &name("link")).await),
    ]
}

/// The same for calls that remove names.
async fn take_all(nfs: &Nfs2, prefix: &str) -> Vec<Result<(), Option<Cause>>> {
    let name = |what: &str| Name::from(&*format!("{prefix}{what}"));
    vec![
        cause(nfs.rename((ROOT, &name("pipe")), (ROOT, &name("renamed"))).await),
        cause(nfs.remove(ROOT, &name("link")).await),
        cause(nfs.rmdir(ROOT, &name("directory")).await),
    ]
}

/// proves: ULB-3.1-d
#[tokio::test]
async fn what_was_done_by_a_call_whose_reply_was_lost_is_told_as_done() {
    let (nfs, names) = server(Replies::AreLost);
    assert_eq!(make_all(&nfs, "").await, vec![Ok(()); 5]);
    assert_eq!(names.lock().unwrap().names.len(), 5, "each once");
    assert_eq!(take_all(&nfs, "").await, vec![Ok(()); 3]);
    let left: Vec<_> = names.lock().unwrap().names.keys().cloned().collect();
    assert_eq!(left, ["file", "renamed", "symlink"].map(Name::from));
}

#[tokio::test]
async fn what_is_there_or_is_not_is_told_where_nothing_was_lost() {
    let (nfs, _) = server(Replies::Arrive);
    assert_eq!(make_all(&nfs, "").await, vec![Ok(()); 5]);
    assert_eq!(make_all(&nfs, "").await, vec![Err(Some(Cause::Exists)); 5]);
    assert_eq!(take_all(&nfs, "no ").await, vec![Err(Some(Cause::Absent)); 3]);
    assert_eq!(take_all(&nfs, "").await, vec![Ok(()); 3]);
    assert_eq!(take_all(&nfs, "").await, vec![Err(Some(Cause::Absent)); 3]);
}

/// The client does not take what another client has made with the same name for its own.
#[tokio::test]
async fn what_others_have_put_in_its_place_is_not_taken_for_it() {
    let (nfs, _) = server(Replies::AreLostAnd(|names| {
        for node in names.nodes.values_mut() {
            node.attributes.size = 5;
            node.path = Path("elsewhere".into());
            node.attributes.mode = 0o100_644;
            node.attributes.file_type = match node.attributes.file_type {
                file_type::SYMLINK => file_type::SYMLINK,
                _ => file_type::REGULAR,
            };
        }
    }));
    let made = make_all(&nfs, "").await;
    assert_eq!(made[..4], vec![Err(Some(Cause::Exists)); 4]);
    assert_eq!(made[4], Ok(()), "a link leads to the same file, whatever that is by now");
    let (nfs, _) = server(Replies::AreLostAnd(|names| {
        names.names.values_mut().for_each(|number| *number = 1);
    }));
    let made = make_all(&nfs, "").await;
    assert_eq!(made[4], Ok(()));
    let linked = nfs.link(Handle([2; 32]), ROOT, &Name::from("another")).await;
    assert_eq!(cause(linked), Err(Some(Cause::Exists)), "a link that leads to another file");
}

/// A renamed file must exist under its new name.
#[tokio::test]
async fn a_name_that_is_nowhere_was_not_changed() {
    let (nfs, names) = server(Replies::AreLostAnd(|names| {
        names.names.remove(&Name::from("renamed"));
    }));
    names.lock().unwrap().names.insert(Name::from("pipe"), 1);
    assert_eq!(take_all(&nfs, "").await[0], Err(Some(Cause::Absent)));
}
