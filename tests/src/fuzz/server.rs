//! A server in this process, over sockets: an input is the bytes of one connection. The set-up and the frames around
//! messages can be right, so that libFuzzer's changes reach the code behind them. Whatever the bytes are, the server
//! must answer the next connection.

use super::{iwarp::fpdu, mint::Mint};
use rpcrdma_env::tokio_env;
use rpcrdma_fabric::Fabric;
use rpcrdma_iwarp::{
    Config, Iwarp,
    protocol::{
        ddp::{Header, Placement, UNTAGGED_OCTETS},
        mpa::{Enhanced, Frame, HEAD_OCTETS, Head, Kind},
        rdmap::Opcode,
    },
};
use rpcrdma_nfsd::{Export, MemoryFs, Nfsd, SECRET_BYTES};
use rpcrdma_transport::{Quiet, Server, ServerMemory, ServerOptions};
use rpcrdma_wire::{PrivateData, v1};
use std::{
    future::poll_fn,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, OnceLock, mpsc},
    thread,
    time::Duration,
};

/// Bytes of the server's file system.
const STORAGE_OCTETS: u64 = 1 << 20;
/// Memory for calls.
const MEMORY_BYTES: usize = 8 << 20;
/// How long an answer may take; a slower server counts as one that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server's address. The server is started once, in its own thread, and never ends.
fn address() -> SocketAddr {
    static ONCE: OnceLock<SocketAddr> = OnceLock::new();
    *ONCE.get_or_init(|| {
        let (told, address) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(serve(told));
        });
        address.recv().expect("the server has started")
    })
}

async fn serve(told: mpsc::Sender<SocketAddr>) {
    let env = tokio_env().expect("the system has randomness");
    let storage = Arc::new(MemoryFs::new(STORAGE_OCTETS, &env));
    let nfsd = Nfsd::new(vec![Export::new("/", storage)], [7; SECRET_BYTES], &env).expect("one export");
    let fabric = Iwarp::new(env.clone(), Config::default());
    let memory = ServerMemory::budget(MEMORY_BYTES);
    let server = Server::new(&fabric, nfsd.nfs(), memory, env, ServerOptions::default(), Arc::new(Quiet));
    let mut listener = fabric.listen(([127, 0, 0, 1], 0).into()).await.expect("a port");
    told.send(listener.local_addr()).expect("somebody asked");
    loop {
        let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
        let server = server.clone();
        tokio::spawn(async move {
            if let Ok((_, driver)) = server.accept(pending).await {
                let _ = driver.await;
            }
        });
    }
}

/// Sends one connection's bytes, then makes a decent client's call.
pub(super) fn live(input: &[u8]) {
    let mut mint = Mint::new(input);
    let octets = script(&mut mint);
    exchange(&octets);
    decent();
}

/// The bytes to send: the set-up, right or not, then frames.
fn script(mint: &mut Mint<'_>) -> Vec<u8> {
    let mut out = match mint.u8() {
        0..=0xEF => set_up(),
        _ => {
            let len = mint.u8().into();
            mint.take(len).to_vec()
        }
    };
    let mut msn = 0;
    while !mint.is_empty() {
        let kind = mint.u8();
        let len = usize::from(mint.u16() % 1500);
        let octets = mint.take(len);
        match kind % 4 {
            0 => out.extend(octets),
            1 => out.extend(fpdu(octets)),
            _ => {
                msn += 1;
                out.extend(send(msn, octets));
            }
        }
    }
    out
}

fn set_up() -> Vec<u8> {
    let head = Head { markers: false, crc: true, reject: false, enhanced: true, revision: 2, private_octets: 0 };
    let enhanced = Some(Enhanced { ird: 4, ord: 4, ..Enhanced::default() });
    let data = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 };
    Frame { head, enhanced, private_data: data.to_octets().to_vec() }.encode(Kind::Request)
}

fn send(msn: u32, octets: &[u8]) -> Vec<u8> {
    let mut header = [0; UNTAGGED_OCTETS];
    let placement = Placement::Untagged { queue: 0, msn, offset: 0, invalidate: 0 };
    let len = Header { opcode: Opcode::Send, last: true, placement }.encode(&mut header);
    fpdu(&[&header[..len], octets].concat())
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(address()).expect("the server listens");
    stream.set_nodelay(true).expect("it is TCP");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is TCP");
    stream
}

/// Sends bytes, ends its direction, and reads to the end.
fn exchange(octets: &[u8]) {
    let mut stream = connect();
    // The server may have closed already.
    let _ = stream.write_all(octets).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answers = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answers) {
        assert!(!timed_out(&error), "the server has not ended the connection");
    }
}

fn timed_out(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// Makes a NULL call, which must be answered.
fn decent() {
    let mut stream = connect();
    let mut call = v1::Header::new(5, 1, v1::Body::Msg(v1::Lists::default())).to_bytes().to_vec();
    for word in [5u32, 0, 2, 100_003, 3, 0, 0, 0, 0, 0] {
        call.extend(word.to_be_bytes());
    }
    stream.write_all(&[set_up(), send(1, &call)].concat()).expect("the server takes it");
    let mut head = [0; HEAD_OCTETS];
    stream.read_exact(&mut head).expect("the server answers");
    let head = Head::decode(Kind::Reply, &head).expect("a reply");
    let mut private = vec![0; head.private_octets];
    stream.read_exact(&mut private).expect("all of it");
    let mut answer = [0; 2 + UNTAGGED_OCTETS + 28 + 4];
    stream.read_exact(&mut answer).expect("the call is answered");
    assert_eq!(answer[answer.len() - 4..], 5u32.to_be_bytes(), "it is the answer to this call");
}
