//! The client commands with Kerberos, over every transport and in every version of NFS.

use crate::{
    common::{contents, describe, fails, rpcrdma, run},
    house::{House, LOCAL, SECURED, WAYS, uid, with_users},
};
use rpcrdma_gss::realm::{REALM, Realm, within};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
};

/// A tree with a file for each way in which data travel: inline, in chunks, in several calls.
fn tree(scratch: &Path) -> std::path::PathBuf {
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    for (name, octets) in [("empty", 0), ("short", 100), ("below/page", 5000), ("below/large", (3 << 20) + 17)] {
        fs::write(tree.join(name), contents(octets)).unwrap();
    }
    tree
}

/// proves: OPS-SEC-a
#[test]
fn every_command_calls_as_who_has_the_ticket() {
    within("commands::every_command_calls_as_who_has_the_ticket", |realm| {
        with_users(realm);
        let house = House::new(realm, "127.0.0.74", "krb5,krb5i,krb5p", &[]);
        let (tree, back) = (tree(realm.folder()), realm.folder().join("back"));
        for (way, sec) in WAYS.into_iter().flat_map(|way| SECURED.map(|sec| (way, sec))) {
            let url = |path: &str| house.url(way, sec, path);
            let name = format!("copy-{}", way.replace(['=', '&', '.'], "-"));
            let copy = house.served.join(&name);
            run(["put", "-r", tree.to_str().unwrap(), &url(&name)]);
            assert_eq!(describe(&copy), describe(&tree), "{way} {sec}");
            assert_eq!(fs::metadata(copy.join("short")).unwrap().uid(), uid("daemon"), "{way} {sec}: alice");
            run(["get", "-r", &url(&name), back.to_str().unwrap()]);
            assert_eq!(describe(&back), describe(&tree), "{way} {sec}");
            assert!(run(["cat", &url(&format!("{name}/below/large"))]).stdout == contents((3 << 20) + 17));
            let listed = String::from_utf8(run(["ls", "-R", &url(&name)]).stdout).unwrap();
            assert!(listed.contains("page") && listed.contains("short"), "{listed}");
            run(["stat", &url(&format!("{name}/short"))]);
            run(["mkdir", &url(&format!("{name}/new"))]);
            run(["mv", &url(&format!("{name}/short")), &url(&format!("{name}/new/moved"))]);
            run(["ln", &url(&format!("{name}/new/moved")), &url(&format!("{name}/linked"))]);
            run(["cp", &url(&format!("{name}/linked")), &url(&format!("{name}/copied"))]);
            assert_eq!(fs::read(copy.join("copied")).unwrap(), contents(100), "{way} {sec}");
            run(["df", &url(&name)]);
            run(["ping", "-c", "2", "-i", "0.01", &url("")]);
            if way.contains("version=4") {
                run(["lock", &url(&format!("{name}/copied")), "--", "true"]);
            }
            run(["rm", "-r", &url(&name)]);
            assert!(!copy.exists());
            fs::remove_dir_all(&back).unwrap();
        }
        assert_eq!(house.server.stop(), Some(0));
    });
}

/// proves: OPS-SEC-a
#[test]
fn many_connections_share_a_context_and_bench_has_its_own() {
    within("commands::many_connections_share_a_context_and_bench_has_its_own", |realm| {
        with_users(realm);
        let house = House::new(realm, "127.0.0.75", "krb5,krb5i,krb5p", &[]);
        let octets = contents((5 << 20) + 3);
        for (way, sec) in [(WAYS[0], "krb5i"), (WAYS[3], "krb5p"), (WAYS[5], "krb5p"), (WAYS[7], "krb5")] {
            let (local, url) = (realm.folder().join("local"), house.url(&format!("{way}&nconnect=4"), sec, "file-4"));
            fs::write(&local, &octets).unwrap();
            run(["put", local.to_str().unwrap(), &url]);
            assert!(run(["cat", &url]).stdout == octets, "{way} {sec}");
            for op in ["null", "getattr", "read"] {
                let short = ["--seconds", "0.1", "--block", "64K", "--connections", "2", "--depth", "4", "--json"];
                let told = run([&["bench", &url, "--op", op][..], &short].concat()).stdout;
                let told: Value = serde_json::from_slice(&told).unwrap();
                assert!(told["ops_per_s"].as_f64().is_some_and(|ops| ops > 0.0), "{way} {sec}: {told}");
            }
        }
    });
}

/// Runs a command that must be refused.
fn refused(args: &[&str]) {
    let told = fails(1, args);
    assert!(told.contains("NFS3ERR_ACCES") || told.contains("NFS4ERR_ACCESS"), "{told}");
}

/// Runs a command as bob, with tickets in a separate cache.
fn as_bob(realm: &Realm, args: &[&str]) -> std::process::Output {
    rpcrdma().env("KRB5CCNAME", realm.cache_of("bob")).args(args).output().unwrap()
}

/// proves: OPS-SEC-a, OPS-SEC-b
#[test]
fn two_users_see_what_they_may_and_no_more() {
    within("commands::two_users_see_what_they_may_and_no_more", |realm| {
        with_users(realm);
        realm.kinit_apart("bob", "10m").unwrap();
        let house = House::new(realm, "127.0.0.76", "krb5,krb5i,krb5p,sys", &[]);
        for ((principal, user), mode) in LOCAL.into_iter().zip([0o600, 0o640]) {
            let file = house.served.join(principal);
            fs::write(&file, principal).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            chown(&file, Some(uid(user)), Some(uid(user))).unwrap();
        }
        let nobody = house.served.join("roots");
        fs::write(&nobody, "root").unwrap();
        fs::set_permissions(&nobody, fs::Permissions::from_mode(0o600)).unwrap();
        for (way, sec) in WAYS.into_iter().flat_map(|way| SECURED.map(|sec| (way, sec))) {
            let url = |path: &str| house.url(way, sec, path);
            assert_eq!(run(["cat", &url("alice")]).stdout, b"alice", "{way} {sec}");
            refused(&["cat", &url("bob")]);
            refused(&["cat", &url("roots")]);
            let own = as_bob(realm, &["cat", &url("bob")]);
            assert_eq!((own.status.code(), &own.stdout[..]), (Some(0), &b"bob"[..]), "{way} {sec}");
            for other in ["alice", "roots"] {
                let told = as_bob(realm, &["cat", &url(other)]);
                let error = String::from_utf8_lossy(&told.stderr).into_owned();
                assert!(told.stdout.is_empty() && error.contains("ERR_ACCES"), "{way} {sec} {other}: {error}");
            }
            // Bob writes neither into alice's directory nor over her file.
            let told = as_bob(realm, &["mkdir", &url("bobs")]);
            assert!(String::from_utf8_lossy(&told.stderr).contains("ERR_ACCES"), "{way} {sec}");
        }
    });
}

/// proves: OPS-SEC-c
#[test]
fn ping_tells_who_one_is_to_the_server() {
    within("commands::ping_tells_who_one_is_to_the_server", |realm| {
        with_users(realm);
        let house = House::new(realm, "127.0.0.77", "krb5i,krb5p,sys", &[]);
        for way in WAYS {
            let told = run(["ping", "-v", "-c", "1", "--json", &house.url(way, "krb5p", "")]).stdout;
            let told: Value = serde_json::from_str(String::from_utf8(told).unwrap().lines().next().unwrap()).unwrap();
            let caller = &told["caller"];
            assert_eq!(caller["principal"], format!("alice@{REALM}"), "{way}: {told}");
            assert_eq!(
                (&caller["server"], &caller["sec"]),
                (&format!("nfs/localhost@{REALM}").into(), &"krb5p".into())
            );
            let left = caller["left_s"].as_u64().unwrap();
            assert!((500..=600).contains(&left), "{left}");
            if way.contains("4.1") || way.contains("4.2") {
                assert_eq!(told["nfs"]["session"]["back_channel"], "works", "{way}: {told}");
            }
        }
        let told = run(["ping", "-v", "-c", "1", &house.url(WAYS[7], "krb5i", "")]).stdout;
        let told = String::from_utf8(told).unwrap();
        assert!(told.contains(&format!("called as alice@{REALM}, the server is nfs/localhost@{REALM}")), "{told}");
        assert!(
            told.contains("sec=krb5i: calls and replies are protected from changes")
                && told.contains("the ticket lasts 9 min more"),
            "{told}"
        );
        let by_sys = format!("nfs://{}/?uid=7&gid=8", house.server.rdma);
        let told = String::from_utf8(run(["ping", "-v", "-c", "1", &by_sys]).stdout).unwrap();
        assert!(told.contains("called as uid 7, gid 8, which the server has to believe"), "{told}");
    });
}
