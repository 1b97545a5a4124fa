//! Servers that lie about names: a copy writes only where the user asked, and names cannot control terminals. A proxy
//! between the command and an honest server changes the bytes.

mod common;

use common::{Server, cache, fails, proxy, run};
use serde_json::Value;
use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    process::Command,
};

/// Replaces bytes in the server's messages by as many others. Returns the address to connect to.
fn between(server: &str, changes: Vec<(Vec<u8>, Vec<u8>)>) -> String {
    assert!(changes.iter().all(|(from, to)| from.len() == to.len()));
    proxy::between(server, move |record| {
        for (from, to) in &changes {
            while let Some(at) = record.windows(from.len()).position(|octets| octets == from) {
                record[at..at + to.len()].copy_from_slice(to);
            }
        }
    })
}

fn names(directory: &Path) -> Vec<Vec<u8>> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_vec()).collect();
    names.sort();
    names
}

#[test]
fn names_that_lead_elsewhere_are_errors() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    let absolute = scratch.path().join("absolute");
    let absolute = absolute.as_os_str().as_bytes();
    let innocent: Vec<u8> = absolute.iter().map(|octet| if *octet == b'/' { b'_' } else { *octet }).collect();
    for (case, (told, name)) in
        [(&b"AA_escaped"[..], &b"../escaped"[..]), (b"AA", b".."), (&innocent, absolute), (b"AA_b", b"AA/b")]
            .into_iter()
            .enumerate()
    {
        let tree = served.join(format!("tree-{case}"));
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join(OsStr::from_bytes(told)), b"from elsewhere").unwrap();
        fs::write(tree.join("decent"), b"decent").unwrap();
        let into = scratch.path().join(format!("into-{case}"));
        fs::create_dir_all(into.join("AA")).unwrap();
        let before = names(scratch.path());
        let state = scratch.path().join("state");
        let server = Server::start(&served, &state, &["--no-root-squash", "--tcp", "127.0.0.1:0"]);
        let proxy = between(server.tcp.as_ref().unwrap(), vec![(told.to_vec(), name.to_vec())]);
        let (_, mount) = server.mount.rsplit_once(':').unwrap();
        let url = format!("nfs://{proxy}/tree-{case}?version=3&transport=tcp&mountport={mount}");
        let get = ["get", "-r", &url, into.to_str().unwrap()];
        // The name of the parent directory may be in any listing, and the command ignores it.
        if name == b".." {
            run(get);
        } else {
            let listed = run(["ls", &url]).stdout;
            assert!(listed.windows(name.len()).any(|octets| octets == name), "the lie arrives: {listed:?}");
            let error = fails(1, get);
            assert!(error.contains("as a name"), "{error}");
        }
        let unchanged = names(scratch.path()).into_iter().filter(|name| name != b"state").collect::<Vec<_>>();
        assert_eq!(unchanged, before.into_iter().filter(|name| name != b"state").collect::<Vec<_>>(), "nothing is new");
        assert_eq!(names(&into.join("AA")), Vec::<Vec<u8>>::new());
        assert!(names(&into.join(format!("tree-{case}"))).iter().all(|name| name == b"decent"));
        // Such a name does not remove anything either.
        fails(1, ["rm", "-r", &url]);
        assert!(tree.join(OsStr::from_bytes(told)).exists());
        server.stop();
    }
}

/// Needs `script`, which gives a command a terminal.
#[test]
fn names_do_not_steer_the_terminal_that_shows_them() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    let odd = OsStr::from_bytes(b"a\x1b[2Jb");
    fs::write(served.join(odd), b"odd").unwrap();
    std::os::unix::fs::symlink(odd, served.join("link")).unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash"]);
    let url = server.url_3("");
    // A program that reads the output gets the name unchanged.
    assert!(run(["ls", &url]).stdout.contains(&0x1B));
    let command = format!("{} ls -l '{url}'", env!("CARGO_BIN_EXE_rpcrdma"));
    let shown = Command::new("script").args(["-qec", &command, "/dev/null"]).env("XDG_CACHE_HOME", cache()).output();
    let Ok(shown) = shown else { return eprintln!("no `script` here") };
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success() && text.matches(r"a\u{1b}[2Jb").count() == 2 && !text.contains('\x1b'), "{text:?}");
    // Messages do not control the terminal either.
    let into = scratch.path().join("into");
    fs::create_dir_all(into.join(odd)).unwrap();
    let error = fails(1, ["get", "-r", &url, into.to_str().unwrap()]);
    assert!(error.contains(r"a\u{1b}[2Jb") && !error.contains('\x1b'), "{error:?}");
    server.stop();
}

/// The URL of a server over TCP, through a proxy.
fn url_of(proxy: &str, server: &Server, path: &str) -> String {
    let (_, mount) = server.mount.rsplit_once(':').unwrap();
    format!("nfs://{proxy}/{path}?version=3&transport=tcp&mountport={mount}")
}

/// The replies to READDIRPLUS alternate between the first two, whatever the client asks for.
#[test]
fn a_listing_that_leads_in_a_circle_ends() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir_all(served.join("tree")).unwrap();
    for number in 0..2000 {
        fs::write(served.join(format!("tree/{number:0200}")), "").unwrap();
    }
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash", "--tcp", "127.0.0.1:0"]);
    let commands: [&[&str]; 4] = [&["ls"], &["ls", "-R"], &["rm", "-r"], &["get", "-r"]];
    for command in commands {
        let mut listings: Vec<Vec<u8>> = Vec::new();
        let mut count = 0;
        let proxy = proxy::between(server.tcp.as_ref().unwrap(), move |record| {
            // No other reply is as long.
            if record.len() < 16 << 10 {
                return;
            }
            if listings.len() < 2 {
                listings.push(record.clone());
            } else {
                let xid = record[4..8].to_vec();
                record.clone_from(&listings[count % 2]);
                record[4..8].copy_from_slice(&xid);
            }
            count += 1;
        });
        let (url, into) = (url_of(&proxy, &server, "tree"), scratch.path().join("into"));
        let mut args = [command, &[&url]].concat();
        if command[0] == "get" {
            args.push(into.to_str().unwrap());
        }
        let error = fails(1, &args);
        assert!(error.contains("for the second time"), "{command:?}: {error}");
        assert!(error.contains("/tree") || error.contains("/into"), "where is told: {error}");
    }
    server.stop();
}

/// A directory that contains itself.
#[test]
fn a_tree_without_end_ends() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir_all(served.join("t/a")).unwrap();
    fs::create_dir_all(served.join("t/b")).unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash", "--tcp", "127.0.0.1:0"]);
    let handle = |path: &str| -> Vec<u8> {
        let stat: Value = serde_json::from_slice(&run(["stat", "--json", &server.url_3(path)]).stdout).unwrap();
        let hex = stat["handle"].as_str().unwrap().as_bytes().to_vec();
        hex.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    };
    let (top, a, b) = (handle("t"), handle("t/a"), handle("t/b"));
    let proxy = between(server.tcp.as_ref().unwrap(), vec![(a, top.clone()), (b, top)]);
    let (url, into) = (url_of(&proxy, &server, "t"), scratch.path().join("into"));
    let commands: [&[&str]; 3] = [&["ls", "-R"], &["rm", "-r"], &["get", "-r"]];
    for command in commands {
        let mut args = [command, &[&url]].concat();
        if command[0] == "get" {
            args.push(into.to_str().unwrap());
        }
        let error = fails(1, &args);
        assert!(error.contains("1024 directories deep"), "{command:?}: {error}");
    }
    let (mut deepest, mut depth) = (into, 1);
    while let Some(below) = fs::read_dir(&deepest).unwrap().next() {
        (deepest, depth) = (below.unwrap().path(), depth + 1);
    }
    assert_eq!(depth, 1024, "as deep as the limit, and no further");
    server.stop();
}

#[test]
fn names_cannot_be_turned_around_in_json() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    let odd = "photo\u{202e}gpj.exe\u{9b}2J\u{200b}";
    fs::write(served.join(odd), "odd").unwrap();
    std::os::unix::fs::symlink(odd, served.join("link")).unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash"]);
    let percent: String = odd.bytes().map(|octet| format!("%{octet:02x}")).collect();
    for args in [
        ["ls", "--json", &server.url_3("")],
        ["stat", "--json", &server.url_3(&percent)],
        ["df", "--json", &server.url_3(&percent)],
    ] {
        let shown = String::from_utf8(run(args).stdout).unwrap();
        assert!(shown.is_ascii() && shown.contains("\\u202e") && shown.contains("\\u009b"), "{shown}");
        assert!(shown.lines().any(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            ["name", "path", "target"].iter().any(|key| line[key].as_str().is_some_and(|text| text.ends_with(odd)))
        }));
    }
    let into = scratch.path().join("into");
    fs::create_dir_all(into.join(odd)).unwrap();
    let error = fails(1, ["get", "--json", "-r", &server.url_3(""), into.to_str().unwrap()]);
    assert!(error.is_ascii(), "{error}");
    server.stop();
}
