//! Warnings for the operator when an operation of a COMPOUND fails.

use super::*;
use crate::{FileSystem, MemoryFs, tests::warnings::warnings, trouble::BETWEEN_WARNINGS};
use std::sync::Arc;

const MIB: usize = 1 << 20;

fn told(fields: &[&str], run: impl FnOnce()) {
    let told = warnings(run);
    assert_eq!(told.len(), 1, "{told:#?}");
    for field in fields {
        assert!(told[0].contains(field), "{field}: {told:#?}");
    }
}

#[test]
fn a_full_disk_is_told_once_a_minute_with_the_number_of_the_others() {
    let memory: Arc<dyn FileSystem> = Arc::new(MemoryFs::new(MIB as u64 / 2, &crate::testing::env()));
    let server = TestServer::serving(memory);
    let client = server.client("a");
    let (file, state) = create(&client, "f", "o");
    let fill = || assert_eq!(client.write(&file, state, 0, &vec![1; MIB]).err(), Some(Status::NOSPC));
    let fields = ["status=NFS4ERR_NOSPC", "procedure=\"WRITE\"", "client=127.0.0.1:700", "export=\"/\"", "file=\""];
    told(&[&fields[..], &["untold=0", "no space"]].concat(), || {
        fill();
        fill();
        server.clock.pass(BETWEEN_WARNINGS - std::time::Duration::from_nanos(1));
        fill();
    });
    server.clock.pass(std::time::Duration::from_nanos(1));
    told(&["untold=2"], fill);
}

#[test]
fn a_file_that_is_gone_is_told_with_the_operation_that_found_out_and_its_place() {
    let server = TestServer::directory();
    let client = server.client("a");
    let served = format!("served=\"{}\"", server.served().display());
    std::fs::create_dir(server.served().join("d")).unwrap();
    let directory = client.walk("d").unwrap();
    std::fs::remove_dir(server.served().join("d")).unwrap();
    let lookup = Args::Lookup(ops::Lookup { name: Name::from("x") });
    let fields = ["status=NFS4ERR_STALE", "procedure=\"LOOKUP\"", &served, "mount again"];
    told(&fields, || {
        assert_eq!(client.on(&directory, lookup).status(), Status::STALE);
        assert_eq!(client.walk("nothing").err(), Some(Status::NOENT), "which is no trouble");
    });
}

/// A warning about PUTFH names the handle's file, although there is no current file yet.
#[test]
fn a_handle_of_another_server_is_told_with_nothing_that_it_does_not_say() {
    let server = TestServer::memory();
    let client = server.client("a");
    let other = TestServer::memory().client("b").walk("").unwrap();
    let mut octets = other.as_slice().to_vec();
    octets.reverse();
    let foreign = Handle::new(&octets).unwrap();
    let told = warnings(|| {
        let put = Args::PutFh(ops::PutFh { file: foreign.clone() });
        assert!([Status::STALE, Status::BADHANDLE].contains(&client.status(vec![Args::PutRootFh, put])));
    });
    assert!(told.iter().all(|line| line.contains("procedure=\"PUTFH\"") && !line.contains("export=")), "{told:#?}");
}
