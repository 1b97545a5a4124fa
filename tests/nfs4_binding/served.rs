//! A server with files in its memory, and clients of it that have a session.

use super::{
    ops,
    wire::{Lists, Refusal, Version, Wire, opaque, words},
};
use bytes::Bytes;
use rpcrdma_fabric::Fabric;
use rpcrdma_nfs::attr::{NewAttributes, Stability};
use rpcrdma_nfsd::{
    Caller, CreateHow, Export, FileSystem, Identities, MemoryFs, New, Nfsd, Queue, Squash, StateDirectory, Version4,
    Via,
};
use rpcrdma_sim::World;
use rpcrdma_transport::{Quiet, Server, ServerMemory, ServerOptions};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
const SECRET: [u8; rpcrdma_nfsd::SECRET_BYTES] = [7; rpcrdma_nfsd::SECRET_BYTES];

/// The contents of the files; the length of the first is no multiple of four.
pub const FIRST: &[u8] = b"the first file, of 35 octets in all";
pub const LINK: &[u8] = b"../elsewhere";
pub const SECOND: &[u8] = b"the second";
pub const LONG_LINK: &[u8] = &[b'l'; 4095];
pub const LARGE_BYTES: usize = 256 << 10;

/// The bytes of the large file.
pub fn large() -> Vec<u8> {
    (0..LARGE_BYTES as u32).map(|at| (at.wrapping_mul(0x9E37) >> 7) as u8).collect()
}

/// The settings that a test may change.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Bytes of memory for results at a time, and the same for arguments.
    pub memory: usize,
    pub credits: u32,
    /// What sessions ask for: slots, the largest call and the largest reply, in bytes.
    pub slots: u32,
    pub max_request: u32,
    pub max_response: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self { memory: 4 << 20, credits: 64, slots: 4, max_request: 1 << 20, max_response: 1 << 20 }
    }
}

/// A server, and everything that keeps it running.
pub struct Served {
    pub world: World,
    version: Version,
    setup: Setup,
    _scratch: tempfile::TempDir,
    _nfsd: Nfsd,
}

/// Makes a file or a link.
async fn make(storage: &MemoryFs, name: &'static str, new: New) -> rpcrdma_nfsd::FileId {
    storage.make(Caller::root(), storage.root(), Bytes::from_static(name.as_bytes()), new).await.unwrap().file
}

async fn fill(storage: &MemoryFs) {
    let attributes = NewAttributes { mode: Some(0o644), ..NewAttributes::default() };
    for (name, octets) in
        [("first", FIRST.to_vec()), ("second", SECOND.to_vec()), ("large", large()), ("new", Vec::new())]
    {
        let file = make(storage, name, New::File(CreateHow::Unchecked(attributes))).await;
        storage.write(Via::caller(Caller::root(), file), 0, octets.into(), Stability::FileSync).await.unwrap();
    }
    make(storage, "link", New::Symlink(attributes, Bytes::from_static(LINK))).await;
    make(storage, "long", New::Symlink(attributes, Bytes::from_static(LONG_LINK))).await;
}

/// Runs a test with a new server in each version of RPC-over-RDMA.
pub fn each_version(setup: Setup, test: impl AsyncFn(&Served)) {
    for version in Version::BOTH {
        let world = World::new(7);
        let env = world.env();
        let storage = Arc::new(MemoryFs::new(16 << 20, &env));
        let scratch = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(scratch.path().join("state"), &*env.random).unwrap();
        let identities = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", storage.clone()).with_identities(identities);
        let version_4 = Version4::new(&state, Queue::in_place());
        let nfsd = Nfsd::new(vec![export], SECRET, &env).unwrap().with_version_4(version_4, true, &env).unwrap();
        let mut options = ServerOptions::default();
        options.versions = version.spoken();
        options.credits = setup.credits;
        let fabric = world.fabric(SERVER);
        let memory = ServerMemory::budget(2 * setup.memory);
        let server = Server::new(&fabric, nfsd.nfs(), memory, env, options, Arc::new(Quiet));
        let spawner = world.clone();
        let _listening = world.spawn(async move {
            let mut listener = fabric.listen(ADDRESS).await.unwrap();
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let server = server.clone();
                spawner.spawn(async move {
                    if let Ok((_, driver)) = server.accept(pending).await {
                        let _ = driver.await;
                    }
                });
            }
        });
        let served = Served { world: world.clone(), version, setup, _scratch: scratch, _nfsd: nfsd };
        world.block_on(async {
            fill(&storage).await;
            world.sleep(Duration::from_millis(1)).await;
            println!("RPC-over-RDMA {version:?}");
            test(&served).await;
        });
    }
}

impl Served {
    /// A client with its own session. Each number is another host.
    pub async fn client(&self, number: u8) -> Client {
        Client::new(self.connect(number).await, number, self.setup).await
    }

    /// The same client over a new connection.
    pub async fn reconnect(&self, client: &mut Client, number: u8) {
        client.wire = self.connect(number).await;
    }

    async fn connect(&self, number: u8) -> Wire {
        let from = IpAddr::V4(Ipv4Addr::new(10, 0, 1, number));
        Wire::connect(&self.world, from, ADDRESS, self.version, self.setup.credits).await
    }
}

/// A COMPOUND that is being written: an RPC call with its operations.
#[derive(Clone)]
pub struct Call {
    pub xid: u32,
    octets: Vec<u8>,
    operations: u32,
}

/// Where the number of operations stands in a call: behind the RPC header with its AUTH_SYS credential (60 bytes), the
/// tag and the minor version.
const COUNT_AT: usize = 68;

impl Call {
    /// A call of minor version 2 as root, without a tag.
    fn new(xid: u32) -> Self {
        Self::of_minor(xid, 2)
    }

    /// The same for another minor version.
    fn of_minor(xid: u32, minor: u32) -> Self {
        let head = [xid, 0, 2, 100_003, 4, 1, 1, 20, 0, 0, 0, 0, 0, 0, 0, 0, minor, 0];
        Self { xid, octets: words(&head), operations: 0 }
    }

    /// Adds an operation, or its front up to an item that is in a chunk.
    pub fn op(mut self, octets: &[u8]) -> Self {
        self.octets.extend_from_slice(octets);
        self.operations += 1;
        self
    }

    pub fn ops(self, ops: impl IntoIterator<Item = Vec<u8>>) -> Self {
        ops.into_iter().fold(self, |call, op| call.op(&op))
    }

    /// Adds the rest of the operation before, behind its item.
    pub fn rest(mut self, octets: &[u8]) -> Self {
        self.octets.extend_from_slice(octets);
        self
    }

    /// The Position of the next byte, if no earlier byte is in a chunk.
    pub fn end(&self) -> u32 {
        self.octets.len() as u32
    }

    pub fn octets(&self) -> Vec<u8> {
        let mut octets = self.octets.clone();
        octets[COUNT_AT..COUNT_AT + 4].copy_from_slice(&self.operations.to_be_bytes());
        octets
    }
}

/// A client's end of a connection, with a session.
pub struct Client {
    pub wire: Wire,
    session: Vec<u8>,
    /// The sequence number of the next call.
    pub sequence: u32,
    slots: u32,
    /// The XID of the next call.
    pub xid: u32,
    /// The handle of the root.
    pub root: Vec<u8>,
}

impl Client {
    async fn new(wire: Wire, number: u8, setup: Setup) -> Self {
        let xid = 0x100 * u32::from(number);
        let mut client = Self { wire, session: Vec::new(), sequence: 1, slots: setup.slots, xid, root: Vec::new() };
        let name = format!("client {number}");
        let owner = [&[0; 8][..], &opaque(name.as_bytes())].concat();
        let known = client.bare([words(&[42]), owner, words(&[0, 0, 0])].concat()).await;
        let channel = words(&[0, setup.max_request, setup.max_response, 2048, 64, setup.slots, 0]);
        let (fore, back) = (channel.clone(), channel);
        // The client's id and the number of its first CREATE_SESSION: behind status, tag, count, operation and status.
        let create = [&words(&[43]), &known[20..32], &words(&[0]), &fore, &back, &words(&[0x4000_0000, 1, 0])].concat();
        let made = client.bare(create).await;
        client.session = made[20..36].to_vec();
        // Behind id, sequence number and flags: padding, request, response, cached, operations, slots.
        let granted: Vec<_> = made[44..68].chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
        let cached = 2048.min(setup.max_response);
        assert_eq!(granted, [0, setup.max_request, setup.max_response, cached, 64, setup.slots]);
        let call = client.call().op(&words(&[58, 0])).op(&ops::put_root_fh()).op(&ops::get_fh());
        let message = client.exchange(&call, &Lists::default()).await;
        let front = client.results(0, &[ops::result(58, 0), ops::result(24, 0), ops::result(10, 0)]);
        let expected = [client.header(&call, &Lists::default()), front].concat();
        assert_eq!(message[..expected.len()], expected[..]);
        client.root = counted(&message[expected.len()..]).to_vec();
        client
    }

    /// Sends an operation without a session, and returns the results of its COMPOUND.
    async fn bare(&mut self, op: Vec<u8>) -> Bytes {
        let call = Call::new(self.next_xid()).op(&op);
        let message = self.exchange(&call, &Lists::default()).await;
        let header = self.header(&call, &Lists::default());
        assert_eq!(message[..header.len()], header[..]);
        let results = message.slice(header.len()..);
        assert_eq!(results[..4], [0; 4], "the COMPOUND succeeds");
        results
    }

    fn next_xid(&mut self) -> u32 {
        self.xid += 1;
        self.xid
    }

    /// A COMPOUND that begins with SEQUENCE for slot 0.
    pub fn call(&mut self) -> Call {
        self.call_with(false)
    }

    /// The same, with a reply that the server keeps.
    pub fn call_kept(&mut self) -> Call {
        self.call_with(true)
    }

    /// A COMPOUND of minor version 0, in which there are no sessions.
    pub fn call_of_zero(&mut self) -> Call {
        Call::of_minor(self.next_xid(), 0)
    }

    fn call_with(&mut self, kept: bool) -> Call {
        let xid = self.next_xid();
        let rest = words(&[self.sequence, 0, self.slots - 1, u32::from(kept)]);
        Call::new(xid).op(&[&words(&[53]), &self.session[..], &rest].concat())
    }

    /// Sends a call, and returns the server's answer.
    pub async fn exchange(&mut self, call: &Call, lists: &Lists) -> Bytes {
        let header = self.wire.version.call(call.xid, false, lists);
        self.wire.say([header, call.octets()].concat()).await;
        self.wire.hear().await
    }

    /// The header of a reply in one message.
    pub fn header(&self, call: &Call, lists: &Lists) -> Vec<u8> {
        [self.wire.reply(call.xid, false, lists), rpc_reply(call.xid)].concat()
    }

    /// The results of a COMPOUND: SEQUENCE's results, then these. Makes the slot ready for the next call.
    pub fn results(&mut self, status: u32, results: &[Vec<u8>]) -> Vec<u8> {
        let front = words(&[status, 0, 1 + results.len() as u32, 53, 0]);
        let highest = self.slots - 1;
        let told = words(&[self.sequence, 0, highest, highest, 0]);
        self.sequence += 1;
        [&front, &self.session[..], &told, &results.concat()].concat()
    }

    /// Sends a call; the reply must have these lists, this status and these results.
    pub async fn answered(&mut self, call: &Call, lists: &Lists, returned: &Lists, status: u32, results: &[Vec<u8>]) {
        let message = self.exchange(call, lists).await;
        let expected = [self.header(call, returned), self.results(status, results)].concat();
        assert_eq!(hex(&message), hex(&expected));
    }

    /// Sends a call, which the server must refuse; the slot does not change.
    pub async fn refused(&mut self, call: &Call, lists: &Lists, refusal: Refusal) {
        let message = self.exchange(call, lists).await;
        assert_eq!(hex(&message), hex(&self.wire.error(call.xid, refusal)));
    }

    /// The contents of a file, read inline.
    pub async fn contents(&mut self, name: &str) -> Vec<u8> {
        let call = self.call().ops(ops::to(&self.root.clone(), name)).op(&ops::read(0, 1000));
        let message = self.exchange(&call, &Lists::default()).await;
        let [a, b] = ops::at_it();
        let expected = [self.header(&call, &Lists::default()), self.results(0, &[a, b, words(&[25, 0, 1])])].concat();
        assert_eq!(hex(&message[..expected.len()]), hex(&expected));
        counted(&message[expected.len()..]).to_vec()
    }
}

/// The bytes of the opaque at the beginning.
fn counted(octets: &[u8]) -> &[u8] {
    let len = u32::from_be_bytes(octets[..4].try_into().unwrap()) as usize;
    &octets[4..4 + len]
}

/// The header of an RPC reply that was accepted and executed.
pub fn rpc_reply(xid: u32) -> Vec<u8> {
    words(&[xid, 1, 0, 0, 0, 0])
}

/// Bytes as a failing test should show them: a word at a time.
pub fn hex(octets: &[u8]) -> String {
    octets.chunks(4).map(|word| word.iter().map(|octet| format!("{octet:02x}")).collect::<String>() + " ").collect()
}
