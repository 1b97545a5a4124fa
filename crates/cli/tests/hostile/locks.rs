//! NLM, NSM and NFSACL: malformed arguments, and hosts that act in the name of another. An honest host must keep its
//! locks.

use crate::{
    idlers::dial_from,
    rpc::{self, Status, Xdr, status},
    stage::Stage,
};
use std::{
    net::{TcpStream, UdpSocket},
    time::Duration,
};

const NLM: u32 = 100_021;
const NSM: u32 = 100_024;
const NFSACL: u32 = 100_227;

// Procedures of NLM, of NSM, of NFSACL.
const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const GRANTED_MESSAGE: u32 = 10;
const GRANTED_RESPONSE: u32 = 15;
const FREE_ALL: u32 = 23;
const NOTIFY: u32 = 6;
const SET_ACL: u32 = 2;

// Statuses of NLM, and one of NFS.
const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const TOO_BIG: u32 = 8;
const NOT_OWNER: u32 = 1;

/// The longest name, owner and cookie, and handle, in bytes: the protocol's own limits.
const MAX_OBJECT_BYTES: usize = 1024;
const MAX_HANDLE_BYTES: usize = 64;
/// The most entries of a list.
const MAX_ENTRIES: u32 = 1024;
const HONEST: [u8; 4] = [127, 0, 0, 1];
const STRANGER: [u8; 4] = [127, 0, 0, 3];
/// Datagrams of a flood: more than the server accepts from one source in a second.
const FLOOD: u32 = 2_000;
/// How often an unanswered datagram is sent again, and after what time.
const ATTEMPTS: usize = 20;
const AGAIN: Duration = Duration::from_secs(1);

/// What is locked, and its owner.
#[derive(Clone)]
struct Place {
    cookie: Vec<u8>,
    name: Vec<u8>,
    file: Vec<u8>,
    owner: Vec<u8>,
    range: (u64, u64),
}

impl Place {
    fn octets(&self) -> Xdr {
        let Self { name, file, owner, range: (offset, length), .. } = self;
        Xdr::default().opaque(name).opaque(file).opaque(owner).u32(7).u64(*offset).u64(*length)
    }

    /// The arguments of a procedure about this place, for an exclusive lock.
    fn arguments(&self, procedure: u32) -> Vec<u8> {
        let cookie = Xdr::default().opaque(&self.cookie);
        let place = self.octets().0;
        match procedure {
            LOCK => cookie.words(&[0, 1]).raw(&place).words(&[0, 1]).0,
            CANCEL => cookie.words(&[1, 1]).raw(&place).0,
            UNLOCK => cookie.raw(&place).0,
            _ => cookie.u32(1).raw(&place).0,
        }
    }
}

/// A host on a connection to a lock manager.
struct Host {
    stream: TcpStream,
    xid: u32,
}

impl Host {
    fn at(address: [u8; 4], server: &str) -> Self {
        Self { stream: dial_from(address, server), xid: 0 }
    }

    fn call(&mut self, (program, version, procedure): (u32, u32, u32), arguments: &[u8]) -> Status {
        self.xid += 1;
        let call = rpc::call(self.xid, program, version, procedure).raw(arguments);
        rpc::send_record(&mut self.stream, &call.0);
        status(&rpc::read_record(&mut self.stream).expect("an answer"))
    }

    fn nlm(&mut self, procedure: u32, arguments: &[u8]) -> Status {
        self.call((NLM, 4, procedure), arguments)
    }

    /// The status in a procedure's results, behind the cookie.
    fn status(&mut self, procedure: u32, place: &Place) -> u32 {
        let Status::Success(results) = self.nlm(procedure, &place.arguments(procedure)) else { panic!() };
        let cookie = Xdr::default().opaque(&place.cookie).0;
        assert_eq!(results[..cookie.len()], cookie, "it comes back");
        rpc::word(&results, cookie.len())
    }
}

/// A server, and an honest host that has locked the beginning of a file.
fn stage() -> (Stage, Host, Place) {
    let stage = Stage::new(&["--tcp", "127.0.0.1:0"]);
    let mut honest = Host::at(HONEST, stage.server.lockd.as_deref().unwrap());
    let file = stage.handle(b"written");
    let place = Place { cookie: b"own".into(), name: b"honest".into(), file, owner: b"o".into(), range: (0, 10) };
    assert_eq!(honest.status(LOCK, &place), GRANTED);
    (stage, honest, place)
}

/// Checks that the honest host has its lock and can release it, and that others can have it then.
fn is_unharmed(stage: Stage, mut honest: Host, place: &Place) {
    let mut other = Host::at([127, 0, 0, 4], stage.server.lockd.as_deref().unwrap());
    let others = Place { name: b"other".into(), ..place.clone() };
    assert_eq!(other.status(LOCK, &others), DENIED, "it is the honest host's");
    assert_eq!(honest.status(UNLOCK, place), GRANTED);
    assert_eq!(other.status(LOCK, &others), GRANTED, "nobody else has got it meanwhile");
    assert_eq!(other.status(UNLOCK, &others), GRANTED);
    drop((honest, other));
    stage.finish();
}

/// proves: NLM-6.1.4-c, NLM-6.3.1-a
#[test]
fn arguments_of_nlm_that_are_not_what_they_say_lock_nothing() {
    let (mut stage, honest, place) = stage();
    let mut host = Host::at(STRANGER, stage.server.lockd.as_deref().unwrap());
    let own = Place { name: b"stranger".into(), range: (20, 1), ..place.clone() };
    let too_long = vec![b'x'; MAX_OBJECT_BYTES + 1];
    let with = |change: fn(&mut Place, Vec<u8>), octets: Vec<u8>| {
        let mut place = own.clone();
        change(&mut place, octets);
        place
    };
    for procedure in [TEST, LOCK, CANCEL, UNLOCK] {
        let places = [
            with(|place, octets| place.name = octets, too_long.clone()),
            with(|place, octets| place.owner = octets, too_long.clone()),
            with(|place, octets| place.cookie = octets, too_long.clone()),
            with(|place, octets| place.file = octets, vec![0; MAX_HANDLE_BYTES + 1]),
        ];
        let mut attacks: Vec<_> = places.iter().map(|place| place.arguments(procedure)).collect();
        let whole = own.arguments(procedure);
        attacks.extend((0..whole.len()).step_by(4).map(|end| whole[..end].to_vec()));
        attacks.push([&whole[..], &[0; 4]].concat());
        // Names without an end, behind a cookie without bytes.
        let behind = vec![
            0;
            if procedure == UNLOCK {
                4
            } else if procedure == TEST {
                8
            } else {
                12
            }
        ];
        attacks.extend([9, u32::MAX, 1 << 31].map(|len| [&behind[..], &len.to_be_bytes(), b"host"].concat()));
        for arguments in attacks {
            assert_eq!(host.nlm(procedure, &arguments), Status::GarbageArgs, "{procedure}: {arguments:?}");
        }
        stage.the_open_connection_works();
    }
    for range in [(u64::MAX, 2), (2, u64::MAX), (u64::MAX, u64::MAX)] {
        assert_eq!(host.status(LOCK, &Place { range, ..own.clone() }), TOO_BIG, "{range:?}");
    }
    // At the limits the call locks as usual.
    let longest = vec![b'x'; MAX_OBJECT_BYTES];
    let longest = Place { cookie: longest.clone(), name: longest.clone(), owner: longest, ..own };
    assert_eq!([LOCK, UNLOCK].map(|procedure| host.status(procedure, &longest)), [GRANTED; 2]);
    drop(host);
    is_unharmed(stage, honest, &place);
}

/// proves: NSM-1-d, NLM-GRANT-c
#[test]
fn nobody_frees_what_another_host_has_locked() {
    let (stage, honest, place) = stage();
    let nothing = Status::Success(Vec::new());
    let mut host = Host::at(STRANGER, stage.server.lockd.as_deref().unwrap());
    // In the honest host's name, from another address.
    assert_eq!(host.status(UNLOCK, &place), GRANTED, "nothing of it is locked there");
    assert_eq!(host.status(CANCEL, &place), DENIED);
    let notice = Xdr::default().opaque(&place.name).u32(9).0;
    assert_eq!(host.nlm(FREE_ALL, &notice), nothing);
    // A response to no call of the server, and a call that only a server makes.
    for cookie in 0..200_u64 {
        let answer = Xdr::default().opaque(&cookie.to_be_bytes()).u32(GRANTED).0;
        assert_eq!(host.nlm(GRANTED_RESPONSE, &answer), nothing);
    }
    assert_eq!(host.nlm(GRANTED_MESSAGE, &place.arguments(GRANTED_MESSAGE)), nothing);
    drop(host);
    let statd = stage.server.statd.as_deref().unwrap();
    let mut host = Host::at(STRANGER, statd);
    assert_eq!(host.call((NSM, 1, NOTIFY), &notice), nothing, "a notice that names somebody else");
    drop(host);
    // From the host's own address, from which any program there can send it; and as fast as possible.
    for address in ["127.0.0.1:0", "127.0.0.3:0"] {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(AGAIN)).unwrap();
        let call = |xid: u32| rpc::call(xid, NSM, 1, NOTIFY).raw(&notice).0;
        let mut answer = [0; 100];
        // Datagrams may be lost because of the flood from the other address.
        let answered = (0..ATTEMPTS).find_map(|_| {
            socket.send_to(&call(1), statd).unwrap();
            socket.recv(&mut answer).ok()
        });
        let len = answered.expect("an answer");
        assert_eq!(status(&answer[..len]), nothing);
        assert!(len < call(1).len(), "the answer is shorter than the question");
        for xid in 2..FLOOD {
            socket.send_to(&call(xid), statd).unwrap();
        }
    }
    is_unharmed(stage, honest, &place);
}

#[test]
fn lists_of_nfsacl_that_lie_set_nothing() {
    let (stage, honest, place) = stage();
    let mut host = Host::at(STRANGER, stage.server.tcp.as_deref().unwrap());
    let entries = |count: u32| (0..count).flat_map(|user| [2, user, 7]).collect::<Vec<u32>>();
    let set = |words: &[u32]| Xdr::default().opaque(&place.file).words(words).0;
    let with = |counts: [u32; 2], of: u32| [&[1, counts[0], counts[1]][..], &entries(of), &[0, 0]].concat();
    for (counts, of) in [
        ([3, 2], 2),
        ([2, 3], 3),
        ([3, 3], 2),
        ([3, 0], 0),
        ([u32::MAX, u32::MAX], 0),
        ([MAX_ENTRIES, MAX_ENTRIES], 1),
        ([MAX_ENTRIES + 1, MAX_ENTRIES + 1], MAX_ENTRIES + 1),
    ] {
        let answer = host.call((NFSACL, 3, SET_ACL), &set(&with(counts, of)));
        assert_eq!(answer, Status::GarbageArgs, "{counts:?}, and {of} entries");
    }
    // A readable list, for a file of another user.
    let base = [1, 3, 3, 1, 0, 7, 4, 0, 7, 32, 0, 7, 0, 0];
    let Status::Success(results) = host.call((NFSACL, 3, SET_ACL), &set(&base)) else { panic!() };
    assert_eq!(rpc::word(&results, 0), NOT_OWNER);
    assert_eq!(host.call((NFSACL, 2, SET_ACL), &[]), Status::ProgMismatch(3, 3));
    drop(host);
    is_unharmed(stage, honest, &place);
}
