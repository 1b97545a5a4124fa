//! Servers that lie about names: what a copy writes stays where it was asked for, and terminals are not steered. Between the
//! command and an honest server stands somebody who changes octets on their way.

mod common;

use common::{Server, cache, fails, run};
use std::{
    ffi::OsStr,
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    process::Command,
    thread,
};

/// Passes everything on, and replaces in what the server says; as many octets by as many. Returns its own address.
fn between(server: &str, changes: Vec<(Vec<u8>, Vec<u8>)>) -> String {
    assert!(changes.iter().all(|(from, to)| from.len() == to.len()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = server.to_owned();
    // It lives as long as the process.
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut calls, mut told, changes) =
                (client.try_clone().unwrap(), server.try_clone().unwrap(), changes.clone());
            thread::spawn(move || {
                let _ = std::io::copy(&mut calls, &mut told);
                let _ = told.shutdown(Shutdown::Write);
            });
            thread::spawn(move || {
                while let Some(mut record) = record(&mut server) {
                    for (from, to) in &changes {
                        while let Some(at) = record.windows(from.len()).position(|octets| octets == from) {
                            record[at..at + to.len()].copy_from_slice(to);
                        }
                    }
                    if client.write_all(&record).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// The next fragment, with its mark.
fn record(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).ok()?;
    let mut whole = mark.to_vec();
    whole.resize(4 + (u32::from_be_bytes(mark) & 0x7FFF_FFFF) as usize, 0);
    stream.read_exact(&mut whole[4..]).ok()?;
    Some(whole)
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
        let url = format!("nfs://{proxy}/tree-{case}?transport=tcp&mountport={mount}");
        let get = ["get", "-r", &url, into.to_str().unwrap()];
        // The name of the directory above may be in any listing, and is passed over.
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
        // Nothing is removed by such a name either.
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
    let url = server.url("");
    // A program gets the name as it is.
    assert!(run(["ls", &url]).stdout.contains(&0x1B));
    let command = format!("{} ls -l '{url}'", env!("CARGO_BIN_EXE_rpcrdma"));
    let shown = Command::new("script").args(["-qec", &command, "/dev/null"]).env("XDG_CACHE_HOME", cache()).output();
    let Ok(shown) = shown else { return eprintln!("no `script` here") };
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success() && text.matches(r"a\u{1b}[2Jb").count() == 2 && !text.contains('\x1b'), "{text:?}");
    // And so do messages.
    let into = scratch.path().join("into");
    fs::create_dir_all(into.join(odd)).unwrap();
    let error = fails(1, ["get", "-r", &url, into.to_str().unwrap()]);
    assert!(error.contains(r"a\u{1b}[2Jb") && !error.contains('\x1b'), "{error:?}");
    server.stop();
}
