//! The operations of a client on files, and a model of the files that must exist then. Neither depends on the
//! transport.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

pub mod live;

use bytes::Bytes;
use rpcrdma_env::Env;
use rpcrdma_fabric::Fabric;
use rpcrdma_nfs::{
    attr::{self, Acls, PosixAcl},
    v3,
};
use rpcrdma_nfs_client::{Access, Cause, CreateHow, Files, Handle, Name, Nfs3, Reader, Writer};
use rpcrdma_nfsd::{Export, Identities, MemoryFs, Nfsd, Squash};
use rpcrdma_oncrpc::{Client, SysAuth, SysCredential};
use rpcrdma_transport::{ClientOptions, ServerOptions, Versions, connect};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
const SECRET: [u8; rpcrdma_nfsd::SECRET_BYTES] = [7; rpcrdma_nfsd::SECRET_BYTES];
/// Bytes of the server's file system.
const STORAGE: u64 = 64 << 20;

/// The versions that client and server speak, and the version on which they must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spoken {
    pub client: Versions,
    pub server: Versions,
    pub version: u32,
}

/// Each version alone, and clients of both versions with servers of one and of both.
pub const EVERY: [Spoken; 4] = [
    Spoken { client: Versions::One, server: Versions::Auto, version: 1 },
    Spoken { client: Versions::Two, server: Versions::Auto, version: 2 },
    Spoken { client: Versions::Auto, server: Versions::Auto, version: 2 },
    Spoken { client: Versions::Auto, server: Versions::One, version: 1 },
];

impl Spoken {
    pub fn server(self) -> ServerOptions {
        let mut options = ServerOptions::default();
        options.versions = self.server;
        options
    }
}

/// The version that was agreed on each connection.
#[derive(Default)]
pub struct Settled(pub Mutex<Vec<u32>>);

impl rpcrdma_transport::Observer for Settled {
    fn event(&self, _: SocketAddr, event: &rpcrdma_transport::Event) {
        if let rpcrdma_transport::Event::Negotiated(made) = event {
            self.0.lock().unwrap().push(made.version);
        }
    }
}

impl Settled {
    /// Checks that all connections have agreed on this version.
    pub fn check(&self, spoken: Spoken) {
        let settled = self.0.lock().unwrap();
        assert!(!settled.is_empty() && settled.iter().all(|version| *version == spoken.version), "{settled:?}");
    }
}

pub fn storage(env: &Env) -> Arc<MemoryFs> {
    Arc::new(MemoryFs::new(STORAGE, env))
}

pub fn nfsd(storage: &Arc<MemoryFs>, env: &Env) -> Nfsd {
    let squash = Identities { squash: Squash::None, ..Identities::default() };
    Nfsd::new(vec![Export::new("/", storage.clone()).with_identities(squash)], SECRET, env).unwrap()
}

/// A client, and its driver, which the caller must spawn.
pub async fn client(
    fabric: Arc<dyn Fabric>,
    server: SocketAddr,
    env: &Env,
    spoken: Spoken,
) -> (Files, rpcrdma_transport::ClientDriver, Arc<Settled>) {
    let settled = Arc::new(Settled::default());
    let mut options = ClientOptions::default();
    options.versions = spoken.client;
    let (transport, driver) = connect(fabric, server, env, options, settled.clone()).await.unwrap();
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    let nfs = Nfs3::new(Client::new(transport, identity, v3::PROGRAM, v3::VERSION), env.clock.clone());
    (nfs.into(), driver, settled)
}

/// NFSACL on the same connection: lists of a few entries, and lists for which neither call nor reply fits into a
/// message.
async fn access_lists(nfs: &Nfs3, file: &v3::Handle, directory: &v3::Handle) {
    let mode = nfs.getattr(file).await.unwrap().mode;
    assert_eq!(nfs.acls(file).await.unwrap(), Acls::of_mode(mode));
    for users in [1, 1020] {
        let access = PosixAcl::new([6, 0, 0], (0..users).map(|uid| (uid, 4)).collect(), vec![], Some(4)).unwrap();
        let both = Acls { access: access.clone(), default: Some(access.clone()) };
        nfs.set_acls(directory, &both).await.unwrap();
        assert_eq!(nfs.acls(directory).await.unwrap(), both, "{users} users");
        let alone = Acls { access, default: None };
        nfs.set_acls(file, &alone).await.unwrap();
        assert_eq!(nfs.acls(file).await.unwrap(), alone);
        let refused = nfs.set_acls(file, &both).await.unwrap_err();
        assert_eq!(refused.status(), Some(v3::Status::NOTSUPP.into()), "a file has no default list");
    }
    nfs.set_acls(file, &Acls::of_mode(mode)).await.unwrap();
    nfs.set_acls(directory, &Acls::of_mode(0o755)).await.unwrap();
    assert_eq!(nfs.getattr(file).await.unwrap().mode, mode);
}

/// The handle of the export's root, as MOUNT would give it.
pub async fn root(storage: &Arc<MemoryFs>, env: &Env) -> Handle {
    root_of(&nfsd(storage, env)).await.into()
}

/// The handle of the root of a server's export.
pub async fn root_of(nfsd: &Nfsd) -> v3::Handle {
    use rpcrdma_env::Heap;
    use rpcrdma_nfs::mount;
    use rpcrdma_oncrpc::{CallContext, Connection, GoneSignal, Limits, Outcome, TransportKind};
    use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};
    let (_signal, gone) = GoneSignal::new();
    let limits = Limits::new(1 << 20, 1 << 20);
    let connection = Connection::new(ADDRESS, ADDRESS, 0, TransportKind::Tcp, limits, Arc::new(Heap), gone);
    let mut call = Encoder::new();
    for word in [1, 0, 2, mount::PROGRAM, mount::VERSION_3, mount::procedure::MOUNT, 0, 0, 0, 0] {
        call.u32(word);
    }
    mount::Mount { path: mount::DirectoryPath(Bytes::from_static(b"/")) }.encode(&mut call);
    let stream = Stream::from(call.finish().to_bytes());
    let Outcome::Reply(reply) = nfsd.mount().handle(CallContext::new(Arc::new(connection)), stream).await else {
        panic!("MOUNT is answered")
    };
    let mut reply = Decoder::new(Stream::from(reply.to_bytes()));
    reply.opaque_fixed(24).unwrap();
    match mount::MountReply::decode(&mut reply).unwrap() {
        mount::MountReply::Ok { root, .. } => root,
        failed => panic!("{failed:?}"),
    }
}

pub fn contents(len: usize, seed: u64) -> Bytes {
    (0..len as u64).map(|at| (at.wrapping_mul(seed | 1) >> 3) as u8).collect::<Vec<_>>().into()
}

pub async fn write_file(files: &Files, root: &Handle, name: &Name, data: &Bytes) {
    let how = CreateHow::Unchecked(attr::NewAttributes { size: Some(0), mode: Some(0o644), ..Default::default() });
    let file = files.create(root, name, how).await.unwrap().file;
    let mut writer = Writer::new(file.clone(), 32 << 10, 4);
    for at in (0..data.len()).step_by(100_000) {
        writer.write(at as u64, data.slice(at..data.len().min(at + 100_000))).await.unwrap();
    }
    writer.finish().await.unwrap();
    file.close().await.unwrap();
}

pub async fn read_file(files: &Files, root: &Handle, name: &Name) -> Vec<u8> {
    let file = files.open_at(root, name, Access::Read).await.unwrap();
    let mut reader = Reader::new(file.clone(), 0, u64::MAX, 64 << 10, 4);
    let mut octets = Vec::new();
    while let Some(block) = reader.next().await.unwrap() {
        octets.extend_from_slice(&block.data);
    }
    file.close().await.unwrap();
    octets
}

pub async fn names(files: &Files, root: &Handle) -> Vec<Name> {
    let transfer = files.transfer(root).await.unwrap();
    let mut listing = files.list(root, transfer);
    let mut names = Vec::new();
    while let Some(entry) = listing.next().await.unwrap() {
        names.push(entry.name);
    }
    names.sort();
    names
}

/// Writes, renames, removes and reads back files of many sizes, and compares them with a model.
///
/// If calls are sent again (`steady` is false), "no such file" may also be the answer to the second copy of a call that
/// was executed: the client takes it for success if the state is what the call should produce.
pub async fn work(files: &Files, root: &Handle, env: &Env, rounds: u64, steady: bool) {
    let random = &env.random;
    let mut model: BTreeMap<Name, Bytes> = BTreeMap::new();
    for round in 0..rounds {
        let name = Name::from(format!("file-{}", random.below(12)).as_str());
        match random.below(6) {
            0 => {
                let removed = files.remove(root, &name).await.map_err(|error| error.cause());
                let expected = if model.remove(&name).is_some() { Ok(()) } else { Err(Some(Cause::Absent)) };
                assert!(removed == expected || !steady && removed.is_ok(), "{name:?}: {removed:?}");
            }
            1 => {
                let to = Name::from(format!("file-{}", random.below(12)).as_str());
                let renamed = files.rename(root, &name, root, &to).await.map_err(|error| error.cause());
                match model.remove(&name) {
                    Some(data) => {
                        assert_eq!(renamed, Ok(()), "{name:?} to {to:?}");
                        model.insert(to, data);
                    }
                    None if !steady && renamed.is_ok() => assert!(model.contains_key(&to), "{name:?} to {to:?}"),
                    None => assert_eq!(renamed, Err(Some(Cause::Absent)), "{name:?} to {to:?}"),
                }
            }
            2 => {
                if let Some(data) = model.get(&name) {
                    assert!(read_file(files, root, &name).await == data[..], "{name:?} in round {round}");
                }
            }
            _ => {
                let data = contents(random.below(300_000) as usize, round);
                write_file(files, root, &name, &data).await;
                model.insert(name, data);
            }
        }
    }
    assert_eq!(names(files, root).await, model.keys().cloned().collect::<Vec<_>>());
    for (name, data) in &model {
        assert!(read_file(files, root, name).await == data[..], "{name:?} in the end");
    }
}

/// Each procedure at least once, with long arguments and results where they can be long.
pub async fn every_procedure(files: &Files, export: &Handle) {
    use v3::{CreateHow, FileType, Name, NewAttributes, NodeKind, Path, Status};
    let (nfs, root) = (files.version_3().unwrap(), &v3::Handle::new(export.as_slice()).unwrap());
    let mode = |mode| NewAttributes { mode: Some(mode), ..NewAttributes::default() };
    let name = |text: &str| Name::from(text);
    nfs.null().await.unwrap();
    let directory = nfs.mkdir(root, &name("every"), mode(0o755)).await.unwrap().file.unwrap();
    let again = nfs.mkdir(root, &name("every"), mode(0o755)).await.unwrap_err();
    assert_eq!(again.status(), Some(Status::EXIST.into()));

    let data = contents(200_000, 5);
    let (neutral, file) = (Handle::from(directory.clone()), rpcrdma_nfs_client::Name::from("file"));
    write_file(files, &neutral, &file, &data).await;
    assert!(read_file(files, &neutral, &file).await == data[..]);
    let file = nfs.lookup(&directory, &name("file")).await.unwrap().file;
    nfs.setattr(&file, NewAttributes { size: Some(1000), ..mode(0o600) }, None).await.unwrap();
    let attributes = nfs.getattr(&file).await.unwrap();
    assert_eq!((attributes.size, attributes.mode & 0o777, attributes.links), (1000, 0o600, 1));
    assert_eq!(nfs.access(&file, 0x3f).await.unwrap() & 1, 1);
    let part = nfs.read(&file, 990, 100).await.unwrap();
    assert!(part.end && part.data == data[990..1000]);
    let lent = rpcrdma_env::Buffer::from_vec(vec![0; 70_000]);
    assert_eq!(nfs.read_into(&file, 0, lent).await.unwrap().data.as_slice(), &data[..1000]);
    nfs.commit(&file, 0, 0).await.unwrap();

    access_lists(nfs, &file, &directory).await;

    let target = Path::from("over/".repeat(200).as_str());
    let made = nfs.symlink(&directory, &name("symlink"), NewAttributes::default(), &target).await.unwrap();
    assert!(nfs.readlink(&made.file.unwrap()).await.unwrap() == target);
    let fifo = nfs.mknod(&directory, &name("fifo"), NodeKind::Fifo(mode(0o644))).await.unwrap();
    assert_eq!(nfs.getattr(&fifo.file.unwrap()).await.unwrap().file_type, FileType::Fifo);
    nfs.link(&file, &directory, &name("link")).await.unwrap();
    assert_eq!(nfs.getattr(&file).await.unwrap().links, 2);
    nfs.rename(&directory, &name("link"), root, &name("moved")).await.unwrap();
    assert!(nfs.lookup(root, &name("moved")).await.unwrap().file == file);

    let mut expected = vec![name("fifo"), name("file"), name("symlink")];
    for k in 0..150 {
        let long = name(&format!("{k:03}-{}", "n".repeat(90)));
        nfs.create(&directory, &long, CreateHow::Guarded(mode(0o644))).await.unwrap();
        expected.push(long);
    }
    expected.sort();
    let listed: Vec<_> = names(files, &neutral).await.into_iter().map(|name| Name(name.0)).collect();
    assert_eq!(listed, expected, "READDIRPLUS");
    let (mut seen, mut cookie, mut verifier) = (Vec::new(), 0, v3::Verifier::default());
    loop {
        let listed = nfs.readdir(&directory, cookie, verifier, 9000).await.unwrap();
        cookie = listed.entries.last().map_or(cookie, |entry| entry.cookie);
        verifier = listed.verifier;
        seen.extend(listed.entries.into_iter().map(|entry| entry.name));
        if listed.end {
            break;
        }
    }
    seen.retain(|seen| *seen != name(".") && *seen != name(".."));
    seen.sort();
    assert_eq!(seen, expected, "READDIR");

    let status = nfs.fsstat(root).await.unwrap();
    assert!(status.free_bytes < status.total_bytes);
    assert!(nfs.fsinfo(root).await.unwrap().read_max >= 4096);
    assert!(nfs.pathconf(root).await.unwrap().max_name_bytes >= 255);

    let full = nfs.rmdir(root, &name("every")).await.unwrap_err();
    assert_eq!(full.status(), Some(Status::NOTEMPTY.into()));
    for gone in &expected {
        nfs.remove(&directory, gone).await.unwrap();
    }
    nfs.rmdir(root, &name("every")).await.unwrap();
    nfs.remove(root, &name("moved")).await.unwrap();
    assert_eq!(nfs.getattr(&file).await.unwrap_err().status(), Some(Status::STALE.into()));
}
