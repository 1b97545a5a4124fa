//! The server's calls to clients of minor version 0: it calls only hosts that have asked for it, and whatever a called
//! client does costs no other client anything.

use crate::honest::{Honest, places, stage_of_all as stage};
use rpcrdma_peers::{
    nfs4::{
        client::{self, Client, State},
        link::{Link, Place},
        op, status,
        zero::{Zero, one, set_client_id},
    },
    rpc::{self, Xdr, word},
};
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The server's lease.
const LEASE: Duration = Duration::from_secs(3);
/// How long something may take; usually it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// If no connection has come for this long, none will come.
const QUIET: Duration = Duration::from_millis(500);
/// How long one call of a decent client may take, on a machine with other work.
const PROMPT: Duration = Duration::from_secs(2);
/// OPEN_DELEGATE_READ.
const DELEGATED: u32 = 1;

/// The universal address of a socket.
fn universal(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

fn listener(address: &str) -> TcpListener {
    let listener = TcpListener::bind((address, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// proves: ULB-6.1-a, ULB-6.1-b, ULB-6.1-c
#[test]
fn nobody_is_called_but_who_has_asked_for_it() {
    let stage = stage(&[]);
    let (third, own) = (listener("127.0.0.2"), listener("127.0.0.1"));
    let (to_third, to_own) = (universal(third.local_addr().unwrap()), universal(own.local_addr().unwrap()));
    let port = to_own.rsplit_once("0.1.").unwrap().1;
    let mapped = format!("::ffff:127.0.0.2.{port}");
    let (six, short) = (format!("::1.{port}"), format!("127.0.0.{port}"));
    let (name, large) = (format!("localhost.{port}"), format!("127.0.0.1.{}.1", 256 + 7));
    let refused: [(&[u8], &[u8]); 18] = [
        (b"tcp", to_third.as_bytes()),
        (b"tcp6", to_third.as_bytes()),
        (b"tcp6", mapped.as_bytes()),
        (b"tcp6", six.as_bytes()),
        (b"tcp6", to_own.as_bytes()),
        (b"rdma", to_own.as_bytes()),
        (b"rdma6", to_own.as_bytes()),
        (b"udp", to_own.as_bytes()),
        (b"TCP", to_own.as_bytes()),
        (b"tcp\0", to_own.as_bytes()),
        (b"", to_own.as_bytes()),
        (b"tcp", b"127.0.0.1.0.0"),
        (b"tcp", b""),
        (b"tcp", short.as_bytes()),
        (b"tcp", name.as_bytes()),
        (b"tcp", large.as_bytes()),
        (b"tcp", &[0xFF; 40]),
        (b"tcp", b"......................"),
    ];
    for (which, place) in places(&stage).iter().enumerate() {
        let mut honest = Honest::new(place);
        for (number, address) in refused.into_iter().enumerate() {
            let mut zero = Zero::called_at(place, format!("{which}-{number}").as_bytes(), address);
            assert_eq!(zero.renew(), status::OK, "it is a client all the same: {address:?}");
        }
        // The server also refuses an address that is longer than any valid one.
        let long = set_client_id(b"long", 1, (b"tcp", &[b'1'; 300]));
        assert_eq!(Link::to(place).call(&one(op::SETCLIENTID, long)).status, status::BADXDR);
        thread::sleep(QUIET);
        for listener in [&third, &own] {
            let came = listener.accept();
            assert!(came.is_err(), "{:?} was called", listener.local_addr());
        }
        // The server calls a client at its own address: so the listeners would have noticed other calls.
        let _asks = Zero::called_at(place, format!("{which}-asks").as_bytes(), (b"tcp", to_own.as_bytes()));
        let (_stream, from) = accepted(&own);
        assert_eq!(from.ip().to_string(), "127.0.0.1");
        honest.works();
    }
    stage.finish();
}

fn accepted(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let begin = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return (stream, from);
            }
            Err(_) => assert!(begin.elapsed() < PATIENCE, "nobody has called"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What a client does with CB_RECALL. It answers CB_NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It takes the call, and does not reply.
    Silent,
    /// It sends a reply to another call, then a reply to this call with nonsense results.
    Garbage,
    /// It sends half of a reply.
    EndsInTheMiddle,
    /// It announces a record of 2 GiB, and sends bytes without end.
    HugeMark,
}

/// Takes the server's calls, on one connection after the other, until `is_over`.
fn is_called(listener: &TcpListener, manner: Manner, is_over: &AtomicBool, recalls: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        while !is_over.load(Ordering::Acquire) {
            match stream.peek(&mut [0]) {
                // Nothing has come for a while.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Ok(octets) if octets > 0 => {}
                _ => break,
            }
            let Some(call) = rpc::read_record(&mut stream) else { break };
            let (xid, procedure) = (word(&call, 0), word(&call, 20));
            if procedure == 0 {
                rpc::send_record(&mut stream, &Xdr::default().words(&[xid, 1, 0, 0, 0, 0]).0);
                continue;
            }
            recalls.store(true, Ordering::Release);
            if !misbehaves(&mut stream, manner, xid) {
                break;
            }
        }
    }
}

/// Misbehaves. Returns whether the connection stays.
fn misbehaves(stream: &mut TcpStream, manner: Manner, xid: u32) -> bool {
    match manner {
        Manner::Silent => true,
        Manner::Garbage => {
            rpc::send_record(stream, &Xdr::default().words(&[xid ^ 0x5555, 1, 0, 0, 0, 0, 0, 0, 0]).0);
            rpc::send_record(stream, &Xdr::default().words(&[xid, 1, 0, 0, 0, 0, 0, 7, 0xFFFF_FFFF, 4]).0);
            true
        }
        Manner::EndsInTheMiddle => {
            let _ = stream.write_all(&Xdr::default().words(&[0x8000_0000 | 400, xid, 1, 0]).0);
            false
        }
        Manner::HugeMark => {
            let _ = stream.write_all(&Xdr::default().words(&[0x7FFF_FFFF, xid, 1, 0, 0, 0, 0]).0);
            // As long as the server takes them.
            let octets = vec![0xA5; 1 << 20];
            while stream.write_all(&octets).is_ok() {}
            let _ = stream.read(&mut [0]);
            false
        }
    }
}

/// A client that has a file delegated.
fn delegated(place: &Place, name: &str, file: &str, listener: &TcpListener) -> (Zero, State, Vec<u8>) {
    let address = universal(listener.local_addr().unwrap());
    let mut zero = Zero::called_at(place, name.as_bytes(), (b"tcp", address.as_bytes()));
    let mut owner = zero.owner(b"o");
    let open = owner.open(file.as_bytes(), 1, 0);
    zero.opened(&mut owner, &open);
    let begin = Instant::now();
    loop {
        let results = zero.link.call(&owner.open(file.as_bytes(), 1, 0));
        let (body, handle) = (results.body(op::OPEN), results.body(op::GETFH));
        let at = 44 + 4 * word(body, 40) as usize;
        if word(body, at) == DELEGATED {
            return (zero, client::state_of(&body[at + 4..]), handle[4..4 + word(handle, 0) as usize].to_vec());
        }
        assert!(begin.elapsed() < PATIENCE, "{name} is not taken for one that can be called");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A client that renews its lease but does not return a recalled delegation loses it after a lease. Until then the
/// server at once tells the client that wants the file to try later, and all others can work.
#[test]
fn who_does_not_answer_a_recall_loses_the_file_and_delays_nobody() {
    let stage = stage(&["--lease", "3"]);
    let manners = [Manner::Silent, Manner::Garbage, Manner::EndsInTheMiddle, Manner::HugeMark];
    for manner in manners {
        let path = stage.scratch.path().join(format!("export/{manner:?}"));
        fs::write(&path, b"data").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let [tcp, rdma] = places(&stage);
    thread::scope(|scope| {
        let mut honest = Honest::new(&tcp);
        let wanting = manners.into_iter().zip([&tcp, &rdma, &tcp, &rdma]);
        let wanting: Vec<_> =
            wanting.map(|(manner, place)| scope.spawn(move || is_taken_from(manner, place))).collect();
        while wanting.iter().any(|thread| !thread.is_finished()) {
            let begin = Instant::now();
            honest.works();
            assert!(begin.elapsed() < PROMPT, "an honest client waits for {:?}", begin.elapsed());
            thread::sleep(Duration::from_millis(50));
        }
    });
    stage.finish();
}

/// Another client wants a file that is delegated to a client of this manner.
fn is_taken_from(manner: Manner, place: &Place) {
    let (name, listener) = (format!("{manner:?}"), listener("127.0.0.1"));
    let (is_over, recalled) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let called = scope.spawn(|| is_called(&listener, manner, &is_over, &recalled));
        let (mut zero, delegation, file) = delegated(place, &name, &name, &listener);
        let mut wants = Client::new(place, format!("wants {name}").as_bytes(), 2);
        let begin = Instant::now();
        let mut delays = 0;
        loop {
            let asked = Instant::now();
            let open = client::open_existing(name.as_bytes(), b"o", 2, 0);
            let opened = wants.call(&wants.compound().plain(op::PUTROOTFH).op(op::OPEN, open)).status;
            assert!(asked.elapsed() < PROMPT, "{name}: who wants the file waits for {:?}", asked.elapsed());
            // The holder renews its lease all the time, whether the server can call it or not.
            assert!(matches!(zero.renew(), status::OK | status::CB_PATH_DOWN), "{name}");
            match opened {
                status::OK => break,
                status::DELAY => delays += 1,
                other => panic!("{name}: {other}"),
            }
            assert!(begin.elapsed() < LEASE + PATIENCE, "{name}: it is never taken from it");
            thread::sleep(LEASE / 30);
        }
        assert!(begin.elapsed() >= LEASE && delays > 0, "{name}: it has a lease: {:?}", begin.elapsed());
        assert!(recalled.load(Ordering::Acquire), "{name} was not called");
        let lost = zero.on(&file, op::READ, client::read(&delegation, 1)).status;
        assert!(matches!(lost, status::BAD_STATEID | status::EXPIRED | status::ADMIN_REVOKED), "{name}: {lost}");
        is_over.store(true, Ordering::Release);
        called.join().unwrap();
    });
}
