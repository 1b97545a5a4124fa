//! Sizes, names and handles at their limits, and bytes that mean nothing.

use super::*;
use rpcrdma_nfs::v3;
use rpcrdma_xdr::{Encode, Encoder, Payload};

const MOST: u64 = u32::MAX as u64;

/// A file with this size, made by version 3.
fn sized(client: &Client, name: &str, size: u64) -> Handle {
    let file = client.new_file(&client.root(), name);
    client.set(&file, v3::NewAttributes { size: Some(size), ..Default::default() }).unwrap();
    lookup(client, root(client), name).unwrap().file
}

/// proves: NFS2-SIZE-a, NFS2-SIZE-b
#[test]
fn a_file_that_is_too_large_is_seen_and_not_read() {
    on_each(|client| {
        for (size, is_readable) in [(MOST - 1, true), (MOST, true), (MOST + 1, false), (1 << 33, false)] {
            let name = format!("{size}");
            let file = sized(client, &name, size);
            assert_eq!(u64::from(attributes(client, file).unwrap().size), size.min(MOST), "{size}");
            let expected = if is_readable { Ok(vec![0; 5]) } else { Err(Status::FBIG) };
            assert_eq!(read(client, file, 7, 5), expected, "{size}");
            assert!(set(client, file, mode(0o600)).is_ok());
            ask(client, v2::Remove { directory: root(client), name: name.as_str().into() }).unwrap();
        }
        let file = sized(client, "cut", 1 << 33);
        let cut = NewAttributes { size: Some(3), ..NewAttributes::default() };
        assert_eq!(set(client, file, cut).unwrap().size, 3);
        assert_eq!(read(client, file, 0, 9), Ok(vec![0; 3]));
    });
}

/// proves: NFS2-SIZE-c
#[test]
fn nothing_is_written_where_no_size_reaches() {
    let client = in_memory();
    let file = create(&client, root(&client), "f", mode(0o644)).unwrap().file;
    assert_eq!(write(&client, file, u32::MAX - 3, b"abcd").map(drop), Err(Status::FBIG), "one past it");
    assert_eq!(attributes(&client, file).unwrap().size, 0);
    assert_eq!(write(&client, file, u32::MAX - 4, b"abcd").unwrap().size, u32::MAX, "at the limit");
}

#[test]
fn names_end_at_their_limit_and_name_no_path() {
    on_each(|client| {
        let top = root(client);
        let name = |octets: usize| "n".repeat(octets);
        assert!(create(client, top, &name(255), mode(0o644)).is_ok());
        assert_eq!(create(client, top, &name(256), mode(0o644)).map(drop), Err(Status::NAMETOOLONG));
        assert_eq!(lookup(client, top, &name(4096)).map(drop), Err(Status::NAMETOOLONG));
        for wrong in ["", "a/b", "a\0"] {
            assert!(create(client, top, wrong, mode(0o644)).is_err(), "{wrong:?}");
            assert!(lookup(client, top, wrong).is_err(), "{wrong:?}");
        }
        assert!(ask(client, v2::Remove { directory: top, name: ".".into() }).is_err());
        assert_eq!(lookup(client, top, "..").unwrap().file, top, "nothing is above the root");
    });
}

/// proves: NFS2-FH-a
#[test]
fn handles_that_were_not_made_here_are_stale() {
    let client = in_memory();
    let top = root(&client);
    for at in 0..32 {
        let mut wrong = top;
        wrong.0[at] ^= 1;
        assert_eq!(attributes(&client, wrong).map(drop), Err(Status::STALE), "byte {at}");
    }
    assert_eq!(attributes(&client, Handle([0; 32])).map(drop), Err(Status::STALE));
    assert_eq!(read(&client, Handle([0xFF; 32]), 0, 1), Err(Status::STALE));
}

/// The server refuses malformed arguments before it does anything.
#[test]
fn garbage_is_refused() {
    let client = in_memory();
    let garbage = |procedure, octets: Vec<u8>| {
        client.raw(v2::PROGRAM, v2::VERSION, procedure, Payload::from(bytes::Bytes::from(octets))).map(drop)
    };
    let refused = Err(rpcrdma_oncrpc::Rejection::GarbageArgs);
    for procedure in [1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17] {
        assert_eq!(garbage(procedure, vec![0; 28]), refused, "procedure {procedure}: too few");
        assert_eq!(garbage(procedure, vec![0xFF; 4000]), refused, "procedure {procedure}: too many");
    }
    let mut encoder = Encoder::new();
    let data = vec![0; v2::MAX_TRANSFER_BYTES + 1].into();
    v2::Write { file: root(&client), offset: 0, data }.encode(&mut encoder);
    assert_eq!(garbage(8, encoder.finish().to_bytes().to_vec()), refused, "more than a WRITE has");
    assert_eq!(garbage(3, vec![0; 4]), refused, "ROOT takes nothing");
}

/// However much the client asks for, it gets 8 KiB, and the read takes that many bytes of memory.
#[test]
fn a_read_brings_what_the_protocol_allows() {
    let mut client = in_memory();
    let file = sized(&client, "f", 100_000);
    let memory = crate::testing::Watched::default();
    client.memory = Arc::new(memory.clone());
    assert_eq!(read(&client, file, 0, u32::MAX).unwrap().len(), 8192);
    assert_eq!(read(&client, file, 99_000, 8192).unwrap().len(), 1000);
    assert_eq!(memory.0.load(std::sync::atomic::Ordering::Relaxed), 0, "it comes back");
}
