//! READDIR: the verifier; the cookie, the name and the attributes of each entry; the number of entries, and the end.

use super::{Does, Lie, Must, Row, begin, lie, on, play, row};
use crate::house::{House, Wire};
use bytes::Bytes;
use rpcrdma_nfs::v4::{
    Args, Attribute, Bitmap, FileAttributes, Name, Op, Status, Value, Verifier,
    ops::{Entry, ReadDirOk},
};
use rpcrdma_nfs_client::{self as client, Files, v4::Nfs4};
use std::sync::{Arc, Mutex};

/// The most entries that a walk accepts.
const MOST: u64 = 5_000;
/// The longest name that the protocol's decoder accepts.
const LONGEST_NAME: usize = 4_096;

fn entry(cookie: u64, name: &[u8]) -> Entry {
    Entry { cookie, name: Name::from(name), attributes: FileAttributes::default() }
}

fn page(entries: Vec<Entry>, end: bool) -> ReadDirOk {
    ReadDirOk { verifier: Verifier([7; 8]), entries, end }
}

/// The result of a walk whose server makes each page by a function of the page's number.
async fn walked(
    client: (&Nfs4, &Arc<Wire>),
    pages: impl FnMut(u64) -> ReadDirOk + Send + 'static,
) -> Result<Vec<Vec<u8>>, client::Error> {
    walked_by(client, pages).await.0
}

/// The same; the function also gets the cookie and the verifier of each call.
async fn walked_by(
    (nfs, wire): (&Nfs4, &Arc<Wire>),
    mut pages: impl FnMut(u64) -> ReadDirOk + Send + 'static,
) -> (Result<Vec<Vec<u8>>, client::Error>, Vec<(u64, Verifier)>) {
    let root = nfs.root().await.unwrap().file;
    let files = Files::from(nfs.clone());
    let mut number = 0;
    wire.calls();
    let turn = move |ok: &mut ReadDirOk| {
        *ok = pages(number);
        number += 1;
    };
    begin(wire, Op::ReadDir, lie!(ReadDir, turn));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    wire.change(move |call| {
        for args in &mut call.ops {
            if let Args::ReadDir(read) = args {
                seen.lock().unwrap().push((read.cookie, read.verifier));
                // The real server knows neither; to the scripted server each of them is right.
                (read.cookie, read.verifier) = (0, Verifier::default());
            }
        }
    });
    let mut listing = files.list(&client::Handle::from(&root), nfs.transfer()).with_max_entries(MOST);
    let mut names = Vec::new();
    let done = loop {
        match listing.next().await {
            Ok(Some(entry)) => names.push(entry.name.as_slice().to_vec()),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    wire.honest();
    assert!(names.len() as u64 <= MOST && wire.calls().len() as u64 <= MOST + 1);
    let stays = |name: &Vec<u8>| !matches!(&name[..], b"" | b"." | b"..") && !name.iter().any(|at| b"/\0".contains(at));
    assert!(names.iter().all(stays), "a name leads out of its directory");
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    (done.map(|()| names), asked)
}

fn says(walked: Result<Vec<Vec<u8>>, client::Error>, words: &str) {
    let Err(client::Error::Nonsense { procedure, what }) = walked else { panic!("{walked:?}, not {words:?}") };
    assert_eq!((procedure, what), (Op::ReadDir.name(), words));
}

#[tokio::test(start_paused = true)]
async fn cookies_lead_nobody_round() {
    let circle = "gave a position in the directory for the second time";
    let stands = "does not advance in the directory";
    for minor in [0, 1, 2] {
        let house = House::new();
        let (nfs, wire) = house.client(minor).await;
        let of = (&nfs, &wire);
        // The last cookie of a page: a reserved one, the one where the page began, one where an earlier page ended.
        says(walked(of, |_| page(vec![entry(0, b"a")], false)).await, stands);
        for reserved in [1, 2] {
            says(walked(of, move |_| page(vec![entry(reserved, b"a")], false)).await, stands);
        }
        says(walked(of, |_| page(vec![entry(u64::MAX, b"a")], false)).await, stands);
        says(walked(of, |number| page(vec![entry(if number == 0 { 9 } else { 0 }, b"a")], false)).await, circle);
        says(walked(of, |number| page(vec![entry([9, 5][number as usize % 2], b"a")], false)).await, circle);
        says(walked(of, |number| page(vec![entry(3 + number % 1_000, b"a")], false)).await, circle);
        // Backwards is allowed, because a cookie has a meaning only for the server; the walk only has to end.
        let back = walked(of, |number| page(vec![entry(100 - number, b"a")], number == 90)).await.unwrap();
        assert_eq!(back.len(), 91);
        // The client does not use cookies in the middle of a page.
        let same = walked(of, |_| page(vec![entry(0, b"a"), entry(0, b"b"), entry(0, b"c")], true)).await.unwrap();
        assert_eq!(same, [b"a", b"b", b"c"]);
        super::is_served(&nfs).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_without_end_ends() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let of = (&nfs, &wire);
    for per_page in [1, 7, 100] {
        let endless = walked(of, move |number| {
            let entries = (0..per_page).map(|at| entry(3 + number * per_page + at, b"the same name"));
            page(entries.collect(), false)
        });
        let Err(client::Error::TooManyEntries { max: MOST, .. }) = endless.await else { panic!("{per_page}") };
    }
    says(walked(of, |_| page(vec![], false)).await, "returned no entry before the end");
    says(
        walked(of, |number| page(if number == 0 { vec![entry(3, b"a")] } else { vec![] }, false)).await,
        "returned no entry before the end",
    );
    assert!(walked(of, |_| page(vec![], true)).await.unwrap().is_empty());
    super::is_served(&nfs).await;
}

/// The verifier belongs to the server: the next call has the last one that came.
#[tokio::test(start_paused = true)]
async fn the_verifier_goes_back_as_it_came() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let verifiers = [[0; 8], [0xFF; 8], [3; 8], [0; 8]];
    let (names, sent) = walked_by((&nfs, &wire), move |at| ReadDirOk {
        verifier: Verifier(verifiers[at as usize]),
        ..page(vec![entry(10 + at, b"a")], at == 3)
    })
    .await;
    assert_eq!(names.unwrap().len(), 4);
    let wanted = [(0, [0; 8]), (10, [0; 8]), (11, [0xFF; 8]), (12, [3; 8])];
    assert_eq!(sent, wanted.map(|(cookie, verifier)| (cookie, Verifier(verifier))));
}

#[tokio::test(start_paused = true)]
async fn names_stay_in_their_directory() {
    let bad: [&[u8]; 12] = [
        b"",
        b"/",
        b"/etc/passwd",
        b"a/",
        b"a/b",
        b"../a",
        b"../",
        b"./",
        b"..\0",
        b"\0",
        b"a\0b",
        &[b'/'; LONGEST_NAME],
    ];
    for minor in [0, 2] {
        let house = House::new();
        let (nfs, wire) = house.client(minor).await;
        let of = (&nfs, &wire);
        for name in bad {
            let walked = walked(of, move |_| page(vec![entry(3, b"good"), entry(4, name)], true)).await;
            says(walked, "returned a name that is not valid for a file");
        }
        // Every directory has these two names; the client skips them, wherever and however often they come.
        let dots = walked(of, |_| {
            page(vec![entry(3, b".."), entry(4, b"a"), entry(5, b"."), entry(6, b".."), entry(7, b"...")], true)
        });
        assert_eq!(dots.await.unwrap(), [&b"a"[..], b"..."]);
        // The same name twice is two entries: the code that copies notices that (cli/src/get). A name need not be text,
        // and the file system may refuse a long one.
        let odd = [&b"a"[..], b"a", b"\xFF\xFE", b"\x1b[2J", b"-rf", b"~", &[b'x'; LONGEST_NAME]];
        let found = walked(of, move |_| page(odd.iter().zip(3..).map(|(name, at)| entry(at, name)).collect(), true));
        assert_eq!(found.await.unwrap(), odd);
        super::is_served(&nfs).await;
    }
}

#[tokio::test(start_paused = true)]
async fn attributes_are_those_that_were_asked_for() {
    let told = |attributes: FileAttributes| page(vec![Entry { attributes, ..entry(3, b"a") }], true);
    let octets = |set: &[Attribute], octets: &'static [u8]| FileAttributes {
        set: Bitmap::of(set),
        octets: Bytes::from_static(octets),
    };
    let unasked = Must::Refuse(Op::GetAttr, "gave attributes that were not asked for");
    let unread = Must::Refuse(Op::GetAttr, "gave attributes that cannot be read");
    let all: Vec<(&str, FileAttributes, Must)> = vec![
        ("none", FileAttributes::default(), Must::GoOn),
        ("no type", FileAttributes::of(&[Value::Size(3)]), Must::GoOn),
        ("an error", FileAttributes::of(&[Value::ReadAttributesError(Status::ACCESS)]), Must::GoOn),
        ("not asked for", FileAttributes::of(&[Value::MaxName(3)]), unasked),
        ("numbers there are not", FileAttributes { set: Bitmap::of_numbers([95]), octets: Bytes::new() }, unasked),
        ("none of its bytes", octets(&[Attribute::Size], b""), unread),
        ("some of its bytes", octets(&[Attribute::Size], &[0; 4]), unread),
        ("more than its bytes", octets(&[Attribute::Size], &[0; 12]), unread),
        ("bytes of nothing", octets(&[], &[0; 4]), unread),
        ("a type there is not", octets(&[Attribute::Type], &[0, 0, 0, 99]), unread),
        ("a handle, too long", octets(&[Attribute::Handle], &[0, 0, 0, 0x81]), unread),
        ("a handle, without end", octets(&[Attribute::Handle], &[0xFF; 4]), unread),
        ("a handle of nothing", octets(&[Attribute::Handle], &[0; 4]), Must::GoOn),
        ("an owner, without end", octets(&[Attribute::Owner], &[0xFF; 4]), unread),
    ];
    for minor in [0, 2] {
        let rows = all.iter().map(|(field, attributes, must)| {
            let page = told(attributes.clone());
            row!(ReadDir, *field, *must, move |ok: &mut ReadDirOk| ok.clone_from(&page))
        });
        play(minor, Does::List, rows.collect()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_cannot_be_read_is_an_error() {
    type Change = fn(&mut ReadDirOk);
    let two: Change = |ok| *ok = page(vec![entry(3, b"firstname"), entry(4, b"othername")], true);
    let told: [(&str, &[u8], &[u8]); 4] = [
        ("another entry, neither", b"\0\0\0\x01\0\0\0\0\0\0\0\x04", b"\0\0\0\x02\0\0\0\0\0\0\0\x04"),
        ("name, one byte too many", b"\0\0\0\x09othername", b"\0\0\x10\x01othername"),
        ("name, without end", b"\0\0\0\x09othername", b"\xFF\xFF\xFF\xFFothername"),
        (
            "an end in the middle",
            b"firstname\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01",
            b"firstname\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ),
    ];
    for minor in [0, 2] {
        let rows = told.map(|(field, from, to)| Row {
            field,
            lie: Lie::Octets(on!(ReadDir, two), from, to),
            must: Must::NotRead,
        });
        play(minor, Does::List, rows.into()).await;
    }
}

/// More bytes than the client asked for do not arrive: the transport knows how many there can be.
#[tokio::test(start_paused = true)]
async fn a_page_larger_than_was_asked_for_is_an_error() {
    for minor in [0, 2] {
        let huge = |ok: &mut ReadDirOk| *ok = page((0..100_000).map(|at| entry(3 + at, b"name")).collect(), true);
        let row = Row { field: "count", lie: Lie::Results(on!(ReadDir, huge)), must: Must::NotRead };
        play(minor, Does::List, vec![row]).await;
    }
}
