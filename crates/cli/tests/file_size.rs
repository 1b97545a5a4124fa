//! A limit on the size of files (ulimit -f) fails the write, and does not end the server.

mod common;

use common::{Server, rpcrdma, run};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::{fs, os::unix::fs::PermissionsExt};

/// The largest file that the server may write.
const LIMIT: u64 = 1 << 20;

#[test]
fn a_write_beyond_the_limit_of_file_sizes_fails_and_the_server_goes_on() {
    let scratch = tempfile::tempdir().unwrap();
    let export = scratch.path().join("export");
    fs::create_dir(&export).unwrap();
    fs::set_permissions(&export, fs::Permissions::from_mode(0o777)).unwrap();
    let server = Server::start(&export, &scratch.path().join("state"), &[]);
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    let limit = Rlimit { current: Some(LIMIT), maximum: None };
    prlimit(pid, Resource::Fsize, limit).unwrap();
    let (large, small) = (scratch.path().join("large"), scratch.path().join("small"));
    fs::write(&large, vec![1; 2 * LIMIT as usize]).unwrap();
    fs::write(&small, "small").unwrap();
    let refused = rpcrdma().arg("put").arg(&large).arg(server.url("")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("NFS4ERR_FBIG"), "{said}");
    run(["put".as_ref(), small.as_os_str(), server.url("").as_ref()]);
    assert_eq!(run(["cat", &server.url("small")]).stdout, b"small");
}
