//! Who principals are on the server: by the file of `--principals`, and machines.

use crate::{
    common::{fails, run, served},
    house::{House, WAYS},
};
use rpcrdma_gss::realm::{REALM, within};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

/// The owner of a file that is put there by whom the ticket names.
fn owner(house: &House, way: &str, local: &str, name: &str) -> (u32, u32) {
    run(["put", "--no-attributes", local, &house.url(way, "krb5i", name)]);
    let file = fs::metadata(house.served.join(name)).unwrap();
    (file.uid(), file.gid())
}

/// proves: OPS-SEC-j, OPS-SEC-k
#[test]
fn principals_are_whom_the_file_names_and_machines_are_root() {
    within("names::principals_are_whom_the_file_names_and_machines_are_root", |realm| {
        let (map, local) = (realm.folder().join("who"), realm.folder().join("local"));
        let text = format!("# who is who\nalice@{REALM}  2001:200\nbob@{REALM}  daemon\n");
        fs::write(&map, text).unwrap();
        fs::write(&local, "contents").unwrap();
        let (local, keytab) = (local.to_str().unwrap(), realm.keytab());
        let machine = ["-k", "-t", keytab.to_str().unwrap(), "nfs/localhost"];
        for (squash, root) in [(&[][..], (65_534, 65_534)), (&["--no-root-squash"], (0, 0))] {
            let more = [&["--principals", map.to_str().unwrap()][..], squash].concat();
            let house = House::new(realm, "127.0.0.86", "krb5i", &more);
            fs::set_permissions(&house.served, fs::Permissions::from_mode(0o777)).unwrap();
            for (number, way) in [WAYS[0], WAYS[3], WAYS[7]].into_iter().enumerate() {
                let name = |who: &str| format!("{who}-{number}-{}", squash.len());
                realm.kinit("alice", "10m").unwrap();
                assert_eq!(owner(&house, way, local, &name("alice")), (2001, 200), "{way}");
                realm.kinit("bob", "10m").unwrap();
                assert_eq!(owner(&house, way, local, &name("bob")), (1, 1), "{way}: daemon");
                assert!(std::process::Command::new("kinit").args(machine).status().unwrap().success());
                assert_eq!(owner(&house, way, local, &name("machine")), root, "{way} {squash:?}");
            }
            assert_eq!(house.server.stop(), Some(0));
        }
    });
}

/// proves: OPS-SEC-j
#[test]
fn a_file_of_principals_that_says_nothing_keeps_the_server_from_starting() {
    within("names::a_file_of_principals_that_says_nothing_keeps_the_server_from_starting", |realm| {
        let (directory, map) = (served(realm.folder()), realm.folder().join("who"));
        fs::write(&map, "alice@REALM alice\nbob\n").unwrap();
        let (map, keytab) = (map.to_str().unwrap(), realm.keytab());
        let common = ["serve", directory.to_str().unwrap(), "--listen", "127.0.0.87:0", "--principals", map];
        let kerberos = ["--sec", "krb5", "--keytab", keytab.to_str().unwrap()];
        let text = fails(1, [&common[..], &kerberos].concat());
        assert!(text.contains("--principals") && text.contains("line 2: it is a principal and a user"), "{text}");
        let text = fails(2, common);
        assert!(text.contains("--principals says who principals of Kerberos are"), "{text}");
    });
}
