//! A client for tests: whole RPC messages to the handlers, without a transport.

use crate::{Export, FileSystem, Nfsd, SECRET_BYTES};
use rpcrdma_env::{Allocator, BoxFuture, Buffer, Env, Heap, Memory, SeededRandom, TokioClock};
use rpcrdma_nfs::{
    Call,
    mount::{self, DirectoryPath, MountReply},
    nfsacl,
    v3::{
        self, Answer, Attributes, Create, CreateHow, Created, Failure, GetAttributes, Handle, Lookup, LookupOk, Name,
        NewAttributes, Read, ReadOk, Stability, Status, WeakCache, Write, WriteOk,
    },
};
use rpcrdma_oncrpc::{
    AUTH_SYS, Accepted, Arrival, CallContext, CallHeader, CallId, ClientTransport, Connection, Credential, Gone,
    GoneSignal, Handler, Limits, OpaqueAuth, Outcome, Rejection, ReplyHeader, ServerFlavour, SysCredential,
    TransportKind, Verdict,
    gss::{GssCaller, GssService, GssUser, RPCSEC_GSS},
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, ItemData, Payload, Stream};
use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

pub(crate) const SECRET: [u8; SECRET_BYTES] = [9; SECRET_BYTES];

pub(crate) fn env() -> Env {
    Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) }
}

/// Completes a future that needs no runtime to wake it.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Memory that counts how much of it is in use.
#[derive(Clone, Default)]
pub(crate) struct Watched(pub(crate) Arc<AtomicUsize>);

struct Piece(Vec<u8>, Arc<AtomicUsize>);

impl Memory for Piece {
    fn octets(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

impl Allocator for Watched {
    fn try_allocate(&self, len: usize) -> Option<Buffer> {
        self.0.fetch_add(len, Ordering::Relaxed);
        Some(Buffer::new(Box::new(Piece(vec![0; len], self.0.clone()))))
    }

    fn allocate(&self, len: usize) -> BoxFuture<'_, Buffer> {
        Box::pin(std::future::ready(self.try_allocate(len).unwrap()))
    }
}

/// Believes the service and the principal in a credential without RPCSEC_GSS's proof. Each principal is user 1000.
pub(crate) struct Believed;

impl ServerFlavour for Believed {
    fn number(&self) -> u32 {
        RPCSEC_GSS
    }

    fn accept(&self, _: SocketAddr, call: &CallHeader, args: Decoder) -> Verdict {
        let (service, principal) = call.credential.body.split_at(4);
        let service = match service[3] {
            0 => GssService::Authentication,
            1 => GssService::Integrity,
            _ => GssService::Privacy,
        };
        let user = GssUser { uid: 1000, gid: 1000, ..GssUser::default() };
        let caller = GssCaller::new(std::str::from_utf8(principal).unwrap(), Some(user), service);
        Verdict::Accepted(Accepted::plain(Credential::Gss(Arc::new(caller)), args))
    }
}

/// Work that goes on while a caller waits for an answer.
pub(crate) type Beside = Arc<Mutex<BoxFuture<'static, ()>>>;

/// A client of one server, as one user.
pub(crate) struct Client {
    nfs: Arc<dyn Handler>,
    mount: Arc<dyn Handler>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) address: IpAddr,
    /// The address of the server that the client calls, if not the server's usual one.
    pub(crate) called: Option<IpAddr>,
    pub(crate) limits: Limits,
    /// Memory for results.
    pub(crate) memory: Arc<dyn Allocator>,
    /// The connection's number.
    pub(crate) connection: u64,
    /// The port from which it calls.
    pub(crate) port: u16,
    pub(crate) beside: Option<Beside>,
    /// If set, all calls came together.
    pub(crate) arrival: Option<Arrival>,
    /// How the server calls it over that connection.
    pub(crate) reverse: Option<(Arc<dyn ClientTransport>, Gone)>,
    /// The service and the principal of its calls, if it does not use AUTH_SYS.
    pub(crate) proven: Option<(GssService, &'static str)>,
    xid: AtomicU32,
}

impl Client {
    pub(crate) fn of(server: &Nfsd) -> Self {
        Self {
            nfs: server.nfs(),
            mount: server.mount(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            address: [127, 0, 0, 1].into(),
            called: None,
            limits: Limits::new((1 << 20) + 65536, (1 << 20) + 65536),
            memory: Arc::new(Heap),
            connection: 1,
            port: 700,
            beside: None,
            arrival: None,
            reverse: None,
            proven: None,
            xid: AtomicU32::new(1),
        }
    }

    /// A client that may use no export of the server.
    pub(crate) fn stranger(server: &Nfsd) -> Self {
        Self { nfs: Nfsd::stranger(), mount: Nfsd::stranger(), ..Self::of(server) }
    }

    /// The same, but `handler` executes its calls to all programs except NFS.
    pub(crate) fn calling(self, handler: Arc<dyn Handler>) -> Self {
        Self { mount: handler, ..self }
    }

    /// The same, whose xids begin with this one.
    pub(crate) fn numbered_from(self, xid: u32) -> Self {
        Self { xid: AtomicU32::new(xid), ..self }
    }

    /// A client of a file system that is the only export, as `/`.
    pub(crate) fn serving(file_system: Arc<dyn FileSystem>) -> Self {
        Self::of(&Nfsd::new(vec![Export::new("/", file_system)], SECRET, &env()).unwrap())
    }

    /// The same server as another user.
    pub(crate) fn as_user(&self, uid: u32, gid: u32, groups: &[u32]) -> Self {
        Self {
            nfs: self.nfs.clone(),
            mount: self.mount.clone(),
            uid,
            gid,
            groups: groups.to_vec(),
            address: self.address,
            called: self.called,
            limits: self.limits,
            memory: self.memory.clone(),
            connection: self.connection,
            port: self.port,
            beside: self.beside.clone(),
            arrival: self.arrival,
            reverse: self.reverse.clone(),
            proven: self.proven,
            xid: AtomicU32::new(uid.wrapping_mul(1_000_003)),
        }
    }

    pub(crate) fn send(
        &self,
        program: u32,
        version: u32,
        procedure: u32,
        args: Payload,
    ) -> BoxFuture<'static, Outcome> {
        let xid = self.xid.fetch_add(1, Ordering::Relaxed);
        let mut body = Encoder::new();
        let groups = self.groups.clone();
        SysCredential { uid: self.uid, gid: self.gid, groups, ..SysCredential::default() }.encode(&mut body);
        let mut credential = OpaqueAuth { flavour: AUTH_SYS, body: body.finish().to_bytes() };
        if let Some((service, principal)) = self.proven {
            let body = [&(service as u32).to_be_bytes()[..], principal.as_bytes()].concat();
            credential = OpaqueAuth { flavour: RPCSEC_GSS, body: body.into() };
        }
        let id = CallId { xid, program, version, procedure };
        let mut encoder = Encoder::new();
        CallHeader { id, credential, verifier: OpaqueAuth::none() }.encode(&mut encoder);
        encoder.payload(args);
        let (_signal, gone) = GoneSignal::new();
        let (reverse, gone) = match self.reverse.clone() {
            Some((reverse, gone)) => (Some(reverse), gone),
            None => (None, gone),
        };
        let peer = SocketAddr::new(self.address, self.port);
        let local = SocketAddr::new(self.called.unwrap_or(self.address), self.port);
        let mut connection =
            Connection::new(peer, local, self.connection, TransportKind::Tcp, self.limits, self.memory.clone(), gone);
        connection.reverse = reverse;
        let mut context = CallContext::new(Arc::new(connection));
        context.arrival = self.arrival;
        let is_beside = !matches!(program, v3::PROGRAM | nfsacl::PROGRAM);
        let handler = if is_beside { &self.mount } else { &self.nfs };
        handler.handle(context, Stream::from(encoder.finish().to_bytes()))
    }

    /// Gives the next call the xid of the last call.
    pub(crate) fn repeat(&self) {
        self.xid.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn raw(&self, program: u32, version: u32, procedure: u32, args: Payload) -> Result<Decoder, Rejection> {
        let mut call = self.send(program, version, procedure, args);
        let answered = poll_fn(|cx| {
            let answer = call.as_mut().poll(cx);
            // The call may have handed over work that it waits for, or that its test looks at.
            if let Some(beside) = &self.beside {
                let _ = beside.lock().unwrap().as_mut().poll(cx);
            }
            answer
        });
        let Outcome::Reply(reply) = wait(answered) else { panic!("no reply") };
        let mut decoder = Decoder::new(Stream::from(reply.to_bytes()));
        ReplyHeader::decode(&mut decoder).unwrap().status.map(|()| decoder)
    }

    pub(crate) fn ask<C: Call>(&self, call: C) -> C::Reply {
        let mut encoder = Encoder::new();
        call.encode(&mut encoder);
        let mut decoder = self.raw(C::PROGRAM, C::VERSION, C::PROCEDURE, encoder.finish()).unwrap();
        assert!(decoder.remaining() <= call.reply_shape().max_len, "the binding's largest reply holds");
        let reply = C::Reply::decode(&mut decoder).unwrap();
        decoder.finish().unwrap();
        reply
    }

    pub(crate) fn mount(&self, path: &str) -> Result<Handle, mount::Status> {
        let path = DirectoryPath(bytes::Bytes::copy_from_slice(path.as_bytes()));
        match self.ask(mount::Mount { path }) {
            MountReply::Ok { root, .. } => Ok(root),
            MountReply::Failed(status) => Err(status),
        }
    }

    pub(crate) fn root(&self) -> Handle {
        self.mount("/").unwrap()
    }

    pub(crate) fn attributes(&self, file: &Handle) -> Result<Attributes, Status> {
        plain(self.ask(GetAttributes { file: file.clone() }))
    }

    pub(crate) fn lookup(&self, directory: &Handle, name: impl Into<Name>) -> Result<LookupOk, Status> {
        plain(self.ask(Lookup { directory: directory.clone(), name: name.into() }))
    }

    /// Looks up each name of a path in turn.
    pub(crate) fn walk(&self, path: &str) -> Result<Handle, Status> {
        let mut at = self.root();
        for name in path.split('/') {
            at = self.lookup(&at, name)?.file;
        }
        Ok(at)
    }

    pub(crate) fn create(&self, directory: &Handle, name: impl Into<Name>, how: CreateHow) -> Result<Created, Status> {
        plain(self.ask(Create { directory: directory.clone(), name: name.into(), how }))
    }

    /// Makes a file that must not be there.
    pub(crate) fn new_file(&self, directory: &Handle, name: impl Into<Name>) -> Handle {
        let mode = NewAttributes { mode: Some(0o644), ..NewAttributes::default() };
        self.create(directory, name, CreateHow::Guarded(mode)).unwrap().file.unwrap()
    }

    pub(crate) fn new_directory(&self, directory: &Handle, name: impl Into<Name>) -> Handle {
        let attributes = NewAttributes { mode: Some(0o755), ..NewAttributes::default() };
        let make = v3::MakeDirectory { directory: directory.clone(), name: name.into(), attributes };
        plain(self.ask(make)).unwrap().file.unwrap()
    }

    pub(crate) fn write(&self, file: &Handle, offset: u64, data: impl Into<Vec<u8>>) -> Result<WriteOk, Status> {
        let data = data.into().into();
        plain(self.ask(Write { file: file.clone(), offset, stability: Stability::Unstable, data }))
    }

    pub(crate) fn read(&self, file: &Handle, offset: u64, count: u32) -> Result<ReadOk<ItemData>, Status> {
        plain(self.ask(Read { file: file.clone(), offset, count }))
    }

    pub(crate) fn contents(&self, file: &Handle) -> Vec<u8> {
        let mut whole = Vec::new();
        loop {
            let read = self.read(file, whole.len() as u64, 1 << 20).unwrap();
            whole.extend_from_slice(read.data.as_slice());
            if read.end {
                return whole;
            }
            assert!(!read.data.as_slice().is_empty(), "no bytes and yet not the end");
        }
    }

    pub(crate) fn set(&self, file: &Handle, attributes: NewAttributes) -> Result<WeakCache, Status> {
        plain(self.ask(v3::SetAttributes { file: file.clone(), attributes, guard: None }))
    }

    pub(crate) fn remove(&self, directory: &Handle, name: impl Into<Name>) -> Result<WeakCache, Status> {
        plain(self.ask(v3::Remove { directory: directory.clone(), name: name.into() }))
    }

    pub(crate) fn remove_directory(&self, directory: &Handle, name: impl Into<Name>) -> Result<WeakCache, Status> {
        plain(self.ask(v3::RemoveDirectory { directory: directory.clone(), name: name.into() }))
    }

    pub(crate) fn rename(
        &self,
        from: (&Handle, impl Into<Name>),
        to: (&Handle, impl Into<Name>),
    ) -> Result<v3::RenameInfo, Status> {
        plain(self.ask(v3::Rename {
            from_directory: from.0.clone(),
            from: from.1.into(),
            to_directory: to.0.clone(),
            to: to.1.into(),
        }))
    }

    pub(crate) fn access(&self, file: &Handle, rights: u32) -> Result<u32, Status> {
        plain(self.ask(v3::Access { file: file.clone(), rights })).map(|ok| ok.rights)
    }

    /// All names of a directory, from replies of at most `count` bytes.
    pub(crate) fn names(&self, directory: &Handle, count: u32) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        let (mut cookie, mut verifier) = (0, v3::Verifier::default());
        loop {
            let list = v3::ReadDirectory { directory: directory.clone(), cookie, verifier, count };
            let listing = plain(self.ask(list)).unwrap();
            names.extend(listing.entries.iter().map(|entry| entry.name.as_slice().to_vec()));
            if listing.end {
                names.sort();
                return names;
            }
            cookie = listing.entries.last().unwrap().cookie;
            verifier = listing.verifier;
        }
    }
}

/// The status of a failure, without its other results.
pub(crate) fn plain<T, F>(answer: Answer<T, F>) -> Result<T, Status> {
    answer.into_result().map_err(|Failure { status, .. }| status)
}
