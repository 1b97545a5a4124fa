//! Many small files: how many calls they cost, as figures that cannot grow unnoticed, and that the result is the same
//! as when files are copied one by one.

mod common;

use common::{Server, contents, fails, rpcrdma, run, served};
use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

const FILES: usize = 120;

/// What a test sees of files: contents, mode and time.
type Seen = BTreeMap<PathBuf, (Vec<u8>, u32, (i64, i64))>;

fn seen(directory: &Path) -> Seen {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.symlink_metadata().unwrap().is_file()).map(|path| {
        let told = fs::metadata(&path).unwrap();
        let what = (fs::read(&path).unwrap(), told.mode() & 0o7777, (told.mtime(), told.mtime_nsec()));
        (PathBuf::from(path.file_name().unwrap()), what)
    });
    files.collect()
}

/// Small files of several sizes, among them empty files and files of zeros.
fn fill(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    for number in 0..FILES {
        let data = match number % 8 {
            0 => Vec::new(),
            1 => vec![0; 9_000],
            _ => contents(1 + number * 40),
        };
        let path = directory.join(format!("file {number}"));
        fs::write(&path, data).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(if number % 2 == 0 { 0o640 } else { 0o755 })).unwrap();
    }
}

struct Counted {
    server: Server,
    metrics: String,
}

impl Counted {
    fn new(scratch: &Path) -> (PathBuf, Self) {
        let served = served(scratch);
        let more = ["--no-root-squash", "--metrics", "127.0.0.1:0", "--tcp", "127.0.0.1:0"];
        let server = Server::start(&served, &scratch.join("state"), &more);
        let metrics = server.metrics();
        (served, Self { server, metrics })
    }

    /// The number of NFS calls so far, and the numbers of these procedures or operations.
    fn counts(&self, of: &[&str]) -> (u64, Vec<u64>) {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let sum = |name: &str, label: &str| {
            let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum::<u64>()
        };
        let of = of.iter().map(|name| {
            sum("rpcrdma_calls_total{", &format!("procedure=\"{name}\""))
                + sum("rpcrdma_nfs4_operations_total{", &format!("operation=\"{name}\""))
        });
        (sum("rpcrdma_calls_total{", "program=\"nfs"), of.collect())
    }

    /// The calls that a command made.
    fn of(&self, operations: &[&str], command: &[&str]) -> (u64, Vec<u64>) {
        let (before, each_before) = self.counts(operations);
        run(command);
        let (after, each_after) = self.counts(operations);
        (after - before, each_after.iter().zip(each_before).map(|(after, before)| after - before).collect())
    }

    fn url(&self, version: &str, path: &str) -> String {
        match version {
            "3" => self.server.url(path),
            _ => format!("nfs://{}/{path}?version={version}", self.server.rdma),
        }
    }
}

#[test]
fn a_small_file_costs_one_call_to_get_and_one_to_put() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, counted) = Counted::new(scratch.path());
    let source = scratch.path().join("source");
    fill(&source);
    for version in ["3", "4.0", "4.1", "4.2"] {
        println!("version {version}");
        let to = format!("to {version}");
        fs::create_dir(served.join(&to)).unwrap();
        let url = counted.url(version, &to.replace(' ', "%20"));
        let asked = ["LOOKUP", "COMMIT", "OPEN", "CLOSE", "WRITE", "READ"];
        let (calls, each) = counted.of(&asked, &["put", "-r", source.to_str().unwrap(), &url]);
        println!("put: {calls} calls, {asked:?}: {each:?}");
        assert!(calls > 0, "they are counted");
        assert_eq!(seen(&served.join(&to).join("source")), seen(&source), "{version}");
        let files = FILES as u64;
        let most = match version {
            // CREATE, WRITE, SETATTR, RENAME, and what the command itself costs.
            "3" => 4 * files + 20,
            // OPEN, WRITE, SETATTR, CLOSE, RENAME, and OPEN_CONFIRM of new owners.
            "4.0" => 6 * files + 60,
            _ => files + 20,
        };
        assert!(calls <= most, "put in version {version}: {calls} calls");
        assert_eq!(each[1], 0, "nothing is made durable by a call of its own");
        let got = scratch.path().join(format!("got {version}"));
        let (calls, each) = counted.of(&asked, &["get", "-r", &url, got.to_str().unwrap()]);
        println!("get: {calls} calls, {asked:?}: {each:?}");
        assert_eq!(seen(&got.join("source")), seen(&source), "{version}");
        assert!(calls <= files + 20, "get in version {version}: {calls} calls");
        assert_eq!(each[5], files, "each file is read once");
    }
    assert_eq!(counted.server.stop(), Some(0));
}

/// An obstacle to one file does not stop the others, and a file for which the short cut fails is copied the usual way.
#[test]
fn each_file_fails_by_itself() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, counted) = Counted::new(scratch.path());
    fill(&served.join("source"));
    for version in ["3", "4.2"] {
        let here = scratch.path().join(format!("here {version}"));
        let got = here.join("source");
        fs::create_dir_all(got.join("file 7")).unwrap();
        fs::write(scratch.path().join("elsewhere"), "untouched").unwrap();
        symlink(scratch.path().join("elsewhere"), got.join("file 9")).unwrap();
        fs::write(got.join("file 11"), "old").unwrap();
        fs::hard_link(got.join("file 11"), here.join("too")).unwrap();
        let output = rpcrdma().args(["get", "-r", &counted.url(version, "source"), here.to_str().unwrap()]).output();
        let output = output.unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains("file 7") && told.contains("symbolic link"), "{told}");
        assert!(told.contains("118 files") && told.contains("2 left out"), "{told}");
        assert!(told.contains("file 11: is written in place: it has several names"), "{told}");
        assert_eq!(fs::read(scratch.path().join("elsewhere")).unwrap(), b"untouched");
        assert_eq!(fs::read(here.join("too")).unwrap(), fs::read(served.join("source/file 11")).unwrap());
        let (mut came, mut wanted) = (seen(&got), seen(&served.join("source")));
        for left_out in ["file 7", "file 9"] {
            wanted.remove(Path::new(left_out));
        }
        assert!(came.remove(Path::new("file 11")).is_some() && wanted.remove(Path::new("file 11")).is_some());
        assert_eq!(came, wanted, "and no temporary file is left");
        // In the other direction: a directory has the name of one file, and a file with two names is written in place.
        let to = served.join(format!("to {version}"));
        fs::create_dir_all(to.join("source/file 7")).unwrap();
        fs::write(to.join("source/file 11"), "old").unwrap();
        fs::hard_link(to.join("source/file 11"), to.join("too")).unwrap();
        fs::write(to.join("source/file 12"), "old").unwrap();
        let url = counted.url(version, &format!("to%20{version}"));
        let source = served.join("source");
        let told = fails(1, ["put", "-r", source.to_str().unwrap(), &url]);
        assert!(told.contains("file 7"), "{told}");
        assert_eq!(fs::read(to.join("too")).unwrap(), fs::read(source.join("file 11")).unwrap());
        let (came, mut wanted) = (seen(&to.join("source")), seen(&source));
        wanted.remove(Path::new("file 7"));
        assert_eq!(came, wanted, "{version}");
    }
    assert_eq!(counted.server.stop(), Some(0));
}

/// `--resume` skips small files that are complete, and copies the others.
#[test]
fn what_is_whole_is_passed_over() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, counted) = Counted::new(scratch.path());
    let source = served.join("source");
    fill(&source);
    for version in ["3", "4.2"] {
        let to = scratch.path().join(format!("to {version}"));
        fs::create_dir(&to).unwrap();
        let (to, here) = (to.to_str().unwrap(), to.join("source"));
        let url = counted.url(version, "source");
        run(["get", "-r", &url, to]);
        for number in [0, 1, 5] {
            fs::remove_file(here.join(format!("file {number}"))).unwrap();
        }
        fs::write(here.join("file 6"), "another").unwrap();
        let again = ["get", "-r", "--resume", &url, to];
        let (_, each) = counted.of(&["READ"], &again);
        assert_eq!(each, [4], "{version}");
        assert_eq!(seen(&here), seen(&source));
    }
    assert_eq!(counted.server.stop(), Some(0));
}
