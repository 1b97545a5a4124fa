//! The disk does not take what clients have written: all clients learn it.

use super::{disk::Disk, *};
use rpcrdma_nfs::v3::{Stability, Verifier, Write};

/// How many rounds two clients play for each kind of call.
const TRIES: usize = 50;

/// A server of a directory on the disk, whose clients may do everything.
fn serve(served: &Path, disk: &Disk) -> Client {
    let state = StateDirectory::open(disk.state(), &*env().random).unwrap();
    // A program that another test has just started holds the earlier server's lock for a moment.
    let directory = loop {
        match DirectoryFs::open(served, &state, Queue::in_place(), &env()) {
            Err(OpenError::InUse { .. }) => std::thread::yield_now(),
            other => break other.unwrap(),
        }
    };
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", Arc::new(directory)).with_identities(identities);
    Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap())
}

fn commit(client: &Client, file: &Handle) -> Result<Verifier, Status> {
    plain(client.ask(Commit { file: file.clone(), offset: 0, count: 0 })).map(|ok| ok.verifier)
}

/// A call by another client on the file, while its disk is full.
type Call = fn(&Client, &Handle, &str);

const CALLS: [(&str, Call); 4] = [
    ("create", |client, _, name| {
        let _ = client.create(&client.root(), name, CreateHow::Unchecked(NewAttributes::default()));
    }),
    ("stable write", |client, file, _| {
        let data = vec![2; 4096].into();
        let write = Write { file: file.clone(), offset: 1 << 20, stability: Stability::FileSync, data };
        let _ = plain(client.ask(write));
    }),
    ("set", |client, file, _| {
        let _ = client.set(file, NewAttributes { mode: Some(0o640), ..NewAttributes::default() });
    }),
    ("commit", |client, file, _| {
        let _ = commit(client, file);
    }),
];

/// One client writes and commits; another client calls for the same file in between, or at the same time.
/// proves: NFS3-LOSS-a
#[test]
fn whoever_meets_the_failure_of_the_disk_first_everybody_learns_it() {
    let Some(disk) = Disk::new(&["-O", "^has_journal"]) else { return };
    let mut told = Vec::new();
    for (call, other) in CALLS {
        let client = serve(&disk.served(), &disk);
        let root = client.root();
        let names: Vec<_> = (0..TRIES).map(|number| format!("{call} {number}")).collect();
        let files: Vec<_> = names.iter().map(|name| client.new_file(&root, name.as_str())).collect();
        drop(client);
        disk.fill();
        let (mut failed, mut verifiers, mut last) = (0, 0, None::<Client>);
        for (number, (name, file)) in names.iter().zip(&files).enumerate() {
            // Each try has a new server, except every fourth: there the server changes the verifier after a pause.
            let kept = if number % 4 == 3 { last.take() } else { None };
            drop(last.take());
            let client = kept.unwrap_or_else(|| serve(&disk.served(), &disk));
            let somebody = client.as_user(0, 0, &[]);
            let written = client.write(file, 0, vec![1; 256 << 10]).unwrap();
            let committed = std::thread::scope(|scope| {
                let beside = scope.spawn(|| other(&somebody, file, name));
                if number % 2 == 0 {
                    // In even rounds the other call ends first.
                    while !beside.is_finished() {
                        std::thread::yield_now();
                    }
                }
                commit(&client, file)
            });
            match committed {
                Err(_) => failed += 1,
                Ok(verifier) if verifier != written.verifier => verifiers += 1,
                Ok(_) => panic!("try {number} of {call}: lost data was committed"),
            }
            last = Some(client);
        }
        told.push(format!("{call}: {failed} COMMITs failed, {verifiers} had another verifier"));
        disk.relieve();
    }
    println!("{}", told.join("\n"));
}

/// A full file system refuses what does not fit, and loses nothing that it has accepted.
/// proves: NFS3-LOSS-c
#[test]
fn a_write_that_is_refused_loses_nothing() {
    let Some(disk) = Disk::new(&["-O", "^has_journal"]) else { return };
    let client = serve(&disk.beneath(), &disk);
    let (victim, other) = (client.new_file(&client.root(), "victim"), client.new_file(&client.root(), "other"));
    let written = client.write(&victim, 0, "data").unwrap();
    let mut offset = 0;
    let refused = loop {
        match client.write(&other, offset, vec![1; 1 << 20]) {
            Ok(written) => offset += u64::from(written.count),
            Err(status) => break status,
        }
    };
    assert_eq!(refused, Status::NOSPC);
    assert_eq!(client.write(&other, u64::MAX - 10, "x").map(|_| ()), Err(Status::FBIG));
    assert_eq!(commit(&client, &victim), Ok(written.verifier));
    assert_eq!(client.contents(&victim), b"data");
}

/// Data in another file of the same file system is safe. Its verifier may change, but no client can cause that without
/// end.
/// proves: NFS3-LOSS-b
#[test]
fn a_client_that_provokes_failures_does_not_make_others_send_again_without_end() {
    let Some(disk) = Disk::new(&["-O", "^has_journal"]) else { return };
    let client = serve(&disk.served(), &disk);
    let root = client.root();
    let files: Vec<_> = (0..40).map(|number| client.new_file(&root, format!("{number}").as_str())).collect();
    let decent = client.new_file(&root, "decent");
    client.write(&decent, 0, vec![7; 4096]).unwrap();
    commit(&client, &decent).unwrap();
    disk.fill();
    let mut verifiers = Vec::new();
    let begin = std::time::Instant::now();
    for file in &files {
        client.write(file, 0, vec![1; 256 << 10]).unwrap();
        commit(&client, file).unwrap_err();
        // The block already exists: the disk takes the data.
        let written = client.write(&decent, 0, vec![8; 4096]).unwrap();
        assert_eq!(commit(&client, &decent), Ok(written.verifier), "nothing of this file was lost");
        verifiers.push(written.verifier);
    }
    verifiers.dedup();
    // One change at once, then one in each pause, and the pause doubles.
    let most = 2 + begin.elapsed().as_secs() as usize;
    assert!(verifiers.len() <= most, "{} verifiers in {:?}", verifiers.len(), begin.elapsed());
    disk.relieve();
}

/// Data of a copy that the disk does not take counts as not copied.
/// proves: NFS4-COPY-LOSS-a
#[test]
fn a_copy_that_the_disk_has_lost_is_not_committed() {
    use crate::{Access, Caller, Span, Via, testing::wait};
    let Some(disk) = Disk::new(&["-O", "^has_journal"]) else { return };
    let served = disk.served();
    host::write(served.join("from"), vec![7; 1 << 20]).unwrap();
    // The disk may have room for the first files, where it had other data before.
    let names: Vec<_> = (0..8).map(|number| format!("to {number}")).collect();
    names.iter().for_each(|name| host::write(served.join(name), "").unwrap());
    let state = StateDirectory::open(disk.state(), &*env().random).unwrap();
    let directory = DirectoryFs::open(&served, &state, Queue::in_place(), &env()).unwrap();
    let open = |name: &str| {
        let name = Bytes::copy_from_slice(name.as_bytes());
        let found = wait(directory.lookup(Caller::root(), directory.root(), name)).unwrap();
        let open = wait(directory.open(Caller::root(), found.file, Access::Both)).unwrap();
        Via::open(Caller::root(), open)
    };
    let (from, ends) = (open("from"), names.iter().map(|name| open(name)).collect::<Vec<_>>());
    disk.fill();
    let before = directory.losses();
    let mut lost = 0;
    for to in ends {
        let copied = wait(directory.copy(from.clone(), to.clone(), Span { from: 0, to: 0, length: 1 << 20 })).unwrap();
        assert_eq!((copied.count, copied.committed), (1 << 20, rpcrdma_nfs::attr::Stability::Unstable));
        lost += usize::from(wait(directory.commit(to, 0, 0)).is_err());
    }
    assert!(lost >= 4, "{lost}");
    assert_ne!(directory.losses(), before);
    disk.relieve();
}
