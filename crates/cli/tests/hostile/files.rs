//! NFS calls with handles, names, sizes and positions that no decent client sends.

use crate::{
    calls::Way,
    common::contents,
    rpc::{self, NFS, Status, Xdr},
    stage::{FILE_BYTES, Stage},
};
use std::fs;

const OK: u32 = 0;
const NOENT: u32 = 2;
const IO: u32 = 5;
const ACCES: u32 = 13;
const EXIST: u32 = 17;
const NOTDIR: u32 = 20;
const ISDIR: u32 = 21;
const INVAL: u32 = 22;
const FBIG: u32 = 27;
const NOTEMPTY: u32 = 66;
const NAMETOOLONG: u32 = 63;
const STALE: u32 = 70;
const BADHANDLE: u32 = 10_001;
const NOT_SYNC: u32 = 10_002;
const BAD_COOKIE: u32 = 10_003;
const TOOSMALL: u32 = 10_005;
const BADTYPE: u32 = 10_007;
/// Not a status of NFS: the server could not decode the arguments.
const GARBAGE: u32 = u32::MAX;

const GETATTR: u32 = 1;
const SETATTR: u32 = 2;
const LOOKUP: u32 = 3;
const ACCESS: u32 = 4;
const READLINK: u32 = 5;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const SYMLINK: u32 = 10;
const MKNOD: u32 = 11;
const REMOVE: u32 = 12;
const RMDIR: u32 = 13;
const RENAME: u32 = 14;
const LINK: u32 = 15;
const READDIR: u32 = 16;
const READDIRPLUS: u32 = 17;
const COMMIT: u32 = 21;

/// Makes calls, each with a new XID.
struct Client {
    way: Way,
    xid: u32,
}

impl Client {
    /// The status of a procedure, and the results behind it.
    fn call(&mut self, procedure: u32, args: &Xdr) -> (u32, Vec<u8>) {
        self.xid += 1;
        let mut message = rpc::call(self.xid, NFS, 3, procedure).0;
        message.extend(&args.0);
        match self.way.call(&message) {
            Status::Success(results) => (rpc::word(&results, 0), results[4..].to_vec()),
            Status::GarbageArgs => (GARBAGE, Vec::new()),
            other => panic!("{other:?}"),
        }
    }

    fn wants(&mut self, what: &str, procedure: u32, args: &Xdr, expected: &[u32]) {
        let (status, _) = self.call(procedure, args);
        assert!(expected.contains(&status), "{what}: procedure {procedure} says {status}, not {expected:?}");
    }

    /// The handle of a name.
    fn lookup(&mut self, directory: &[u8], name: &[u8]) -> Vec<u8> {
        let (status, results) = self.call(LOOKUP, &at(directory, name));
        assert_eq!(status, OK);
        results[4..4 + rpc::word(&results, 0) as usize].to_vec()
    }
}

fn file(handle: &[u8]) -> Xdr {
    Xdr::default().opaque(handle)
}

fn at(directory: &[u8], name: &[u8]) -> Xdr {
    file(directory).opaque(name)
}

/// Attributes to set: none.
const NOTHING: [u32; 6] = [0; 6];

fn clients(stage: &Stage) -> Vec<Client> {
    // Different XIDs: otherwise calls from one address would get each other's replies from the duplicate request cache.
    Way::both(stage).into_iter().zip(1..).map(|(way, n)| Client { way, xid: n << 24 }).collect()
}

/// proves: NFS3-FH-a
#[test]
fn handles_that_this_server_did_not_make_open_nothing() {
    let stage = Stage::new(&["--tcp", "127.0.0.1:0"]);
    let root = stage.root();
    for client in &mut clients(&stage) {
        for len in 0..=64 {
            client.wants("bytes of anybody", GETATTR, &file(&contents(len)), &[BADHANDLE]);
            client.wants("zeros", GETATTR, &file(&vec![0; len]), &[BADHANDLE]);
        }
        for len in [65, 66, 100, 1000] {
            client.wants("too long", GETATTR, &file(&vec![1; len]), &[GARBAGE]);
        }
        for bit in 0..root.len() * 8 {
            let mut forged = root.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            client.wants("a bit changed", GETATTR, &file(&forged), &[BADHANDLE]);
        }
        for len in 0..root.len() {
            client.wants("cut short", ACCESS, &file(&root[..len]).u32(0x3F), &[BADHANDLE]);
        }
        client.wants("a byte more", GETATTR, &file(&[&root[..], &[0]].concat()), &[BADHANDLE]);
        // Every procedure checks its handle first.
        let bad = [7; 32];
        client.wants("", SETATTR, &file(&bad).words(&NOTHING).u32(0), &[BADHANDLE]);
        client.wants("", READ, &file(&bad).u64(0).u32(1), &[BADHANDLE]);
        client.wants("", WRITE, &file(&bad).u64(0).words(&[1, 0]).opaque(b"x"), &[BADHANDLE]);
        client.wants("", MKDIR, &at(&bad, b"d").words(&NOTHING), &[BADHANDLE]);
        client.wants("", RENAME, &Xdr(at(&root, b"a").0).opaque(&bad).opaque(b"b"), &[BADHANDLE]);
        client.wants("", LINK, &file(&bad).opaque(&root).opaque(b"b"), &[BADHANDLE]);
        client.wants("", READDIR, &file(&bad).u64(0).u64(0).u32(4096), &[BADHANDLE]);
        for procedure in 18..=20 {
            client.wants("", procedure, &file(&bad), &[BADHANDLE]);
        }
        // A handle of a removed file.
        client.wants("", MKDIR, &at(&root, b"gone").words(&NOTHING), &[OK]);
        let gone = client.lookup(&root, b"gone");
        client.wants("", RMDIR, &at(&root, b"gone"), &[OK]);
        client.wants("a file that is gone", GETATTR, &file(&gone), &[STALE]);
        client.wants("a directory that is gone", LOOKUP, &at(&gone, b".."), &[STALE]);
    }
    stage.finish();
}

/// proves: NFS3-ESC-a
#[test]
fn names_that_lead_nowhere_lead_nowhere() {
    let stage = Stage::new(&["--tcp", "127.0.0.1:0"]);
    let root = stage.root();
    for client in &mut clients(&stage) {
        let (regular, link) = (client.lookup(&root, b"file"), client.lookup(&root, b"out"));
        assert_eq!(client.lookup(&root, b".."), root, "above the exported directory is itself");
        assert_eq!(client.lookup(&root, b"."), root);
        let refused = [INVAL, ACCES];
        let long = [b'n'; 256];
        let longer = vec![b'n'; if matches!(client.way, Way::Tcp(_)) { 5000 } else { 1000 }];
        let names: [(&[u8], &[u32]); 10] = [
            (b"", &refused),
            (b"/", &refused),
            (b"a/b", &refused),
            (b"../etc", &refused),
            (b"/etc/passwd", &refused),
            (b"nul\0", &refused),
            (b"\0", &refused),
            (&long, &[NAMETOOLONG]),
            (&longer, &[NAMETOOLONG, GARBAGE]),
            (b"\xFF\xFE\x80/", &refused),
        ];
        for (name, expected) in names {
            let what = name.escape_ascii().to_string();
            client.wants(&what, LOOKUP, &at(&root, name), expected);
            client.wants(&what, CREATE, &at(&root, name).u32(0).words(&NOTHING), expected);
            client.wants(&what, CREATE, &at(&root, name).u32(2).u64(7), expected);
            client.wants(&what, MKDIR, &at(&root, name).words(&NOTHING), expected);
            client.wants(&what, SYMLINK, &at(&root, name).words(&NOTHING).opaque(b"to"), expected);
            client.wants(&what, MKNOD, &at(&root, name).u32(7).words(&NOTHING), expected);
            client.wants(&what, REMOVE, &at(&root, name), expected);
            client.wants(&what, RMDIR, &at(&root, name), expected);
            client.wants(&what, RENAME, &at(&root, name).opaque(&root).opaque(b"b"), expected);
            client.wants(&what, RENAME, &at(&root, b"file").opaque(&root).opaque(name), expected);
            client.wants(&what, LINK, &file(&regular).opaque(&root).opaque(name), expected);
        }
        for dots in [&b"."[..], b".."] {
            client.wants("dots", CREATE, &at(&root, dots).u32(1).words(&NOTHING), &[EXIST, INVAL, ACCES]);
            client.wants("dots", MKDIR, &at(&root, dots).words(&NOTHING), &[EXIST, INVAL, ACCES]);
            client.wants("dots", REMOVE, &at(&root, dots), &[INVAL, ACCES, ISDIR]);
            client.wants("dots", RMDIR, &at(&root, dots), &[INVAL, EXIST, ACCES, NOTEMPTY]);
            client.wants("dots", RENAME, &at(&root, dots).opaque(&root).opaque(b"x"), &[INVAL]);
            client.wants("dots", LINK, &file(&regular).opaque(&root).opaque(dots), &[EXIST, INVAL]);
        }
        // The server does not follow a link, and only a directory has names.
        for (what, handle) in [("a file", &regular), ("a link", &link)] {
            client.wants(what, LOOKUP, &at(handle, b"passwd"), &[NOTDIR]);
            client.wants(what, LOOKUP, &at(handle, b".."), &[NOTDIR]);
            client.wants(what, READDIR, &file(handle).u64(0).u64(0).u32(4096), &[NOTDIR]);
            client.wants(what, MKDIR, &at(handle, b"d").words(&NOTHING), &[NOTDIR]);
        }
        client.wants("a link", READ, &file(&link).u64(0).u32(10), &[INVAL]);
        client.wants("a link", WRITE, &file(&link).u64(0).words(&[1, 2]).opaque(b"x"), &[INVAL]);
        client.wants("a directory", READ, &file(&root).u64(0).u32(10), &[ISDIR, INVAL]);
        client.wants("a directory", WRITE, &file(&root).u64(0).words(&[1, 2]).opaque(b"x"), &[ISDIR, INVAL]);
        client.wants("a file", READLINK, &file(&regular), &[INVAL]);
        client.wants("a directory", REMOVE, &at(&root, b"nothing"), &[NOENT]);

        // A client may choose any target for a link. The server stores or refuses it, and never follows it.
        let target = |name: &[u8], target: &[u8]| at(&root, name).words(&NOTHING).opaque(target);
        client.wants("", SYMLINK, &target(b"l0", b""), &[INVAL, NOENT]);
        client.wants("", SYMLINK, &target(b"l0", b"a\0b"), &[INVAL]);
        client.wants("", SYMLINK, &target(b"l1", b"/../../etc/passwd"), &[OK]);
        client.wants("", SYMLINK, &target(b"l2", &[0xFF; 1024]), &[OK]);
        let longest = vec![b'/'; if matches!(client.way, Way::Tcp(_)) { 100_000 } else { 3500 }];
        client.wants("", SYMLINK, &target(b"l3", &longest), &[OK, NAMETOOLONG, GARBAGE]);
        client.wants("", LOOKUP, &at(&root, b"l1"), &[OK]);
        let link = client.lookup(&root, b"l1");
        client.wants("", READ, &file(&link).u64(0).u32(10), &[INVAL]);
        for name in [b"l1", b"l2", b"l3"] {
            client.wants("", REMOVE, &at(&root, name), &[OK, NOENT]);
        }
    }
    stage.finish();
}

#[test]
fn sizes_and_positions_at_the_end_of_their_range_are_answered() {
    let stage = Stage::new(&["--tcp", "127.0.0.1:0"]);
    let root = stage.root();
    let secret = stage.scratch.path().join("export/file");
    for client in &mut clients(&stage) {
        let regular = client.lookup(&root, b"file");
        let far = [1 << 63, (1 << 63) - 1, u64::MAX, u64::MAX - 4095, (1 << 63) - 4096];
        for offset in far {
            for count in [0, 1, 4096, u32::MAX] {
                let (status, results) = client.call(READ, &file(&regular).u64(offset).u32(count));
                assert!([OK, INVAL].contains(&status), "READ at {offset}: {status}");
                if status == OK {
                    // Attributes (or none), count 0, end.
                    assert_eq!(results[results.len() - 12..], Xdr::default().words(&[0, 1, 0]).0, "READ at {offset}");
                }
            }
            let write = |data: &[u8]| file(&regular).u64(offset).words(&[data.len() as u32, 2]).opaque(data);
            client.wants("far away", WRITE, &write(b"x"), &[FBIG, INVAL]);
            client.wants("far away", WRITE, &write(&[7; 1000]), &[FBIG, INVAL]);
            client.wants("far away", COMMIT, &file(&regular).u64(offset).u32(u32::MAX), &[OK, INVAL]);
        }
        for size in [1 << 63, u64::MAX, (1 << 63) + 4095] {
            let size = file(&regular).words(&[0, 0, 0, 1]).u64(size).words(&[0, 0, 0]);
            client.wants("a size", SETATTR, &size, &[FBIG, INVAL]);
        }
        client.wants("a size", SETATTR, &file(&root).words(&[0, 0, 0, 1]).u64(0).words(&[0, 0, 0]), &[ISDIR, INVAL]);
        // The count differs from the length of the data: the server must not invent bytes or read beyond the data.
        let write = |count: u32, data: &[u8]| file(&regular).u64(0).words(&[count, 2]).opaque(data);
        let same = &contents(FILE_BYTES)[..4];
        client.wants("count", WRITE, &write(5, same), &[OK, INVAL, GARBAGE, IO]);
        client.wants("count", WRITE, &write(u32::MAX, same), &[OK, INVAL, GARBAGE, IO]);
        client.wants("count", WRITE, &write(0, same), &[OK, INVAL, GARBAGE, IO]);
        client.wants("data", WRITE, &file(&regular).u64(0).words(&[4, 2, u32::MAX]), &[GARBAGE]);
        client.wants("stability", WRITE, &file(&regular).u64(0).words(&[4, 3]).opaque(same), &[GARBAGE, INVAL]);

        // Invalid modes, owners and times.
        client.wants("", CREATE, &at(&root, b"own").u32(0).words(&NOTHING), &[OK]);
        let own = client.lookup(&root, b"own");
        let set = |words: &[u32]| file(&own).words(words).u32(0);
        client.wants("a discriminant", SETATTR, &set(&[2, 0, 0, 0, 0, 0]), &[GARBAGE]);
        client.wants("a time", SETATTR, &set(&[0, 0, 0, 0, 2, 0, 1_000_000_000, 0]), &[OK, INVAL]);
        client.wants("a time", SETATTR, &set(&[0, 0, 0, 0, 2, 0, u32::MAX, 0]), &[OK, INVAL]);
        client.wants("how a time is set", SETATTR, &set(&[0, 0, 0, 0, 3, 0]), &[GARBAGE]);
        let guarded = file(&own).words(&NOTHING).words(&[1, 5, 5]);
        client.wants("another time", SETATTR, &guarded, &[NOT_SYNC]);
        client.wants("", REMOVE, &at(&root, b"own"), &[OK]);

        let list = |cookie: u64, verifier: u64, count: u32| file(&root).u64(cookie).u64(verifier).u32(count);
        client.wants("no room", READDIR, &list(0, 0, 0), &[TOOSMALL]);
        client.wants("no room", READDIR, &list(0, 0, 8), &[TOOSMALL]);
        client.wants("all the room", READDIR, &list(0, 0, u32::MAX), &[OK]);
        client.wants("no room", READDIRPLUS, &list(0, 0, 0).u32(0), &[TOOSMALL]);
        client.wants("names only", READDIRPLUS, &list(0, 0, u32::MAX).u32(0), &[TOOSMALL]);
        client.wants("all the room", READDIRPLUS, &list(0, 0, u32::MAX).u32(u32::MAX), &[OK]);
        for cookie in [u64::MAX, 1 << 63, 0x1234_5678_9ABC_DEF0] {
            client.wants("a cookie", READDIR, &list(cookie, 0, 4096), &[OK, BAD_COOKIE, INVAL]);
            client.wants("a cookie", READDIR, &list(cookie, u64::MAX, 4096), &[OK, BAD_COOKIE, INVAL]);
        }

        // Objects that cannot be made.
        client.wants("a kind", MKNOD, &at(&root, b"n").u32(99), &[BADTYPE, GARBAGE]);
        client.wants("a kind", MKNOD, &at(&root, b"n").u32(1).words(&NOTHING), &[BADTYPE, GARBAGE]);
        client.wants("how", CREATE, &at(&root, b"n").u32(3).words(&NOTHING), &[GARBAGE]);
        client.wants("", MKDIR, &at(&root, b"dir").words(&NOTHING), &[OK]);
        let inside = client.lookup(&root, b"dir");
        client.wants("into itself", RENAME, &at(&root, b"dir").opaque(&inside).opaque(b"x"), &[INVAL]);
        client.wants("", RMDIR, &at(&root, b"dir"), &[OK]);
    }
    assert!(fs::read(&secret).unwrap() == contents(FILE_BYTES), "the file is as it was");
    let names: Vec<_> = fs::read_dir(secret.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "nothing was left: {names:?}");
    stage.finish();
}
