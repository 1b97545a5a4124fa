//! The set-up of a connection: invalid frames, silence, and floods.

use crate::{
    idlers::dial_from,
    peer::{PATIENCE, Peer, dial, read_reply, rest},
    rpc,
    stage::Stage,
    wire::{CRC, ENHANCED, MARKERS, PRIVATE_DATA, REJECT, enhanced, request},
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

/// The most unfinished connections from one address: the server's own limit.
const SETUPS_PER_ADDRESS: usize = 64;
/// The server's time-out for set-up, and what a busy machine may add.
const SETUP_TIMEOUT: [Duration; 2] = [Duration::from_secs(9), Duration::from_secs(16)];

/// proves: MPA-5044-7.1-a, MPA-5044-7.1-b, MPA-5044-7.1-c, CM-6581-9-a
#[test]
fn a_frame_that_is_no_request_closes_the_connection() {
    let mut stage = Stage::new(&[]);
    let good = enhanced(16, 16, &PRIVATE_DATA);
    let key = |key: &[u8; 16]| [&key[..], &request(CRC, 2, &[])[16..]].concat();
    let frames = [
        ("a reply's key", key(b"MPA ID Rep Frame")),
        ("a key in small letters", key(b"mpa id req frame")),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec()),
        ("TLS", [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3][..], &[0x5A; 64]].concat()),
        ("zeros", vec![0; 600]),
        ("ones", vec![0xFF; 600]),
        ("revision 0", request(CRC, 0, &[])),
        ("revision 3", request(CRC | ENHANCED, 3, &good)),
        ("revision 255", request(CRC | ENHANCED, 255, &good)),
        ("513 bytes of private data", request(CRC, 2, &[7; 513])),
        ("65,535 bytes of private data", request(CRC, 1, &[7; 65_535])),
        ("an enhanced request without its block", request(CRC | ENHANCED, 2, &[])),
        ("an enhanced request with half its block", request(CRC | ENHANCED, 2, &[0, 16, 0])),
    ];
    for (what, frame) in &frames {
        let mut stream = dial(&stage.server.rdma);
        // The server may close before everything is sent.
        let _ = stream.write_all(frame);
        assert_eq!(rest(&mut stream), b"", "{what}");
        stage.the_open_connection_works();
    }
    stage.finish();
}

/// proves: MPA-5044-7.1-f
#[test]
fn markers_are_refused_and_the_limits_of_requests_are_taken() {
    let stage = Stage::new(&[]);
    for revision in [1, 2] {
        let mut stream = dial(&stage.server.rdma);
        stream.write_all(&request(MARKERS | CRC, revision, &[])).unwrap();
        let (flags, _) = read_reply(&mut stream).expect("a rejection");
        assert_eq!(flags & (REJECT | MARKERS), REJECT);
        assert_eq!(rest(&mut stream), b"");
    }
    let private = [&PRIVATE_DATA[..], &[0; 500]].concat();
    for (what, flags, revision, private) in [
        ("512 bytes of private data", CRC | ENHANCED, 2, enhanced(16, 16, &private)),
        ("no private data", CRC, 1, Vec::new()),
        ("private data of somebody else", CRC, 2, vec![0xA5; 77]),
        ("no Reads either way", CRC | ENHANCED, 2, enhanced(0, 0, &PRIVATE_DATA)),
        ("Reads without number", CRC | ENHANCED, 2, enhanced(0x3FFF, 0x3FFF, &PRIVATE_DATA)),
        ("reserved bits", CRC | ENHANCED | 0x0F, 2, enhanced(1, 1, &PRIVATE_DATA)),
        ("a rejection in a request", CRC | ENHANCED | REJECT, 2, enhanced(1, 1, &PRIVATE_DATA)),
    ] {
        let mut stream = dial(&stage.server.rdma);
        stream.write_all(&request(flags, revision, &private)).unwrap();
        let (flags, _) = read_reply(&mut stream).unwrap_or_else(|| panic!("{what}: no reply"));
        assert_eq!(flags & (REJECT | CRC), CRC, "{what}");
    }
    stage.finish();
}

/// Half a request and then nothing, or one byte now and then: the server gives up in time. The only test that waits.
#[test]
fn an_unfinished_request_is_given_up_in_time() {
    let stage = Stage::new(&[]);
    let whole = request(CRC | ENHANCED, 2, &enhanced(16, 16, &PRIVATE_DATA));
    let attack = |octets: usize, drip: bool| {
        let (whole, address) = (whole.clone(), stage.server.rdma.clone());
        std::thread::spawn(move || {
            let begin = Instant::now();
            let mut stream = dial(&address);
            stream.write_all(&whole[..octets]).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            for next in octets.. {
                match stream.read(&mut [0; 64]) {
                    Ok(octets) => assert_eq!(octets, 0, "a reply to half a request"),
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        assert!(begin.elapsed() < SETUP_TIMEOUT[1], "{octets} bytes: not given up");
                        if drip {
                            let _ = stream.write_all(&whole[next..=next]);
                        }
                        continue;
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
                }
                return begin.elapsed();
            }
            unreachable!()
        })
    };
    let attacks: Vec<_> =
        [(0, false), (1, false), (19, false), (20, false), (31, false), (0, true)].map(|(n, d)| attack(n, d)).into();
    for attack in attacks {
        let took = attack.join().unwrap();
        assert!(SETUP_TIMEOUT[0] < took && took < SETUP_TIMEOUT[1], "{took:?}");
    }
    stage.finish();
}

/// Whether the server has ended a connection on which it sends nothing.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(octets) => octets == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn a_flood_of_connections_takes_its_own_addresss_places_only() {
    let mut stage = Stage::new(&[]);
    let to = stage.server.rdma.clone();
    let mut flood: Vec<TcpStream> = (0..SETUPS_PER_ADDRESS + 40).map(|_| dial_from([127, 0, 0, 2], &to)).collect();
    let begin = Instant::now();
    loop {
        let open = flood.iter_mut().filter_map(|stream| (!is_closed(stream)).then_some(())).count();
        if open == SETUPS_PER_ADDRESS {
            break;
        }
        assert!(open > SETUPS_PER_ADDRESS && begin.elapsed() < PATIENCE, "{open} are open");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Another address can connect meanwhile, and so can this one when the flood has gone.
    stage.a_good_client_is_served();
    drop(flood);
    let begin = Instant::now();
    loop {
        let mut stream = dial_from([127, 0, 0, 2], &to);
        let _ = stream.write_all(&request(CRC, 1, &[]));
        if read_reply(&mut stream).is_some() {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "the flood's places are not given back");
    }
    stage.finish();
}

#[test]
fn one_address_cannot_take_every_place() {
    let mut stage = Stage::new(&["--max-connections", "16"]);
    let (rdma, mount) = (stage.server.rdma.clone(), stage.server.mount.clone());
    let mut flood: Vec<TcpStream> = (0..40).map(|_| dial_from([127, 0, 0, 2], &mount)).collect();
    for _ in 0..20 {
        let mut stream = dial_from([127, 0, 0, 2], &rdma);
        let _ = stream.write_all(&request(CRC, 1, &[]));
        flood.push(stream);
    }
    std::thread::sleep(Duration::from_millis(200));
    stage.a_good_client_is_served();
    drop(flood);
    stage.finish();
}

#[test]
fn connections_that_end_at_any_octet_leave_nothing() {
    let mut stage = Stage::new(&[]);
    let whole = request(CRC | ENHANCED, 2, &enhanced(16, 16, &PRIVATE_DATA));
    for octets in 0..=whole.len() {
        let mut stream = dial(&stage.server.rdma);
        stream.write_all(&whole[..octets]).unwrap();
        if octets % 2 == 0 {
            stream.shutdown(Shutdown::Write).unwrap();
            rest(&mut stream);
        }
    }
    stage.the_open_connection_works();
    // The same within the first message.
    let message = rpc::inline(&rpc::null(5));
    for octets in 0..40 {
        let mut peer = Peer::connect(&stage.server.rdma);
        let frame = peer.next_send(&message);
        peer.raw(&frame[..octets]);
        if octets % 2 == 0 {
            assert_eq!(peer.finish(), 0);
        }
    }
    stage.finish();
}

/// Tells this program that it runs in its own network namespace.
const IN_NETWORK: &str = "RPCRDMA_TEST_IN_NETWORK";

/// Runs a test of this program again in a new network namespace. Returns false if this machine cannot make one.
fn again_in_own_network(test: &str) -> bool {
    let unshare = || {
        let mut unshare = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            unshare.arg("--map-root-user");
        }
        unshare.arg("--net");
        unshare
    };
    let can = unshare().args(["ip", "link", "set", "lo", "up"]).output().is_ok_and(|output| output.status.success());
    if can {
        let mut command = unshare();
        command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]).env(IN_NETWORK, "1");
        assert!(command.status().unwrap().success(), "{test} in a network of its own");
    }
    can
}

/// A connection from an address of IPv6.
fn dial_from_6(from: &str, to: &str) -> TcpStream {
    let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    connect(&socket, &to.parse::<SocketAddr>().unwrap()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A host has a whole /64 of IPv6, which must not count for more than one address of IPv4.
#[test]
fn two_addresses_of_a_64_of_ipv6_count_as_one() {
    if std::env::var_os(IN_NETWORK).is_none() {
        if !again_in_own_network("setup::two_addresses_of_a_64_of_ipv6_count_as_one") {
            println!("no network namespaces here: only the unit tests of the gate and of the memory say so");
        }
        return;
    }
    let run = |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success(), "ip {args:?}");
    run(&["link", "set", "lo", "up"]);
    let [first, neighbour, other] = ["2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:2::1"];
    for address in [first, neighbour, other] {
        run(&["-6", "address", "add", &format!("{address}/64"), "dev", "lo", "nodad"]);
    }
    let scratch = tempfile::tempdir().unwrap();
    let (served, state) = (crate::common::served(scratch.path()), scratch.path().join("state"));
    let at = format!("[{other}]:0");
    let server = crate::common::Server::start_at(&served, &state, &at, &at, &["--max-connections", "16"]);
    let is_served = |stream: &mut TcpStream| {
        rpc::send_record(stream, &rpc::call(1, rpc::MOUNT, 3, 0).0);
        rpc::read_record(stream).is_some()
    };
    // Three quarters of the places, by turns from two addresses of one /64.
    let mut held: Vec<_> =
        [first, neighbour].iter().cycle().take(12).map(|from| dial_from_6(from, &server.mount)).collect();
    assert!(held.iter_mut().all(is_served));
    for from in [first, neighbour, "2001:db8:0:1::1"] {
        let mut stream = dial_from_6(from, &server.mount);
        let _ = stream.write_all(&[0; 4]);
        assert_eq!(rest(&mut stream), b"", "{from} has its share");
    }
    assert!(is_served(&mut dial_from_6(other, &server.mount)), "of another /64");
}
