//! Clocks that differ: the messages to users. Debian's libfaketime makes a clock wrong; without it nothing is tested.

use crate::{
    common::{Server, cache, rpcrdma, run},
    house::{House, WAYS, with_users},
};
use rpcrdma_gss::realm::{Realm, within};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

/// More than the five minutes that Kerberos allows.
const AHEAD: &str = "+10m";
const BEHIND: &str = "-10m";
const CLOCKS: &str = "the clocks of this host and of the server or the KDC differ by more than five minutes";

/// The library that changes a program's clock.
fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|folder| folder.path());
    let library = folders.map(|folder| folder.join("faketime/libfaketime.so.1")).find(|library| library.is_file());
    if library.is_none() {
        eprintln!("nothing is tested, as libfaketime is not installed");
    }
    library
}

/// Changes a program's clock, but not the durations that it measures.
fn shift(command: &mut Command, by: &str) {
    command.env("LD_PRELOAD", library().unwrap()).env("FAKETIME", by);
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
}

/// The message of an `ls` whose clock is wrong by so much; it must fail.
fn told(url: &str, by: &str) -> String {
    let mut command = rpcrdma();
    shift(command.args(["ls", url]), by);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    text
}

/// A server whose clock is wrong by so much.
fn house(realm: &Realm, host: &str, by: &str) -> House {
    let (served, tcp, any) = (crate::common::served(realm.folder()), format!("{host}:2049"), format!("{host}:0"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rpcrdma"));
    shift(command.env("XDG_CACHE_HOME", cache()), by);
    command.arg("serve").arg(&served).arg("--json").arg("--state").arg(realm.folder().join("state"));
    command.args(["--listen", &any, "--mountd", &any, "--tcp", &tcp, "--sec", "krb5i", "--keytab"]);
    let server = Server::launch(command.arg(realm.keytab()).stderr(Stdio::inherit()));
    House { server, served }
}

/// proves: OPS-SEC-l
#[test]
fn a_client_whose_clock_is_wrong_is_told_so() {
    within("clocks::a_client_whose_clock_is_wrong_is_told_so", |realm| {
        if library().is_none() {
            return;
        }
        with_users(realm);
        realm.kinit("alice", "2h").unwrap();
        let house = House::new(realm, "127.0.0.101", "krb5i", &[]);
        // Without a ticket for the service, the KDC reports the clock; with one, the server.
        let text = told(&house.url(WAYS[3], "krb5i", ""), AHEAD);
        assert!(text.contains(CLOCKS) && !text.contains("refuses the caller's ticket"), "{text}");
        run(["ls", &house.url(WAYS[3], "krb5i", "")]);
        for way in WAYS {
            let text = told(&house.url(way, "krb5i", ""), AHEAD);
            assert!(text.contains(CLOCKS) && text.contains("refuses the caller's ticket"), "{way}: {text}");
        }
        run(["ls", &house.url(WAYS[3], "krb5i", "")]);
    });
}

/// proves: OPS-SEC-l
#[test]
fn a_server_whose_clock_is_wrong_is_told_of() {
    within("clocks::a_server_whose_clock_is_wrong_is_told_of", |realm| {
        if library().is_none() {
            return;
        }
        with_users(realm);
        realm.kinit("alice", "2h").unwrap();
        // For a server whose clock is behind, the ticket begins in the future.
        let wrongs = [("127.0.0.102", AHEAD, CLOCKS), ("127.0.0.103", BEHIND, "the ticket is not valid yet")];
        for (host, by, what) in wrongs {
            let house = house(realm, host, by);
            for way in [WAYS[0], WAYS[3], WAYS[7]] {
                let text = crate::common::fails(1, ["ls", &house.url(way, "krb5i", "")]);
                assert!(text.contains(what) && text.contains("refuses the caller's ticket"), "{way}: {text}");
            }
        }
    });
}
