//! A file on the server stays when `put` cannot replace it, and one mistake does not spoil the rest.

mod common;

use common::{Server, contents, fails, proxy, rpcrdma, run};
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::PathBuf,
    process::Stdio,
    sync::mpsc,
    time::Duration,
};
use tempfile::TempDir;

const LOOKUP: u32 = 3;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const SYMLINK: u32 = 10;
const LINK: u32 = 15;
/// NFS version 3 has no such procedure.
const NO_PROCEDURE: u32 = 99;
/// The place of a call's procedure: behind the record mark, number, kind, RPC version, program and version.
const PROCEDURE: std::ops::Range<usize> = 24..28;

struct Stage {
    scratch: TempDir,
    served: PathBuf,
    server: Server,
}

impl Stage {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let served = scratch.path().join("served");
        fs::create_dir(&served).unwrap();
        let more = ["--no-root-squash", "--tcp", "127.0.0.1:0"];
        let server = Server::start(&served, &scratch.path().join("state"), &more);
        Self { scratch, served, server }
    }

    fn local(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The URL of a proxy that changes calls.
    fn through(&self, path: &str, change: impl FnMut(&mut Vec<u8>) + Send + 'static) -> String {
        let server = self.server.tcp.as_ref().unwrap();
        self.server.tcp_url_3(path).replace(server.as_str(), &proxy::calls(server, change))
    }

    /// The same with a proxy that lets only the first call of an NFS procedure through.
    fn only_first(&self, path: &str, procedure: u32) -> String {
        let mut seen = 0;
        self.through(path, move |record| {
            if is_call_of(record, procedure) {
                seen += 1;
                if seen > 1 {
                    record[PROCEDURE].copy_from_slice(&NO_PROCEDURE.to_be_bytes());
                }
            }
        })
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.served).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Makes the name of a temporary file longer than any file system takes, in the calls that contain it.
fn lengthen_temporary(record: &mut Vec<u8>) {
    const BEGIN: &[u8] = b".file.rpcrdma-";
    const LONG: usize = 256;
    if !is_call_of(record, CREATE) && !is_call_of(record, LOOKUP) {
        return;
    }
    let Some(at) = record.windows(BEGIN.len()).position(|octets| octets == BEGIN) else { return };
    let len = u32::from_be_bytes(record[at - 4..at].try_into().unwrap()) as usize;
    record.splice(at..at + len.next_multiple_of(4), [b'n'; LONG]);
    record[at - 4..at].copy_from_slice(&(LONG as u32).to_be_bytes());
    let mark = (record.len() as u32 - 4) | 1 << 31;
    record[..4].copy_from_slice(&mark.to_be_bytes());
}

fn is_call_of(record: &[u8], procedure: u32) -> bool {
    const NFS: [u8; 4] = 100_003_u32.to_be_bytes();
    record.get(16..20) == Some(&NFS) && record.get(PROCEDURE) == Some(&procedure.to_be_bytes())
}

/// The place of the status of NFS in a reply: behind the record mark, number, kind, verifier and two outcomes of RPC.
const STATUS: usize = 28;
const NFS3ERR_IO: u32 = 5;

/// Removes the handle from the reply to CREATE, and makes every later LOOKUP fail.
fn forget_what_was_made(record: &mut Vec<u8>, is_made: &mut bool) {
    let word = |at: usize| record.get(at..at + 4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    let is_handle = |len| matches!(len, Some(8..=64));
    match (word(STATUS), word(STATUS + 4), word(STATUS + 8)) {
        (Some(0), Some(1), len) if is_handle(len) => {
            let end = STATUS + 12 + len.unwrap().next_multiple_of(4) as usize;
            record.splice(STATUS + 4..end, [0; 4]);
            *is_made = true;
        }
        (Some(0), len, _) if is_handle(len) && *is_made => {
            record.truncate(STATUS);
            record.extend([NFS3ERR_IO, 0].map(u32::to_be_bytes).concat());
        }
        _ => return,
    }
    let mark = (record.len() as u32 - 4) | 1 << 31;
    record[..4].copy_from_slice(&mark.to_be_bytes());
}

#[test]
fn a_file_that_was_made_and_cannot_be_used_is_removed() {
    let stage = Stage::new();
    let local = stage.local("file");
    fs::write(&local, contents(1000)).unwrap();
    let server = stage.server.tcp.as_ref().unwrap();
    for more in [&[][..], &["--inplace"]] {
        let mut is_made = false;
        let proxy = proxy::between(server, move |record| forget_what_was_made(record, &mut is_made));
        let url = stage.server.tcp_url_3("file").replace(server.as_str(), &proxy);
        let error = fails(1, [&["put"], more, &[local.to_str().unwrap(), &url]].concat());
        assert!(error.contains("LOOKUP") && error.contains("NFS3ERR_IO"), "{error}");
        assert!(stage.names().is_empty(), "{more:?}: {:?}", stage.names());
    }
}

#[test]
fn a_symbolic_link_that_cannot_be_replaced_stays() {
    let stage = Stage::new();
    symlink("old", stage.served.join("link")).unwrap();
    let local = stage.local("link");
    symlink("new", &local).unwrap();
    let local = local.to_str().unwrap();
    fails(1, ["put", "-r", local, &stage.only_first("link", SYMLINK)]);
    assert_eq!(fs::read_link(stage.served.join("link")).unwrap(), PathBuf::from("old"));
    run(["put", "-r", local, &stage.server.tcp_url_3("link")]);
    assert_eq!(fs::read_link(stage.served.join("link")).unwrap(), PathBuf::from("new"));
    assert_eq!(stage.names(), ["link"]);
}

#[test]
fn a_name_that_cannot_become_a_hard_link_stays() {
    let stage = Stage::new();
    let tree = stage.local("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), b"new").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    for name in ["a", "b"] {
        fs::write(stage.served.join(name), b"old").unwrap();
    }
    let (a, b) = (tree.join("a"), tree.join("b"));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    fails(1, ["put", a, b, &stage.only_first("", LINK)]);
    assert_eq!(fs::read(stage.served.join("b")).unwrap(), b"old");
    for _ in 0..2 {
        run(["put", a, b, &stage.server.tcp_url_3("")]);
        let inode = |name| fs::metadata(stage.served.join(name)).unwrap().ino();
        assert_eq!(inode("a"), inode("b"));
        assert_eq!(stage.names(), ["a", "b"]);
    }
}

#[test]
fn an_interruption_does_not_cost_the_part_of_an_earlier_copy() {
    let stage = Stage::new();
    let local = stage.local("file");
    fs::write(&local, contents(100_000)).unwrap();
    let part = stage.served.join(".file.rpcrdma-part");
    fs::write(&part, contents(50_000)).unwrap();
    // The time of last access of a part says to which source it belongs.
    let modified = fs::metadata(&local).unwrap().modified().unwrap();
    let times = fs::FileTimes::new().set_accessed(modified);
    fs::File::options().write(true).open(&part).unwrap().set_times(times).unwrap();

    let (sender, creates) = mpsc::channel();
    let url = stage.through("file", move |record| {
        if is_call_of(record, CREATE) {
            let name = b".file.rpcrdma-part";
            if record.windows(name.len()).any(|octets| octets == name) {
                let _ = sender.send(());
                // The call reaches the server after the interruption of the command.
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    });
    let mut command = rpcrdma();
    command.args(["put", "--resume", local.to_str().unwrap(), &url]).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let ended = loop {
        if creates.recv_timeout(Duration::from_millis(10)).is_ok() {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            break child.wait().unwrap();
        }
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
    };
    let is_whole = ended.success() && fs::read(stage.served.join("file")).unwrap() == contents(100_000);
    assert!(is_whole || part.exists(), "{ended}: {:?}", stage.names());
}

#[test]
fn an_argument_that_is_not_there_costs_nothing_else() {
    let stage = Stage::new();
    let tree = stage.local("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), b"file").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    fs::set_permissions(&tree, Permissions::from_mode(0o755)).unwrap();
    let missing = stage.local("missing");
    let (tree, missing) = (tree.to_str().unwrap(), missing.to_str().unwrap());
    let error = fails(1, ["put", "-r", tree, missing, &stage.server.tcp_url_3("")]);
    assert!(error.contains("missing: No such file"), "{error}");
    let copied = fs::metadata(stage.served.join("tree")).unwrap();
    assert_eq!(copied.mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(stage.served.join("tree/a")).unwrap().nlink(), 2);
}

/// The command writes a file with two names in place; here the server's file is the local one.
#[test]
fn a_file_is_not_written_into_itself() {
    let stage = Stage::new();
    let file = stage.served.join("file");
    fs::write(&file, contents(3 << 20)).unwrap();
    fs::hard_link(&file, stage.served.join("other")).unwrap();
    let error = fails(1, ["put", file.to_str().unwrap(), &stage.server.tcp_url_3("other")]);
    assert!(error.contains("is the same file as its source"), "{error}");
    assert!(fs::read(&file).unwrap() == contents(3 << 20), "it is not what it was");
}

#[test]
fn what_is_private_here_is_not_readable_there_while_it_is_copied() {
    let stage = Stage::new();
    let local = stage.local("file");
    fs::write(&local, contents(100_000)).unwrap();
    fs::set_permissions(&local, Permissions::from_mode(0o600)).unwrap();
    let file = stage.served.join("file");
    fs::write(&file, b"old").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    fs::hard_link(&file, stage.served.join("other")).unwrap();
    let (sender, modes) = mpsc::channel();
    let seen = file.clone();
    let url = stage.through("file", move |record| {
        if is_call_of(record, WRITE) {
            let _ = sender.send(fs::metadata(&seen).unwrap().mode() & 0o777);
        }
    });
    run(["put", local.to_str().unwrap(), &url]);
    let modes: Vec<_> = modes.try_iter().collect();
    assert!(!modes.is_empty() && modes.iter().all(|mode| *mode == 0o600), "{modes:?}");
    assert!(fs::read(&file).unwrap() == contents(100_000));
}

#[test]
fn a_file_of_somebody_else_is_written_without_its_mode_and_times() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: only root can make a file for somebody else");
        return;
    }
    let stage = Stage::new();
    let local = stage.local("file");
    fs::write(&local, b"new").unwrap();
    fs::set_permissions(&local, Permissions::from_mode(0o604)).unwrap();
    let file = stage.served.join("file");
    fs::write(&file, b"longer than new").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    let url = format!("{}&uid=1000&gid=1000", stage.server.tcp_url_3("file"));
    let output = run(["put", local.to_str().unwrap(), &url]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("mode and times were not kept"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), b"new");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o666);
}

#[test]
fn a_new_file_whose_temporary_name_is_too_long_is_written_in_place_and_that_is_told() {
    for more in [&[][..], &["--resume"]] {
        let stage = Stage::new();
        let local = stage.local("file");
        fs::write(&local, contents(100_000)).unwrap();
        let url = stage.through("file", lengthen_temporary);
        for pass in ["new", "there"] {
            fs::write(&local, [contents(100_000), pass.into()].concat()).unwrap();
            let output = run([&["put", local.to_str().unwrap(), &url], more].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("is written in place on the server: the longer name"), "{more:?} {pass} {said}");
            assert!(fs::read(stage.served.join("file")).unwrap() == fs::read(&local).unwrap());
            assert_eq!(stage.names(), ["file"]);
        }
    }
}

/// The first directory shows the command its own user; the second refuses new files.
#[test]
fn resuming_into_a_directory_that_refuses_new_files_writes_in_place() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: only root can make a file for somebody else");
        return;
    }
    let stage = Stage::new();
    let caller = 1000;
    for directory in ["opened", "closed"] {
        let (here, there) = (stage.local(directory), stage.served.join(directory));
        fs::create_dir(&here).unwrap();
        fs::create_dir(&there).unwrap();
        for name in ["a", "b"] {
            fs::write(here.join(name), contents(100_000)).unwrap();
            fs::write(there.join(name), b"old").unwrap();
            chown(there.join(name), Some(caller), Some(caller)).unwrap();
        }
    }
    chown(stage.served.join("opened"), Some(caller), Some(caller)).unwrap();
    // The caller can write this part, but could not rename it.
    let part = stage.served.join("closed/.a.rpcrdma-part");
    let modified = fs::metadata(stage.local("closed/a")).unwrap().modified().unwrap();
    let file = fs::File::create(&part).unwrap();
    file.set_times(fs::FileTimes::new().set_accessed(modified)).unwrap();
    chown(&part, Some(caller), Some(caller)).unwrap();
    let (opened, closed) = (stage.local("opened"), stage.local("closed"));
    let url = format!("{}&uid={caller}&gid={caller}", stage.server.tcp_url_3(""));
    let put = ["put", "-r", "--resume", opened.to_str().unwrap(), closed.to_str().unwrap(), &url];
    let ended = rpcrdma().args(put).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    for name in ["a", "b"] {
        let told = format!("closed/{name}: is written in place on the server: its directory cannot be written to");
        assert!(said.contains(&told), "{said}");
        assert!(fs::read(stage.served.join("closed").join(name)).unwrap() == contents(100_000), "{said}");
    }
    assert!(!said.contains("opened/"), "{said}");
}

#[test]
fn special_files_that_are_there_already_are_done() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let stage = Stage::new();
    let tree = stage.local("tree");
    fs::create_dir(&tree).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    let make = |name: &str, kind, device| mknodat(CWD, tree.join(name), kind, mode, device).is_ok();
    assert!(make("pipe", FileType::Fifo, 0) && make("socket", FileType::Socket, 0));
    let has_device = make("null", FileType::CharacterDevice, makedev(1, 3));
    let (from, url) = (tree.to_str().unwrap(), stage.server.tcp_url_3(""));
    for _ in 0..2 {
        let said = run(["put", "-r", "--json", from, &url]).stdout;
        let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
        assert_eq!(said["special"], 2 + u64::from(has_device), "{said}");
    }
    // Another kind of file with that name is no success.
    fs::remove_file(tree.join("pipe")).unwrap();
    assert!(make("pipe", FileType::Socket, 0));
    let said = fails(1, ["put", "-r", from, &url]);
    assert!(said.contains("tree/pipe: exists on the server and is another named pipe"), "{said}");
    if has_device {
        fs::remove_file(tree.join("null")).unwrap();
        assert!(make("null", FileType::CharacterDevice, makedev(1, 5)));
        let said = fails(1, ["put", "-r", from, &url]);
        assert!(said.contains("tree/null: exists on the server"), "{said}");
    }
}
