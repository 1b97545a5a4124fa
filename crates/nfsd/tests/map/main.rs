//! What a file system gets from the trait's defaults: a map that implements only the six methods of a read-only one.

mod map;

use map::Map;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::attr::{NewAttributes, Stability};
use rpcrdma_nfsd::{Access, Caller, Fault, FileId, FileSystem, ListingBudget, New, Rights, Via};
use std::collections::BTreeMap;

fn user() -> Caller {
    Caller::new(7, 7)
}

async fn find(map: &Map, name: &'static str) -> Result<FileId, Fault> {
    map.lookup(user(), map.root(), name.into()).await.map(|found| found.file).map_err(|failure| failure.fault)
}

#[tokio::test]
async fn six_methods_are_enough_to_read() {
    let map = Map(BTreeMap::from([("a", "first"), ("b", "second")]));
    let file = find(&map, "b").await.unwrap();
    assert_eq!(find(&map, "c").await, Err(Fault::NotFound));
    assert_eq!(find(&map, "..").await, Ok(map.root()));
    let open = map.open(user(), file, Access::Read).await.unwrap();
    let read = map.read(Via::open(user(), open), 3, 100, Buffer::from_vec(vec![0; 100])).await.unwrap();
    assert_eq!((read.buffer.filled(), read.end), (&b"ond"[..], true));
    let beyond = map.read(Via::caller(user(), file), 7, 9, Buffer::from_vec(vec![0; 9])).await.unwrap();
    assert!(beyond.end && beyond.buffer.is_empty());
    let (rights, _) = map.access(user(), file, Rights::ALL).await.unwrap();
    assert_eq!(rights, Rights::READ | Rights::EXECUTE);
    assert_eq!(map.open(user(), file, Access::Both).await.map(drop).unwrap_err().fault, Fault::Denied);
    let directory = map.open(user(), map.root(), Access::Read).await;
    assert_eq!(directory.map(drop).unwrap_err().fault, Fault::IsDirectory);
    assert_eq!(map.read_link(user(), file).await.unwrap_err().fault, Fault::Invalid);
}

#[tokio::test]
async fn a_listing_goes_on_where_the_last_part_ended() {
    let map = Map(BTreeMap::from([("a", "1"), ("b", "2"), ("c", "3")]));
    let mut names = Vec::new();
    let (mut cookie, mut parts) = (0, 0);
    loop {
        let listing = map.list(user(), map.root(), cookie, [0; 8], ListingBudget::new(2 * 24, 20)).await.unwrap();
        names.extend(listing.entries.iter().map(|entry| entry.name.clone()));
        parts += 1;
        if listing.end {
            break;
        }
        cookie = listing.entries.last().unwrap().cookie;
    }
    assert_eq!((names, parts), (vec![".".into(), "..".into(), "a".into(), "b".into(), "c".into()], 3));
}

#[tokio::test]
async fn nothing_can_be_changed() {
    let map = Map(BTreeMap::from([("a", "first")]));
    let file = find(&map, "a").await.unwrap();
    let via = || Via::caller(user(), file);
    let (root, name) = (map.root(), || "x".into());
    let faults = [
        map.write(via(), 0, name(), Stability::Unstable).await.map(drop).unwrap_err().fault,
        map.commit(via(), 0, 0).await.map(drop).unwrap_err().fault,
        map.set_attributes(via(), NewAttributes::default(), None).await.map(drop).unwrap_err().fault,
        map.make(user(), root, name(), New::Directory(NewAttributes::default())).await.map(drop).unwrap_err().fault,
        map.remove(user(), root, name(), false).await.map(drop).unwrap_err().fault,
        map.rename(user(), (root, name()), (root, name())).await.map(drop).unwrap_err().fault,
        map.link(user(), file, root, name()).await.map(drop).unwrap_err().fault,
    ];
    assert_eq!(faults, [Fault::ReadOnly; 7]);
}
