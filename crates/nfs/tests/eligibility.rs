//! Which parts of a message may be placed directly, as the transport sees it: the places of the marks, and the refused
//! chunks.

#[allow(dead_code, reason = "each test file uses its share")]
mod common;

use bytes::Bytes;
use common::{decode, encode, not_eligible};
use rpcrdma_nfs::{
    Call,
    nfsacl::{self, mask, v2},
    v3,
};
use rpcrdma_xdr::{Part, Payload, padded};

fn ok<T>(value: T) -> v3::Answer<T, ()> {
    v3::Answer::Ok(value)
}

fn handle() -> v3::Handle {
    v3::Handle::new(&[0xA5; 32]).unwrap()
}

fn data(octets: usize) -> Bytes {
    Bytes::from(vec![0xDA; octets])
}

fn write(octets: usize) -> v3::Write {
    v3::Write { file: handle(), offset: 0, stability: v3::Stability::Unstable, data: data(octets) }
}

fn read_ok(octets: usize) -> v3::Answer<v3::ReadOk, ()> {
    ok(v3::ReadOk { attributes: None, end: true, data: data(octets) })
}

fn symlink(path: &'static str) -> v3::SymbolicLink {
    let (attributes, path) = (v3::NewAttributes::default(), v3::Path::from(path));
    v3::SymbolicLink { directory: handle(), name: v3::Name::from("link"), attributes, path }
}

fn link_ok(path: Bytes) -> v3::Answer<v3::ReadLinkOk, ()> {
    ok(v3::ReadLinkOk { attributes: None, path: v3::Path(path) })
}

/// proves: V1-3.4.4.1-a, V2-4.3.4.1-a, V2-4.3.4.1-b
#[test]
fn the_count_of_what_is_marked_is_not() {
    let messages = [
        encode(&write(4097)),
        encode(&symlink("../elsewhere")),
        encode(&read_ok(4097)),
        encode(&link_ok(Bytes::from_static(b"away"))),
    ];
    for message in messages {
        let [(position, item)] = message.items().collect::<Vec<_>>()[..] else { panic!("one item: {message:?}") };
        let stream = message.to_bytes();
        assert_eq!(stream[position - 4..position], (item.len() as u32).to_be_bytes(), "its count stands before it");
        assert_eq!(stream[position..position + item.len()], item[..]);
        let inline: usize =
            message.parts().iter().map(|part| if let Part::Run(run) = part { run.len() } else { 0 }).sum();
        assert_eq!(inline, stream.len() - padded(item.len()), "and the item is in no run besides");
    }
}

/// A union's discriminant never moves, nor do the fields beside the item in its arm; an arm without an item has no
/// mark.
/// proves: V1-3.4.4.3-a, V1-3.4.4.3-b, V2-4.3.4.3-a, V2-4.3.4.3-b
#[test]
fn unions_are_not_marked_but_arms_may_have_marks() {
    for (message, before) in [(encode(&read_ok(64)), 4 + 4 + 4 + 4 + 4), (encode(&link_ok(data(64))), 4 + 4 + 4)] {
        let (position, item) = message.items().next().expect("this arm has an item");
        assert_eq!((position, item.len()), (before, 64), "the status, the attributes and the count stay");
    }
    let failed = v3::Answer::<v3::ReadOk, _>::failed(v3::Status::IO, None::<v3::Attributes>);
    assert_eq!(encode(&failed).items().count(), 0);
    let how = [
        v3::CreateHow::Unchecked(v3::NewAttributes::default()),
        v3::CreateHow::Guarded(v3::NewAttributes::default()),
        v3::CreateHow::Exclusive(v3::Verifier([7; 8])),
    ];
    for how in how {
        let call = v3::Create { directory: handle(), name: v3::Name::from("name"), how };
        assert_eq!(encode(&call).items().count(), 0);
    }
}

/// Decodes `T` from a stream of runs and, at odd places, chunks.
/// proves: V2-A.1-f, V1-6.1-a
#[test]
fn a_chunk_is_taken_where_the_binding_names_an_item_and_nowhere_else() {
    let whole = |message: &Payload| message.to_bytes();
    // WRITE: its data, and only once.
    let message = encode(&write(100));
    let (position, _) = message.items().next().unwrap();
    let octets = whole(&message);
    let (head, item) = (octets.slice(..position), octets.slice(position..));
    let none = Bytes::new();
    assert_eq!(decode::<v3::Write>(&[head.clone(), item.clone()]).unwrap().data, item);
    assert!(not_eligible(decode::<v3::Write>(&[head.clone(), item.clone(), none, item.clone()])), "a second chunk");
    for at in (0..position).step_by(4) {
        let parts = [octets.slice(..at), octets.slice(at..at + 4), octets.slice(at + 4..)];
        assert!(not_eligible(decode::<v3::Write>(&parts)), "a chunk at {at}");
    }
    // LOOKUP has no item: neither the name, though it is opaque, nor anything else.
    let octets = whole(&encode(&v3::Lookup { directory: handle(), name: v3::Name::from("a long name.") }));
    for at in (0..octets.len()).step_by(4) {
        let parts = [octets.slice(..at), octets.slice(at..), Bytes::new()];
        assert!(not_eligible(decode::<v3::Lookup>(&parts)), "a chunk at {at}");
    }
    let octets = whole(&encode(&v3::GetAttributes { file: handle() }));
    assert!(not_eligible(decode::<v3::GetAttributes>(&[Bytes::new(), octets])));
}

/// Access control lists can be as long as READ data, but none of their bytes may leave the message.
///
/// proves: ULB-4.2-b
#[test]
fn no_part_of_an_access_control_list_may_be_placed() {
    let entry = |id| nfsacl::Entry { kind: nfsacl::entry::USER, id, rights: 7 };
    let list = nfsacl::List::new((0..nfsacl::MAX_ENTRIES as u32).map(entry).collect()).unwrap();
    let lists = nfsacl::Lists::new(mask::ALL, list.clone(), list);
    let set = nfsacl::SetAcl { file: handle(), lists: lists.clone() };
    let told = ok(nfsacl::GetAclOk { attributes: None, lists: lists.clone() });
    let set_2 = v2::SetAcl { file: v2::Handle([7; 32]), lists };
    let messages = [encode(&set), encode(&told), encode(&set_2)];
    assert!(messages.iter().all(|message| message.items().count() == 0), "no mark");
    let get = nfsacl::GetAcl { file: handle(), mask: mask::ALL };
    assert!(get.reply_shape().items.is_empty() && set.reply_shape().items.is_empty(), "no Write chunk is offered");
    let octets = messages[0].to_bytes();
    for at in (0..octets.len()).step_by(400) {
        let parts = [octets.slice(..at), octets.slice(at..at + 4), octets.slice(at + 4..)];
        assert!(not_eligible(decode::<nfsacl::SetAcl>(&parts)), "a chunk at {at}");
    }
    let octets = messages[1].to_bytes();
    for at in (0..octets.len()).step_by(400) {
        let parts = [octets.slice(..at), octets.slice(at..), Bytes::new()];
        assert!(not_eligible(decode::<<nfsacl::GetAcl as Call>::Reply>(&parts)), "a chunk at {at}");
    }
}

/// proves: V1-4.3.2.2-b
#[test]
fn a_chunk_is_as_large_as_the_largest_item_that_can_land_in_it() {
    for count in [0, 1, 4096, v3::MAX_TRANSFER_BYTES as u32] {
        let shape = v3::Read { file: handle(), offset: 0, count }.reply_shape();
        let [room] = &shape.items[..] else { panic!("one result, and so nothing is passed on to a next one") };
        assert_eq!(room.max_len, count as usize);
        assert!(encode(&read_ok(count as usize)).len() <= shape.max_len);
    }
    let shape = v3::ReadLink { link: handle() }.reply_shape();
    let [room] = &shape.items[..] else { panic!("one result") };
    assert_eq!(room.max_len, v3::MAX_PATH_BYTES);
}

/// The results of READDIR and READDIRPLUS have no size of their own: the arguments say how large they may be.
/// proves: V2-A.2-b
#[test]
fn listings_are_as_long_as_their_arguments_say() {
    let verifier = v3::Verifier([9; 8]);
    for count in [512, 4096, 65_536] {
        let shape = v3::ReadDirectory { directory: handle(), cookie: 0, verifier, count }.reply_shape();
        let mut entries = Vec::new();
        let mut octets = v3::read_directory_bytes();
        while octets + v3::entry_bytes(7) <= count as usize {
            octets += v3::entry_bytes(7);
            let file_id = entries.len() as u64;
            entries.push(v3::Entry { file_id, name: v3::Name::from("entries"), cookie: file_id + 1 });
        }
        let listing = encode(&ok(v3::ReadDirectoryOk { attributes: None, verifier, entries, end: false }));
        assert!(listing.len() <= shape.max_len, "{count}: {} > {}", listing.len(), shape.max_len);
        assert!(
            shape.items.is_empty() && shape.max_len < count as usize + 8192,
            "{count}: and room for one entry with the longest name"
        );
        let call =
            v3::ReadDirectoryPlus { directory: handle(), cookie: 0, verifier, directory_count: 64, max_count: count };
        let shape = call.reply_shape();
        assert!((count as usize..count as usize + 8192).contains(&shape.max_len), "{count}: {}", shape.max_len);
    }
}
