//! Rights: attributes, exports, handles, callers.

use super::{mode, on_each};
use crate::{
    Cidr, Export, FileSystem, Groups, Identities, ManagedGroups, MemoryFs, Nfsd, Squash,
    testing::{Client, SECRET, env, plain},
};
use rpcrdma_nfs::{
    mount::{self, DirectoryPath},
    nfsacl,
    v3::{self, Commit, CreateHow, FileType, Handle, NewAttributes, NodeKind, Path, SetTime, Status, Time, access},
};
use rpcrdma_oncrpc::{AuthStat, Rejection, gss::Work};
use rpcrdma_xdr::Payload;
use std::sync::Arc;

/// proves: NFS3-1813-3.3.2-a
#[test]
fn attributes_are_set_together_and_only_under_the_guard() {
    on_each(|client| {
        let file = client.new_file(&client.root(), "file");
        client.write(&file, 0, "0123456789").unwrap();
        let time = |seconds| Time { seconds, nanoseconds: 0 };
        let new = NewAttributes {
            mode: Some(0o4711),
            size: Some(4),
            accessed: SetTime::Client(time(1_000_000)),
            modified: SetTime::Client(time(2_000_000_000)),
            ..NewAttributes::default()
        };
        let after = client.set(&file, new).unwrap().after.unwrap();
        assert_eq!((after.mode, after.size), (0o4711, 4));
        assert_eq!((after.accessed, after.modified), (time(1_000_000), time(2_000_000_000)));
        let guarded = |guard| {
            let attributes = mode(0o600);
            plain(client.ask(v3::SetAttributes { file: file.clone(), attributes, guard: Some(guard) }))
        };
        assert_eq!(guarded(time(5)).map(|_| ()), Err(Status::NOT_SYNC));
        assert_eq!(client.attributes(&file).unwrap(), after, "the guard was another: nothing is set");
        let only_mode = guarded(after.changed).unwrap().after.unwrap();
        assert_eq!((only_mode.mode, only_mode.size), (0o600, 4));
        assert_eq!((only_mode.uid, only_mode.gid), (after.uid, after.gid));
        assert_eq!((only_mode.accessed, only_mode.modified), (after.accessed, after.modified));
        let now = NewAttributes { modified: SetTime::Server, ..NewAttributes::default() };
        let touched = client.set(&file, now).unwrap().after.unwrap();
        assert_eq!(touched.accessed, time(1_000_000));
        assert_ne!(touched.modified, time(2_000_000_000));
        assert_eq!(client.contents(&file), b"0123");
    });
}

#[test]
fn special_files_are_made_and_not_opened() {
    on_each(|client| {
        let root = client.root();
        let make = |name: &str, kind| {
            let call = v3::MakeNode { directory: root.clone(), name: name.into(), kind };
            plain(client.ask(call)).map(|made| (made.file.unwrap(), made.attributes.unwrap()))
        };
        let (fifo, attributes) = make("fifo", NodeKind::Fifo(mode(0o622))).unwrap();
        assert_eq!((attributes.file_type, attributes.mode), (FileType::Fifo, 0o622));
        assert_eq!(make("socket", NodeKind::Socket(mode(0o600))).unwrap().1.file_type, FileType::Socket);
        assert_eq!(client.read(&fifo, 0, 10).map(|_| ()), Err(Status::INVAL));
        assert_eq!(client.write(&fifo, 0, "x").map(|_| ()), Err(Status::INVAL));
        assert_eq!(make("fifo", NodeKind::Fifo(mode(0o622))).map(|_| ()), Err(Status::EXIST));
        assert_eq!(make("other", NodeKind::Other(1)).map(|_| ()), Err(Status::BADTYPE));
    });
}

/// proves: NFS3-ACL-a
#[test]
fn a_read_only_export_changes_nothing() {
    let tree: Arc<dyn FileSystem> = Arc::new(MemoryFs::new(1 << 20, &env()));
    let trusting = Identities { squash: Squash::None, ..Identities::default() };
    let serve = |read_only| {
        let export = Export::new("/", tree.clone()).with_identities(trusting).with_read_only(read_only);
        Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap())
    };
    let writer = serve(false);
    let root = writer.root();
    let file = writer.new_file(&root, "file");
    writer.write(&file, 0, "data").unwrap();
    let reader = serve(true);
    let refused = Err(Status::ROFS);
    assert_eq!(reader.write(&file, 0, "x").map(|_| ()), refused);
    assert_eq!(reader.set(&file, mode(0)).map(|_| ()), refused);
    assert_eq!(reader.create(&root, "x", CreateHow::Guarded(mode(0))).map(|_| ()), refused);
    assert_eq!(reader.remove(&root, "file").map(|_| ()), refused);
    assert_eq!(reader.remove_directory(&root, "file").map(|_| ()), refused);
    assert_eq!(reader.rename((&root, "file"), (&root, "x")).map(|_| ()), refused);
    let link = v3::Link { file: file.clone(), directory: root.clone(), name: "x".into() };
    assert_eq!(plain(reader.ask(link)).map(|_| ()), refused);
    let make = v3::MakeDirectory { directory: root.clone(), name: "x".into(), attributes: mode(0o700) };
    assert_eq!(plain(reader.ask(make)).map(|_| ()), refused);
    let (attributes, path) = (mode(0o777), Path::from("file"));
    let symbolic = v3::SymbolicLink { directory: root.clone(), name: "x".into(), attributes, path };
    assert_eq!(plain(reader.ask(symbolic)).map(|_| ()), refused);
    let node = v3::MakeNode { directory: root.clone(), name: "x".into(), kind: NodeKind::Fifo(mode(0o600)) };
    assert_eq!(plain(reader.ask(node)).map(|_| ()), refused);
    assert_eq!(reader.contents(&file), b"data");
    assert_eq!(writer.names(&root, 4096).len(), 3, "itself, its parent, the file");
    assert_eq!((writer.attributes(&file).unwrap().mode, writer.attributes(&file).unwrap().links), (0o644, 1));
    let changes = access::MODIFY | access::EXTEND | access::DELETE;
    assert_eq!(reader.access(&root, access::LOOKUP | changes), Ok(access::LOOKUP));
    assert_eq!(writer.access(&root, access::LOOKUP | changes), Ok(access::LOOKUP | changes));
    let all = access::READ | access::MODIFY | access::EXTEND;
    assert_eq!(reader.access(&file, all), Ok(access::READ));
    assert_eq!(writer.access(&file, all), Ok(all));
}

/// proves: NFS3-ACL-b
#[test]
fn only_allowed_clients_are_served_and_exports_are_told_apart() {
    let allow: Vec<Cidr> = vec!["192.0.2.0/24".parse().unwrap()];
    let memory = || Arc::new(MemoryFs::new(1 << 20, &env())) as Arc<dyn FileSystem>;
    let trusting = Identities { squash: Squash::None, ..Identities::default() };
    let open = |path| Export::new(path, memory()).with_identities(trusting);
    let exports = vec![open("/"), open("/data").with_allow(allow), open("/data/deep")];
    let server = Nfsd::new(exports, SECRET, &env()).unwrap();
    let mut client = Client::of(&server);
    client.address = "::ffff:192.0.2.7".parse().unwrap();
    let data = client.mount("/data").unwrap();
    let other = client.mount("/").unwrap();
    assert_ne!(client.mount("//data/deep/").unwrap(), data, "the longest export counts");
    let sub = client.new_directory(&data, "sub");
    assert_eq!(client.mount("/data/sub").unwrap(), sub);
    assert_eq!(client.mount("/data/none"), Err(mount::Status::NOENT));
    assert_eq!(client.mount("data"), Err(mount::Status::NOENT));
    assert_eq!(client.mount("/data/../x"), Err(mount::Status::INVAL));
    client.new_file(&other, "file");
    assert_eq!(client.mount("/file"), Err(mount::Status::NOTDIR));
    assert_eq!(client.rename((&other, "file"), (&data, "file")).map(|_| ()), Err(Status::XDEV));

    client.address = "192.0.3.1".parse().unwrap();
    assert_eq!(client.mount("/data"), Err(mount::Status::ACCES));
    assert_eq!(client.attributes(&data).map(|_| ()), Err(Status::ACCES));
    assert!(client.attributes(&other).is_ok());

    let list = client.ask(mount::ListExports).0;
    let told: Vec<_> = list.iter().map(|export| (&export.path.0[..], export.groups.len())).collect();
    assert_eq!(told, [(&b"/"[..], 0), (b"/data/deep", 0)], "not those of others, nor who they are");
    let mounts = |client: &Client| {
        let all = client.ask(mount::ListMounts).0;
        all.into_iter().map(|entry| (entry.host, entry.path.0)).collect::<Vec<_>>()
    };
    assert_eq!(mounts(&client), [], "others' mounts are not told");
    client.address = "192.0.2.7".parse().unwrap();
    assert_eq!(client.ask(mount::ListExports).0.len(), 3);
    assert!(mounts(&client).contains(&(b"192.0.2.7"[..].into(), b"/data"[..].into())));
    client.ask(mount::Unmount { path: DirectoryPath(b"/data"[..].into()) });
    client.raw(mount::PROGRAM, 3, mount::procedure::UNMOUNT_ALL, Payload::new()).unwrap();
    assert!(client.ask(mount::ListMounts).0.is_empty());
    let mut version_1 = client.raw(mount::PROGRAM, 1, mount::procedure::EXPORT, Payload::new()).unwrap();
    assert_eq!(version_1.bool(), Ok(true));
    assert!(client.raw(mount::PROGRAM, 3, 9, Payload::new()).is_err());
    let version_2 = client.raw(mount::PROGRAM, 2, 0, Payload::new()).map(|_| ());
    assert_eq!(version_2, Err(Rejection::ProgramMismatch { low: 1, high: 3 }));

    let twice = vec![Export::new("/a", memory()), Export::new("/a", memory())];
    assert!(Nfsd::new(twice, SECRET, &env()).is_err());
    assert!(Nfsd::new(vec![Export::new("a", memory())], SECRET, &env()).is_err());
}

/// MNT shows no more of a path than LOOKUP would, and returns no handle from below a directory that the caller may not
/// search.
/// proves: NFS3-MNT-a
#[test]
fn mount_walks_a_path_as_the_caller() {
    on_each(|client| {
        let root = client.root();
        client.set(&root, mode(0o755)).unwrap();
        let closed = client.new_directory(&root, "closed");
        let inner = client.new_directory(&closed, "inner");
        client.new_directory(&inner, "deep");
        client.new_file(&closed, "file");
        let owned = NewAttributes { uid: Some(1000), gid: Some(1000), ..mode(0o700) };
        if client.set(&closed, owned).is_err() {
            return; // The server runs as an ordinary user, and cannot act as another.
        }
        let (owner, stranger) = (client.as_user(1000, 1000, &[]), client.as_user(6, 6, &[]));
        assert_eq!(owner.mount("/closed/inner"), Ok(inner));
        assert_eq!(owner.mount("/closed/none"), Err(mount::Status::NOENT));
        assert_eq!(stranger.mount("/closed"), Ok(closed), "what it may see it may mount");
        for path in ["/closed/inner", "/closed/inner/deep", "/closed/file", "/closed/none"] {
            assert_eq!(stranger.mount(path), Err(mount::Status::ACCES), "{path}");
        }
    });
}

/// A host that knows no user's groups, and says so at once.
struct NoGroups;

impl Groups for NoGroups {
    fn of(&self, _: u32) -> std::io::Result<Arc<[u32]>> {
        Ok(Arc::default())
    }
}

impl Work for NoGroups {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

/// proves: NFS3-ID-e
#[test]
fn mount_believes_no_groups_where_the_host_tells_them() {
    let tree: Arc<dyn FileSystem> = Arc::new(MemoryFs::new(1 << 20, &env()));
    let serve = || {
        let trusting = Identities { squash: Squash::None, ..Identities::default() };
        Nfsd::new(vec![Export::new("/", tree.clone()).with_identities(trusting)], SECRET, &env()).unwrap()
    };
    let plain = Client::of(&serve());
    let closed = plain.new_directory(&plain.root(), "closed");
    let inner = plain.new_directory(&closed, "inner");
    plain.set(&closed, NewAttributes { gid: Some(50), ..mode(0o750) }).unwrap();
    assert_eq!(plain.as_user(6, 6, &[50]).mount("/closed/inner"), Ok(inner));
    let groups = ManagedGroups::new(Arc::new(NoGroups), Arc::new(NoGroups), env().clock);
    let managed = Client::of(&serve().with_groups(groups, &env()));
    assert_eq!(managed.as_user(6, 6, &[50]).mount("/closed/inner"), Err(mount::Status::ACCES));
}

/// proves: NFS3-ACL-c
#[test]
fn a_stranger_is_told_nothing_and_has_nothing_executed() {
    let tree: Arc<dyn FileSystem> = Arc::new(MemoryFs::new(1 << 20, &env()));
    let trusting = Identities { squash: Squash::None, ..Identities::default() };
    let allow: Vec<Cidr> = vec!["127.0.0.1".parse().unwrap()];
    let export = Export::new("/", tree).with_identities(trusting).with_allow(allow);
    let server = Nfsd::new(vec![export], SECRET, &env()).unwrap();
    let client = Client::of(&server);
    let root = client.root();
    let stranger = Client::stranger(&server);
    assert_eq!(stranger.mount("/"), Err(mount::Status::ACCES));
    assert_eq!(stranger.mount("no path"), Err(mount::Status::ACCES), "whatever it asks");
    assert!(stranger.ask(mount::ListExports).0.is_empty() && stranger.ask(mount::ListMounts).0.is_empty());
    let none = || Payload::new();
    for (program, version) in [(mount::PROGRAM, 1), (mount::PROGRAM, 3), (v3::PROGRAM, 3), (nfsacl::PROGRAM, 3)] {
        assert!(stranger.raw(program, version, 0, none()).is_ok(), "NULL tells nothing");
    }
    let mut list = stranger.raw(mount::PROGRAM, 1, mount::procedure::EXPORT_ALL, none()).unwrap();
    assert_eq!(list.bool(), Ok(false));
    let refused = Some(Rejection::Auth(AuthStat::TOO_WEAK));
    let calls = (1..=22).map(|procedure| (v3::PROGRAM, 3, procedure));
    let calls = calls.chain([(nfsacl::PROGRAM, 3, 1), (nfsacl::PROGRAM, 3, 2), (nfsacl::PROGRAM, 2, 0)]);
    let others =
        [(v3::PROGRAM, 4, 0), (mount::PROGRAM, 2, 0), (mount::PROGRAM, 3, 3), (mount::PROGRAM, 3, 4), (1, 1, 1)];
    for (program, version, procedure) in calls.chain(others) {
        let answer = stranger.raw(program, version, procedure, none()).err();
        assert_eq!(answer, refused, "{program} {version} {procedure}");
    }
    let get = v3::GetAttributes { file: root.clone() };
    let mut args = rpcrdma_xdr::Encoder::new();
    rpcrdma_xdr::Encode::encode(&get, &mut args);
    assert_eq!(stranger.raw(v3::PROGRAM, 3, 1, args.finish()).err(), refused, "with a handle that is good");
    assert_eq!(client.ask(mount::ListMounts).0.len(), 1, "what the stranger asked for has left nothing");
}

/// proves: NFS3-FH-a
#[test]
fn handles_that_were_not_given_out_are_refused() {
    on_each(|client| {
        let root = client.root();
        let mut octets = root.as_slice().to_vec();
        octets[20] ^= 1;
        for octets in [&octets[..], &[], &[1; 64], &root.as_slice()[1..]] {
            let forged = Handle::new(octets).unwrap();
            assert_eq!(client.attributes(&forged).map(|_| ()), Err(Status::BADHANDLE));
        }
        let file = client.new_file(&root, "file");
        let elsewhere = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env())));
        let stranger = elsewhere.attributes(&file).map(|_| ());
        assert!(matches!(stranger, Err(Status::STALE)), "another file system under the same secret: {stranger:?}");
    });
}

#[test]
fn rights_are_the_callers() {
    on_each(|client| {
        let root = client.root();
        client.set(&root, mode(0o777)).unwrap();
        let file = client.new_file(&root, "file");
        let others = NewAttributes { uid: Some(1000), gid: Some(2000), ..mode(0o640) };
        if client.set(&file, others).is_err() {
            return; // The server runs as an ordinary user, and cannot act as another.
        }
        client.write(&file, 0, "secret").unwrap();
        let (owner, member) = (client.as_user(1000, 1, &[]), client.as_user(5, 1, &[2000]));
        let stranger = client.as_user(6, 1, &[3]);
        assert_eq!(owner.contents(&file), b"secret");
        assert_eq!(member.contents(&file), b"secret");
        for _ in 0..2 {
            assert_eq!(stranger.read(&file, 0, 10).map(|_| ()), Err(Status::ACCES));
        }
        assert_eq!(member.write(&file, 0, "x").map(|_| ()), Err(Status::ACCES));
        let all = access::READ | access::MODIFY | access::EXTEND | access::EXECUTE;
        assert_eq!(owner.access(&file, all), Ok(access::READ | access::MODIFY | access::EXTEND));
        assert_eq!(member.access(&file, all), Ok(access::READ));
        assert_eq!(stranger.access(&file, all), Ok(0));
        assert_eq!(member.set(&file, mode(0o666)).map(|_| ()), Err(Status::PERM));
        let give_away = NewAttributes { uid: Some(6), ..NewAttributes::default() };
        assert_eq!(owner.set(&file, give_away).map(|_| ()), Err(Status::PERM));
        // Rights that are taken away are gone at once, also for a caller that has read before.
        client.set(&file, mode(0o600)).unwrap();
        assert_eq!(member.read(&file, 0, 10).map(|_| ()), Err(Status::ACCES));
        // The owner may read and write whatever the mode is: files of mode 444 can be copied.
        let made = owner.create(&root, "frozen", CreateHow::Guarded(mode(0o444))).unwrap().file.unwrap();
        assert_eq!(owner.attributes(&made).unwrap().uid, 1000);
        owner.write(&made, 0, "ice").unwrap();
        plain(owner.ask(Commit { file: made.clone(), offset: 0, count: 0 })).unwrap();
        owner.write(&made, 3, "berg").unwrap();
        assert_eq!(stranger.contents(&made), b"iceberg");
        assert_eq!(stranger.write(&made, 0, "x").map(|_| ()), Err(Status::ACCES));
        let closed = owner.new_directory(&root, "closed");
        owner.set(&closed, mode(0o700)).unwrap();
        assert_eq!(stranger.lookup(&closed, "x").map(|_| ()), Err(Status::ACCES));
        assert_eq!(stranger.create(&closed, "x", CreateHow::Guarded(mode(0))).map(|_| ()), Err(Status::ACCES));
        assert_eq!(stranger.access(&closed, access::LOOKUP | access::MODIFY | access::DELETE), Ok(0));
        client.set(&root, mode(0o1777)).unwrap();
        let sticky = stranger.remove(&root, "frozen").map(|_| ());
        assert!(matches!(sticky, Err(Status::ACCES | Status::PERM)), "{sticky:?}");
    });
}
