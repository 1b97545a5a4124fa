//! The command serves with Kerberos, against a real KDC. The client is hand-written: it makes contexts with MIT's
//! library, and can send what no real client would. If the KDC's programs are not installed, nothing is tested.

#[path = "kerberos/clocks.rs"]
mod clocks;
#[path = "kerberos/commands.rs"]
mod commands;
mod common;
#[path = "kerberos/downgrade.rs"]
mod downgrade;
#[path = "kerberos/flood.rs"]
mod flood;
#[path = "kerberos/house.rs"]
mod house;
#[path = "kerberos/names.rs"]
mod names;
#[path = "kerberos/trouble.rs"]
mod trouble;

use common::{Server, fails, served};
use rpcrdma_gss::{
    Context, Gss, Initiator, NameKind, Octets, Progress,
    realm::{REALM, Realm, SERVICE, within},
};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
/// Services of RPCSEC_GSS: authentication, and integrity.
const KRB5: u32 = 1;
const KRB5I: u32 = 2;
/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a test waits to see that no answer comes.
const SILENCE: Duration = Duration::from_millis(500);
/// AUTH_TOOWEAK and RPCSEC_GSS_CREDPROBLEM.
const TOO_WEAK: u32 = 5;
const CREDENTIAL_PROBLEM: u32 = 13;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(octets: &[u8]) -> Vec<u8> {
    [&words(&[octets.len() as u32])[..], octets, &vec![0; octets.len().next_multiple_of(4) - octets.len()]].concat()
}

/// Reads a message from its beginning.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> u32 {
        let (word, rest) = self.0.split_first_chunk().expect("a word");
        self.0 = rest;
        u32::from_be_bytes(*word)
    }

    fn opaque(&mut self) -> Vec<u8> {
        let len = self.word() as usize;
        let octets = self.0[..len].to_vec();
        self.0 = &self.0[len.next_multiple_of(4)..];
        octets
    }
}

/// A connection, record by record.
struct Wire(TcpStream);

impl Wire {
    fn to(address: &str) -> Self {
        Self(TcpStream::connect(address).unwrap())
    }

    fn send(&mut self, call: &[u8]) {
        let head = words(&[0x8000_0000 | call.len() as u32]);
        self.0.write_all(&[&head[..], call].concat()).unwrap();
    }

    /// The next reply, if one comes within this time.
    fn reply(&mut self, limit: Duration) -> Option<Vec<u8>> {
        self.0.set_read_timeout(Some(limit)).unwrap();
        let mut head = [0; 4];
        self.0.read_exact(&mut head).ok()?;
        let mut reply = vec![0; (u32::from_be_bytes(head) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply).unwrap();
        Some(reply)
    }

    fn ask(&mut self, call: &[u8]) -> Vec<u8> {
        self.send(call);
        self.reply(PATIENCE).expect("no reply")
    }
}

/// Program, version and procedure.
type What = [u32; 3];

/// A call up to its credential.
fn header(xid: u32, [program, version, procedure]: What, flavour: u32, credential: &[u8]) -> Vec<u8> {
    [words(&[xid, 0, 2, program, version, procedure, flavour]), opaque(credential)].concat()
}

/// A call with AUTH_SYS, as this user.
fn by_sys(what: What, uid: u32, args: &[u8]) -> Vec<u8> {
    [&header(7, what, 1, &words(&[0, 0, uid, uid, 0]))[..], &words(&[0, 0]), args].concat()
}

/// A message that begins a context.
fn init(token: &[u8]) -> Vec<u8> {
    let credential = words(&[1, 1, 0, 0, 0]);
    [header(5, [NFS, 3, 0], 6, &credential), words(&[0, 0]), opaque(token)].concat()
}

/// The results of an accepted call without a Kerberos verifier, or the reason of the denial.
fn plain(reply: &[u8]) -> Result<Vec<u8>, u32> {
    let mut reply = Reader(reply);
    assert_eq!([0; 2].map(|_| reply.word())[1], 1, "a reply");
    if reply.word() == 1 {
        assert_eq!(reply.word(), 1, "refused for who calls");
        return Err(reply.word());
    }
    reply.word();
    reply.opaque();
    assert_eq!(reply.word(), 0, "executed");
    Ok(reply.0.to_vec())
}

/// A user's first token.
fn token(realm: &Realm, user: &str) -> (Initiator, Octets) {
    let gss = Gss::load().unwrap();
    let principal = gss.name(&format!("{user}@{REALM}"), NameKind::Principal).unwrap();
    let cache = realm.folder().join(format!("cache.{user}"));
    let credential = gss.initiate_with_keytab(&principal, &realm.users(), &cache).unwrap();
    match gss.initiator(&credential, gss.name(SERVICE, NameKind::Service).unwrap()).step(&[]).unwrap() {
        Progress::More { unfinished, token } => (unfinished, token),
        Progress::Done { .. } => panic!("made already"),
    }
}

/// A user with a context.
struct Client {
    wire: Wire,
    context: Context,
    handle: Vec<u8>,
    sequence: u32,
}

impl Client {
    fn new(realm: &Realm, user: &str, address: &str) -> Self {
        let (unfinished, token) = token(realm, user);
        let mut wire = Wire::to(address);
        let reply = wire.ask(&init(&token));
        let results = plain(&reply).unwrap();
        let mut results = Reader(&results);
        let handle = results.opaque();
        assert_eq!([0; 2].map(|_| results.word()), [0; 2], "made");
        results.word();
        let Progress::Done { context, .. } = unfinished.step(&results.opaque()).unwrap() else { panic!("not made") };
        Self { wire, context, handle, sequence: 0 }
    }

    /// A call with the next sequence number.
    fn call(&mut self, what: What, service: u32, args: &[u8]) -> Vec<u8> {
        self.sequence += 1;
        let credential = [words(&[1, 0, self.sequence, service]), opaque(&self.handle)].concat();
        let header = header(self.sequence, what, 6, &credential);
        let verifier = self.context.sign(&header).unwrap();
        let body = match service {
            KRB5 => args.to_vec(),
            KRB5I => {
                let signed = [&words(&[self.sequence])[..], args].concat();
                let checksum = self.context.sign(&signed).unwrap();
                [opaque(&signed), opaque(&checksum)].concat()
            }
            _ => opaque(&self.context.seal(&[&words(&[self.sequence])[..], args].concat()).unwrap()),
        };
        [&header[..], &words(&[6]), &opaque(&verifier), &body].concat()
    }

    /// Makes a call. Checks the protection of the results, and returns them without it.
    fn ask(&mut self, what: What, service: u32, args: &[u8]) -> Result<Vec<u8>, u32> {
        let call = self.call(what, service, args);
        let reply = self.wire.ask(&call);
        let results = plain(&reply)?;
        let signed = match service {
            KRB5 => return Ok(results),
            KRB5I => {
                let mut results = Reader(&results);
                let (signed, checksum) = (results.opaque(), results.opaque());
                self.context.verify(&signed, &checksum).expect("the results' checksum");
                signed
            }
            _ => self.context.open(&Reader(&results).opaque()).expect("sealed results").octets.to_vec(),
        };
        assert_eq!(signed[..4], self.sequence.to_be_bytes());
        Ok(signed[4..].to_vec())
    }
}

/// A server at its own address, because Kerberos needs TCP port 2049 there.
fn start(realm: &Realm, host: &str, sec: &str, more: &[&str]) -> Server {
    let scratch = realm.folder();
    let (any, tcp, keytab) = (format!("{host}:0"), format!("{host}:2049"), realm.keytab());
    let own = ["--tcp", &tcp, "--sec", sec, "--keytab", keytab.to_str().unwrap()];
    // `serve` refuses a keytab that no flavour needs.
    let own = if sec == "sys" { &own[..4] } else { &own[..] };
    let directory = served(scratch);
    fs::write(directory.join("file"), "contents").unwrap();
    Server::start_at(&directory, &scratch.join("state"), &any, &any, &[own, more].concat())
}

/// MOUNT of `/`: the handle, and the flavours.
fn mount(server: &Server) -> (Vec<u8>, Vec<u32>) {
    let reply = Wire::to(&server.mount).ask(&by_sys([MOUNT, 3, 1], 1000, &opaque(b"/")));
    let results = plain(&reply).unwrap();
    let mut results = Reader(&results);
    assert_eq!(results.word(), 0);
    let handle = results.opaque();
    let count = results.word();
    (handle, (0..count).map(|_| results.word()).collect())
}

/// The status at the beginning of results.
fn status(results: Result<Vec<u8>, u32>) -> u32 {
    Reader(&results.unwrap()).word()
}

fn read(file: &[u8]) -> Vec<u8> {
    [opaque(file), words(&[0, 0, 100])].concat()
}

/// proves: V1-8.2.2.1-a, V2-11.2.2.1-a
#[test]
fn files_are_served_by_the_flavours_of_the_export() {
    within("files_are_served_by_the_flavours_of_the_export", |realm| {
        let server = start(realm, "127.0.0.71", "krb5i,krb5p", &[]);
        let tcp = server.tcp.clone().unwrap();
        assert_eq!(tcp, "127.0.0.71:2049", "beside RDMA at {}", server.rdma);
        let (root, flavours) = mount(&server);
        assert_eq!(flavours, [390_004, 390_005]);
        let mut alice = Client::new(realm, "alice", &tcp);
        for service in 1..=3 {
            assert_eq!(alice.ask([NFS, 3, 0], service, b""), Ok(vec![]), "NULL is answered in all");
        }
        let lookup = [opaque(&root), opaque(b"file")].concat();
        assert_eq!(alice.ask([NFS, 3, 3], KRB5, &lookup), Err(TOO_WEAK));
        for service in [2, 3] {
            let found = alice.ask([NFS, 3, 3], service, &lookup).unwrap();
            let mut found = Reader(&found);
            assert_eq!(found.word(), 0);
            let file = found.opaque();
            let told = alice.ask([NFS, 3, 6], service, &read(&file)).unwrap();
            assert!(told.ends_with(b"contents"), "READ with service {service}");
            let mut wire = Wire::to(&tcp);
            assert_eq!(plain(&wire.ask(&by_sys([NFS, 3, 6], 1000, &read(&file)))), Err(TOO_WEAK));
            // NFS version 4, minor 0: PUTROOTFH, GETFH, and the root's flavours by SECINFO of the file.
            let get = [words(&[0, 0, 2, 24, 10])].concat();
            assert_eq!(
                plain(&wire.ask(&by_sys([NFS, 4, 1], 1000, &get))).map(|told| told[..4].to_vec()),
                Ok(words(&[10_016]))
            );
            let ask = [words(&[0, 0, 2, 24, 33]), opaque(b"file")].concat();
            let told = plain(&wire.ask(&by_sys([NFS, 4, 1], 1000, &ask))).unwrap();
            assert_eq!(Reader(&told).word(), 0, "SECINFO is answered in any");
            // Two flavours, RPCSEC_GSS both, with integrity and with privacy.
            assert_eq!(told[28..36], words(&[2, 6]));
            assert_eq!(alice.ask([NFS, 4, 1], service, &get).map(|told| told[..4].to_vec()), Ok(words(&[0])));
        }
        assert_eq!(server.stop(), Some(0));
    });
}

#[test]
fn hostile_messages_change_nothing_for_others() {
    within("hostile_messages_change_nothing_for_others", |realm| {
        let server = start(realm, "127.0.0.72", "krb5i", &[]);
        let tcp = server.tcp.clone().unwrap();
        let (root, _) = mount(&server);
        let (mut alice, mut bob) = (Client::new(realm, "alice", &tcp), Client::new(realm, "bob", &tcp));
        let (get, args) = ([NFS, 3, 1], opaque(&root));
        // The server does not answer a repeated sequence number, but answers the next call.
        let call = alice.call(get, KRB5I, &args);
        alice.wire.ask(&call);
        alice.wire.send(&call);
        assert_eq!(alice.wire.reply(SILENCE), None, "replayed");
        // A checksum that is wrong, of the header and of the arguments.
        let mut forged = alice.call(get, KRB5I, &args);
        forged[3] ^= 0x40;
        assert_eq!(plain(&alice.wire.ask(&forged)), Err(CREDENTIAL_PROBLEM));
        let mut forged = alice.call(get, KRB5I, &args);
        *forged.last_mut().unwrap() ^= 1;
        let reply = alice.wire.ask(&forged);
        assert_eq!(reply[reply.len() - 4..], words(&[4]), "GARBAGE_ARGS");
        // Another user's context.
        std::mem::swap(&mut alice.handle, &mut bob.handle);
        assert_eq!(alice.ask(get, KRB5I, &args), Err(CREDENTIAL_PROBLEM));
        std::mem::swap(&mut alice.handle, &mut bob.handle);
        // Invalid tokens, and one that is too large.
        for token in [&b""[..], b"token", &[0x60; 2000], &[0x60; 1 << 20]] {
            let reply = Wire::to(&tcp).ask(&init(token));
            let is_garbage = reply[20..24] == words(&[4]);
            assert!(is_garbage || plain(&reply).unwrap()[4..8] != words(&[0]), "{} bytes", token.len());
        }
        // Fifty beginnings at a time, as fast as possible, that never continue; another client is answered meanwhile.
        let mut flood = Wire::to(&tcp);
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            (0..50).for_each(|_| flood.send(&init(&[0x60; 2000])));
            let begin = Instant::now();
            assert_eq!(status(bob.ask(get, KRB5I, &args)), 0);
            slowest = slowest.max(begin.elapsed());
            while flood.reply(Duration::from_millis(1)).is_some() {}
        }
        assert!(slowest < Duration::from_secs(5), "{slowest:?}");
        assert_eq!(status(alice.ask(get, KRB5I, &args)), 0);
    });
}

#[test]
fn a_server_that_cannot_do_it_says_why_and_does_not_start() {
    within("a_server_that_cannot_do_it_says_why_and_does_not_start", |realm| {
        let (scratch, directory) = (realm.folder(), served(realm.folder()));
        fs::write(scratch.join("empty"), "").unwrap();
        let told = |keytab: &Path, tcp: &str| {
            let state = scratch.join("state");
            let paths = [&directory, &state].map(|path| path.to_str().unwrap());
            let own = ["serve", paths[0], "--state", paths[1], "--sec", "krb5", "--keytab", keytab.to_str().unwrap()];
            let ports = ["--listen", "127.0.0.73:0", "--mountd", "127.0.0.1:0", "--tcp", tcp];
            fails(1, [&own[..], &ports].concat())
        };
        let fit = "127.0.0.73:2049";
        let missing = told(&scratch.join("none"), fit);
        assert!(missing.contains("--keytab") && missing.contains("No such file"), "{missing}");
        for keytab in [scratch.join("empty"), realm.users()] {
            let unfit = told(&keytab, fit);
            assert!(unfit.contains("has no key of nfs/HOST@REALM that can be read"), "{unfit}");
        }
        for tcp in ["127.0.0.73:0", "127.0.0.1:2049"] {
            let elsewhere = told(&realm.keytab(), tcp);
            assert!(elsewhere.contains("add --tcp 127.0.0.73:2049"), "{elsewhere}");
        }
    });
}
