//! NFSACL as clients call it: on a directory of the host, whose kernel keeps the lists, and in memory.

use crate::{
    Caller, Export, FileSystem, Identities, MemoryFs, Nfsd, Squash,
    testing::{Client, SECRET, env, plain},
    tests::{mode, on_each},
};
use rpcrdma_nfs::{
    attr::{Acls, PosixAcl},
    nfsacl::{self, Entry, GetAcl, GetAclOk, List, Lists, SetAcl, mask},
    v3::{self, Answer, Attributes, CreateHow, Handle, Status, access},
};
use rpcrdma_oncrpc::Rejection;
use rpcrdma_xdr::{Encode, Encoder, Payload};
use std::sync::Arc;

type Info = Option<Attributes>;

const BOTH: u32 = mask::ACCESS | mask::DEFAULT;
/// Reading and changing.
const CHANGE: u32 = access::READ | access::MODIFY;

fn get(client: &Client, file: &Handle, mask: u32) -> Answer<GetAclOk, Info> {
    client.ask(GetAcl { file: file.clone(), mask })
}

/// The entries of the access list and of the default list.
fn told(client: &Client, file: &Handle) -> [Vec<(u32, u32, u32)>; 2] {
    let ok = plain(get(client, file, mask::ALL)).unwrap();
    assert_eq!(ok.attributes, Some(client.attributes(file).unwrap()));
    assert_eq!(ok.lists.mask(), mask::ALL);
    [ok.lists.access().unwrap(), ok.lists.default().unwrap()]
        .map(|list| list.entries().iter().map(|entry| (entry.kind, entry.id, entry.rights)).collect())
}

fn list(entries: &[(u32, u32, u32)]) -> List {
    List::new(entries.iter().map(|&(kind, id, rights)| Entry { kind, id, rights }).collect()).unwrap()
}

fn set(client: &Client, file: &Handle, mask: u32, access: &List, default: &List) -> Answer<Info, Info> {
    client.ask(SetAcl { file: file.clone(), lists: Lists::new(mask, access.clone(), default.clone()) })
}

/// The status alone; a failure also has attributes.
fn status(answer: Answer<Info, Info>) -> Status {
    match answer {
        Answer::Ok(attributes) => {
            assert!(attributes.is_some());
            Status::OK
        }
        Answer::Failed(failure) => failure.status,
    }
}

/// The owner may read and write, so may user 1000, the group and group 50 may read. Not in order, as Linux's client may
/// send it.
fn named() -> List {
    list(&[(16, 0, 6), (32, 0, 0), (8, 50, 4), (1, 0, 6), (2, 1000, 7), (4, 0, 4)])
}

/// The same list as the server returns it for files of the superuser.
const NAMED: [(u32, u32, u32); 6] = [(1, 0, 6), (2, 1000, 7), (4, 0, 4), (8, 50, 4), (16, 0, 6), (32, 0, 0)];

/// The program answers where NFS does, and nowhere else. Calls of its version 2 learn that there is version 3.
///
/// proves: ULB-4.2-a
#[test]
fn it_answers_where_nfs_does() {
    let client = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env())));
    let asked = |version, procedure| client.raw(nfsacl::PROGRAM, version, procedure, Payload::new()).map(|_| ());
    assert_eq!([0, 1, 2].map(|procedure| asked(3, procedure)), [Ok(()), GARBAGE, GARBAGE]);
    for unknown in [3, 4, u32::MAX] {
        assert_eq!(asked(3, unknown), Err(Rejection::ProcedureUnavailable));
    }
    for version in [0, 1, 2, 4] {
        assert_eq!(asked(version, 0), Err(Rejection::ProgramMismatch { low: 3, high: 3 }));
    }
    assert!(client.attributes(&client.root()).is_ok(), "over the same connection");
}

const GARBAGE: Result<(), Rejection> = Err(Rejection::GarbageArgs);

/// proves: NFSACL-LINUX-b
#[test]
fn a_mode_is_told_as_four_entries_and_what_is_asked_for_is_told() {
    on_each(|client| {
        let file = client.new_file(&client.root(), "file");
        client.set(&file, mode(0o4640)).unwrap();
        let owner = client.attributes(&file).unwrap();
        let four = [(1, owner.uid, 6), (4, owner.gid, 4), (16, 0, 4), (32, 0, 0)];
        assert_eq!(told(client, &file), [four.to_vec(), vec![]]);
        let lists = |bits| plain(get(client, &file, bits)).unwrap().lists;
        let counts = lists(mask::ACCESS_COUNT | mask::DEFAULT_COUNT);
        assert_eq!((counts.counts(), counts.access(), counts.default()), ([4, 0], None, None));
        assert_eq!((lists(0).counts(), lists(0).mask()), ([0, 0], 0));
        let alone = lists(mask::DEFAULT);
        assert_eq!((alone.counts(), alone.access()), ([0, 0], None), "of the other nothing is told");
        let Answer::Failed(failed) = get(client, &file, 0x10) else { panic!("a bit that there is not") };
        assert_eq!(failed.status, Status::INVAL);
        assert_eq!(failed.info.map(|attributes| attributes.mode), Some(0o4640));
        // Setting the list that GETACL returned changes nothing else.
        let same = list(&four);
        assert_eq!(status(set(client, &file, BOTH, &same, &List::default())), Status::OK);
        assert_eq!(client.attributes(&file).unwrap().mode, 0o4640, "the higher bits stay");
        assert_eq!(told(client, &file), [four.to_vec(), vec![]]);
    });
}

/// proves: NFSACL-LINUX-a, NFSACL-LINUX-d
#[test]
fn lists_are_kept_and_access_goes_by_them() {
    on_each(|client| {
        let file = client.new_file(&client.root(), "file");
        client.set(&client.root(), mode(0o755)).unwrap();
        client.write(&file, 0, "octets").unwrap();
        let Answer::Ok(Some(after)) = set(client, &file, BOTH, &named(), &List::default()) else { panic!("refused") };
        assert_eq!(after, client.attributes(&file).unwrap(), "the attributes from after it");
        assert_eq!(after.mode & 0o7777, 0o660, "the mask stands where the mode has the group");
        assert_eq!(told(client, &file), [NAMED.to_vec(), vec![]]);
        let [user, member, other] =
            [(1000, 9, 0), (9, 9, 50), (9, 9, 51)].map(|(uid, gid, group)| client.as_user(uid, gid, &[group]));
        let all = CHANGE | access::EXECUTE;
        let may = || [&user, &member, &other].map(|who| who.access(&file, all).unwrap());
        assert_eq!(may(), [CHANGE, access::READ, 0], "no more than the mask");
        assert_eq!(user.contents(&file), b"octets");
        user.write(&file, 0, "OCTETS").unwrap();
        assert_eq!(member.contents(&file), b"OCTETS");
        assert_eq!(member.write(&file, 0, "x").map(|_| ()), Err(Status::ACCES));
        assert_eq!(other.read(&file, 0, 1).map(|_| ()), Err(Status::ACCES));
        // A mode narrows the mask, and leaves the named entries.
        client.set(&file, mode(0o640)).unwrap();
        let mut narrowed = NAMED.to_vec();
        narrowed[4] = (16, 0, 4);
        assert_eq!((told(client, &file), may()), ([narrowed, vec![]], [access::READ, access::READ, 0]));
        // Rights that are taken away are gone at once, also for a caller that has read before.
        let plain = list(&[(1, 0, 6), (4, 0, 0), (32, 0, 0)]);
        assert_eq!(status(set(client, &file, BOTH, &plain, &List::default())), Status::OK);
        assert_eq!(may(), [0, 0, 0]);
        assert_eq!(user.read(&file, 0, 1).map(|_| ()), Err(Status::ACCES));
    });
}

/// proves: NFSACL-LINUX-d
#[test]
fn only_the_owner_sets_lists_and_everybody_sees_them() {
    on_each(|client| {
        let file = client.new_file(&client.root(), "file");
        client.set(&client.root(), mode(0o755)).unwrap();
        let (owner, other) = (client.as_user(1000, 1, &[]), client.as_user(1001, 1, &[]));
        client.set(&file, v3::NewAttributes { uid: Some(1000), ..mode(0o600) }).unwrap();
        let Answer::Failed(failed) = set(&other, &file, BOTH, &named(), &List::default()) else { panic!("set") };
        assert_eq!(failed.status, Status::PERM);
        assert_eq!(failed.info.map(|attributes| attributes.mode & 0o777), Some(0o600));
        assert_eq!(told(&other, &file), told(&owner, &file));
        assert_eq!(status(set(&owner, &file, BOTH, &named(), &List::default())), Status::OK);
        assert_eq!(told(&other, &file)[0].len(), NAMED.len());
    });
}

/// proves: NFS3-ACL-a
#[test]
fn a_read_only_export_tells_lists_and_sets_none() {
    let tree: Arc<dyn FileSystem> = Arc::new(MemoryFs::new(1 << 20, &env()));
    let trusting = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", tree).with_identities(trusting).with_read_only(true);
    let client = Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap());
    let root = client.root();
    assert_eq!(status(set(&client, &root, BOTH, &named(), &List::default())), Status::ROFS);
    assert_eq!(told(&client, &root)[0].len(), 4);
}

/// New files get their directory's default list, whoever makes them; new directories pass it on.
///
/// proves: NFSACL-LINUX-c
#[test]
fn what_is_made_inherits_the_default_list() {
    on_each(|client| {
        let directory = client.new_directory(&client.root(), "directory");
        client.set(&client.root(), mode(0o755)).unwrap();
        let all = list(&[(1, 0, 7), (4, 0, 5), (16, 0, 5), (32, 0, 5)]);
        let default = list(&[(0x1001, 0, 7), (0x1002, 1000, 7), (0x1004, 0, 4), (0x1010, 0, 7), (0x1020, 0, 0)]);
        assert_eq!(status(set(client, &directory, BOTH, &all, &default)), Status::OK);
        let kept = [(0x1001, 0, 7), (0x1002, 1000, 7), (0x1004, 0, 4), (0x1010, 0, 7), (0x1020, 0, 0)].to_vec();
        let four = vec![(1, 0, 7), (4, 0, 5), (16, 0, 5), (32, 0, 5)];
        assert_eq!(told(client, &directory), [four.clone(), kept.clone()]);
        let file = client.create(&directory, "file", CreateHow::Guarded(mode(0o666))).unwrap().file.unwrap();
        let of_file = vec![(1, 0, 6), (2, 1000, 7), (4, 0, 4), (16, 0, 6), (32, 0, 0)];
        assert_eq!(told(client, &file), [of_file, vec![]]);
        assert_eq!(client.attributes(&file).unwrap().mode & 0o7777, 0o660, "others get nothing, whatever is asked");
        let user = client.as_user(1000, 9, &[]);
        assert_eq!(user.access(&file, CHANGE | access::EXECUTE), Ok(CHANGE));
        let below = client.new_directory(&directory, "below");
        let of_below = vec![(1, 0, 7), (2, 1000, 7), (4, 0, 4), (16, 0, 5), (32, 0, 0)];
        assert_eq!(told(client, &below), [of_below.clone(), kept.clone()]);
        // A symbolic link gives all rights to all users, and inherits nothing.
        let link = v3::SymbolicLink {
            directory: directory.clone(),
            name: "link".into(),
            attributes: mode(0o777),
            path: v3::Path::from("file"),
        };
        let link = plain(client.ask(link)).unwrap().file.unwrap();
        assert_eq!(told(client, &link), [vec![(1, 0, 7), (4, 0, 7), (16, 0, 7), (32, 0, 7)], vec![]]);
        assert_eq!(status(set(client, &link, BOTH, &named(), &List::default())), Status::NOTSUPP);
        assert_eq!(status(set(client, &file, BOTH, &named(), &default)), Status::NOTSUPP, "files have none to pass on");
        // Only one of the lists: the other stays.
        assert_eq!(status(set(client, &below, mask::DEFAULT, &List::default(), &List::default())), Status::OK);
        assert_eq!(told(client, &below), [of_below, vec![]]);
        assert_eq!(status(set(client, &directory, mask::ACCESS, &named(), &List::default())), Status::OK);
        assert_eq!(told(client, &directory), [NAMED.to_vec(), kept.clone()]);
        // An access list without entries means the list of the mode.
        assert_eq!(status(set(client, &directory, mask::ACCESS, &List::default(), &List::default())), Status::OK);
        let of_mode = vec![(1, 0, 6), (4, 0, 6), (16, 0, 6), (32, 0, 0)];
        assert_eq!(told(client, &directory), [of_mode, kept]);
    });
}

/// proves: NFSACL-LINUX-a
#[test]
fn what_is_no_list_is_refused_and_changes_nothing() {
    on_each(|client| {
        let directory = client.new_directory(&client.root(), "directory");
        let before = told(client, &directory);
        let base = [(1, 0, 6), (4, 0, 4), (16, 0, 4), (32, 0, 0)];
        let with = |more: &[(u32, u32, u32)]| list(&[&base[..], more].concat());
        let none = List::default();
        let refused = [
            with(&[(2, 5, 7), (2, 5, 7)]),
            with(&[(1, 0, 6)]),
            with(&[(2, u32::MAX, 7)]),
            with(&[(2, 5, 8)]),
            with(&[(0x40, 5, 7)]),
            with(&[(0, 0, 0)]),
            list(&base[1..]),
            list(&[base[0], base[1], base[3], (2, 5, 7)]),
        ];
        for bad in &refused {
            for (access, default) in [(bad, &none), (&with(&[]), bad), (bad, bad)] {
                let Answer::Failed(failed) = set(client, &directory, BOTH, access, default) else {
                    panic!("{access:?} {default:?}")
                };
                assert_eq!(failed.status, Status::INVAL, "{access:?} {default:?}");
                assert!(failed.info.is_some());
            }
        }
        for bits in [0, mask::ACCESS_COUNT | mask::DEFAULT_COUNT, BOTH | 0x10, u32::MAX] {
            assert_eq!(status(set(client, &directory, bits, &with(&[]), &none)), Status::INVAL, "mask {bits:#x}");
        }
        assert_eq!(told(client, &directory), before);
        let stale = Handle::new(&[7; 64]).unwrap();
        assert_eq!(status(set(client, &stale, BOTH, &named(), &none)), Status::BADHANDLE);
        assert_eq!(plain(get(client, &stale, mask::ALL)), Err(Status::BADHANDLE));
    });
}

/// Wrong counts, missing entries and too many entries are no valid arguments.
///
/// proves: NFSACL-LINUX-a
#[test]
fn lists_that_lie_are_no_arguments() {
    let client = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env())));
    let root = client.root();
    let sent = |words: &[u32], entries: u32| {
        let mut encoder = Encoder::new();
        root.encode(&mut encoder);
        words.iter().for_each(|word| encoder.u32(*word));
        (0..entries).for_each(|entry| [2, entry, 4].into_iter().for_each(|word| encoder.u32(word)));
        encoder.u32(0);
        encoder.u32(0);
        let octets = encoder.finish().to_bytes();
        client.raw(nfsacl::PROGRAM, 3, 2, Payload::from(octets)).map(|_| ())
    };
    assert_eq!(sent(&[BOTH, 1024, 1024], 1024), Ok(()), "an answer, though these entries are no list");
    assert_eq!(sent(&[BOTH, 1025, 1025], 1025), GARBAGE);
    for (words, entries) in [
        ([BOTH, 3, 2], 2),
        ([BOTH, 2, 3], 3),
        ([BOTH, 3, 3], 2),
        ([BOTH, 2, 0], 0),
        ([BOTH, 0, 1], 1),
        ([BOTH, 2, 2], 3),
    ] {
        assert_eq!(sent(&words, entries), GARBAGE, "{words:?} with {entries} entries");
    }
    assert_eq!(sent(&[BOTH, u32::MAX, u32::MAX], 0), GARBAGE, "nothing is allocated on a peer's word");
    // A list whose bit is not set is read, and ignored.
    assert_eq!(sent(&[mask::DEFAULT, 2, 2], 2), Ok(()));
}

/// The longest list that a client can get and set, and one entry more.
#[test]
fn a_list_has_as_many_entries_as_the_program_allows() {
    let storage = Arc::new(MemoryFs::new(1 << 20, &env()));
    let trusting = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", storage.clone()).with_identities(trusting);
    let client = Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap());
    let root = client.root();
    let posix = |users: u32| PosixAcl::new([7; 3], (0..users).map(|id| (id, 4)).collect(), vec![], Some(7)).unwrap();
    let longest = List::of(&posix(1020), (0, 0)).unwrap();
    assert_eq!(status(set(&client, &root, BOTH, &longest, &longest)), Status::OK);
    let [access, default] = told(&client, &root);
    assert_eq!((access.len(), default.len()), (1024, 1024));
    let longer = Acls { access: posix(1021), default: None };
    crate::testing::wait(storage.set_acl(Caller::root(), storage.root(), longer)).unwrap();
    for bits in [mask::ALL, mask::ACCESS_COUNT] {
        let Answer::Failed(failed) = get(&client, &root, bits) else { panic!("1,025 entries") };
        assert_eq!((failed.status, failed.info.is_some()), (Status::FBIG, true));
    }
    assert!(plain(get(&client, &root, mask::DEFAULT)).is_ok());
}

/// proves: NFSACL-LINUX-b
#[test]
fn where_there_are_modes_alone_no_list_says_more() {
    let client = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env()).without_acls()));
    let root = client.root();
    assert_eq!(told(&client, &root), [vec![(1, 0, 7), (4, 0, 5), (16, 0, 5), (32, 0, 5)], vec![]]);
    let trusted = Client::of(&{
        let trusting = Identities { squash: Squash::None, ..Identities::default() };
        let storage = Arc::new(MemoryFs::new(1 << 20, &env()).without_acls());
        Nfsd::new(vec![Export::new("/", storage).with_identities(trusting)], SECRET, &env()).unwrap()
    });
    let root = trusted.root();
    let Answer::Failed(failed) = set(&trusted, &root, BOTH, &named(), &List::default()) else { panic!("set") };
    assert_eq!((failed.status, failed.info.map(|attributes| attributes.mode)), (Status::NOTSUPP, Some(0o755)));
    let of_mode = list(&[(1, 0, 7), (4, 0, 1), (16, 0, 1), (32, 0, 0)]);
    assert_eq!(status(set(&trusted, &root, BOTH, &of_mode, &of_mode)), Status::NOTSUPP, "nor is there a default");
    assert_eq!(status(set(&trusted, &root, BOTH, &of_mode, &List::default())), Status::OK);
    assert_eq!(trusted.attributes(&root).unwrap().mode, 0o710);
}

/// A repeated SETACL from another port would undo what another client has set since.
///
/// proves: ULB-3.4.2-a
#[test]
fn a_repetition_is_not_executed_again() {
    on_each(|client| {
        let mut client = client.as_user(0, 0, &[]);
        let file = client.new_file(&client.root(), "file");
        let call = |client: &Client| status(set(client, &file, BOTH, &named(), &List::default()));
        assert_eq!(call(&client), Status::OK);
        let other = client.as_user(0, 0, &[1]);
        let of_mode = list(&[(1, 0, 6), (4, 0, 0), (32, 0, 0)]);
        assert_eq!(status(set(&other, &file, BOTH, &of_mode, &List::default())), Status::OK);
        client.repeat();
        client.port += 1;
        assert_eq!(call(&client), Status::OK, "the answer that it had");
        assert_eq!(told(&client, &file)[0].len(), 4);
    });
}

/// Arbitrary bytes after a handle.
#[test]
fn arbitrary_arguments_are_survived() {
    let client = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env())));
    let root = client.root();
    let random = rpcrdma_env::SeededRandom::new(5);
    let draw = || rpcrdma_env::Random::next_u64(&random);
    let mut answered = 0;
    for _ in 0..4_000 {
        let mut encoder = Encoder::new();
        root.encode(&mut encoder);
        for _ in 0..draw() % 40 {
            encoder.u32(if draw() % 4 == 0 { draw() as u32 } else { draw() as u32 % 6 });
        }
        let args = Payload::from(encoder.finish().to_bytes());
        let procedure = draw() as u32 % 4;
        answered += u32::from(client.raw(nfsacl::PROGRAM, 3, procedure, args).is_ok());
    }
    assert!(answered > 10, "some are arguments: {answered}");
}
