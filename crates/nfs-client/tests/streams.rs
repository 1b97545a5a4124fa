//! Streams, listings and paths against servers that do only what they must.

#[allow(dead_code, reason = "each test file uses its share")]
mod scripted;

use bytes::Bytes;
use rpcrdma_nfs::v3::{self, Answer, FileType, Name, Path, Procedure, Stability, Status, Verifier, WeakCache};
use rpcrdma_nfs_client::{Cause, Error, Files, Handle, Reader, Transfer, Writer};
use scripted::{args, attributes, client, found, handle, lookup_failed, once, opened, read_ok};
use std::sync::{Arc, Mutex};

fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

/// Reads a file of `len` bytes; the reader expects `expected` bytes, and the server returns at most `most` at a time.
async fn read_expecting(len: usize, expected: u64, most: usize, block: u32, depth: usize) -> (Vec<u8>, usize) {
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    let nfs = client(move |_, decoder| {
        let read: v3::Read = args(decoder);
        *counted.lock().unwrap() += 1;
        let from = (read.offset as usize).min(len);
        let to = (from + (read.count as usize).min(most)).min(len);
        once(&read_ok(&contents(len)[from..to], to == len))
    });
    let mut reader = Reader::new(opened(nfs).await, 0, u64::MAX, block, depth).expecting(expected);
    let mut octets = Vec::new();
    while let Some(block) = reader.next().await.unwrap() {
        assert_eq!(block.offset, octets.len() as u64, "in order");
        octets.extend_from_slice(&block.data);
    }
    let calls = *calls.lock().unwrap();
    (octets, calls)
}

async fn read(len: usize, most: usize, block: u32, depth: usize) -> Vec<u8> {
    read_expecting(len, u64::MAX, most, block, depth).await.0
}

#[tokio::test]
async fn no_call_is_spent_beyond_the_expected_end() {
    assert_eq!(read_expecting(300, 300, 1000, 100, 8).await, (contents(300), 3));
    assert_eq!(read_expecting(301, 301, 1000, 100, 8).await, (contents(301), 4));
    // The file has grown or shrunk meanwhile.
    assert_eq!(read_expecting(500, 300, 1000, 100, 8).await, (contents(500), 5));
    assert_eq!(read_expecting(150, 300, 1000, 100, 2).await, (contents(150), 2));
}

#[tokio::test]
async fn a_file_is_read_whole_however_little_comes_at_a_time() {
    for len in [0, 1, 99, 100, 101, 1000] {
        for (most, block, depth) in [(1000, 100, 4), (7, 100, 3), (100, 100, 1), (1, 1, 8)] {
            assert_eq!(read(len, most, block, depth).await, contents(len), "{len} {most} {block} {depth}");
        }
    }
}

/// A small file costs one call: its reply shows the end.
#[tokio::test]
async fn nothing_is_asked_beyond_the_end_that_was_told() {
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    let nfs = client(move |_, _| {
        *counted.lock().unwrap() += 1;
        once(&read_ok(b"all", true))
    });
    let mut reader = Reader::new(opened(nfs).await, 0, u64::MAX, 100, 1);
    assert_eq!(&reader.next().await.unwrap().unwrap().data[..], b"all");
    assert!(reader.next().await.unwrap().is_none());
    assert_eq!(*calls.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_server_that_returns_nothing_or_too_much_is_an_error() {
    for data in [&b""[..], b"more than was asked"] {
        let nfs = client(move |_, _| once(&read_ok(data, false)));
        let mut reader = Reader::new(opened(nfs).await, 0, 100, 10, 2);
        assert!(matches!(reader.next().await, Err(Error::Nonsense { .. })));
        assert!(reader.next().await.unwrap().is_none(), "nothing follows an error");
    }
}

/// A server's file, and its restarts.
#[derive(Default)]
struct Volatile {
    durable: Vec<u8>,
    unstable: Vec<(u64, Bytes)>,
    boot: u64,
    writes: u64,
}

fn put(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let from = offset as usize;
    file.resize(file.len().max(from + data.len()), 0);
    file[from..from + data.len()].copy_from_slice(data);
}

/// Writes through a server that takes at most `most` bytes at a time. Before the writes for whose number `restart` is
/// true (counted from 1), the server restarts and loses unstable data.
async fn write(len: usize, most: usize, restart: fn(u64) -> bool) -> (Result<(), Error>, Vec<u8>) {
    let server = Arc::new(Mutex::new(Volatile::default()));
    let inside = server.clone();
    let nfs = client(move |procedure, decoder| {
        let mut server = inside.lock().unwrap();
        match procedure {
            Procedure::Write => {
                let write: v3::Write = args(decoder);
                assert_eq!(write.stability, Stability::Unstable);
                server.writes += 1;
                if restart(server.writes) {
                    server.boot += 1;
                    server.unstable.clear();
                }
                let data = write.data.slice(..write.data.len().min(most));
                let count = data.len() as u32;
                server.unstable.push((write.offset, data));
                let verifier = Verifier(server.boot.to_be_bytes());
                let file = WeakCache::default();
                let ok = v3::WriteOk { file, count, committed: Stability::Unstable, verifier };
                once(&Answer::<_, WeakCache>::Ok(ok))
            }
            Procedure::Commit => {
                let server = &mut *server;
                for (offset, data) in server.unstable.drain(..) {
                    put(&mut server.durable, offset, &data);
                }
                let ok = v3::CommitOk { file: WeakCache::default(), verifier: Verifier(server.boot.to_be_bytes()) };
                once(&Answer::<_, WeakCache>::Ok(ok))
            }
            other => panic!("{other:?}"),
        }
    });
    let mut writer = Writer::new(opened(nfs).await, 100, 4);
    let data = Bytes::from(contents(len));
    let result = async {
        for at in (0..len).step_by(250) {
            writer.write(at as u64, data.slice(at..len.min(at + 250))).await?;
        }
        writer.finish().await
    };
    let result = result.await;
    let durable = server.lock().unwrap().durable.clone();
    (result, durable)
}

#[tokio::test]
async fn every_octet_is_durable_in_the_end() {
    for len in [0, 1, 100, 101, 3000] {
        let restarts: [fn(u64) -> bool; 3] = [|_| false, |n| n == 7, |n| [2, 20, 50, 51].contains(&n)];
        for (most, restart) in [(1000, 0), (33, 0), (1000, 1), (40, 1), (1000, 2), (40, 2)] {
            let (result, durable) = write(len, most, restarts[restart]).await;
            result.unwrap();
            assert_eq!(durable, contents(len), "{len} {most} {restart}");
        }
    }
}

#[tokio::test]
async fn a_server_that_always_loses_data_is_given_up() {
    let (result, _) = write(3000, 1000, |n| n.is_multiple_of(2)).await;
    assert!(matches!(result, Err(Error::NotDurable { .. })), "{result:?}");
}

/// A server that has lost data answers "later" to COMMIT until its verifier has changed, and then succeeds with the new
/// one.
#[tokio::test(start_paused = true)]
async fn data_that_a_server_lost_are_sent_again_when_commit_was_put_off() {
    let calls = Arc::new(Mutex::new((0, 0)));
    let counted = calls.clone();
    let nfs = client(move |procedure, _| {
        let (writes, commits) = &mut *counted.lock().unwrap();
        let later = || once(&Answer::<(), WeakCache>::failed(Status::JUKEBOX, WeakCache::default()));
        let verifier = Verifier([if *commits < 3 { 1 } else { 2 }; 8]);
        let file = WeakCache::default();
        match procedure {
            Procedure::Write if *writes == 1 => {
                *writes += 1;
                later()
            }
            Procedure::Write => {
                *writes += 1;
                let ok = v3::WriteOk { file, count: 10, committed: Stability::Unstable, verifier };
                once(&Answer::<_, WeakCache>::Ok(ok))
            }
            _ => {
                *commits += 1;
                match *commits {
                    ..3 => later(),
                    _ => once(&Answer::<_, WeakCache>::Ok(v3::CommitOk { file, verifier: Verifier([2; 8]) })),
                }
            }
        }
    });
    let mut writer = Writer::new(opened(nfs).await, 10, 1);
    writer.write(0, Bytes::from(contents(30))).await.unwrap();
    writer.checkpoint().await.unwrap();
    assert_eq!(*calls.lock().unwrap(), (3 + 1 + 3, 4), "each block once more, and one that was put off");
    writer.finish().await.unwrap();
    assert_eq!(calls.lock().unwrap().1, 4, "nothing is left to commit");
}

#[tokio::test]
async fn a_server_that_writes_nothing_is_an_error() {
    let (result, _) = write(10, 0, |_| false).await;
    assert!(matches!(result, Err(Error::Nonsense { .. })), "{result:?}");
}

fn neutral(text: &str) -> Handle {
    handle(text).into()
}

const SIZES: Transfer = Transfer { read: 4096, write: 4096, directory: 4096 };

fn entry(name: &str, cookie: u64) -> v3::EntryPlus {
    v3::EntryPlus { file_id: cookie, name: Name::from(name), cookie, attributes: None, file: None }
}

#[tokio::test]
async fn a_directory_is_listed_to_its_end_without_dots() {
    let names = [".", "..", "a", "b", "c"];
    let nfs = client(move |_, decoder| {
        let call: v3::ReadDirectoryPlus = args(decoder);
        let from = call.cookie as usize;
        let to = (from + 2).min(names.len());
        let entries = (from..to).map(|at| entry(names[at], at as u64 + 1)).collect();
        let verifier = Verifier([3; 8]);
        assert!(from == 0 || call.verifier == verifier);
        let ok = v3::ReadDirectoryPlusOk { attributes: None, verifier, entries, end: to == names.len() };
        once(&Answer::<_, Option<v3::Attributes>>::Ok(ok))
    });
    let mut listing = Files::from(nfs).list(&neutral("dir"), SIZES);
    let mut seen = Vec::new();
    while let Some(entry) = listing.next().await.unwrap() {
        seen.push(entry.name);
    }
    assert_eq!(seen, ["a", "b", "c"].map(rpcrdma_nfs_client::Name::from));
}

#[tokio::test]
async fn a_directory_that_does_not_advance_is_an_error() {
    for entries in [vec![], vec![entry("a", 0)]] {
        let nfs = client(move |_, _| {
            let verifier = Verifier::default();
            let ok = v3::ReadDirectoryPlusOk { attributes: None, verifier, entries: entries.clone(), end: false };
            once(&Answer::<_, Option<v3::Attributes>>::Ok(ok))
        });
        let mut listing = Files::from(nfs).list(&neutral("dir"), SIZES);
        assert!(matches!(listing.next().await, Err(Error::Nonsense { .. })));
    }
}

#[tokio::test]
async fn a_server_without_readdirplus_is_asked_by_readdir() {
    let nfs = client(move |procedure, _| match procedure {
        Procedure::ReadDirectoryPlus => once(&lookup_failed(Status::NOTSUPP)),
        _ => {
            let entries = vec![v3::Entry { file_id: 1, name: Name::from("a"), cookie: 1 }];
            let ok = v3::ReadDirectoryOk { attributes: None, verifier: Verifier::default(), entries, end: true };
            once(&Answer::<_, Option<v3::Attributes>>::Ok(ok))
        }
    });
    let mut listing = Files::from(nfs).list(&neutral("dir"), SIZES);
    assert_eq!(listing.next().await.unwrap().unwrap().name.as_slice(), b"a");
    assert!(listing.next().await.unwrap().is_none());
}

/// Lists a directory: `cookie` gives the last cookie of each reply, the first being number 0. The directory has no end
/// unless a cookie is 0. Returns the number of entries, and the error at the end.
async fn list(most: Option<u64>, cookie: fn(u64) -> u64) -> (u64, Option<Error>) {
    let mut reply = 0;
    let nfs = client(move |_, _| {
        let cookie = cookie(reply);
        reply += 1;
        let (entries, verifier) = (vec![entry("a", 0), entry("b", cookie)], Verifier::default());
        let ok = v3::ReadDirectoryPlusOk { attributes: None, verifier, entries, end: cookie == 0 };
        once(&Answer::<_, Option<v3::Attributes>>::Ok(ok))
    });
    let listing = Files::from(nfs).list(&neutral("dir"), SIZES);
    let mut listing = match most {
        Some(most) => listing.with_max_entries(most),
        None => listing,
    };
    let mut count = 0;
    loop {
        match listing.next().await {
            Ok(Some(_)) => count += 1,
            Ok(None) => return (count, None),
            Err(error) => return (count, Some(error)),
        }
    }
}

#[tokio::test]
async fn a_directory_that_leads_in_a_circle_is_an_error() {
    let circles: [fn(u64) -> u64; 4] =
        [|n| 1 + n % 2, |n| 7 + n % 1000, |n| if n < 5 { n + 1 } else { 3 }, |n| [9, 8, 7, 9][n.min(3) as usize]];
    for (cookie, replies) in circles.into_iter().zip([2, 1000, 5, 3]) {
        let (count, error) = list(None, cookie).await;
        assert_eq!(count, 2 * replies, "what came before it is told");
        assert!(error.is_some_and(|error| error.to_string().contains("for the second time")));
    }
    // Descending cookies are odd, but not a circle.
    let (count, error) = list(None, |n| 5 - n.min(5)).await;
    assert_eq!((count, error.is_none()), (12, true));
}

#[tokio::test]
async fn a_directory_without_end_is_an_error() {
    let (count, error) = list(Some(100), |n| n + 1).await;
    assert_eq!(count, 100);
    assert!(matches!(error, Some(Error::TooManyEntries { procedure: "READDIRPLUS", max: 100 })), "{error:?}");
    let (count, error) = list(Some(100), |n| (n + 1) % 50).await;
    assert_eq!((count, error.is_none()), (100, true), "as many as the limit are taken");
}

/// A circle that is longer than the listing's memory ends at the limit of entries.
#[tokio::test]
async fn a_long_circle_ends_too() {
    let (count, error) = list(Some(300_000), |n| 1 + n % 100_000).await;
    assert_eq!(count, 300_000);
    assert!(matches!(error, Some(Error::TooManyEntries { .. })), "{error:?}");
}

/// There is a limit even if the caller does not set one.
#[tokio::test]
async fn there_is_a_limit_on_entries_by_default() {
    const EACH: u64 = 1 << 14;
    let mut reply = 0;
    let nfs = client(move |_, _| {
        reply += 1;
        let (entries, verifier) = (vec![entry("a", reply); EACH as usize], Verifier::default());
        once(&Answer::<_, Option<v3::Attributes>>::Ok(v3::ReadDirectoryPlusOk {
            attributes: None,
            verifier,
            entries,
            end: false,
        }))
    });
    let mut listing = Files::from(nfs).list(&neutral("dir"), SIZES);
    for _ in 0..rpcrdma_nfs_client::MAX_ENTRIES {
        assert!(listing.next().await.unwrap().is_some());
    }
    assert!(matches!(listing.next().await, Err(Error::TooManyEntries { .. })));
}

/// A tree: /dir/file, /dir/up -> ../dir, /abs -> /dir, /loop -> loop.
async fn walk(path: &str, follow_last: bool) -> Result<Handle, Error> {
    let nfs = client(|procedure, decoder| match procedure {
        Procedure::GetAttributes => once(&Answer::<_, ()>::Ok(attributes(FileType::Directory))),
        Procedure::Lookup => {
            let lookup: v3::Lookup = args(decoder);
            let (file, file_type) = match (lookup.directory.as_slice(), lookup.name.as_slice()) {
                (b"root", b"dir") => ("dir", FileType::Directory),
                (b"dir", b"file") => ("file", FileType::Regular),
                (b"dir", b"up") => ("up", FileType::Symlink),
                (b"root", b"abs") => ("abs", FileType::Symlink),
                (b"root", b"loop") => ("loop", FileType::Symlink),
                _ => return once(&lookup_failed(Status::NOENT)),
            };
            let Answer::Ok(mut ok) = found(file_type) else { unreachable!() };
            ok.file = handle(file);
            once(&Answer::<_, Option<v3::Attributes>>::Ok(ok))
        }
        Procedure::ReadLink => {
            let call: v3::ReadLink = args(decoder);
            let target = match call.link.as_slice() {
                b"up" => "../dir",
                b"abs" => "/dir",
                _ => "loop",
            };
            let ok = v3::ReadLinkOk { attributes: None, path: Path::from(target) };
            once(&Answer::<_, Option<v3::Attributes>>::Ok(ok))
        }
        other => panic!("{other:?}"),
    });
    Files::from(nfs).walk(&neutral("root"), path.as_bytes(), follow_last).await.map(|found| found.file)
}

#[tokio::test]
async fn paths_are_walked_as_a_client_does() {
    for (path, follow, expected) in [
        ("", true, "root"),
        ("/", true, "root"),
        ("dir//./file", true, "file"),
        ("../../dir", true, "dir"),
        ("dir/../dir/file", true, "file"),
        ("dir/up/up/file", true, "file"),
        ("abs/file", true, "file"),
        ("abs", false, "abs"),
        ("abs", true, "dir"),
        ("dir/up", true, "dir"),
    ] {
        assert_eq!(walk(path, follow).await.unwrap(), neutral(expected), "{path}");
    }
    assert!(matches!(walk("loop", true).await, Err(Error::TooManyLinks { .. })));
    assert_eq!(walk("dir/file/x", true).await.unwrap_err().cause(), Some(Cause::NotDirectory));
    assert_eq!(walk("dir/none", true).await.unwrap_err().cause(), Some(Cause::Absent));
}
