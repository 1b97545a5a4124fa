//! Others that want a file of which a client holds a delegation: clients of every version, and a program of the host.

use crate::{
    called::{PATIENCE, READ, Session, WRITE, Way, connect, read_of, send, until_done, write_of},
    common::Server,
};
use rpcrdma_env::{Env, Heap};
use rpcrdma_nfs::{
    mount, v2, v3,
    v4::{
        Args, ClientId, ClientName, FileAttributes, Handle, Name, Opaque, Outcome, Owner, OwnerName, StateId, Status,
        VERSION, Value, Verifier,
        ops::{self, Claim, OpenHow, open_result, share},
    },
};
use rpcrdma_nfs_client::{Mount, Nfs2, Nfs3};
use rpcrdma_oncrpc::{
    Client, SysAuth, SysCredential,
    tcp::{self, TcpConnector},
};
use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};
use tokio::time::timeout;

/// The contents of a file before the test, and what the holder writes before it returns the delegation.
pub(crate) const BEFORE: &[u8] = b"before";
pub(crate) const BY_HOLDER: &[u8] = b"holder";
/// What the others write, and the mode that they set.
pub(crate) const BY_OTHER: &[u8] = b"others";
const MODE: u32 = 0o640;

/// What another does with a file that is delegated to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    /// A client of version 2 writes, or reads if the delegation is for writing.
    Version2,
    /// A client of version 2 changes the file in another way.
    SetAttr2,
    Remove2,
    Rename2,
    /// A client of version 3 writes, or reads if the delegation is for writing.
    Version3,
    /// A client of this minor version opens the file to do the same.
    Open(u32),
    /// A program of the host does the same.
    Host,
    Remove,
    Rename,
    SetAttr,
}

pub(crate) const DEEDS: [Deed; 12] = [
    Deed::Version2,
    Deed::SetAttr2,
    Deed::Remove2,
    Deed::Rename2,
    Deed::Version3,
    Deed::Open(0),
    Deed::Open(1),
    Deed::Open(2),
    Deed::Host,
    Deed::Remove,
    Deed::Rename,
    Deed::SetAttr,
];

/// All others that want the file.
pub(crate) struct Others {
    served: PathBuf,
    version_2: (Nfs2, v2::Handle),
    version_3: Nfs3,
    zero: Zero,
    one: Session,
    two: Session,
}

impl Others {
    pub(crate) async fn new(server: &Server, served: PathBuf, way: Way, env: &Env) -> Self {
        let root = root_2(server, env).await;
        let version_2 = (Nfs2::new(connect(server, way, v2::VERSION, env).await.0), root);
        let (client, _) = connect(server, way, v3::VERSION, env).await;
        let version_3 = Nfs3::new(client, env.clock.clone());
        let zero = Zero::new(connect(server, way, VERSION, env).await.0, &format!("zero {way:?}")).await;
        let one = Session::of_minor(connect(server, way, VERSION, env).await.0, &format!("one {way:?}"), 1).await;
        let two = Session::new(connect(server, way, VERSION, env).await.0, &format!("two {way:?}")).await;
        Self { served, version_2, version_3, zero, one, two }
    }

    /// Does the deed, however long the holder makes it wait. `writes` if the delegation is for reading, so that only a
    /// write is in conflict with it.
    pub(crate) async fn perform(&self, deed: Deed, name: &str, file: &Handle, writes: bool) {
        let read = match deed {
            Deed::Version2 | Deed::SetAttr2 | Deed::Remove2 | Deed::Rename2 => {
                let doing = self.by_version_2(deed, name, writes);
                timeout(PATIENCE, doing).await.expect("version 2 does not wait for ever")
            }
            Deed::Version3 => self.by_version_3(file, writes).await,
            Deed::Open(0) => self.zero.open(name, writes).await,
            Deed::Open(1) => by_open(&self.one, name, writes).await,
            Deed::Open(_) => by_open(&self.two, name, writes).await,
            Deed::Host => self.on_host(name, writes).await,
            Deed::Remove => self.in_root(vec![Args::Remove(ops::Remove { name: Name::from(name) })]).await,
            Deed::Rename => {
                let (from, to) = (Name::from(name), Name::from(&*renamed(name)));
                self.in_root(vec![Args::SaveFh, Args::Rename(ops::Rename { from, to })]).await
            }
            Deed::SetAttr => {
                let attributes = FileAttributes::of(&[Value::Mode(MODE)]);
                let set = || Args::SetAttr(ops::SetAttr { state: StateId::ANONYMOUS, attributes: attributes.clone() });
                until_done(async || done(self.two.on(file, set()).await.status())).await;
                None
            }
        };
        if let Some(read) = read {
            assert_eq!(read, BY_HOLDER, "{deed:?}: what the holder wrote before it gave the file back");
        }
    }

    /// Checks on the host that the deed is done.
    pub(crate) fn check(&self, deed: Deed, name: &str, wrote: bool) {
        let path = self.served.join(name);
        let mut has = if wrote { BEFORE } else { BY_HOLDER };
        let mut at = path.clone();
        match deed {
            Deed::Remove | Deed::Remove2 => return assert!(!path.exists(), "{deed:?}"),
            Deed::Rename | Deed::Rename2 => {
                assert!(!path.exists(), "{deed:?}");
                at = self.served.join(renamed(name));
            }
            Deed::SetAttr | Deed::SetAttr2 => {
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE)
            }
            Deed::Version2 | Deed::Version3 | Deed::Open(_) | Deed::Host if wrote => has = BY_OTHER,
            Deed::Version2 | Deed::Version3 | Deed::Open(_) | Deed::Host => {}
        }
        assert_eq!(fs::read(at).unwrap(), has, "{deed:?}");
    }

    /// Checks on the host that the deed is not done yet.
    pub(crate) fn check_before(&self, deed: Deed, name: &str) {
        let found = fs::symlink_metadata(self.served.join(name)).unwrap();
        assert_ne!(found.permissions().mode() & 0o777, MODE, "{deed:?}");
        assert!(!self.served.join(renamed(name)).exists(), "{deed:?}");
    }

    /// Version 2 has its own handles: so the client first looks up the name, which conflicts with no delegation.
    async fn by_version_2(&self, deed: Deed, name: &str, writes: bool) -> Option<Vec<u8>> {
        let ((nfs, root), name) = (&self.version_2, v2::Name::from(name));
        let file = nfs.lookup(*root, &name).await.unwrap().file;
        match deed {
            Deed::SetAttr2 => {
                let attributes = v2::NewAttributes { mode: Some(MODE), ..v2::NewAttributes::default() };
                nfs.setattr(file, attributes).await.unwrap();
            }
            Deed::Remove2 => nfs.remove(*root, &name).await.unwrap(),
            Deed::Rename2 => {
                let to = v2::Name::from(&*renamed(std::str::from_utf8(name.as_slice()).unwrap()));
                nfs.rename((*root, &name), (*root, &to)).await.unwrap();
            }
            _ if writes => drop(nfs.write(file, 0, BY_OTHER.into()).await.unwrap()),
            _ => return Some(nfs.read(file, 0, 100).await.unwrap().data.to_vec()),
        }
        None
    }

    async fn by_version_3(&self, file: &Handle, writes: bool) -> Option<Vec<u8>> {
        // A file has one handle in all versions.
        let file = v3::Handle::new(file.as_slice()).unwrap();
        let calling = async {
            if writes {
                let data = BY_OTHER.into();
                self.version_3.write(&file, 0, v3::Stability::FileSync, data).await.unwrap();
                None
            } else {
                Some(self.version_3.read(&file, 0, 100).await.unwrap().data.to_vec())
            }
        };
        timeout(PATIENCE, calling).await.expect("version 3 does not wait for ever")
    }

    async fn on_host(&self, name: &str, writes: bool) -> Option<Vec<u8>> {
        let path = self.served.join(name);
        let opening = tokio::task::spawn_blocking(move || {
            if writes {
                OpenOptions::new().write(true).open(path).unwrap().write_all(BY_OTHER).unwrap();
                None
            } else {
                Some(fs::read(path).unwrap())
            }
        });
        timeout(PATIENCE, opening).await.expect("a program does not wait for ever").unwrap()
    }

    async fn in_root(&self, ops: Vec<Args>) -> Option<Vec<u8>> {
        let call = [vec![Args::PutRootFh], ops].concat();
        until_done(async || done(self.two.last(call.clone()).await.status())).await;
        None
    }
}

/// The root of the export, as clients of version 2 get it.
async fn root_2(server: &Server, env: &Env) -> v2::Handle {
    let connector = Arc::new(TcpConnector::new(server.mount.parse().unwrap()));
    let (transport, driver) = tcp::connect(connector, Arc::new(Heap), env, Default::default()).await.unwrap();
    tokio::spawn(driver);
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    let client = Client::new(transport, identity, mount::PROGRAM, mount::VERSION_1);
    Mount::new(client).mount_1("/".into()).await.unwrap()
}

fn renamed(name: &str) -> String {
    format!("renamed {name}")
}

fn done(status: Status) -> Result<(), Status> {
    if status == Status::OK { Ok(()) } else { Err(status) }
}

/// Opens the file, uses it, and closes it.
async fn by_open(session: &Session, name: &str, writes: bool) -> Option<Vec<u8>> {
    let access = if writes { WRITE } else { READ } | share::WANT_NONE;
    let (file, opened) = until_done(async || session.open_with(name, access, OpenHow::NoCreate).await).await;
    let read = if writes {
        session.write(&file, opened.state, BY_OTHER).await;
        None
    } else {
        Some(session.read(&file, opened.state).await)
    };
    assert_eq!(session.close(&file, opened.state).await, Status::OK);
    read
}

/// A client of minor version 0, which the server never calls.
struct Zero {
    client: Client,
    id: ClientId,
    /// Each attempt has a new owner, so that it does not depend on the result of an earlier number.
    owners: AtomicU32,
}

impl Zero {
    async fn new(client: Client, name: &str) -> Self {
        // Not the client's own address, so the server cannot call the client.
        let address = ops::NetAddress { netid: Opaque("tcp".into()), address: Opaque("192.0.2.1.8.1".into()) };
        let set = Args::SetClientId(Box::new(ops::SetClientId {
            owner: ops::ClientOwner { verifier: Verifier([1; 8]), name: ClientName::from(name) },
            callback: ops::CallbackClient { program: 0x4000_0000, address },
            callback_ident: 1,
        }));
        let Outcome::SetClientId(Ok(known)) = send(&client, 0, vec![set]).await.remove(0) else {
            panic!("SETCLIENTID")
        };
        let confirm = ops::SetClientIdConfirm { client: known.client, confirm: known.confirm };
        let confirmed = send(&client, 0, vec![Args::SetClientIdConfirm(confirm)]).await;
        assert_eq!(confirmed[0].status(), Status::OK);
        Self { client, id: known.client, owners: AtomicU32::new(0) }
    }

    async fn on(&self, file: &Handle, op: Args) -> Outcome<rpcrdma_xdr::ItemData> {
        send(&self.client, 0, vec![Args::PutFh(ops::PutFh { file: file.clone() }), op]).await.pop().unwrap()
    }

    /// Opens the file, confirms the open, uses the file, and closes it.
    async fn open(&self, name: &str, writes: bool) -> Option<Vec<u8>> {
        let access = if writes { WRITE } else { READ };
        let (file, opened) = until_done(async || {
            let number = self.owners.fetch_add(1, Ordering::Relaxed);
            let owner = Owner { client: self.id, name: OwnerName::from(&*format!("owner {number}")) };
            let claim = Claim::Null(Name::from(name));
            let open = ops::Open { sequence: 1, access, deny: 0, owner, how: OpenHow::NoCreate, claim };
            let mut outcomes =
                send(&self.client, 0, vec![Args::PutRootFh, Args::Open(Box::new(open)), Args::GetFh]).await;
            match (outcomes.pop().unwrap(), outcomes.pop().unwrap()) {
                (Outcome::GetFh(Ok(handle)), Outcome::Open(Ok(opened))) => Ok((handle.file, opened)),
                (failed, _) => Err(failed.status()),
            }
        })
        .await;
        assert_ne!(opened.flags & open_result::CONFIRM, 0, "a new owner confirms");
        let confirm = Args::OpenConfirm(ops::OpenConfirm { state: opened.state, sequence: 2 });
        let Outcome::OpenConfirm(Ok(confirmed)) = self.on(&file, confirm).await else { panic!("OPEN_CONFIRM") };
        let state = confirmed.state;
        let read = if writes {
            assert_eq!(self.on(&file, write_of(state, BY_OTHER)).await.status(), Status::OK);
            None
        } else {
            Some(read_of(self.on(&file, Args::Read(ops::Read { state, offset: 0, count: 100 })).await))
        };
        assert_eq!(self.on(&file, Args::Close(ops::Close { sequence: 3, state })).await.status(), Status::OK);
        read
    }
}
