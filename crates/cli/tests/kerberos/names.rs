//! The local users of principals on the server: from the file of `--principals`, and for machines.

use crate::{
    common::{fails, run, served},
    house::{House, WAYS, with_users},
};
use rpcrdma_gss::realm::{REALM, within};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

/// The owner of a file that the user of the ticket has put there.
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
        assert!(text.contains("--principals") && text.contains("line 2: write a principal and a user"), "{text}");
        let text = fails(2, common);
        assert!(text.contains("--principals says who principals of Kerberos are"), "{text}");
    });
}

/// What `ls -l` shows as owner and group of a file.
fn shown(url: &str) -> (String, String) {
    let output = run(["ls", "-l", url]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.split_whitespace().skip(2).map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

/// alice is daemon here, and bob games. `put` replaces a user's own file, and writes into another user's file: so the
/// client must distinguish two owners that the server names.
///
/// proves: NFS4-8881-5.9-c, NFS4-8881-5.9-e
#[test]
fn principals_see_owners_by_name() {
    within("names::principals_see_owners_by_name", |realm| {
        with_users(realm);
        let local = realm.folder().join("local");
        fs::write(&local, "contents").unwrap();
        let local = local.to_str().unwrap();
        // The second server finds the journal of the first, and gives the first's clients a lease to reclaim.
        let times = ["--lease", "3", "--grace", "3"];
        let other = &[&times[..], &["--domain", "Other.Example"]].concat();
        let both = [
            (REALM.to_lowercase(), &times[..], &[WAYS[1], WAYS[3], WAYS[7]][..]),
            ("Other.Example".into(), other, &WAYS[6..7]),
        ];
        for (domain, more, ways) in both {
            let house = House::new(realm, "127.0.0.88", "krb5i,sys", more);
            fs::set_permissions(&house.served, fs::Permissions::from_mode(0o777)).unwrap();
            for (number, way) in ways.iter().enumerate() {
                let (alices, bobs) = (format!("alices-{number}"), format!("bobs-{number}"));
                for (user, name) in [("bob", &bobs), ("alice", &alices)] {
                    realm.kinit(user, "10m").unwrap();
                    run(["put", local, &house.url(way, "krb5i", name)]);
                }
                fs::set_permissions(house.served.join(&bobs), fs::Permissions::from_mode(0o666)).unwrap();
                let by_name = (format!("daemon@{domain}"), format!("daemon@{domain}"));
                assert_eq!(shown(&house.url(way, "krb5i", &alices)), by_name, "{way}");
                assert_eq!(shown(&house.url(way, "krb5i", &bobs)).0, format!("games@{domain}"), "{way}");
                let by_number = house.url(way, "sys", &alices).replace("&principal=nfs/localhost", "");
                assert_eq!(shown(&by_number), ("1".into(), "1".into()), "{way}");
                let json = run(["stat", "--json", &house.url(way, "krb5i", &alices)]);
                let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
                assert_eq!(json["owner"], by_name.0.as_str(), "{way}: {json}");
                let inode = |name: &str| fs::metadata(house.served.join(name)).unwrap().ino();
                for (name, is_replaced) in [(&alices, true), (&bobs, false)] {
                    let before = inode(name);
                    run(["put", "--no-attributes", local, &house.url(way, "krb5i", name)]);
                    assert_eq!(inode(name) != before, is_replaced, "{way}: {name}");
                }
            }
            assert_eq!(house.server.stop(), Some(0));
        }
    });
}
