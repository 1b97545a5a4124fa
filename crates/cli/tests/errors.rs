//! The commands' messages when something does not work: the path, the procedure, the caller and the owner of the file;
//! the exit code; and the same as JSON.

mod common;

use common::{Server, fails, rpcrdma, run, served};
use serde_json::Value;
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

/// A user that the server does not know.
const CALLER: u32 = 12_345;
/// The owner of files that the caller may not change.
const OWNER: u32 = 54_321;

/// A server of a directory with: `file`, `closed/` of root, `theirs/` of [`OWNER`], and `open/` for all.
struct Stage {
    scratch: tempfile::TempDir,
    served: PathBuf,
    server: Server,
}

impl Stage {
    fn new(more: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let served = served(scratch.path());
        fs::write(served.join("file"), b"contents").unwrap();
        for (name, mode) in [("closed", 0o700), ("theirs", 0o755), ("open", 0o777)] {
            fs::create_dir(served.join(name)).unwrap();
            fs::set_permissions(served.join(name), Permissions::from_mode(mode)).unwrap();
        }
        if is_root() {
            chown(served.join("theirs"), Some(OWNER), Some(OWNER)).unwrap();
        }
        let server = Server::start(&served, &scratch.path().join("state"), more);
        Self { scratch, served, server }
    }

    /// A URL in version 3, whose procedures and statuses these tests name; `version4.rs` tests those of version 4.
    fn url(&self, path: &str) -> String {
        self.server.url_3(path)
    }

    /// The URL, called as [`CALLER`].
    fn as_caller(&self, path: &str) -> String {
        format!("{}&uid={CALLER}&gid={CALLER}", self.url(path))
    }

    fn local(&self, name: &str) -> String {
        self.scratch.path().join(name).to_str().unwrap().to_owned()
    }

    /// A local file with these contents.
    fn source(&self, name: &str, contents: &[u8]) -> String {
        fs::write(self.local(name), contents).unwrap();
        self.local(name)
    }
}

/// Only root can give files away and call as another user: without root, tests that need this do nothing.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn objects(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

/// Every command that the server can refuse, with the path and the procedure that the error has to name.
fn refused(stage: &Stage, url: &dyn Fn(&str) -> String) -> Vec<(Vec<String>, &'static str, &'static str)> {
    let source = stage.source("source", b"x");
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let out = stage.local("out");
    vec![
        (words(&["ls", &url("closed")]), "/closed: ", "READDIRPLUS"),
        (words(&["stat", &url("closed/x")]), "/closed/x: ", "LOOKUP"),
        (words(&["cat", &url("closed/x")]), "/closed/x: ", "LOOKUP"),
        (words(&["df", &url("closed/x")]), "/closed/x: ", "LOOKUP"),
        (words(&["get", &url("closed/x"), &out]), "/closed/x: ", "LOOKUP"),
        (words(&["get", "-r", &url("closed"), &out]), "/closed on the server: ", "READDIRPLUS"),
        (words(&["put", &source, &url("theirs/new")]), "/theirs/new on the server: ", "CREATE"),
        (words(&["put", &source, &url("theirs")]), "/theirs/source on the server: ", "CREATE"),
        (words(&["mkdir", &url("theirs/new")]), "/theirs/new: ", "MKDIR"),
        (words(&["mkdir", "-p", &url("theirs/new/below")]), "/theirs/new/below: ", "MKDIR"),
        (words(&["rm", &url("file")]), "/file: ", "REMOVE"),
        (words(&["rm", "-r", &url("closed")]), "/closed: ", "READDIRPLUS"),
        (words(&["mv", &url("file"), &url("new")]), "/file: to /new: ", "RENAME"),
        (words(&["ln", "-s", "a", &url("theirs/new")]), "/theirs/new: ", "SYMLINK"),
        (words(&["bench", "--op", "read", &url("closed/x")]), "/closed/x: ", "LOOKUP"),
        (words(&["bench", "--op", "write", &url("theirs/new")]), "/theirs/new: ", "CREATE"),
    ]
}

#[test]
fn every_command_that_is_refused_names_path_procedure_caller_and_owner() {
    if !is_root() {
        return;
    }
    let stage = Stage::new(&[]);
    for (args, path, procedure) in refused(&stage, &|path| stage.as_caller(path)) {
        let said = fails(1, &args);
        let whole = format!("{procedure}: permission denied (NFS3ERR_ACCES); called as uid {CALLER}, gid {CALLER}");
        assert!(said.contains(path) && said.contains(&whole), "{args:?}: {said}");
        let owner = if said.contains("/theirs") { OWNER } else { 0 };
        assert!(said.contains(&format!("; the directory belongs to uid {owner}, gid {owner}, mode 0")), "{said}");
        assert!(!said.contains("root squash"), "{said}");
    }
    // If the server refuses a file, the error names the file's owner, not the directory's.
    let said = fails(1, ["put", "--inplace", &stage.local("source"), &stage.as_caller("file")]);
    assert!(said.contains("WRITE: ") && said.contains("the file belongs to uid 0, gid 0, mode 0644"), "{said}");
}

#[test]
fn root_learns_that_the_server_may_squash_it() {
    if !is_root() {
        return;
    }
    let stage = Stage::new(&[]);
    for (args, path, procedure) in refused(&stage, &|path| stage.url(path)) {
        let said = fails(1, &args);
        assert!(said.contains(path) && said.contains(procedure), "{args:?}: {said}");
        assert!(said.contains("the server may treat root as nobody (root squash)"), "{args:?}: {said}");
    }
}

#[test]
fn other_refusals_name_path_and_procedure_and_nobody() {
    let stage = Stage::new(&["--no-root-squash"]);
    let long = "n".repeat(300);
    let source = stage.source("source", b"x");
    let out = stage.local("out");
    let (below, none, long) = (stage.url("file/x"), stage.url("none"), stage.url(&long));
    for (url, path, status) in [
        (&below, "/file/x: ", "NFS3ERR_NOTDIR"),
        (&none, "/none: ", "NFS3ERR_NOENT"),
        (&long, "/nnn", "NFS3ERR_NAMETOOLONG"),
    ] {
        for args in [vec!["ls", url], vec!["stat", url], vec!["cat", url], vec!["df", url], vec!["get", url, &out]] {
            let said = fails(1, &args);
            assert!(said.starts_with(&format!("rpcrdma: {path}")) && said.contains("LOOKUP: "), "{args:?}: {said}");
            assert!(said.contains(status) && !said.contains("called as"), "{args:?}: {said}");
        }
    }
    for (args, procedure) in [
        (vec!["put", &source, &below], "LOOKUP"),
        (vec!["mkdir", &below], "LOOKUP"),
        (vec!["mkdir", "-p", &below], "LOOKUP"),
        (vec!["ln", "-s", "a", &below], "LOOKUP"),
    ] {
        let said = fails(1, &args);
        assert!(said.contains("/file/x: ") && said.contains(procedure) && said.contains("NFS3ERR_NOTDIR"), "{said}");
        assert_eq!(said.matches("file/x").count(), 1, "the path is told once: {said}");
    }
}

#[test]
fn a_read_only_server_is_named_by_every_command_that_changes() {
    let stage = Stage::new(&["--read-only", "--no-root-squash"]);
    let source = stage.source("source", b"x");
    let [file, new, closed] = ["file", "new", "closed"].map(|path| stage.url(path));
    for (args, procedure) in [
        (vec!["put", &source, &new], "CREATE"),
        (vec!["put", "-r", &source, &file], "CREATE"),
        (vec!["mkdir", &new], "MKDIR"),
        (vec!["rm", &file], "REMOVE"),
        (vec!["rm", "-r", &closed], "RMDIR"),
        (vec!["mv", &file, &new], "RENAME"),
        (vec!["ln", &file, &new], "LINK"),
        (vec!["ln", "-s", "a", &new], "SYMLINK"),
    ] {
        let said = fails(1, &args);
        let what = format!("{procedure}: the file system is read-only (NFS3ERR_ROFS)");
        assert!(said.contains(&what) && !said.contains("called as"), "{args:?}: {said}");
    }
}

/// The shape that programs rely on.
#[test]
fn errors_are_objects_where_json_is_asked_for() {
    let stage = Stage::new(&["--no-root-squash"]);
    let none = stage.url("none/x");
    let out = stage.local("out");
    for args in [
        vec!["ls", &none],
        vec!["stat", &none],
        vec!["cat", &none],
        vec!["df", &none],
        vec!["get", &none, &out],
        vec!["mkdir", &none],
        vec!["rm", &none],
        vec!["mv", &none, &none],
        vec!["ln", "-s", "a", &none],
        vec!["put", "/dev/null", &none],
        vec!["bench", "--op", "read", &none],
    ] {
        let said = objects(&fails(1, args.iter().chain(&["--json"])));
        let error = &said[0]["error"];
        assert_eq!(error["status"], "NFS3ERR_NOENT", "{args:?}: {said:?}");
        assert_eq!((&error["path"], &error["procedure"]), (&"/none/x".into(), &"LOOKUP".into()), "{args:?}");
        assert!(error["message"].as_str().unwrap().contains("no such file"), "{args:?}");
    }
    // The error of a copy names both sides; a local failure names no procedure.
    let source = stage.source("source", b"x");
    let said = objects(&fails(1, ["put", "--json", "-r", stage.served.to_str().unwrap(), &source, &stage.url("file")]));
    assert!(said[0]["error"]["message"].as_str().unwrap().contains("not a directory"), "{said:?}");
    let said = objects(&fails(1, ["put", "--json", &stage.local("nothing"), &stage.url("open")]));
    assert_eq!(said[0]["error"]["local"], stage.local("nothing"));
    assert!(said[0]["error"].get("procedure").is_none(), "{said:?}");
}

#[test]
fn what_was_done_is_told_as_json() {
    let stage = Stage::new(&["--no-root-squash"]);
    let did = |args: &[&str]| objects(&String::from_utf8(run(args.iter().chain(&["--json"])).stdout).unwrap());
    let [directory, link, new, name] = ["d", "d/link", "d/new", "d/name"].map(|path| stage.url(path));
    assert_eq!(did(&["mkdir", &directory])[0], serde_json::json!({ "done": "mkdir", "path": "/d" }));
    assert_eq!(
        did(&["ln", "-s", "to", &link])[0],
        serde_json::json!({ "done": "ln", "path": "/d/link", "target": "to" })
    );
    let linked = serde_json::json!({ "done": "ln", "path": "/d/name", "target": "/file" });
    assert_eq!(did(&["ln", &stage.url("file"), &name])[0], linked);
    let moved = serde_json::json!({ "done": "mv", "path": "/d/name", "to": "/d/new" });
    assert_eq!(did(&["mv", &name, &new])[0], moved);
    let into = serde_json::json!({ "done": "mv", "path": "/d/new", "to": "/open/new" });
    assert_eq!(did(&["mv", &new, &stage.url("open")])[0], into);
    assert_eq!(did(&["rm", "-r", &directory])[0], serde_json::json!({ "done": "rm", "path": "/d" }));
    assert_eq!(run(["mkdir", &directory]).stdout, b"", "nothing is printed for a person");
}

#[test]
fn somebody_elses_file_keeps_mode_and_times_and_that_is_told() {
    if !is_root() {
        return;
    }
    let stage = Stage::new(&[]);
    let target = stage.served.join("open/theirs");
    fs::write(&target, b"old").unwrap();
    chown(&target, Some(OWNER), Some(OWNER)).unwrap();
    fs::set_permissions(&target, Permissions::from_mode(0o666)).unwrap();
    let source = stage.source("source", b"new contents");
    let put = |more: &[&str], path: &str| {
        let url = stage.as_caller(path);
        let args = ["put"].iter().chain(more).copied().chain([source.as_str(), &url]);
        let output = run(args);
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let kept = "mode and times were not kept: what is on the server belongs to somebody else";
    let (_, said) = put(&[], "open/theirs");
    assert!(said.contains(kept) && said.contains("--no-attributes"), "{said}");
    assert_eq!(fs::read(&target).unwrap(), b"new contents");
    let (summary, said) = put(&["--json"], "open/theirs");
    assert_eq!(objects(&summary)[0]["attributes_not_kept"], 1);
    assert!(
        objects(&said).iter().any(|line| line["warning"]["message"].as_str().is_some_and(|text| text.contains(kept)))
    );
    let (summary, said) = put(&["--json", "--no-attributes"], "open/theirs");
    assert!(!said.contains("not kept"), "{said}");
    assert_eq!(objects(&summary)[0]["attributes_not_kept"], 0);
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o666);
}

#[test]
fn somebody_elses_directory_takes_files_and_keeps_mode_and_times() {
    if !is_root() {
        return;
    }
    let stage = Stage::new(&[]);
    let theirs = stage.served.join("open/tree");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(OWNER), Some(OWNER)).unwrap();
    fs::set_permissions(&theirs, Permissions::from_mode(0o777)).unwrap();
    let tree = stage.scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("new"), b"x").unwrap();
    let said = run(["put".as_ref(), "-r".as_ref(), tree.as_os_str(), stage.as_caller("open").as_ref()]).stderr;
    assert!(String::from_utf8_lossy(&said).contains("tree: mode and times were not kept"));
    assert_eq!(fs::read(theirs.join("new")).unwrap(), b"x");
    assert_eq!(fs::metadata(&theirs).unwrap().permissions().mode() & 0o777, 0o777);
}

/// With `--no-attributes` new files are as cp makes them: the source's mode less the umask, and the time of the copy.
#[test]
fn without_attributes_new_files_have_modes_and_old_ones_keep_theirs() {
    let stage = Stage::new(&["--no-root-squash"]);
    let tree = stage.scratch.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    for (path, mode) in [("d", 0o777), ("d/run", 0o777), ("d/text", 0o640)] {
        let path = tree.join(path);
        if !path.is_dir() {
            fs::write(&path, b"x").unwrap();
            let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
            fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        }
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    let put = |path: &str| {
        let mut shell = std::process::Command::new("sh");
        let program = rpcrdma().get_program().to_owned();
        shell.args(["-c", "umask 022; exec \"$0\" put -r --no-attributes \"$1\" \"$2\""]);
        shell.arg(program).arg(&tree).arg(stage.url(path)).env("XDG_CACHE_HOME", common::cache());
        assert!(shell.status().unwrap().success());
    };
    put("copy");
    let copied = |path: &str| fs::metadata(stage.served.join("copy").join(path)).unwrap();
    let modes = || ["d", "d/run", "d/text"].map(|path| copied(path).permissions().mode() & 0o777);
    assert_eq!(modes(), [0o755, 0o755, 0o640]);
    assert!(copied("d/run").mtime() > 1_000_000);
    for (path, mode) in [("d", 0o711), ("d/run", 0o700), ("d/text", 0o604)] {
        fs::set_permissions(stage.served.join("copy").join(path), Permissions::from_mode(mode)).unwrap();
    }
    // Into an existing tree: tree/d onto copy/d.
    let mut again = rpcrdma();
    again.args(["put", "-r", "--no-attributes"]).arg(tree.join("d")).arg(stage.url("copy"));
    assert!(again.status().unwrap().success());
    assert_eq!(modes(), [0o711, 0o700, 0o604]);
}

#[test]
fn several_files_are_listed_and_described_and_errors_do_not_end_it() {
    let stage = Stage::new(&["--no-root-squash"]);
    fs::write(stage.served.join("open/below"), b"").unwrap();
    let [file, none, open, theirs] = ["file", "none", "open", "theirs"].map(|path| stage.url(path));
    let output = rpcrdma().args(["ls", &open, &none, &file, &theirs]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"/file\n\n/open:\nbelow\n\n/theirs:\n");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("rpcrdma: /none: LOOKUP: no such file"));
    let output = rpcrdma().args(["stat", &file, &none, &open]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("path: /file\n") && text.contains("\n\n    path: /open\n"), "{text}");
    let output = rpcrdma().args(["df", &none, &file]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("/file\n"));
}

#[test]
fn sizes_have_units_where_they_are_asked_for() {
    let stage = Stage::new(&["--no-root-squash"]);
    fs::File::create(stage.served.join("big")).unwrap().set_len(3 << 29).unwrap();
    let text = |args: &[&str]| String::from_utf8(run(args).stdout).unwrap();
    let url = stage.url("big");
    assert!(text(&["ls", "-lh", &url]).contains(" 1.50 GiB "));
    assert!(text(&["ls", "-l", &url]).contains(" 1610612736 "));
    assert!(text(&["df", "-h", &url]).contains("iB "));
    assert!(!text(&["df", &url]).contains("iB "));
    for command in ["ls", "df"] {
        assert!(text(&[command, "--help"]).contains("--human-readable"), "{command}");
    }
}

#[test]
fn a_server_is_found_by_name_and_a_missing_interface_is_named() {
    let stage = Stage::new(&["--no-root-squash"]);
    let by_name = stage.url("").replace("127.0.0.1", "localhost");
    assert!(run(["ls", &by_name]).stdout.starts_with(b"closed\n"), "though localhost may be ::1 first");
    assert!(run(["ping", "-c", "1", &by_name]).stdout.starts_with(b"NULL answered by 127.0.0.1"));
    for zone in ["%25no-such-one", "%no-such-one"] {
        let said = fails(1, ["ls", &format!("nfs://[fe80::1{zone}]/")]);
        assert!(said.contains("there is no network interface \"no-such-one\""), "{said}");
    }
}

/// The user has to change the command line: exit code 2, before anything is tried.
#[test]
fn wrong_values_are_exit_code_2_in_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().to_str().unwrap();
    let bad = "nfs://host:0/";
    let good = "nfs://host.invalid/";
    for args in [
        vec!["ls", bad],
        vec!["ls", good, bad],
        vec!["ls", "-h", good],
        vec!["ls", "nfs://host/?transport=tcp&rpcrdma=2"],
        vec!["ls", "nfs://[fe80::1]/"],
        vec!["stat", bad],
        vec!["cat", bad],
        vec!["cat", "--offset", "1Q", good],
        vec!["cat", "--length", "-1", good],
        vec!["get", bad, "x"],
        vec!["get", "--resume", "--inplace", good, "x"],
        vec!["put", "x", bad],
        vec!["put", "--resume", "--no-attributes", "x", good],
        vec!["mkdir", bad],
        vec!["rm", bad],
        vec!["mv", bad, good],
        vec!["mv", good, bad],
        vec!["ln", good, bad],
        vec!["ln", "no-url", good],
        vec!["ln", "-s", "", good],
        vec!["df", bad],
        vec!["df", "-h", "--json", good],
        vec!["ping", bad],
        vec!["ping", "-i", "soon", good],
        vec!["ping", "-i", "NaN", good],
        vec!["ping", "-c", "0", good],
        vec!["bench", "--op", "read", bad],
        vec!["bench", "--op", "read", "--seconds", "0", good],
        vec!["bench", "--op", "read", "--block", "65M", good],
        vec!["bench", "--op", "null", "--apart", good],
        vec!["decode", "--xid", "12x", "file"],
        vec!["decode", "--slower-than", "5", "file"],
        vec!["serve", directory, "--memory", "lots"],
        vec!["serve", directory, "--allow", "everybody"],
        vec!["serve", directory, "--stall-timeout", "0"],
        vec!["serve", directory, "--rpcbind"],
        vec!["serve", directory, "--device", "mlx5_0"],
        vec!["serve", directory, "--fabric", "verbs", "--no-crc"],
        vec!["completions", "no-shell"],
    ] {
        let said = fails(2, &args);
        assert!(!said.trim().is_empty(), "{args:?}");
    }
}

#[test]
fn a_server_tells_of_values_that_it_does_not_take_as_given() {
    let scratch = tempfile::tempdir().unwrap();
    let log = |more: &[&str]| {
        let path = scratch.path().join("log");
        let file = fs::File::create(&path).unwrap();
        let state = scratch.path().join("state");
        let server = Server::start_logged(&served(scratch.path()), &state, file.into(), more);
        assert_eq!(server.stop(), Some(0));
        fs::read_to_string(path).unwrap()
    };
    let said = log(&["--memory", "1K", "--async", "--read-only"]);
    assert!(said.contains("--memory: 1024 bytes are too few to serve with; 16 MiB are used"), "{said}");
    assert!(said.contains("--async has no effect with --read-only"), "{said}");
    assert!(!log(&["--memory", "16M"]).contains("--memory"));
}

#[test]
fn a_client_tells_of_options_that_do_nothing() {
    let stage = Stage::new(&["--tcp", "127.0.0.1:0", "--no-root-squash"]);
    let output = run(["ls", "--no-crc", &stage.server.tcp_url("")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--no-crc has no effect with transport=tcp"));
    assert!(run(["ls", "--no-crc", &stage.url("")]).stderr.is_empty());
    let bench = ["bench", "--op", "null", "--block", "4K", "--overwrite", "--seconds", "0.1", &stage.url("")];
    let said = String::from_utf8(run(bench).stderr).unwrap();
    assert!(said.contains("--block has no effect") && said.contains("--overwrite has no effect"), "{said}");
}

/// A full disk, which needs root because the test mounts a small one.
#[test]
fn a_full_disk_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let full = served(scratch.path());
    let mount = |args: &[&str], path: &Path| std::process::Command::new(args[0]).args(&args[1..]).arg(path).status();
    if !is_root()
        || !mount(&["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs"], &full).is_ok_and(|s| s.success())
    {
        return;
    }
    let source = scratch.path().join("source");
    fs::write(&source, vec![1; 3 << 20]).unwrap();
    let server = Server::start(&full, &scratch.path().join("state"), &[]);
    let said = rpcrdma().arg("put").arg(&source).arg(server.url_3("big")).output().unwrap();
    drop(server);
    assert!(mount(&["umount", "-l"], &full).unwrap().success());
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(text.contains("/big on the server: WRITE: no space left (NFS3ERR_NOSPC)"), "{text}");
    assert_eq!(said.status.code(), Some(1));
}
