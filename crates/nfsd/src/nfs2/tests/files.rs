//! What clients do with files, links and names.

use super::*;
use rpcrdma_nfs::{
    attr::{Device, FileType},
    v2::{Path, SetTime, Time, file_type},
};
use rpcrdma_xdr::Payload;

/// proves: NFS2-1094-2.2-a
#[test]
fn files_and_names_are_made_used_and_removed() {
    on_each(|client| {
        let top = root(client);
        let made = create(client, top, "a", mode(0o640)).unwrap();
        assert_eq!((made.attributes.file_type, made.attributes.mode), (file_type::REGULAR, 0o100_640));
        assert_eq!(write(client, made.file, 3, b"hello").unwrap().size, 8);
        assert_eq!(read(client, made.file, 0, 8192).unwrap(), b"\0\0\0hello");
        assert_eq!(read(client, made.file, 4, 2).unwrap(), b"el");
        assert_eq!(read(client, made.file, 8, 10).unwrap(), b"");
        assert_eq!(lookup(client, top, "a").unwrap().file, made.file, "a file has the same handle each time");
        assert_eq!(attributes(client, made.file).unwrap().size, 8);
        let again = create(client, top, "a", NewAttributes { size: Some(0), ..mode(0o600) }).unwrap();
        assert_eq!((again.file, again.attributes.size), (made.file, 0), "CREATE uses what is there");
        let make = v2::MakeDirectory { directory: top, name: "d".into(), attributes: mode(0o750) };
        let below = ask(client, make).unwrap();
        assert_eq!((below.attributes.file_type, below.attributes.mode), (file_type::DIRECTORY, 0o040_750));
        let (from, to) = (Name::from("a"), Name::from("b"));
        ask(client, v2::Rename { from_directory: top, from, to_directory: below.file, to }).unwrap();
        ask(client, v2::Link { file: made.file, directory: top, name: "c".into() }).unwrap();
        assert_eq!(lookup(client, below.file, "b").unwrap().attributes.links, 2);
        let remove = |directory, name: &str| ask(client, v2::Remove { directory, name: name.into() });
        let rmdir = |name: &str| ask(client, v2::RemoveDirectory { directory: top, name: name.into() });
        assert_eq!(rmdir("d"), Err(Status::NOTEMPTY));
        assert_eq!(names(client, below.file, 4096), [".", "..", "b"]);
        assert_eq!((remove(below.file, "b"), rmdir("d"), remove(top, "c")), (Ok(()), Ok(()), Ok(())));
        assert_eq!(remove(top, "c"), Err(Status::NOENT));
        assert_eq!(attributes(client, made.file), Err(Status::STALE));
        assert_eq!(names(client, top, 4096), [".", ".."]);
    });
}

#[test]
fn links_lead_where_they_were_made_to() {
    on_each(|client| {
        let top = root(client);
        let symlink = |name: &str, path: &str| {
            let path = Path(path.to_owned().into());
            ask(client, v2::SymbolicLink { directory: top, name: name.into(), path, attributes: mode(0o777) })
        };
        symlink("l", "../else where").unwrap();
        let link = lookup(client, top, "l").unwrap();
        assert_eq!(link.attributes.file_type, file_type::SYMLINK);
        assert_eq!(&ask(client, v2::ReadLink { link: link.file }).unwrap().path.0[..], b"../else where");
        assert_eq!(symlink("l", "x"), Err(Status::EXIST));
        assert!(symlink("m", "").is_err());
        let file = create(client, top, "f", mode(0o644)).unwrap().file;
        assert!(ask(client, v2::ReadLink { link: file }).is_err());
        // A link that another version has made, and that is longer than version 2 can return.
        let directory = client.root();
        let path = rpcrdma_nfs::v3::Path("x".repeat(v2::MAX_PATH_BYTES + 1).into_bytes().into());
        let long =
            rpcrdma_nfs::v3::SymbolicLink { directory, name: "long".into(), attributes: Default::default(), path };
        client.ask(long).into_result().unwrap();
        let long = lookup(client, top, "long").unwrap();
        assert_eq!(ask(client, v2::ReadLink { link: long.file }).map(drop), Err(Status::NAMETOOLONG));
    });
}

/// proves: NFS2-CREATE-a
#[test]
fn a_mode_with_a_type_makes_special_files() {
    on_each(|client| {
        let top = root(client);
        let device = Device { major: 1, minor: 3 };
        let kinds = [FileType::Fifo, FileType::Socket, FileType::Character, FileType::Block];
        for (number, kind) in kinds.into_iter().enumerate() {
            let asked = mode(0o600).with_type(kind, device);
            let made = create(client, top, &format!("{number}"), asked);
            // Only the superuser makes devices.
            if made == Err(Status::PERM) && !rustix::process::geteuid().is_root() {
                continue;
            }
            let told = made.unwrap().attributes.neutral().unwrap();
            assert_eq!((told.file_type, told.mode), (kind, 0o600));
            if matches!(kind, FileType::Character | FileType::Block) {
                assert_eq!(told.device, device);
            }
        }
        let regular = mode(0o600).with_type(FileType::Regular, device);
        assert_eq!(create(client, top, "r", regular).unwrap().attributes.file_type, file_type::REGULAR);
        for neither in [0o040_600, 0o120_600, 0o150_600] {
            assert_eq!(create(client, top, "n", mode(neither)).map(drop), Err(Status::PERM), "{neither:o}");
        }
        let literally = create(client, top, "p", mode(0o010_600)).unwrap();
        assert_eq!(literally.attributes.kind(), Some(FileType::Fifo), "asked for by its own type");
    });
}

/// proves: NFS2-SATTR-a, NFS2-SATTR-b
#[test]
fn attributes_are_set_one_by_one() {
    on_each(|client| {
        let file = create(client, root(client), "f", mode(0o644)).unwrap().file;
        write(client, file, 0, b"text").unwrap();
        let before = attributes(client, file).unwrap();
        let time = |seconds| SetTime::Client(Time { seconds, microseconds: 5 });
        let timed = NewAttributes { accessed: time(1000), modified: time(2000), ..NewAttributes::default() };
        let after = set(client, file, timed).unwrap();
        assert_eq!((after.accessed, after.modified.seconds), (Time { seconds: 1000, microseconds: 5 }, 2000));
        assert_eq!((after.mode, after.size), (before.mode, before.size), "what is absent stays");
        let now = NewAttributes { accessed: time(1), modified: SetTime::Server, ..NewAttributes::default() };
        let after = set(client, file, now).unwrap();
        assert!(after.accessed.seconds >= before.modified.seconds && after.modified >= before.modified, "{after:?}");
        let cut = set(client, file, NewAttributes { size: Some(2), ..NewAttributes::default() }).unwrap();
        assert_eq!((cut.size, read(client, file, 0, 9).unwrap()), (2, b"te".to_vec()));
        let made = create(client, root(client), "sized", NewAttributes { size: Some(5), ..mode(0o644) }).unwrap();
        assert_eq!(made.attributes.size, 5);
    });
}

/// proves: NFS2-1094-2.2.4-a
#[test]
fn obsolete_procedures_do_nothing_and_others_are_not_there() {
    let client = in_memory();
    for procedure in [0, 3, 7] {
        let results = client.raw(v2::PROGRAM, v2::VERSION, procedure, Payload::new()).unwrap();
        assert_eq!(results.remaining(), 0, "procedure {procedure}");
    }
    let refused = client.raw(v2::PROGRAM, v2::VERSION, 18, Payload::new()).map(drop);
    assert_eq!(refused, Err(rpcrdma_oncrpc::Rejection::ProcedureUnavailable));
}

/// proves: NFS2-DUP-a
#[test]
fn a_call_that_comes_again_is_answered_as_it_was() {
    on_each(|client| {
        let top = root(client);
        create(client, top, "f", mode(0o644)).unwrap();
        let remove = || ask(client, v2::Remove { directory: top, name: "f".into() });
        assert_eq!(remove(), Ok(()));
        client.repeat();
        assert_eq!(remove(), Ok(()), "it had come already");
        assert_eq!(remove(), Err(Status::NOENT), "and this one is new");
        let make = || ask(client, v2::MakeDirectory { directory: top, name: "d".into(), attributes: mode(0o755) });
        let made = make().unwrap();
        client.repeat();
        assert_eq!(make(), Ok(made));
        assert_eq!(make().map(drop), Err(Status::EXIST));
    });
}

#[test]
fn a_file_system_tells_how_full_it_is() {
    on_each(|client| {
        let told = ask(client, v2::FileSystemStatus { root: root(client) }).unwrap();
        assert_eq!(told.transfer_bytes, 8192);
        assert!(told.block_bytes >= 4096 && told.block_bytes.is_power_of_two());
        assert!(told.available <= told.free && told.free <= told.blocks && told.blocks <= i32::MAX as u32, "{told:?}");
        assert!(told.blocks > 0);
    });
}
