//! The commands that change names do what the tools of those names do.

mod common;

use common::{Server, cache, fails, rpcrdma, run};
use serde_json::Value;
use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

/// A server of an empty directory in `scratch`, which speaks these versions of RPC-over-RDMA.
fn serve(scratch: &Path, versions: &str) -> (PathBuf, Server) {
    let served = scratch.join("served");
    fs::create_dir(&served).unwrap();
    let server = Server::start(&served, &scratch.join("state"), &["--no-root-squash", "--rpcrdma", versions]);
    (served, server)
}

/// The commands do the same in each version.
fn in_each_version(test: impl Fn(&str)) {
    ["1", "2"].into_iter().for_each(test);
}

#[test]
fn directories_are_made() {
    in_each_version(|versions| {
        let scratch = tempfile::tempdir().unwrap();
        let (served, server) = serve(scratch.path(), versions);
        run(["mkdir", &server.url("a"), &server.url("b/")]);
        assert!(served.join("a").is_dir() && served.join("b").is_dir());
        let said = fails(1, ["mkdir", &server.url("a"), &server.url("c")]);
        assert!(said.contains("/a: ") && said.contains("exists already"), "{said}");
        assert!(served.join("c").is_dir(), "what can be made is made");
        assert!(fails(1, ["mkdir", &server.url("x/y")]).contains("no such file"));
        fails(1, ["mkdir", &server.url("")]);
        fails(2, ["mkdir"]);

        run(["mkdir", "-p", &server.url("x//y/../z"), &server.url("a"), &server.url("")]);
        assert!(served.join("x/y").is_dir() && served.join("x/z").is_dir());
        fs::write(served.join("file"), b"").unwrap();
        symlink("nowhere", served.join("dangling")).unwrap();
        assert!(fails(1, ["mkdir", "-p", &server.url("file/below")]).contains("not a directory"));
        assert!(fails(1, ["mkdir", "-p", &server.url("dangling/below")]).contains("exists already"));

        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "umask 027; exec \"$0\" mkdir \"$1\"", env!("CARGO_BIN_EXE_rpcrdma"), &server.url("masked")]);
        shell.env("XDG_CACHE_HOME", cache());
        assert!(shell.status().unwrap().success());
        assert_eq!(fs::metadata(served.join("masked")).unwrap().permissions().mode() & 0o777, 0o750);
    });
}

#[test]
fn files_are_removed_and_directories_only_when_asked_for() {
    in_each_version(|versions| {
        let scratch = tempfile::tempdir().unwrap();
        let (served, server) = serve(scratch.path(), versions);
        fs::write(served.join("a"), b"").unwrap();
        fs::write(served.join("b"), b"").unwrap();
        fs::create_dir(served.join("d")).unwrap();
        symlink("d", served.join("link")).unwrap();
        run(["rm", &server.url("a")]);
        let said = fails(1, ["rm", &server.url("none"), &server.url("d"), &server.url("b")]);
        assert!(said.contains("/none: ") && said.contains("/d: is a directory; remove it with -r"), "{said}");
        assert!(!served.join("b").exists(), "the rest goes on");
        assert!(fails(1, ["rm", "-r", &server.url("link/")]).contains("not a directory"));
        run(["rm", &server.url("link")]);
        assert!(served.join("d").is_dir());
        for top in ["", "d/..", "d/."] {
            fails(1, ["rm", "-r", &server.url(top)]);
        }
        assert!(served.join("d").is_dir());
        fails(2, ["rm"]);
    });
}

#[test]
fn trees_are_removed_and_what_links_point_to_stays() {
    in_each_version(|versions| {
        let scratch = tempfile::tempdir().unwrap();
        let (served, server) = serve(scratch.path(), versions);
        fs::create_dir_all(served.join("precious/below")).unwrap();
        fs::write(served.join("precious/below/file"), b"keep me").unwrap();
        let tree = served.join("tree");
        fs::create_dir_all(tree.join("1/2/3/4")).unwrap();
        fs::create_dir(tree.join("empty")).unwrap();
        symlink("../precious", tree.join("link")).unwrap();
        symlink("../../precious/below", tree.join("1/link")).unwrap();
        symlink("nowhere", tree.join("1/2/dangling")).unwrap();
        fs::write(tree.join(OsStr::from_bytes(b"odd \xff\n")), b"").unwrap();
        // More names than one READDIRPLUS returns.
        for number in 0..1500 {
            fs::write(tree.join(format!("1/2/3/a file with a longer name {number}")), b"").unwrap();
        }
        run(["rm", "-r", &server.url("tree")]);
        assert!(!tree.exists());
        assert_eq!(fs::read(served.join("precious/below/file")).unwrap(), b"keep me");
    });
}

#[test]
fn what_cannot_be_removed_is_named_and_the_rest_goes() {
    in_each_version(|versions| {
        let scratch = tempfile::tempdir().unwrap();
        let (served, server) = serve(scratch.path(), versions);
        if !rustix::process::geteuid().is_root() {
            // Only root can call as another user.
            return;
        }
        fs::create_dir_all(served.join("tree/closed/below")).unwrap();
        fs::create_dir_all(served.join("tree/open")).unwrap();
        fs::write(served.join("tree/closed/file"), b"").unwrap();
        for open in ["tree", "tree/open"] {
            fs::set_permissions(served.join(open), Permissions::from_mode(0o777)).unwrap();
        }
        let url = format!("{}&uid=12345&gid=12345", server.url("tree"));
        let said = fails(1, ["rm", "-r", &url]);
        assert!(said.contains("/tree/closed/file: ") && said.contains("permission denied"), "{said}");
        assert!(!said.contains("not empty"), "what follows from it is not told: {said}");
        assert!(!served.join("tree/open").exists() && served.join("tree/closed/file").exists());
    });
}

#[test]
fn files_are_moved_within_an_export() {
    in_each_version(|versions| {
        let scratch = tempfile::tempdir().unwrap();
        let (served, server) = serve(scratch.path(), versions);
        fs::write(served.join("a"), b"a").unwrap();
        fs::write(served.join("b"), b"b").unwrap();
        fs::create_dir(served.join("d")).unwrap();
        symlink("d", served.join("link")).unwrap();
        run(["mv", &server.url("a"), &server.url("c")]);
        assert_eq!(fs::read(served.join("c")).unwrap(), b"a");
        run(["mv", &server.url("b"), &server.url("c"), &server.url("link")]);
        assert_eq!(fs::read(served.join("d/b")).unwrap(), b"b");
        run(["mv", &server.url("d/b"), &server.url("d/c")]);
        assert_eq!(fs::read(served.join("d/c")).unwrap(), b"b", "in place of what was there");
        run(["mv", &server.url("link"), &server.url("moved")]);
        assert!(served.join("moved").is_symlink() && served.join("d").is_dir(), "the link, not what it points to");
        assert!(fails(1, ["mv", &server.url("none"), &server.url("x")]).contains("no such file"));
        assert!(fails(1, ["mv", &server.url("d/c"), &server.url("moved"), &server.url("x")]).contains("only into one"));
        assert!(fails(1, ["mv", &server.url("d/c/"), &server.url("x")]).contains("not a directory"));

        let elsewhere = tempfile::tempdir().unwrap();
        let (_, other) = serve(elsewhere.path(), versions);
        let said = fails(1, ["mv", &server.url("d/c"), &other.url("c")]);
        assert!(said.contains("within one export of one server only"), "{said}");
        assert!(served.join("d/c").exists());
    });
}

#[test]
fn links_are_made() {
    in_each_version(|versions| {
        let scratch = tempfile::tempdir().unwrap();
        let (served, server) = serve(scratch.path(), versions);
        fs::write(served.join("a"), b"a").unwrap();
        fs::create_dir(served.join("d")).unwrap();
        run(["ln", &server.url("a"), &server.url("b")]);
        run(["ln", &server.url("a"), &server.url("d")]);
        let inode = fs::metadata(served.join("a")).unwrap().ino();
        for name in ["b", "d/a"] {
            assert_eq!(fs::metadata(served.join(name)).unwrap().ino(), inode);
        }
        run(["ln", "-s", "../any where", &server.url("s")]);
        run(["ln", "-s", "/x/y", &server.url("d")]);
        assert_eq!(fs::read_link(served.join("s")).unwrap(), Path::new("../any where"));
        assert_eq!(fs::read_link(served.join("d/y")).unwrap(), Path::new("/x/y"));
        assert!(fails(1, ["ln", "-s", "x", &server.url("b")]).contains("exists already"));
        assert!(fails(1, ["ln", &server.url("d"), &server.url("e")]).contains("is a directory"));
        assert!(fails(2, ["ln", "a", &server.url("e")]).contains("nfs://"), "a name that is no URL is wrong usage");
    });
}

#[test]
fn file_systems_tell_how_full_they_are() {
    in_each_version(|versions| {
        let scratch = tempfile::tempdir().unwrap();
        let (served, server) = serve(scratch.path(), versions);
        let json: Value = serde_json::from_slice(&run(["df", "--json", &server.url("")]).stdout).unwrap();
        let there = rustix::fs::statvfs(&served).unwrap();
        assert_eq!(json["size"], there.f_blocks * there.f_frsize);
        assert_eq!(json["path"], "/");
        for key in ["used", "free", "available", "files", "files_free", "files_available"] {
            assert!(json[key].is_u64(), "{json}");
        }
        let text = String::from_utf8(run(["df", &server.url("")]).stdout).unwrap();
        assert!(text.lines().count() == 2 && text.contains('%'), "{text}");
        fails(1, ["df", &server.url("none")]);
    });
}

#[test]
fn the_manual_and_completions_know_every_command() {
    let scratch = tempfile::tempdir().unwrap();
    let pages = scratch.path().join("man");
    run(["man".as_ref(), pages.as_os_str()]);
    let help = String::from_utf8(run(["--help"]).stdout).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<_> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"mkdir") && commands.contains(&"serve"), "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = String::from_utf8(run(["completions", shell]).stdout).unwrap();
        for command in &commands {
            assert!(script.contains(command), "{shell} {command}");
        }
    }
    assert!(pages.join("rpcrdma.1").exists());
    for command in commands.iter().filter(|command| **command != "help") {
        let page = fs::read_to_string(pages.join(format!("rpcrdma-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    fails(2, ["completions", "nonsense"]);
    fails(1, ["man", "/proc/nowhere"]);
    // bash itself must accept the script.
    let script = rpcrdma().args(["completions", "bash"]).output().unwrap().stdout;
    let path = scratch.path().join("script");
    fs::write(&path, script).unwrap();
    assert!(std::process::Command::new("bash").arg("-n").arg(&path).status().unwrap().success());
}
