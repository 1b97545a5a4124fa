//! `get` never destroys an existing file: not by repeated names, links, or sources that change.

mod common;

use common::{Server, contents, fails, proxy, rpcrdma, run};
use std::{
    fs::{self, File, Permissions},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// How long something may take; usually it takes a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a proxy delays each mebibyte, so that something can happen meanwhile.
const PAUSE: Duration = Duration::from_millis(60);
const MIB: usize = 1 << 20;
const NOBODY: u32 = 65_534;

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
        let server = Server::start(&served, &state, &[more, &["--tcp", "127.0.0.1:0"]].concat());
        Self { scratch, served, local, server }
    }

    fn slow_url(&self, path: &str) -> String {
        let (proxy, _) = proxy::slow_replies(self.server.tcp.as_ref().unwrap(), PAUSE);
        let (_, mount) = self.server.mount.rsplit_once(':').unwrap();
        format!("nfs://{proxy}/{path}?transport=tcp&mountport={mount}")
    }

    /// Runs a command as a user without privileges, who can reach the files of the test.
    fn by_nobody(&self, args: &[&str]) -> Output {
        let program = self.scratch.path().join("program");
        // Another process copies: if this process wrote the file, a program that another test starts at that moment
        // could inherit it open for writing, and the file could not be executed.
        assert!(Command::new("cp").args([env!("CARGO_BIN_EXE_rpcrdma"), text(&program)]).status().unwrap().success());
        open_to_all(self.scratch.path());
        let mut command = Command::new(program);
        command.uid(NOBODY).gid(NOBODY).env("XDG_CACHE_HOME", self.scratch.path().join("no cache"));
        command.args(args).output().unwrap()
    }
}

fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not run: only root can {what}");
    }
    root
}

fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn spawn(args: &[&str]) -> Child {
    rpcrdma().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !there() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether some file in `directory` has more than `len` bytes.
fn has_grown(directory: &Path, len: u64) -> bool {
    fs::read_dir(directory)
        .unwrap()
        .any(|entry| entry.unwrap().metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > len))
}

#[test]
fn a_file_with_several_names_may_come_twice() {
    let stage = Stage::new(&["--no-root-squash"]);
    fs::write(stage.served.join("x"), "contents").unwrap();
    fs::hard_link(stage.served.join("x"), stage.served.join("y")).unwrap();
    let [x, y] = ["x", "y"].map(|name| stage.server.url(name));
    run(["get", &x, &x, text(&stage.local)]);
    assert_eq!(fs::read(stage.local.join("x")).unwrap(), b"contents");
    run(["get", &x, &y, &x, &y, text(&stage.local)]);
    run(["get", &x, &y, text(&stage.local)]);
    assert_eq!(fs::read(stage.local.join("x")).unwrap(), b"contents");
    assert_eq!(fs::read(stage.local.join("y")).unwrap(), b"contents");
    assert_eq!(fs::metadata(stage.local.join("x")).unwrap().nlink(), 2);
    assert_eq!(names(&stage.local), ["x", "y"], "no litter");
}

#[test]
fn what_was_not_copied_gets_no_further_names() {
    if !is_root("keep files from the caller") {
        return;
    }
    let stage = Stage::new(&[]);
    let tree = stage.served.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "secret").unwrap();
    fs::set_permissions(tree.join("a"), Permissions::from_mode(0o000)).unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    let here = stage.local.join("tree");
    fs::create_dir(&here).unwrap();
    fs::write(here.join("a"), "old a").unwrap();
    fs::write(here.join("b"), "old b").unwrap();
    let said = fails(1, ["get", "-r", &stage.server.url("tree"), text(&stage.local)]);
    assert!(said.contains("left out"), "{said}");
    assert_eq!(fs::read(here.join("a")).unwrap(), b"old a");
    assert_eq!(fs::read(here.join("b")).unwrap(), b"old b");
}

/// A file system that is mounted while the value lives.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Option<Self> {
        if !is_root("mount") {
            return None;
        }
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "small"]).arg(at).status();
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
fn a_link_that_cannot_be_made_leaves_the_old_file() {
    let stage = Stage::new(&["--no-root-squash"]);
    let Some(_mounted) = Small::mount(&stage.local.join("tree/sub")) else { return };
    fs::create_dir_all(stage.served.join("tree/sub")).unwrap();
    fs::write(stage.served.join("x"), "new").unwrap();
    fs::hard_link(stage.served.join("x"), stage.served.join("tree/sub/x")).unwrap();
    let here = stage.local.join("tree/sub/x");
    fs::write(&here, "old").unwrap();
    let said = fails(1, ["get", "-r", &stage.server.url("x"), &stage.server.url("tree"), text(&stage.local)]);
    assert!(said.contains("left out"), "{said}");
    assert_eq!(fs::read(&here).unwrap(), b"old");
    assert_eq!(names(here.parent().unwrap()), ["x"], "no litter");
}

/// Two servers of two directories that share a file: like file systems with the same numbers on two machines.
#[test]
fn files_of_two_servers_are_not_names_of_one() {
    let stage = Stage::new(&["--no-root-squash"]);
    fs::write(stage.served.join("x"), "one").unwrap();
    fs::hard_link(stage.served.join("x"), stage.served.join("y")).unwrap();
    let other = Server::start(&stage.served, &stage.scratch.path().join("other"), &["--no-root-squash"]);
    run(["get", &stage.server.url("x"), &other.url("y"), text(&stage.local)]);
    let inode = |name: &str| fs::metadata(stage.local.join(name)).unwrap().ino();
    assert_ne!(inode("x"), inode("y"));
}

#[test]
fn a_file_is_not_copied_into_itself() {
    let stage = Stage::new(&["--no-root-squash"]);
    let file = stage.served.join("file");
    fs::write(&file, contents(3 * MIB)).unwrap();
    fs::hard_link(&file, stage.served.join("also")).unwrap();
    for more in [&[][..], &["--inplace"]] {
        let said = fails(1, [&["get"], more, &[&stage.server.url("file"), text(&file)]].concat());
        assert!(said.contains("is the same file"), "{said}");
        assert!(fs::read(&file).unwrap() == contents(3 * MIB));
    }
}

#[test]
fn a_source_that_shrinks_is_not_copied() {
    let stage = Stage::new(&["--no-root-squash"]);
    let source = stage.served.join("file");
    fs::write(&source, contents(64 * MIB)).unwrap();
    let target = stage.local.join("file");
    let child = spawn(&["get", &stage.slow_url("file"), text(&target)]);
    wait_until("nothing has come", || has_grown(&stage.local, 2 * MIB as u64));
    File::options().write(true).open(&source).unwrap().set_len(40 * MIB as u64).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("changed while it was copied"), "{}", said(&output));
    assert!(names(&stage.local).is_empty());
}

#[test]
fn a_closed_tree_is_closed_while_it_is_copied() {
    let stage = Stage::new(&["--no-root-squash"]);
    let tree = stage.served.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::set_permissions(&tree, Permissions::from_mode(0o750)).unwrap();
    fs::write(tree.join("file"), contents(32 * MIB)).unwrap();
    let here = stage.local.join("tree");
    let child = spawn(&["get", "-r", &stage.slow_url("tree"), text(&stage.local)]);
    wait_until("nothing has come", || here.exists() && has_grown(&here, MIB as u64));
    assert_eq!(mode(&here), 0o700);
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(mode(&here), 0o750);
}

#[test]
fn what_is_written_in_place_has_no_more_rights_than_its_source() {
    let stage = Stage::new(&["--no-root-squash"]);
    let source = stage.served.join("file");
    fs::write(&source, contents(32 * MIB)).unwrap();
    fs::set_permissions(&source, Permissions::from_mode(0o660)).unwrap();
    let target = stage.local.join("file");
    fs::write(&target, "old").unwrap();
    fs::set_permissions(&target, Permissions::from_mode(0o644)).unwrap();
    let child = spawn(&["get", "--inplace", &stage.slow_url("file"), text(&target)]);
    wait_until("nothing has come", || has_grown(&stage.local, MIB as u64));
    assert_eq!(mode(&target), 0o640);
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(mode(&target), 0o660);
}

#[test]
fn an_argument_that_is_not_there_costs_nothing_of_the_others() {
    let stage = Stage::new(&["--no-root-squash"]);
    let tree = stage.served.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "a").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    fs::set_permissions(&tree, Permissions::from_mode(0o751)).unwrap();
    fs::write(stage.served.join("last"), "last").unwrap();
    let urls = ["tree", "none", "last"].map(|name| stage.server.url(name));
    let said = fails(1, ["get", "-r", &urls[0], &urls[1], &urls[2], text(&stage.local)]);
    assert!(said.contains("no such file") && said.contains("left out: /none"), "{said}");
    assert_eq!(names(&stage.local), ["last", "tree"]);
    assert_eq!(names(&stage.local.join("tree")), ["a", "b"]);
    assert_eq!(mode(&stage.local.join("tree")), 0o751);
}

#[test]
fn links_that_are_not_made_are_told_when_the_command_ends() {
    let stage = Stage::new(&["--no-root-squash"]);
    let tree = stage.served.join("tree");
    fs::create_dir(&tree).unwrap();
    std::os::unix::fs::symlink("nowhere", tree.join("link")).unwrap();
    fs::write(tree.join("file"), contents(64 * MIB)).unwrap();
    let child = spawn(&["get", "-r", &stage.slow_url("tree"), text(&stage.local)]);
    let here = stage.local.join("tree");
    wait_until("nothing has come", || here.exists() && has_grown(&here, 8 * MIB as u64));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(said(&output).contains("tree/link"), "{}", said(&output));
    // A copy with --resume would not skip this.
    assert!(!said(&output).contains("--resume"), "{}", said(&output));
}

#[test]
fn a_file_of_somebody_else_keeps_its_mode_and_that_is_no_error() {
    if !is_root("own files of others") {
        return;
    }
    let stage = Stage::new(&[]);
    let source = stage.served.join("file");
    fs::write(&source, "new").unwrap();
    fs::set_permissions(&source, Permissions::from_mode(0o644)).unwrap();
    let target = stage.local.join("file");
    fs::write(&target, "old").unwrap();
    chown(&target, Some(12_345), None).unwrap();
    fs::set_permissions(&target, Permissions::from_mode(0o666)).unwrap();
    open_to_all(&stage.served);
    let output = stage.by_nobody(&["get", &stage.server.url("file"), text(&target)]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("mode and times were not kept"), "{}", said(&output));
    assert_eq!((fs::read(&target).unwrap(), mode(&target)), (b"new".to_vec(), 0o666));
}

#[test]
fn with_resume_too_a_file_in_a_closed_directory_is_written_in_place() {
    if !is_root("run commands as somebody else") {
        return;
    }
    let stage = Stage::new(&[]);
    let source = stage.served.join("file");
    fs::write(&source, "new").unwrap();
    fs::set_permissions(&source, Permissions::from_mode(0o644)).unwrap();
    let target = stage.local.join("file");
    fs::write(&target, "old, of another length").unwrap();
    chown(&target, Some(NOBODY), Some(NOBODY)).unwrap();
    open_to_all(&stage.served);
    open_to_all(&stage.local);
    let output = stage.by_nobody(&["get", "--resume", &stage.server.url("file"), text(&target)]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("directory cannot be written to"), "{}", said(&output));
    assert_eq!(fs::read(&target).unwrap(), b"new");
}

#[test]
fn full_outputs_are_errors_and_no_panics() {
    let stage = Stage::new(&["--no-root-squash"]);
    fs::write(stage.served.join("file"), "contents").unwrap();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let target = stage.local.join("file");
    let mut get = rpcrdma();
    let output = get.args(["get", "--json", &stage.server.url("file"), text(&target)]).stdout(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("standard output"), "{}", said(&output));
    for (name, code) in [("none", 1), ("file", 0)] {
        let mut get = rpcrdma();
        let output = get.args(["get", &stage.server.url(name), text(&target)]).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
    }
    let nowhere = stage.local.join("none/file");
    let mut get = rpcrdma();
    get.args(["get", "nfs://127.0.0.1:1/x?transport=tcp&mountport=1", text(&nowhere)]);
    assert_eq!(get.stderr(full()).output().unwrap().status.code(), Some(1));
}

#[test]
fn a_part_of_a_file_of_unknown_length_is_as_long_as_asked() {
    let scratch = tempfile::tempdir().unwrap();
    let server = Server::start(Path::new("/proc/sys/kernel"), scratch.path(), &["--read-only", "--no-root-squash"]);
    let part = |more: &[&str]| run([&["cat", &server.url("ostype")], more].concat()).stdout;
    assert_eq!(part(&["--length", "5"]), b"Linux");
    assert_eq!(part(&["--length", "100"]), b"Linux\n");
    assert_eq!(part(&["--offset", "2", "--length", "3"]), b"nux");
    assert_eq!(part(&["--length", "0"]), b"");
    assert_eq!(part(&["--offset", "100", "--length", "3"]), b"");
}

#[test]
fn a_named_pipe_that_is_there_is_done() {
    let stage = Stage::new(&["--no-root-squash"]);
    let tree = stage.served.join("tree");
    fs::create_dir(&tree).unwrap();
    assert!(Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap().success());
    for _ in 0..2 {
        run(["get", "-r", &stage.server.url("tree"), text(&stage.local)]);
    }
    fs::remove_file(stage.local.join("tree/pipe")).unwrap();
    fs::write(stage.local.join("tree/pipe"), "a file").unwrap();
    fails(1, ["get", "-r", &stage.server.url("tree"), text(&stage.local)]);
    assert_eq!(fs::read(stage.local.join("tree/pipe")).unwrap(), b"a file");
}

#[test]
fn a_copy_does_not_overwrite_what_it_has_made() {
    let stage = Stage::new(&["--no-root-squash"]);
    for directory in ["n1", "n2"] {
        fs::create_dir(stage.served.join(directory)).unwrap();
        fs::write(stage.served.join(directory).join("f"), directory).unwrap();
    }
    let urls = ["n1/f", "n2/f"].map(|name| stage.server.url(name));
    let said = fails(1, ["get", &urls[0], &urls[1], text(&stage.local)]);
    assert!(said.contains("would overwrite what this run has just copied"), "{said}");
    assert_eq!(fs::read(stage.local.join("f")).unwrap(), b"n1");
    fails(1, ["get", &stage.server.url("none/f"), &urls[1], text(&stage.local)]);
    assert_eq!(fs::read(stage.local.join("f")).unwrap(), b"n2", "what was not copied is in nobody's way");
}
