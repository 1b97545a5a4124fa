//! The old file stays until the new one is complete: `get` and `put` that fail, are interrupted, and resume.

mod common;

use common::{Server, cache, contents, fails, proxy, rpcrdma, run};
use serde_json::Value;
use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant, SystemTime},
};

/// The time limit of something that usually takes a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time that a proxy takes for each mebibyte, so that a test can act meanwhile.
const PAUSE: Duration = Duration::from_millis(60);
const MIB: usize = 1 << 20;

struct Stage {
    scratch: tempfile::TempDir,
    served: PathBuf,
    local: PathBuf,
    server: Server,
}

impl Stage {
    fn new(more: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let [served, local, state] = ["served", "local", "state"].map(|name| scratch.path().join(name));
        fs::create_dir(&served).unwrap();
        fs::create_dir(&local).unwrap();
        fs::set_permissions(&served, Permissions::from_mode(0o777)).unwrap();
        let server = Server::start(&served, &state, &[more, &["--tcp", "127.0.0.1:0"]].concat());
        Self { scratch, served, local, server }
    }

    fn root_is_root() -> Self {
        Self::new(&["--no-root-squash"])
    }

    fn url_through(&self, proxy: &str, path: &str) -> String {
        let (_, mount) = self.server.mount.rsplit_once(':').unwrap();
        format!("nfs://{proxy}/{path}?transport=tcp&mountport={mount}")
    }

    fn tcp(&self) -> &str {
        self.server.tcp.as_ref().unwrap()
    }
}

fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not run: only root can {what}");
    }
    root
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Waits for a file in `directory` with more than `len` bytes, whose name is none of `known`.
fn wait_for_growth(directory: &Path, known: &[&str], len: u64) {
    let begin = Instant::now();
    let grown = || {
        fs::read_dir(directory).unwrap().any(|entry| {
            let entry = entry.unwrap();
            let is_known = known.iter().any(|known| entry.file_name() == *known);
            !is_known && entry.metadata().is_ok_and(|metadata| metadata.len() > len)
        })
    };
    while !grown() {
        assert!(begin.elapsed() < PATIENCE, "nothing has come: {:?}", names(directory));
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn spawn(args: &[&str]) -> Child {
    rpcrdma().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_get_that_is_refused_leaves_the_old_file() {
    if !is_root("keep files from the caller") {
        return;
    }
    let stage = Stage::new(&[]);
    fs::create_dir(stage.served.join("tree")).unwrap();
    for (name, mode) in [("closed", 0o000), ("open", 0o644), ("new", 0o000)] {
        let path = stage.served.join("tree").join(name);
        fs::write(&path, "from the server").unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    fs::write(stage.local.join("closed"), "good").unwrap();
    for more in [&[][..], &["--inplace"], &["--resume"]] {
        let target = stage.local.join("closed");
        let said = fails(1, [&["get"], more, &[&stage.server.url("tree/closed"), text(&target)]].concat());
        assert!(said.contains("permission denied") && said.lines().count() == 1, "{said}");
        assert_eq!((fs::read(target).unwrap(), names(&stage.local)), (b"good".to_vec(), vec!["closed".to_owned()]));
    }
    let tree = stage.local.join("tree");
    for _ in 0..2 {
        let output =
            rpcrdma().args(["get", "-r", "--json", &stage.server.url("tree"), text(&stage.local)]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = json(&output);
        assert_eq!((&told["files"], &told["errors"]), (&1.into(), &2.into()), "{told}");
        let left_out = told["left_out"].as_array().unwrap();
        assert!(left_out.iter().all(|entry| !entry["path"].as_str().unwrap().ends_with("open")), "{told}");
        assert_eq!(names(&tree), ["open"], "what cannot be read does not become an empty file");
    }
}

#[test]
fn a_put_that_is_refused_leaves_the_old_file() {
    let stage = Stage::root_is_root();
    fs::write(stage.served.join("file"), "good").unwrap();
    let missing = stage.local.join("missing");
    fails(1, ["put", text(&missing), &stage.server.url("file")]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        stage.local.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    fails(1, ["put", text(&stage.local.join("pipe")), &stage.server.url("file")]);
    symlink("file", stage.served.join("link")).unwrap();
    fs::write(stage.local.join("new"), "new").unwrap();
    let said = fails(1, ["put", text(&stage.local.join("new")), &stage.server.url("link")]);
    assert!(said.contains("symbolic link"), "{said}");
    assert_eq!(fs::read(stage.served.join("file")).unwrap(), b"good");
    assert_eq!(names(&stage.served), ["file", "link"]);
}

/// A limit on the size of files takes the place of a full disk.
#[test]
fn a_full_disk_here_leaves_the_old_file() {
    let stage = Stage::root_is_root();
    fs::write(stage.served.join("file"), contents(4 * MIB)).unwrap();
    let target = stage.local.join("file");
    fs::write(&target, "good").unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 2048; exec \"$0\" get \"$1\" \"$2\"", env!("CARGO_BIN_EXE_rpcrdma")])
        .args([&stage.server.url("file"), text(&target)])
        .env("XDG_CACHE_HOME", cache())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("too large") && said.contains(text(&target)), "{said}");
    assert_eq!((fs::read(&target).unwrap(), names(&stage.local)), (b"good".to_vec(), vec!["file".to_owned()]));
}

/// A small file system; dropping the value removes it.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Option<Self> {
        if !is_root("mount") {
            return None;
        }
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m,mode=777", "small"]).arg(at).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("not run: this root cannot mount");
            return None;
        }
        Some(Self(at.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_there_leaves_the_old_file() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    let Some(_mounted) = Small::mount(&served) else { return };
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash"]);
    let local = scratch.path().join("file");
    fs::write(&local, contents(4 * MIB)).unwrap();
    fs::write(served.join("file"), "good").unwrap();
    for more in [&[][..], &["--resume"]] {
        let said = fails(1, [&["put"], more, &[text(&local), &server.url("file")]].concat());
        assert!(said.contains("ERR_NOSPC"), "{said}");
        assert_eq!(
            (fs::read(served.join("file")).unwrap(), names(&served)),
            (b"good".to_vec(), vec!["file".to_owned()])
        );
    }
    // The server closes a file after it has answered CLOSE. If the REMOVE comes in between, the upkeep of every second
    // frees the storage.
    let begin = Instant::now();
    let is_free = || rustix::fs::statvfs(&served).is_ok_and(|room| room.f_bfree * 10 > room.f_blocks * 9);
    while !is_free() {
        assert!(begin.elapsed() < Duration::from_secs(10), "and no storage");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
}

#[test]
fn an_interrupted_get_leaves_the_old_file() {
    let stage = Stage::root_is_root();
    fs::write(stage.served.join("file"), contents(64 * MIB)).unwrap();
    let target = stage.local.join("file");
    fs::write(&target, "good").unwrap();
    let slow = stage.url_through(&proxy::slow_replies(stage.tcp(), PAUSE).0, "file");
    for (sent, code) in [("-INT", 130), ("-TERM", 143)] {
        let child = spawn(&["get", &slow, text(&target)]);
        wait_for_growth(&stage.local, &["file"], 2 * MIB as u64);
        signal(&child, sent);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
        assert_eq!((fs::read(&target).unwrap(), names(&stage.local)), (b"good".to_vec(), vec!["file".to_owned()]));
    }
}

#[test]
fn an_interrupted_put_leaves_the_old_file() {
    let stage = Stage::root_is_root();
    let local = stage.local.join("file");
    fs::write(&local, contents(64 * MIB)).unwrap();
    fs::write(stage.served.join("old"), "good").unwrap();
    let (proxy, _) = proxy::slow_calls(stage.tcp(), PAUSE);
    for (target, sent, code) in [("old", "-INT", 130), ("new", "-TERM", 143)] {
        let child = spawn(&["put", text(&local), &stage.url_through(&proxy, target)]);
        wait_for_growth(&stage.served, &["old"], 2 * MIB as u64);
        signal(&child, sent);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(fs::read(stage.served.join("old")).unwrap(), b"good");
        assert_eq!(names(&stage.served), ["old"], "{output:?}");
    }
}

/// A source that vanishes in the middle: the server no longer has the file.
#[test]
fn a_source_that_vanishes_leaves_the_old_file() {
    let stage = Stage::root_is_root();
    fs::write(stage.served.join("file"), contents(64 * MIB)).unwrap();
    let target = stage.local.join("file");
    fs::write(&target, "good").unwrap();
    let slow = stage.url_through(&proxy::slow_replies(stage.tcp(), PAUSE).0, "file");
    let child = spawn(&["get", &slow, text(&target)]);
    wait_for_growth(&stage.local, &["file"], 2 * MIB as u64);
    // For the copy the source vanishes: the file ends before its announced end.
    File::options().write(true).open(stage.served.join("file")).unwrap().set_len(0).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!((fs::read(&target).unwrap(), names(&stage.local)), (b"good".to_vec(), vec!["file".to_owned()]));
}

#[test]
fn a_get_goes_on_where_it_was_cut_off() {
    let stage = Stage::root_is_root();
    let all = contents(48 * MIB);
    let source = stage.served.join("file");
    fs::write(&source, &all).unwrap();
    let target = stage.local.join("file");
    fs::write(&target, "good").unwrap();
    let slow = stage.url_through(&proxy::slow_replies(stage.tcp(), PAUSE).0, "file");
    let cut_off = |signal_name: &str| {
        let child = spawn(&["get", "--resume", &slow, text(&target)]);
        wait_for_growth(&stage.local, &["file"], 24 * MIB as u64);
        signal(&child, signal_name);
        child.wait_with_output().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"good");
        assert_eq!(names(&stage.local), [".file.rpcrdma-part", "file"]);
    };
    let go_on = || json(&run(["get", "--resume", "--json", &stage.server.url("file"), text(&target)]));
    for signal_name in ["-INT", "-KILL"] {
        cut_off(signal_name);
        let moved = go_on()["octets"].as_u64().unwrap() as usize;
        assert!((MIB..=32 * MIB).contains(&moved), "{moved}");
        assert!(fs::read(&target).unwrap() == all && names(&stage.local) == ["file"]);
        let again = go_on();
        assert_eq!((&again["octets"], &again["skipped"], &again["files"]), (&0.into(), &1.into(), &0.into()));
        fs::write(&target, "good").unwrap();
    }
    // The source has changed meanwhile.
    cut_off("-INT");
    let other = contents(48 * MIB - 1);
    fs::write(&source, &other).unwrap();
    assert_eq!(go_on()["octets"], other.len());
    assert!(fs::read(&target).unwrap() == other && names(&stage.local) == ["file"]);
}

#[test]
fn a_put_goes_on_where_it_was_cut_off() {
    let stage = Stage::root_is_root();
    let all = contents(48 * MIB);
    let source = stage.local.join("file");
    fs::write(&source, &all).unwrap();
    let target = stage.served.join("file");
    fs::write(&target, "good").unwrap();
    let (address, passing) = proxy::slow_calls(stage.tcp(), PAUSE);
    let slow = stage.url_through(&address, "file");
    let cut_off = |signal_name: &str| {
        let child = spawn(&["put", "--resume", text(&source), &slow]);
        wait_for_growth(&stage.served, &["file"], 24 * MIB as u64);
        signal(&child, signal_name);
        child.wait_with_output().unwrap();
        // Wait for the calls still under way: they would change the file's time later.
        proxy::wait_until_idle(&passing);
        assert_eq!(fs::read(&target).unwrap(), b"good");
        assert_eq!(names(&stage.served), [".file.rpcrdma-part", "file"]);
    };
    let go_on = || json(&run(["put", "--resume", "--json", text(&source), &stage.server.url("file")]));
    for signal_name in ["-TERM", "-KILL"] {
        cut_off(signal_name);
        let moved = go_on()["octets"].as_u64().unwrap() as usize;
        assert!((MIB..=40 * MIB).contains(&moved), "{moved}");
        assert!(fs::read(&target).unwrap() == all && names(&stage.served) == ["file"]);
        let again = go_on();
        assert_eq!((&again["octets"], &again["skipped"], &again["files"]), (&0.into(), &1.into(), &0.into()));
        fs::write(&target, "good").unwrap();
    }
    // The source has changed meanwhile.
    cut_off("-INT");
    File::options().write(true).open(&source).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(go_on()["octets"], all.len());
    assert!(fs::read(&target).unwrap() == all && names(&stage.served) == ["file"]);
}

/// The command replaces a file with one name; it writes into a file with several names or of another owner.
#[test]
fn what_is_there_is_replaced_or_written_into() {
    let stage = Stage::root_is_root();
    for (from, to) in [(&stage.served, &stage.local), (&stage.local, &stage.served)] {
        for directory in [from, to] {
            names(directory).iter().for_each(|name| fs::remove_file(directory.join(name)).unwrap());
        }
        let copy = |name: &str, more: &[&str]| {
            let (url, local) = (stage.server.url(name), stage.local.join(name));
            let args = match from == &stage.served {
                true => ["get", &url, text(&local)],
                false => ["put", text(&local), &url],
            };
            let output = run([&args[..], more].concat());
            String::from_utf8(output.stderr).unwrap()
        };
        for name in ["one", "two", "sparse", "empty", "foreign"] {
            fs::write(to.join(name), contents(3 * MIB)).unwrap();
            fs::write(from.join(name), name).unwrap();
        }
        let sparse = File::create(from.join("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 2 * MIB as u64).unwrap();
        File::create(from.join("empty")).unwrap();
        let same =
            |name: &str| assert!(fs::read(from.join(name)).unwrap() == fs::read(to.join(name)).unwrap(), "{name}");

        let before = inode(&to.join("one"));
        assert_eq!(copy("one", &[]), "");
        assert_ne!(inode(&to.join("one")), before);
        let before = inode(&to.join("one"));
        assert_eq!(copy("one", &["--inplace"]), "");
        assert_eq!(inode(&to.join("one")), before);
        for name in ["one", "sparse", "empty"] {
            copy(name, &["--inplace"]);
            same(name);
        }
        fs::write(from.join("new"), "new").unwrap();
        copy("new", &["--inplace"]);
        same("new");

        fs::hard_link(to.join("two"), to.join("too")).unwrap();
        let said = copy("two", &[]);
        assert!(said.contains("in place") && said.contains("several names"), "{said}");
        same("two");
        assert_eq!(fs::read(to.join("too")).unwrap(), b"two");

        if is_root("own files of others") {
            std::os::unix::fs::chown(to.join("foreign"), Some(12345), None).unwrap();
            let said = copy("foreign", &[]);
            assert!(said.contains("in place") && said.contains("another user"), "{said}");
            assert_eq!(fs::metadata(to.join("foreign")).unwrap().uid(), 12345);
            same("foreign");
        }
        assert!(names(to).iter().all(|name| !name.contains("rpcrdma")), "{:?}", names(to));
    }
}

/// Files of /proc report a length of zero.
#[test]
fn files_of_unknown_length_are_copied_whole() {
    let stage = Stage::root_is_root();
    let kernel = Path::new("/proc/filesystems");
    run(["put".as_ref(), kernel.as_os_str(), OsStr::new(&stage.server.url("filesystems"))]);
    assert_eq!(fs::read(stage.served.join("filesystems")).unwrap(), fs::read(kernel).unwrap());

    let state = stage.scratch.path().join("state of proc");
    let server = Server::start(Path::new("/proc/sys/kernel"), &state, &["--read-only", "--no-root-squash"]);
    for name in ["ostype", "version"] {
        let target = stage.local.join(name);
        run(["get", &server.url(name), text(&target)]);
        assert_eq!(fs::read(target).unwrap(), fs::read(Path::new("/proc/sys/kernel").join(name)).unwrap());
    }
    // A long file, which needs several READs.
    let symbols = fs::read("/proc/kallsyms").unwrap_or_default();
    if symbols.is_empty() || !is_root("serve /proc") {
        return;
    }
    let server = Server::start(Path::new("/proc"), &state, &["--read-only", "--no-root-squash"]);
    let target = stage.local.join("symbols");
    run(["get", &server.url("kallsyms"), text(&target)]);
    assert!(fs::read(target).unwrap() == symbols);
    assert!(run(["cat", &server.url("kallsyms")]).stdout == symbols);
}
